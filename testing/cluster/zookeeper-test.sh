#!/usr/bin/env bash
# The crate halcyon-zookeeper against a real ZooKeeper: sessions, leases, elections of a master, servers that die, freeze and are cut off. Then the same
# with an ensemble of three ZooKeeper servers, which fail. Then its znodes beside those of a real HBase 2.6.4. Takes some minutes.
# As root and with nft (nftables), a member of the ensemble is also cut off from the others, in a network namespace of its own.
#   zookeeper-test.sh                  all of it
#   zookeeper-test.sh ARGUMENT...      the part with one ZooKeeper; the arguments go to the test program, such as the name of one test
#   zookeeper-test.sh --ensemble [ARGUMENT...]     the part with three
#   zookeeper-test.sh --hbase          the part with HBase
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cd "$HERE/../.."
. "$HERE/../compat/server.sh"
# tests that have to run, when none is chosen by an argument
with_least() { local least="$1"; shift; if [ $# -eq 0 ]; then LEAST="$least"; else LEAST=1; fi; }

with_zookeeper() {
  . "$HERE/../compat/java.sh"
  . "$HERE/../compat/hbase.sh"
  hbase_fetch
  with_least 30 "$@"
  HBASE_CLASS_PATH="$HBASE_LIB/*" "$HERE/cluster.sh" run --parts zookeeper --seconds 900 "$HERE/../compat/cargo-tests.sh" "$LEAST" \
    --quiet --package halcyon-zookeeper --test zookeeper --test procedures --test election --test takeover -- \
    --ignored --test-threads 1 --nocapture "$@"
}

with_ensemble() {
  local inside=()
  if [ "$(id -u)" = 0 ] && command -v nft > /dev/null; then
    . "$HERE/../compat/java.sh"
    . "$HERE/../compat/hbase.sh"
    hbase_fetch # in the namespace there is no network
    inside=(unshare --net --)
  else
    left_out "members of an ensemble are not cut off, that needs root and nft"
  fi
  "${inside[@]}" "$HERE/zookeeper-test.sh" --ensemble-inside "${#inside[@]}" "$@"
}

ensemble_inside() { # ensemble_inside 0|NUMBER [ARGUMENT...]: not 0: in a network namespace of its own
  local cuts="$1"
  shift
  [ "$cuts" = 0 ] || ensemble_cuts
  with_least 9 "$@"
  "$HERE/cluster.sh" run --parts zookeeper --zookeepers 3 --seconds 1800 "$HERE/../compat/cargo-tests.sh" "$LEAST" --quiet --offline --package halcyon-zookeeper \
    --test ensemble -- --ignored --test-threads 1 --nocapture "$@"
}

ensemble_cuts() { # connections that a member opens have its number as their mark; the tests add rules to the chain cuts
  ip link set lo up
  export HALCYON_ZOOKEEPER_CUTS=yes CLUSTER_GROUPS="zookeeper=64111 zookeeper2=64112 zookeeper3=64113"
  nft -f - << 'NFT'
table inet zookeeper {
  chain marks {
    type filter hook output priority -150;
    ct state new meta skgid 64111 ct mark set 1
    ct state new meta skgid 64112 ct mark set 2
    ct state new meta skgid 64113 ct mark set 3
  }
  chain cuts {
    type filter hook input priority 0;
  }
}
NFT
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
  HBASE_ZOOKEEPER="$HBASE_ZK" HBASE_LOG="$dir/hbase.log" "$HERE/../compat/cargo-tests.sh" 1 --quiet --package halcyon-zookeeper --test hbase -- \
    --ignored --nocapture
  hbase_kill
  rm -rf "$dir"
}

if [ "${1:-}" = --ensemble-inside ]; then
  shift
  ensemble_inside "$@"
  exit
fi
cargo test --package halcyon-zookeeper --tests --no-run
case "${1:-}" in
  --hbase) with_hbase ;;
  --ensemble) shift; with_ensemble "$@" ;;
  "") with_zookeeper; with_ensemble; with_hbase ;;
  *) with_zookeeper "$@" ;;
esac
