#!/usr/bin/env bash
# Files both ways: HBase 2.6.4's own classes read our HFiles and logs. (Ours reading HBase's is held by golden files in the
# ordinary tests.) The jars are fetched once, through Maven; HALCYON_HBASE_LIB names a directory that has them already.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
LIB="${HALCYON_HBASE_LIB:-$HOME/.cache/halcyon/hbase-lib-2.6.4}"
if [ ! -e "$LIB/.complete" ] && [ -z "${HALCYON_HBASE_LIB:-}" ]; then
  mvn -q -B -ntp -f "$HERE/files/pom.xml" dependency:copy-dependencies -DoutputDirectory="$LIB" < /dev/null
  touch "$LIB/.complete"
fi
export HALCYON_HBASE_LIB="$LIB"
cd "$HERE/../.."
cargo test -p halcyon-hfile --test golden -- --ignored
cargo test -p halcyon-wal --test hbase -- --ignored
