#!/usr/bin/env bash
# The tests of the Rust client (wire/client, programs/halcyon/tests/client.rs) against a real HBase 2.6.4 in a process of its own.
#   rust-client.sh     about a minute, when everything is built
# HALCYON_HBASE_LIB  HBase's jars, as for files.sh
# ROOT_DIR           where data and logs go, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
KEEP="${ROOT_DIR:-}"
DIR="${ROOT_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-rust-client.XXXXXX")}"
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
HALCYON_TEST_ZOOKEEPER="$HBASE_ZK" "$HERE/cargo-tests.sh" 1 -q -p halcyon --test all client:: -- --ignored --nocapture
hbase_kill
[ -n "$KEEP" ] || rm -rf "$DIR"
echo "the Rust client works with HBase 2.6.4"
