#!/usr/bin/env bash
# HBase's own backup tool in clusters of several processes, with HDFS below: the client of testing/compat/backup.sh. Its answers are compared
# with those of a standalone HBase 2.6.4 (testing/compat/backup/answers.txt).
#   backup-test.sh [own|hbase]...    the master: Halcyon's or HBase's; default both, one after the other
# There are three region servers of Halcyon under a master of Halcyon, and two under HBase's.
# HALCYON      the binary, default target/release/halcyon below CARGO_TARGET_DIR
# BACKUP_LIB   a directory with HBase's jars and those of its backups, default: fetched through Maven
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export CLUSTER_DIR="${CLUSTER_DIR:-/tmp/halcyon-backup-test}"
export HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
[ -x "$HALCYON" ] || { echo "no program at $HALCYON: build it, or set HALCYON" >&2; exit 66; }
. "$HERE/mixed.sh"
. "$HERE/processes.sh"
. "$HERE/../compat/java.sh"
BACKUP="$HERE/../compat/backup"
LIB="${BACKUP_LIB:-$HOME/.cache/halcyon/hbase-backup-lib-2.6.4}"
[ -n "${BACKUP_LIB:-}" ] || maven_jars "$BACKUP/pom.xml" "$LIB"
export HALCYON_HBASE_LIB="$LIB" # of the servers, too: HBase's master needs the classes
trap 'cluster down' EXIT
trap 'exit 143' TERM INT
CLASSES=org.apache.hadoop.hbase.backup
CLEANER=org.apache.hadoop.hbase.master.cleaner

up() { # up MASTERS HALCYONS
  local properties=() property
  for property in hbase.backup.enable=true hbase.master.logcleaner.ttl=2000 hbase.master.cleaner.interval=1000 hbase.master.hfilecleaner.ttl=2000 \
    "hbase.master.logcleaner.plugins=$CLEANER.TimeToLiveLogCleaner,$CLASSES.master.BackupLogCleaner" \
    "hbase.procedure.master.classes=$CLASSES.master.LogRollMasterProcedureManager" \
    "hbase.master.hfilecleaner.plugins=$CLEANER.TimeToLiveHFileCleaner,$CLEANER.HFileLinkCleaner,$CLASSES.BackupHFileCleaner"; do
    properties+=(--property "$property")
  done
  cluster up --parts "zookeeper hdfs hbaseservers" --masters "$1" --hregionservers 0 --halcyons "$2" --seconds 2400 "${properties[@]}" > /dev/null
}

check() { # check MASTER: all answers are HBase's
  local dir="$CLUSTER_DIR/backup" zookeeper root quorum
  zookeeper="$(setting_of zookeeper)"
  root="$(setting_of hdfs)/hbase"
  quorum="${zookeeper%%/*}"
  mkdir -p "$dir/classes" "$dir/conf" "$dir/work"
  "${JAVA}c" -nowarn -cp "$LIB/*" -d "$dir/classes" "$BACKUP/Backups.java"
  log_file "$dir/classes"
  sed -i "s/ConsoleAppender/FileAppender/; \$ a log4j.appender.console.File=$dir/client.log" "$dir/classes/log4j.properties"
  cp "$(setting_of conf)/hdfs-site.xml" "$dir/classes"
  site_file "$dir/conf/hbase-site.xml" hbase.backup.enable=true hbase.backup.attempts.max=2 hbase.backup.attempts.pause.ms=500 "hbase.rootdir=$root" \
    "fs.defaultFS=$(setting_of hdfs)" "hbase.zookeeper.quorum=$quorum" mapreduce.framework.name=local "hadoop.tmp.dir=$dir/tmp" \
    "hbase.fs.tmp.dir=$(setting_of hdfs)/tmp/staging" hbase.client.retries.number=6
  timeout 1200 "$JAVA" -Xmx700m "${JAVA_FLAGS[@]}" -cp "$dir/classes:$LIB/*" Backups "$dir/conf" "$root" "$dir/work" \
    > "$dir/answers.txt" 2> "$dir/stderr.log" < /dev/null || { tail -n 30 "$dir/stderr.log" >&2; fail "the backup tool failed under a master of kind $1"; }
  diff "$BACKUP/answers.txt" "$dir/answers.txt" >&2 || fail "backups under a master of kind $1 work otherwise than in HBase"
  echo "backup-test: $(grep -c '^[a-zA-Z]' "$dir/answers.txt") answers under a master of kind $1 are HBase's"
}

for kind in "${@:-own hbase}"; do
  for master in $kind; do
    case "$master" in
      own) up 1 3 ;;
      hbase) up 0 2 ;;
      *) echo "a master is own or hbase, not $master" >&2; exit 64 ;;
    esac
    check "$master"
    cluster down
  done
done
