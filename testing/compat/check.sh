#!/usr/bin/env bash
# `halcyon check` finds and repairs what a test (programs/halcyon/tests/check_cluster.rs) breaks in a real HBase 2.6.4 in a process of its own.
#   check.sh           about two minutes, when everything is built
# HALCYON_HBASE_LIB  HBase's jars, as for files.sh
# ROOT_DIR           where data and logs go, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
KEEP="${ROOT_DIR:-}"
DIR="${ROOT_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-check.XXXXXX")}"
mkdir -p "$DIR"
DIR="$(cd "$DIR" && pwd)"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
trap 'hbase_kill' EXIT
hbase_fetch
cd "$HERE/../.."
cargo test --no-run -q -p halcyon --test all
hbase_start "$DIR" "$DIR/root"
HALCYON_TEST_ZOOKEEPER="$HBASE_ZK" "$HERE/cargo-tests.sh" 1 -q -p halcyon --test all check_cluster:: -- --ignored --nocapture
hbase_kill
[ -n "$KEEP" ] || rm -rf "$DIR"
echo "halcyon check works with HBase 2.6.4"
