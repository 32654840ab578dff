#!/usr/bin/env bash
# The real clients against a server of our own, on free ports and with a directory that goes away afterwards.
# HALCYON          the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# KILL9_ROUNDS     default 2
# NONCE_KILLS      default 20
# INGEST_KILLS     default 2
# HALCYON_TEST_ROOT  a directory in HDFS: the servers' root directories are there, and what reads their files is left out
# CONFORMANCE      which of HBase's own tests, arguments of testing/conformance/run.sh; default --quick
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no server at $HALCYON: make build" >&2; exit 66; }
export HALCYON
. "$HERE/server.sh"

DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-compat.XXXXXX")"
finish() {
  local code=$?
  server_kill
  [ -z "$OWN_SERVERS" ] || kill -- "-$OWN_SERVERS" 2> /dev/null || true
  if [ $code -eq 0 ]; then rm -rf "$DIR"; else echo "logs and data stay in $DIR" >&2; fi
}
OWN_SERVERS=""
trap finish EXIT

LOCAL_ROOT="$DIR/data"
[ -z "${HALCYON_TEST_ROOT:-}" ] || LOCAL_ROOT=""

# What starts servers of its own. Clients wait much, so it runs at the same time as the clients of one server.
own_servers() {
  local failed=0
  if [ -n "$LOCAL_ROOT" ]; then
    timeout 300 mvn -B -ntp -f "$HERE/../../packaging/junit/pom.xml" test < /dev/null || { echo "FAILED: the JUnit extension" >&2; failed=1; }

    "$HERE/files.sh" || { echo "FAILED: HBase reading our files" >&2; failed=1; }

    local golden="$HERE/../../storage"
    "$HERE/inspect.sh" "$golden/hfile/testdata/row.hfile" "$golden/hfile/testdata/diff-tags.hfile" "$golden/wal/testdata/dictionary.wal" \
      || { echo "FAILED: halcyon inspect against HBase's tools" >&2; failed=1; }

    "$HERE/bulkload.sh" < /dev/null || { echo "FAILED: bulk loads by HBase's tool" >&2; failed=1; }

    ROOT_DIR="$DIR/root" "$HERE/root.sh" < /dev/null || { echo "FAILED: root directories under HBase" >&2; failed=1; }
  else
    left_out "what reads files of this machine: the JUnit extension, files.sh, inspect.sh, bulkload.sh, root.sh"
  fi

  "$HERE/sync.sh" || { echo "FAILED: puts that are acknowledged before they are synced" >&2; failed=1; }

  ENDPOINTS_DIR="$DIR/endpoints" "$HERE/endpoints.sh" < /dev/null || { echo "FAILED: endpoints" >&2; failed=1; }

  QUOTAS_DIR="$DIR/quotas" "$HERE/quotas.sh" < /dev/null || { echo "FAILED: quotas" >&2; failed=1; }

  SHADOW_DIR="$DIR/shadow" "$HERE/shadow.sh" --short < /dev/null || { echo "FAILED: halcyon shadow" >&2; failed=1; }

  SLOW_LOG_DIR="$DIR/slow-log" "$HERE/slow-log.sh" < /dev/null || { echo "FAILED: slow calls read by HBase's client" >&2; failed=1; }

  TRACES_DIR="$DIR/traces" "$HERE/traces.sh" < /dev/null || { echo "FAILED: traces of HBase's client" >&2; failed=1; }

  "$HERE/stop-master.sh" < /dev/null || { echo "FAILED: a server whose master was stopped" >&2; failed=1; }

  KILL9_DIR="$DIR/kill9" SECONDS_A_ROUND="${SECONDS_A_ROUND:-3}" "$HERE/kill9.sh" "${KILL9_ROUNDS:-2}" < /dev/null \
    || { echo "FAILED: kill -9" >&2; failed=1; }
  NONCE_KILLS_DIR="$DIR/nonces" "$HERE/nonce-kills.sh" "${NONCE_KILLS:-20}" < /dev/null \
    || { echo "FAILED: increments and appends through kill -9" >&2; failed=1; }
  "$HERE/../bench/ingest-kills.sh" "${INGEST_KILLS:-2}" || { echo "FAILED: an ingest through kill -9" >&2; failed=1; }
  CLUSTER_DIR="$DIR/one-kill" timeout 400 "$HERE/../cluster/one-kill.sh" < /dev/null \
    || { echo "FAILED: a cluster of which a region server was killed" >&2; failed=1; }
  return $failed
}
set -m # a process group, which can be ended as a whole
own_servers > "$DIR/own-servers.log" 2>&1 < /dev/null &
OWN_SERVERS=$!
set +m

server_start "$DIR/data" "$DIR/server.log"
echo "server up: zookeeper $ZK master $MASTER regionserver $REGIONSERVER"
failed=0
timeout 900 mvn -B -ntp -fae -f "$HERE/pom.xml" test \
  -Dcompat.zk="$ZK" -Dcompat.registry="$MASTER" -Dcompat.root="$LOCAL_ROOT" -Dcompat.halcyon=true < /dev/null || failed=1
[ $failed -eq 0 ] || echo "FAILED: the clients of testing/compat" >&2

# shellcheck disable=SC2086
RUN_DIR="$DIR/conformance" timeout 900 "$HERE/../conformance/run.sh" "$ZK" --masters "$MASTER" ${CONFORMANCE:---quick} < /dev/null \
  || { echo "FAILED: HBase's own tests" >&2; failed=1; }
kill -0 "$SERVER_PID" 2>/dev/null || { echo "FAILED: the server did not survive the tests" >&2; tail -n 30 "$DIR/server.log" >&2; failed=1; }
server_stop || failed=1

wait "$OWN_SERVERS" || failed=1
OWN_SERVERS=""
cat "$DIR/own-servers.log"
exit $failed
