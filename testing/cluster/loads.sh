# Loads whose rows refer to each other, for scripts that disturb a cluster: a row that is referred to and not there is lost. Source it after
# mixed.sh, java.sh and processes.sh, with CLUSTER_DIR set; ZK is the setting `zookeeper` of the cluster when a load begins.

# HBase's IntegrationTestBigLinkedList: iterations that write lists, and then read all lists of all iterations in a MapReduce job.
LINKED_LIST="" LINKED_LIST_JARS="${HALCYON_HBASE_IT_LIB:-$HOME/.cache/halcyon/hbase-it-lib}"
linked_list_fetch() { [ -n "${HALCYON_HBASE_IT_LIB:-}" ] || maven_jars "$HERE/linked-list/pom.xml" "$LINKED_LIST_JARS"; }
linked_list_start() { # linked_list_start ITERATIONS NODES [OPTION...]: NODES, a multiple of 25000, are written in each iteration
  local iterations="$1" nodes="$2"
  shift 2
  mkdir -p "$CLUSTER_DIR/test"
  cp "$CLUSTER_DIR/client/"*.xml "$CLUSTER_DIR/test/"
  log_file "$CLUSTER_DIR/test"
  # The job's own files are on this machine, in this directory.
  (cd "$CLUSTER_DIR/test" && exec "$JAVA" -Xmx700m "${JAVA_FLAGS[@]}" -cp "$CLUSTER_DIR/test:$LINKED_LIST_JARS/*" \
    org.apache.hadoop.hbase.test.IntegrationTestBigLinkedList \
    -D mapreduce.framework.name=local -D "hadoop.tmp.dir=$CLUSTER_DIR/test/tmp" -D fs.defaultFS=file:/// "$@" \
    Loop "$iterations" 1 "$nodes" "$CLUSTER_DIR/test/lists" 1 1000 25) > "$CLUSTER_DIR/test.log" 2>&1 < /dev/null &
  LINKED_LIST=$!
}
linked_list_works() { kill -0 "$LINKED_LIST" 2> /dev/null; }
linked_list_verified() { grep -c 'Verify finished with success' "$CLUSTER_DIR/test.log" || true; } # iterations
linked_list_counts() { # of the newest verification
  grep -E '(UNREFERENCED|REFERENCED|UNDEFINED|CORRUPT|EXTRAREFERENCES|LOST_FAMILIES)=' "$CLUSTER_DIR/test.log" | tail -n 8 || true
}
linked_list_end() { # it has ended, or ends now
  local result=0
  wait "$LINKED_LIST" || result=$?
  LINKED_LIST=""
  linked_list_counts
  [ "$result" = 0 ] || { tail -n 20 "$CLUSTER_DIR/test.log" >&2; fail "BigLinkedList failed with $result; logs are in $CLUSTER_DIR"; }
}
linked_list_kill() { [ -z "$LINKED_LIST" ] || kill "$LINKED_LIST" 2> /dev/null || true; }

# `halcyon bench ingest`: continuous ingest in the manner of Accumulo's, and its verifier.
INGEST=""
ingest_start() { # ingest_start RATE: nodes each second
  "$HALCYON" bench ingest write --zookeeper "$ZK" --nodes 1000000000000 --rate "$1" --clients 2 --batch 50 --layer 2000 --operation-timeout 600 \
    --call-timeout 10 --progress-period 1 > "$CLUSTER_DIR/ingest.out" 2> "$CLUSTER_DIR/ingest.log" < /dev/null &
  INGEST=$!
}
ingest_works() { kill -0 "$INGEST" 2> /dev/null; }
ingest_nodes() { sed -n 's/^ingest write: [0-9]* s, \([0-9]*\)[ ,].*/\1/p' "$CLUSTER_DIR/ingest.log" | tail -n 1 | grep . || echo 0; } # acknowledged
ingest_verdict() { # ends it, and looks for every node whose write was acknowledged
  local acknowledged there
  kill -INT "$INGEST"
  ! wait "$INGEST" || fail "the ingest ended before it was told to"
  INGEST=""
  acknowledged="$(sed -n 's/^ingest write (partial): \([0-9]*\) operations.*/\1/p' "$CLUSTER_DIR/ingest.out")"
  [ -n "$acknowledged" ] && ! grep -q '^  failed' "$CLUSTER_DIR/ingest.out" || fail "the ingest failed: $(tail -n 5 "$CLUSTER_DIR/ingest.log")"
  "$HALCYON" bench ingest verify --zookeeper "$ZK" > "$CLUSTER_DIR/verify.out" 2> "$CLUSTER_DIR/verify.log" ||
    fail "the verifier failed: $(cat "$CLUSTER_DIR/verify.out" "$CLUSTER_DIR/verify.log")"
  count_of() { sed -n "s/^$1 \([0-9]*\)$/\1/p" "$CLUSTER_DIR/verify.out"; }
  there=$(($(count_of REFERENCED) + $(count_of UNREFERENCED)))
  [ "$(count_of UNDEFINED)" = 0 ] && [ "$(count_of CORRUPT)" = 0 ] && [ "$(count_of REFERENCED)" -gt 0 ] && [ "$there" -ge "$acknowledged" ] && [ "$acknowledged" -ge 500 ] ||
    fail "$acknowledged nodes were acknowledged, and there are: $(cat "$CLUSTER_DIR/verify.out")"
  echo "ingest: $acknowledged nodes acknowledged, $there there, none undefined"
}
ingest_kill() { [ -z "$INGEST" ] || kill "$INGEST" 2> /dev/null || true; }
