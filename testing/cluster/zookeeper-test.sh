#!/usr/bin/env bash
# The crate halcyon-zookeeper against a real ZooKeeper: sessions, leases, servers that die, freeze and are cut off. Then its znodes
# beside those of a real HBase 2.6.4. Takes some minutes.
#   zookeeper-test.sh                  all of it
#   zookeeper-test.sh ARGUMENT...      the part without HBase; the arguments go to the test program, such as the name of one test
#   zookeeper-test.sh --hbase          the part with HBase
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$HERE/../.."

with_zookeeper() {
  "$HERE/cluster.sh" run --parts zookeeper --seconds 900 cargo test --quiet --package halcyon-zookeeper --test zookeeper --test procedures -- \
    --ignored --test-threads 1 --nocapture "$@"
}

with_hbase() {
  . "$HERE/../compat/java.sh"
  . "$HERE/../compat/server.sh"
  . "$HERE/../compat/hbase.sh"
  local dir
  dir="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-zookeeper-test.XXXXXX")"
  trap 'hbase_kill' EXIT
  hbase_fetch
  hbase_start "$dir" "$dir/root"
  HBASE_ZOOKEEPER="$HBASE_ZK" HBASE_LOG="$dir/hbase.log" cargo test --quiet --package halcyon-zookeeper --test hbase -- \
    --ignored --nocapture
  hbase_kill
  rm -rf "$dir"
}

cargo test --package halcyon-zookeeper --tests --no-run
[ "${1:-}" = --hbase ] || with_zookeeper "$@"
case "${1:-}" in
  "" | --hbase) with_hbase ;;
esac
