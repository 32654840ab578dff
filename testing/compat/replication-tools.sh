#!/usr/bin/env bash
# What HBase's own tools do with replication between a real HBase 2.6.4 and Halcyon (replication/Tools.java): bulk loads in both
# directions, also of files that a compaction has archived meanwhile; VerifyReplication; serial peers.
# HALCYON          the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# REPLICATION_DIR  data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
LIB="${BACKUP_LIB:-$HOME/.cache/halcyon/hbase-backup-lib-2.6.4}" # has what jobs in one process need
[ -n "${BACKUP_LIB:-}" ] || maven_jars "$HERE/backup/pom.xml" "$LIB"
HALCYON_HBASE_LIB="$LIB"
. "$HERE/hbase.sh"
DIR="${REPLICATION_DIR:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-replication.XXXXXX")}"
finish() {
  local code=$?
  server_kill
  hbase_kill
  if [ $code -eq 0 ] && [ -z "${REPLICATION_DIR:-}" ]; then rm -rf "$DIR"; else echo "data and logs are in $DIR" >&2; fi
}
trap finish EXIT
mkdir -p "$DIR/classes" "$DIR/server" "$DIR/sources/halcyon" "$DIR/sources/hbase"
"${JAVA}c" -nowarn -cp "$LIB/*" -d "$DIR/classes" "$HERE/replication/Tools.java" 2> "$DIR/javac.log"

tools() { # tools COMMAND ARGUMENT...
  timeout 300 "$JAVA" -Xmx400m "${JAVA_FLAGS[@]}" ${TOOLS_OPTIONS:-} -cp "$DIR/classes:$LIB/*" Tools "$@" 2> "$DIR/tools.log" < /dev/null ||
    { echo "tools $1 failed:" >&2; grep -v '^\(log4j\|SLF4J\|ERROR StatusLogger\)' "$DIR/tools.log" | tail -n 20 >&2; return 1; }
}

site() { # site FILE PROPERTY=VALUE...
  local file="$1" property
  shift
  {
    echo '<configuration>'
    for property in "$@"; do echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"; done
    echo '</configuration>'
  } > "$file"
}

archived() { # how many files the archive of Halcyon has
  find "$DIR/data/archive" -name '*_SeqId_*' -not -path '*/h/*' 2> /dev/null | wc -l
}

until_archived() { # until_archived TEST SECONDS: until the number passes `[ NUMBER TEST ]`
  local tries=$(($2 * 5))
  # shellcheck disable=SC2086
  until [ "$(archived)" $1 ]; do
    [ $((tries--)) -gt 0 ] || { echo "the archive has $(archived) files of bulk loads, expected $1" >&2; return 1; }
    sleep 0.2
  done
}

# Each finds the file system of the other one in a directory of its own. Archived files go after a second unless a peer needs them.
for cluster in halcyon hbase; do site "$DIR/sources/$cluster/core-site.xml" fs.defaultFS=file:///; done
BOTH="hbase.replication.bulkload.enabled=true hbase.replication.conf.dir=$DIR/sources"
# shellcheck disable=SC2086
site "$DIR/server/hbase-site.xml" $BOTH hbase.replication.cluster.id=halcyon hbase.master.cleaner.interval=500 \
  hbase.master.hfilecleaner.ttl=1000
HBASE_PROPERTIES="$BOTH hbase.replication.cluster.id=hbase replication.source.sleepforretries=200 ${HBASE_PROPERTIES:-}"
SERVER_PORTS="$(free_port) $(free_port) $(free_port)"
SERVER_OPTIONS="--config $DIR/server"
server_start "$DIR/data" "$DIR/server-0.log"
hbase_start "$DIR/hbase" "$DIR/hbase-root"
tools create "$ZK" row0300 row0600
tools create "$HBASE_ZK" row0450

# From HBase: the regions here have other borders, so the files are cut.
tools peer "$HBASE_ZK" halcyon "$ZK:/hbase"
tools load "$HBASE_ZK" "file://$DIR/hbase-root" "$DIR/files" 0 900 first
tools same "$HBASE_ZK" "$ZK" 900 60

# Both ways. What was loaded does not come back: the files would become more.
tools peer "$ZK" hbase "$HBASE_ZK:/hbase" serial
tools load "$ZK" "file://$DIR/data" "$DIR/files" 100 1200 second
tools same "$ZK" "$HBASE_ZK" 1200 60
tools load "$HBASE_ZK" "file://$DIR/hbase-root" "$DIR/files" 1100 1500 third
tools same "$HBASE_ZK" "$ZK" 1500 60
before="$(tools files "$ZK") $(tools files "$HBASE_ZK")"
sleep 6
after="$(tools files "$ZK") $(tools files "$HBASE_ZK")"
[ "$before" = "$after" ] || { echo "store files were $before and are $after" >&2; exit 1; }

# A peer that is disabled keeps files in the archive, over a kill.
tools disable "$ZK" hbase
tools load "$ZK" "file://$DIR/data" "$DIR/files" 1400 2000 fourth
tools compact "$ZK"
until_archived "-gt 0" 20
sleep 3
server_kill_running
server_start "$DIR/data" "$DIR/server-1.log"
sleep 3
until_archived "-gt 0" 1
tools enable "$ZK" hbase
tools same "$ZK" "$HBASE_ZK" 2000 60
until_archived "-eq 0" 30
echo "bulk loads: both ways, none comes back, archived files stay until the peer has them"

tools verified "$HBASE_ZK" 0
tools verified "$ZK" 300
export TOOLS_OPTIONS="-Droot=file://$DIR/data"
for _ in $(seq 1 60); do
  tools verify "$ZK" hbase "$DIR" 300 0 0 0 0 > "$DIR/verify.txt" 2> "$DIR/verify.log" && break
  sleep 1
done
cat "$DIR/verify.txt"
tools disable "$HBASE_ZK" halcyon
tools plant "$HBASE_ZK"
tools verify "$ZK" hbase "$DIR" 297 4 1 1 2
TOOLS_OPTIONS=""
tools verify "$ZK" "$HBASE_ZK:/hbase" "$DIR" 297 4 1 1 2
tools verify "$HBASE_ZK" halcyon "$DIR" 297 4 1 1 2
tools verify "$HBASE_ZK" "$ZK:/hbase" "$DIR" 297 4 1 1 2
tools serial "$ZK" "$HBASE_ZK" "${PUTS:-3000}" 120
echo "HBase's tools: bulk loads, VerifyReplication and serial peers"
