#!/usr/bin/env bash
# HBase's own backup tool (backup/Backups.java) against a server of its own: full and incremental backups, restores, merges, sets, history.
# Its answers are compared with those of HBase 2.6.4 (backup/answers.txt).
#   backup.sh            asks Halcyon
#   backup.sh --hbase    asks a real HBase 2.6.4, and writes the answers
# HALCYON      the program, default target/release/halcyon below CARGO_TARGET_DIR
# BACKUP_LIB   a directory with the jars, default: fetched through Maven
# BACKUP_TABLE the table in which the tool keeps what it knows (hbase.backup.system.table.name), default backup:system
# BACKUP_DIR   data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
LIB="${BACKUP_LIB:-$HOME/.cache/halcyon/hbase-backup-lib-2.6.4}"
[ -n "${BACKUP_LIB:-}" ] || maven_jars "$HERE/backup/pom.xml" "$LIB"
HALCYON_HBASE_LIB="$LIB"
. "$HERE/hbase.sh"
. "$HERE/scratch.sh"
scratch backup
mkdir -p "$DIR/classes" "$DIR/conf" "$DIR/work"
"${JAVA}c" -nowarn -cp "$LIB/*" -d "$DIR/classes" "$HERE/backup/Backups.java"
ROOT="$DIR/root"
# Of the server: HBase adds its classes for backups by itself. WALs and archived files go after seconds, unless a backup needs them.
NAMES="hbase.backup.system.table.name=${BACKUP_TABLE:-backup:system}"
SERVER_SIDE=(hbase.backup.enable=true "$NAMES" hbase.master.logcleaner.ttl=2000 hbase.master.cleaner.interval=1000 hbase.master.hfilecleaner.ttl=2000)

site() { # site FILE PROPERTY=VALUE...
  local file="$1" property
  shift
  {
    echo '<configuration>'
    for property in "$@"; do echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"; done
    echo '</configuration>'
  } > "$file"
}

if [ "${1:-}" = --hbase ]; then
  HBASE_PROPERTIES="${SERVER_SIDE[*]} hbase.master.logcleaner.plugins=org.apache.hadoop.hbase.master.cleaner.TimeToLiveLogCleaner,org.apache.hadoop.hbase.backup.master.BackupLogCleaner hbase.procedure.master.classes=org.apache.hadoop.hbase.backup.master.LogRollMasterProcedureManager hbase.procedure.regionserver.classes=org.apache.hadoop.hbase.backup.regionserver.LogRollRegionServerProcedureManager hbase.coprocessor.region.classes=org.apache.hadoop.hbase.backup.BackupObserver hbase.master.hfilecleaner.plugins=org.apache.hadoop.hbase.master.cleaner.TimeToLiveHFileCleaner,org.apache.hadoop.hbase.backup.BackupHFileCleaner"
  hbase_start "$DIR/hbase" "$ROOT"
  ZK="$HBASE_ZK"
else
  mkdir -p "$DIR/server"
  site "$DIR/server/hbase-site.xml" "${SERVER_SIDE[@]}" hbase.coprocessor.region.classes=org.apache.hadoop.hbase.backup.BackupObserver
  SERVER_OPTIONS="--config $DIR/server" server_start "$ROOT" "$DIR/server.log"
fi
site "$DIR/conf/hbase-site.xml" hbase.backup.enable=true "$NAMES" hbase.backup.attempts.max=2 hbase.backup.attempts.pause.ms=500 "hbase.rootdir=file://$ROOT" "fs.defaultFS=file:///" \
  "hbase.zookeeper.quorum=${ZK%:*}" "hbase.zookeeper.property.clientPort=${ZK##*:}" mapreduce.framework.name=local "hadoop.tmp.dir=$DIR/tmp" \
  "hbase.fs.tmp.dir=file://$DIR/tmp/staging" hbase.client.retries.number=4
cat > "$DIR/classes/log4j.properties" <<LOG
log4j.rootLogger=INFO,F
log4j.appender.F=org.apache.log4j.FileAppender
log4j.appender.F.File=$DIR/client.log
log4j.appender.F.layout=org.apache.log4j.PatternLayout
log4j.appender.F.layout.ConversionPattern=%d{ISO8601} %-5p [%t] %c{2}: %m%n
LOG
timeout "${BACKUP_SECONDS:-900}" "$JAVA" -Xmx700m "${JAVA_FLAGS[@]}" -cp "$DIR/classes:$LIB/*" Backups "$DIR/conf" "$ROOT" "$DIR/work" \
  > "$DIR/answers.txt" 2> "$DIR/stderr.log" < /dev/null || { tail -n 30 "$DIR/stderr.log" >&2; exit 1; }
if [ "${1:-}" = --hbase ]; then
  cp "$DIR/answers.txt" "$HERE/backup/answers.txt"
  echo "$(grep -c '^[a-zA-Z]' "$DIR/answers.txt") answers of HBase are in backup/answers.txt"
else
  diff "$HERE/backup/answers.txt" "$DIR/answers.txt" || { echo "answers differ from those of HBase" >&2; exit 1; }
  echo "$(grep -c '^[a-zA-Z]' "$DIR/answers.txt") answers are those of HBase"
fi
