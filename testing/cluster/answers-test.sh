#!/usr/bin/env bash
# Clients of testing/compat in clusters of several processes on HDFS, against their answers, which are those of a standalone HBase 2.6.4.
#   answers-test.sh [merge|trackers|trackers-hbase|coprocessors|coprocessors-hbase]...   default all, one after the other
# merge               merges of regions and fixMeta, in a cluster of Halcyon
# trackers            store file trackers, in a cluster of Halcyon
# trackers-hbase      the same at servers of Halcyon under HBase's master
# coprocessors        coprocessors in JVMs, in a cluster of Halcyon
# coprocessors-hbase  the same at servers of Halcyon under HBase's master
# HALCYON  the binary, default target/release/halcyon below CARGO_TARGET_DIR
# SERVERS  region servers, default 3
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-answers-test}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
SERVERS="${SERVERS:-3}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/../compat/java.sh"
. "$HERE/../compat/server.sh"
. "$HERE/../compat/hbase.sh"
. "$HERE/../compat/coprocessor-host.sh"
trap 'cluster down' EXIT
trap 'exit 143' TERM INT
COMPAT="$HERE/../compat"
hbase_fetch

up() { # up MASTERS OPTION...
  local masters="$1"
  shift
  cluster up --parts "zookeeper hdfs hbaseservers" --masters "$masters" --halcyons "$SERVERS" --hregionservers 0 --seconds 1200 "$@" > /dev/null
  mkdir -p "$CLUSTER_DIR/classes"
}
compare() { # compare SOURCE CLASS MODE: the answers of the client in SOURCE with those beside it
  local source="$COMPAT/$1" expected
  expected="$(dirname "$source")/$3.txt"
  javac -nowarn -Xlint:none -d "$CLUSTER_DIR/classes" -cp "$HBASE_LIB/*" "$source" 2> "$CLUSTER_DIR/javac.log" || fail "$(cat "$CLUSTER_DIR/javac.log")"
  timeout 900 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -cp "$CLUSTER_DIR/classes:$HBASE_LIB/*" "$2" "$3" "$(setting_of zookeeper)" \
    "$(setting_of hdfs)/hbase" > "$CLUSTER_DIR/$3.txt" 2> "$CLUSTER_DIR/client.log" < /dev/null || fail "$2 failed: $(tail -n 5 "$CLUSTER_DIR/client.log")"
  diff "$expected" "$CLUSTER_DIR/$3.txt" >&2 || fail "$2 gets other answers in a cluster ($3)"
  echo "answers-test: $part: $(wc -l < "$expected") answers of $2 ($3) are as expected with $SERVERS servers"
}
coprocessors() { # coprocessors MASTERS: with JVMs at all servers, and HBase's master, if there is one, with the same classes
  local classes="$CLUSTER_DIR.classes"
  rm -rf "$classes"
  mkdir -p "$classes"
  coprocessor_host "$classes"
  coprocessor_tests "$classes"
  HALCYON_HBASE_LIB="${COPROCESSORS_SERVERS%/\*}" up "$1" --property "halcyon.coprocessor.host.classpath=$COPROCESSOR_HOST_JAR:$COPROCESSORS_SERVERS" \
    --property halcyon.coprocessor.call.timeout=8000 --property halcyon.coprocessor.hang.timeout=4000
  (cd "$CLUSTER_DIR" && timeout 600 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" -cp "$COPROCESSORS_CLIENT" Coprocessors "$(setting_of zookeeper)" "$MARKS_JAR" \
    "$CLUSTER_DIR" > "$CLUSTER_DIR/answers.txt" 2> "$CLUSTER_DIR/client.log" < /dev/null) || fail "Coprocessors failed: $(tail -n 5 "$CLUSTER_DIR/client.log")"
  # Each server names its own region, and which one answers first is not certain.
  any_region() { sed '/^a batch of calls |/s/in region rows,[^,]*,ID/in region rows,ANY,ID/' "$1"; }
  diff <(any_region "$COMPAT/coprocessors/answers.txt") <(any_region "$CLUSTER_DIR/answers.txt") >&2 || fail "coprocessors are seen otherwise in a cluster"
  echo "answers-test: $part: $(wc -l < "$COMPAT/coprocessors/answers.txt") answers with coprocessors are HBase's with $SERVERS servers"
  rm -rf "$classes"
}

for parts in "${@:-merge trackers trackers-hbase coprocessors coprocessors-hbase}"; do
  for part in $parts; do
    case "$part" in
      merge)
        up 2 --property hbase.master.metafixer.max.merge.count=3
        compare merge/Merges.java org.apache.hadoop.hbase.client.Merges answers
        compare merge/Merges.java org.apache.hadoop.hbase.client.Merges own
        ;;
      trackers)
        up 2
        compare file-tracker/Trackers.java Trackers answers
        cluster down
        up 2
        compare file-tracker/Trackers.java Trackers own
        ;;
      trackers-hbase)
        up 0
        compare file-tracker/Trackers.java Trackers answers
        ;;
      coprocessors) coprocessors 2 ;;
      coprocessors-hbase) coprocessors 0 ;;
      *) echo "unknown part: $part" >&2; exit 64 ;;
    esac
    cluster down
  done
done
