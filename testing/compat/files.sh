#!/usr/bin/env bash
# Files both ways, with HBase 2.6.4's own classes: HFiles in every combination of encoding, compression, bloom filter, tags and depth of
# the index (`matrix`), and logs. The ordinary tests have a few of HBase's files and need none of this. The jars are fetched once,
# through Maven; HALCYON_HBASE_LIB names a directory that has them already.
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
LIB="${HALCYON_HBASE_LIB:-$HOME/.cache/halcyon/hbase-lib-2.6.4}"
. "$HERE/java.sh"
[ -n "${HALCYON_HBASE_LIB:-}" ] || maven_jars "$HERE/files/pom.xml" "$LIB"
export HALCYON_HBASE_LIB="$LIB"
cd "$HERE/../.."
"$HERE/cargo-tests.sh" 2 -p halcyon-hfile --test golden -- --ignored
"$HERE/cargo-tests.sh" 2 -p halcyon-hfile --test matrix -- --ignored --nocapture
"$HERE/cargo-tests.sh" 3 -p halcyon-wal --test all hbase:: -- --ignored
