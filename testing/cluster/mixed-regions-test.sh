#!/usr/bin/env bash
# Regions with links and references at a region server of Halcyon in a cluster of HBase 2.6.4: HBase's master clones a snapshot, splits and
# merges; Halcyon's server reads and compacts; HBase's server goes on with the regions.
#   mixed-regions-test.sh     a minute or two, and the start of the cluster
# HALCYON            the binary, default target/release/halcyon below CARGO_TARGET_DIR
# CLUSTER_RUNS       not empty: the cluster of CLUSTER_DIR runs already, and stays
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-mixed}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/hbase.sh"
trap "[ -n \"\${CLUSTER_RUNS:-}\" ] || cluster down" EXIT
trap 'exit 143' TERM INT

write() { # write TABLE FROM TO: rows, and a flush
  seq "$2" "$3" | awk -v t="$1" '{ printf "put '\''%s'\'', '\''r%04d'\'', '\''f:q'\'', '\''%0200d'\''\n", t, $1, $1 }' |
    "$HALCYON" shell --zookeeper "$ZK" > /dev/null
  sh_halcyon "flush '$1'" > /dev/null
}
files() { # files TABLE: names of the store files of its regions
  local listed region
  listed="$("$JAVA" "${JAVA_FLAGS[@]}" -cp "$CLUSTER_DIR/client:$HBASE_LIB/*" org.apache.hadoop.fs.FsShell -ls -R "/hbase/data/default/$1" 2> /dev/null)"
  for region in $(regions "$1"); do
    sed -n "s|^-.*/$region/f/||p" <<< "$listed"
  done
}
links() { files "$1" | grep -c =; }
references() { files "$1" | grep -c '[.]'; }
at() { # at TABLE SERVER: number of its regions that are open there
  "$HALCYON" shell --zookeeper "$ZK" -e "list_regions '$1'" | grep -F "$2" | grep -c OPEN
}
all_at() { [ "$(at "$1" "$2")" = "$3" ] && [ "$(regions "$1" | wc -l)" = "$3" ]; }
is_own() { [ "$(files "$1" | grep -c '[=.]')" = 0 ]; }
compact() { # compact TABLE: until it has neither links nor references
  sh_halcyon "compaction_switch true; major_compact '$1'" > /dev/null
  wait_for 60 is_own "$1"
  sh_halcyon "compaction_switch false" > /dev/null
}

[ -n "${CLUSTER_RUNS:-}" ] || cluster up --parts "zookeeper hdfs hbaseservers" --seconds 1800 > /dev/null
ZK="$(setting_of zookeeper)"
OURS="$(name_of halcyon1)" THEIRS="$(name_of hregionserver1)"
echo "servers: $OURS (Halcyon), $THEIRS (HBase)"
# A region with references is compacted at once otherwise, and there is nothing to see.
sh_halcyon "balance_switch false; compaction_switch false" > /dev/null

sh_halcyon "create 'source', 'f', SPLITS => ['r1000']"
move_all source "$THEIRS"
write source 0 999
write source 500 1999
sh_halcyon "snapshot 'source', 'of-source'; clone_snapshot 'of-source', 'clone'" > /dev/null
[ "$(links clone)" -ge 2 ] || fail "HBase's clone has no links: $(files clone)"
move_all clone "$OURS"
all_at clone "$OURS" 2 || fail "the clone did not open at Halcyon's server"
expect_count clone 2000 "clone with links at Halcyon's server"
sh_halcyon "disable 'source'; drop 'source'; delete_snapshot 'of-source'" > /dev/null
expect_count clone 2000 "the table that it was cloned from is deleted"
move_all clone "$THEIRS"
move_all clone "$OURS"
expect_count clone 2000 "links that lead to the archive"
sh_halcyon "split 'clone', 'r0700'" > /dev/null
wait_for 30 all_at clone "$OURS" 3
[ "$(files clone | grep -c '=.*[.]')" -ge 2 ] || fail "the daughters have no references to links: $(files clone)"
expect_count clone 2000 "references to links at Halcyon's server"
compact clone
expect_count clone 2000 "compacted by Halcyon's server"
move_all clone "$THEIRS"
expect_count clone 2000 "moved to HBase's server"

sh_halcyon "create 'parts', 'f'"
move_all parts "$OURS"
write parts 0 999
sh_halcyon "split 'parts', 'r0500'" > /dev/null
wait_for 30 all_at parts "$OURS" 2
[ "$(references parts)" = 2 ] || fail "a split left no references: $(files parts)"
expect_count parts 1000 "split of a region at Halcyon's server"
compact parts
write parts 1000 1999
# All rows of the second file belong to the second daughter, which HBase gives a link.
sh_halcyon "split 'parts', 'r1000'" > /dev/null
wait_for 30 all_at parts "$OURS" 3
[ "$(links parts)" -ge 1 ] || fail "HBase made no link for a file with all rows in one daughter: $(files parts)"
expect_count parts 2000 "split with a link at Halcyon's server"
compact parts
found=($(regions parts))
sh_halcyon "merge_region '${found[0]}', '${found[1]}'" > /dev/null
wait_for 30 all_at parts "$OURS" 2
[ "$(references parts)" -ge 2 ] || fail "a merge left no references: $(files parts)"
expect_count parts 2000 "merge of regions at Halcyon's server"
move_all parts "$THEIRS"
expect_count parts 2000 "moved to HBase's server with references"
move_all parts "$OURS"
compact parts
expect_count parts 2000 "compacted by Halcyon's server"
move_all parts "$THEIRS"
expect_count parts 2000 "moved back to HBase's server"

sh_halcyon "compaction_switch true" > /dev/null
sh_halcyon "create 'large', {NAME => 'f'}, {MAX_FILESIZE => '200000', MEMSTORE_FLUSHSIZE => '100000',
  CONFIGURATION => {'hbase.table.sanity.checks' => 'false'}}"
move_all large "$OURS"
write large 0 3999
is_split() { [ "$(regions large | wc -l)" -ge 2 ] && [ "$(at large "$OURS")" = "$(regions large | wc -l)" ]; }
wait_for 60 is_split
expect_count large 4000 "split by size at Halcyon's server"
move_all large "$THEIRS"
expect_count large 4000 "moved to HBase's server"
sh_halcyon "disable 'clone'; drop 'clone'; disable 'parts'; drop 'parts'; disable 'large'; drop 'large'; balance_switch true" > /dev/null
echo "mixed-regions-test: passed"
