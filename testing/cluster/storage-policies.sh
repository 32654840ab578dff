#!/usr/bin/env bash
# Asks the NameNode which storage policies it has for the directories of WALs, regions and families, and where blocks are. Servers
# of three kinds have set them: a region server of HBase and one of Halcyon in the same cluster, and halcyon standalone.
#   storage-policies.sh [standalone|member]    default both; about two minutes
# HALCYON    the binary, default target/release/halcyon below CARGO_TARGET_DIR
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-storage-policies}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
WHAT="${1:-standalone member}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/../compat/server.sh"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/hbase.sh"
. "$HERE/mixed.sh"
LOCAL="$(mktemp -d)"
trap 'server_kill; cluster down; rm -rf "$LOCAL"' EXIT
trap 'exit 143' TERM INT
PROPERTIES=(hbase.wal.storage.policy=ALL_SSD hbase.hregion.block.storage.policy=WARM hbase.hstore.block.storage.policy=one_ssd)

hdfs_tool() { # hdfs_tool CLASS ARGUMENT...
  "$JAVA" -Xmx64m "${JAVA_FLAGS[@]}" -cp "$CLUSTER_DIR/client:$HBASE_LIB/*" "org.apache.hadoop.hdfs.tools.$@" 2> /dev/null
}
list() { # list PATH: all names below
  "$JAVA" -Xmx64m "${JAVA_FLAGS[@]}" -cp "$CLUSTER_DIR/client:$HBASE_LIB/*" org.apache.hadoop.fs.FsShell -ls -R "$1" 2> /dev/null |
    awk '$NF ~ /^\// { print $NF }'
}
expect_policy() { # expect_policy PATH POLICY
  local said
  said="$(hdfs_tool StoragePolicyAdmin -getStoragePolicy -path "$1")" || true
  grep -q "BlockStoragePolicy{$2:" <<< "$said" || fail "$1 is to have the policy $2; the NameNode says: $said"
  echo "$2 $1"
}
expect_policy_unset() { # expect_policy_unset PATH
  hdfs_tool StoragePolicyAdmin -getStoragePolicy -path "$1" | grep -q 'is unspecified' || fail "$1 still has a policy"
}
expect_kinds() { # expect_kinds FILE KINDS: of the disks that its blocks are on, sorted
  local found
  found="$(hdfs_tool DFSck "-Ddfs.namenode.http-address=$(setting_of namenode_http)" "$1" -openforwrite -files -blocks -locations |
    { grep -o ',\(SSD\|DISK\)\]' || true; } | tr -d ',]' | sort | uniq | paste -sd' ')"
  [ "$found" = "$2" ] || fail "the blocks of $1 are on '$found', not on '$2'"
  echo "blocks on $found $1"
}
# A table with a family that has its own policy, one that has the server's and one that wants none.
create() {
  sh_halcyon "create 't', {NAME => 'a', STORAGE_POLICY => 'ALL_SSD'}, 'b', {NAME => 'c', STORAGE_POLICY => 'NONE'}" > /dev/null
}
write() { # two files of each family, unless they are compacted
  local round
  for round in 1 2; do
    sh_halcyon "put 't', 'r$round', 'a:q', 'v'; put 't', 'r$round', 'b:q', 'v'; put 't', 'r$round', 'c:q', 'v'; flush 't'" > /dev/null
  done
}
check_table() { # check_table ROOT
  local names region file
  names="$(list "$1/data/default/t")"
  region="$(grep -o '.*/[0-9a-f]\{32\}$' <<< "$names" | head -n 1)"
  expect_policy "$region" WARM
  expect_policy "$region/a" ALL_SSD
  expect_policy "$region/b" ONE_SSD
  expect_policy "$region/c" WARM
  for file in $(grep "^$region/a/[0-9a-f]\{32\}$" <<< "$names"); do expect_kinds "$file" SSD; done
  for file in $(grep "^$region/b/[0-9a-f]\{32\}$" <<< "$names"); do expect_kinds "$file" "DISK SSD"; done
  for file in $(grep "^$region/c/[0-9a-f]\{32\}$" <<< "$names"); do expect_kinds "$file" DISK; done
  [ "$(grep -c "^$region/[abc]/[0-9a-f]\{32\}$" <<< "$names")" -ge 3 ] || fail "there is not a file of each family: $names"
}
check_wals() { # check_wals ROOT SERVER
  local file
  expect_policy "$1/WALs/$2" ALL_SSD
  file="$(list "$1/WALs/$2" | grep "/${2%%,*}" | grep -v '\.meta$' | head -n 1)"
  expect_kinds "$file" SSD
}

cluster up --parts "$([[ "$WHAT" != *member* ]] && echo hdfs || echo "zookeeper hdfs hbaseservers")" --ssd --seconds 900 \
  $(printf -- '--property %s ' "${PROPERTIES[@]}") > /dev/null
CLUSTER_HDFS="$(setting_of hdfs)"
HBASE_LIB="${HALCYON_HBASE_LIB:-$HOME/.cache/halcyon/hbase-lib-2.6.4}"
if [[ "$WHAT" == *member* ]]; then
  ZK="$(setting_of zookeeper)"
  create
  for server in hregionserver1 halcyon1; do
    echo "== $server"
    # What this server sets, not what another one has set.
    move_all t "$(name_of "$([ "$server" = halcyon1 ] && echo hregionserver1 || echo halcyon1)")"
    for path in "" /a /b /c; do
      hdfs_tool StoragePolicyAdmin -unsetStoragePolicy -path "/hbase/data/default/t/$(regions t | head -n 1)$path" > /dev/null
    done
    expect_policy_unset "/hbase/data/default/t/$(regions t | head -n 1)/a"
    move_all t "$(name_of "$server")"
    write
    check_table /hbase
    check_wals /hbase "$(name_of "$server")"
  done
fi
if [[ "$WHAT" == *standalone* ]]; then
  echo "== standalone"
  mkdir -p "$LOCAL/conf"
  cp "$CLUSTER_DIR/client/"{core,hdfs}-site.xml "$LOCAL/conf/"
  . "$HERE/processes.sh"
  site_file "$LOCAL/conf/hbase-site.xml" "${PROPERTIES[@]}"
  SERVER_OPTIONS="--root $CLUSTER_HDFS/standalone --config $LOCAL/conf" server_start "$LOCAL/data" "$LOCAL/log"
  create
  write
  check_table /standalone
  check_wals /standalone "$(list /standalone/WALs | head -n 1 | sed 's,.*/,,')"
  server_stop
fi
echo "storage-policies: passed"
