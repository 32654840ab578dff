#!/usr/bin/env bash
# Encryption at rest: one root directory with encrypted tables, snapshots, bulk loads, file lists and logs under HBase 2.6.4 and Halcyon,
# both ways and after kills; replication out of encrypted logs; the change of keys; a missing key; and what the master refuses, against
# the answers of HBase (encryption/answers.txt).
#   encryption.sh            about two minutes
#   encryption.sh --hbase    only starts HBase and writes the answers anew
# HALCYON         the server's binary, default target/release/halcyon below CARGO_TARGET_DIR
# ENCRYPTION_DIR  data and logs, default a fresh directory that is removed after success
set -euo pipefail
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$HERE/java.sh"
. "$HERE/server.sh"
. "$HERE/hbase.sh"
. "$HERE/scratch.sh"
scratch encryption
mkdir -p "$DIR/classes"
hbase_fetch
javac -nowarn -cp "$HBASE_LIB/*" -d "$DIR/classes" "$HERE/encryption/Encryption.java"

STORE="hbase.crypto.keyprovider.parameters=jceks://$DIR/keys.jceks?password=hush-hush"
KEYS="$STORE hbase.crypto.master.key.name=master hbase.regionserver.wal.encryption=true"
encryption() { # encryption COMMAND ARGUMENT...: with the site file of $DIR/conf
  (cd "$DIR" && timeout 240 "$JAVA" -Xmx500m "${JAVA_FLAGS[@]}" -cp "$DIR/conf:$DIR/classes:$HBASE_LIB/*" Encryption "$@" \
    2>> "$DIR/client.log" < /dev/null) || { tail -n 20 "$DIR/client.log" >&2; return 1; }
}
site() { # site PROPERTY...: for Halcyon and the clients
  local property
  mkdir -p "$DIR/conf"
  {
    echo '<configuration>'
    for property in "$@"; do echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"; done
    echo '</configuration>'
  } > "$DIR/conf/hbase-site.xml"
}
SERVER_OPTIONS="--config $DIR/conf"
encryption stores "$DIR/keys.jceks" master next walkey other
encryption stores "$DIR/others.jceks" somebody

# ---- what the master refuses; HBase remembers its first answer about a cipher, so it is started for each
answers() { # answers START STOP: prints them
  local start="$1" stop="$2" zk case properties
  for case in cipher key provider password disabled; do
    properties="$KEYS"
    case "$case" in
      provider) properties="hbase.crypto.master.key.name=master" ;;
      password) properties="${STORE%hush-hush}wrong hbase.crypto.master.key.name=master" ;;
      disabled) properties="$STORE hbase.crypto.master.key.name=master hbase.crypto.enabled=false" ;;
    esac
    # shellcheck disable=SC2086
    site $KEYS
    "$start" "answers-$case" "$properties"
    encryption refused "$ADDRESS" "$case"
    "$stop"
  done
}
hbase_begin() {
  mkdir -p "$DIR/$1.hbase"
  HBASE_PROPERTIES="$2" hbase_start "$DIR/$1.hbase" "$DIR/$1"
  ADDRESS="$HBASE_ZK"
}
halcyon_begin() {
  # shellcheck disable=SC2086
  site $2
  server_start "$DIR/$1" "$DIR/$1.halcyon.log"
  # shellcheck disable=SC2086
  site $KEYS # the client can always wrap keys
  ADDRESS="$ZK"
}
if [ "${1:-}" = --hbase ]; then
  answers hbase_begin hbase_kill > "$DIR/answers.txt"
  cp "$DIR/answers.txt" "$HERE/encryption/answers.txt"
  exit 0
fi
answers halcyon_begin server_kill_running > "$DIR/answers.txt"
diff "$HERE/encryption/answers.txt" "$DIR/answers.txt" >&2 || { echo "FAILED: refusals are otherwise than HBase's" >&2; exit 1; }
echo "$(wc -l < "$DIR/answers.txt") refusals are HBase's"

# ---- one directory, both ways, each server killed with edits in its encrypted log
same() { # same WHAT BEFORE AFTER
  if ! diff "$DIR/$2.dump" "$DIR/$3.dump" > "$DIR/$3.diff"; then
    echo "FAILED: $1: $(grep -c '^[<>]' "$DIR/$3.diff") lines differ, see $DIR/$3.diff" >&2
    head -n 5 "$DIR/$3.diff" | cut -c 1-200 >&2
    exit 1
  fi
  echo "$1: $(wc -l < "$DIR/$3.dump") cells are the same"
}
no_plain_text() { # no_plain_text DIRECTORY: no file has what is encrypted
  if grep -rql topsecret "$1"; then
    echo "FAILED: in plain text: $(grep -rl topsecret "$1" | head -n 3)" >&2
    exit 1
  fi
}
halcyon_begin ours "$KEYS"
encryption fill "$ZK"
encryption load "$ZK" "$DIR/loaded"
no_plain_text "$DIR/loaded"
encryption unflushed "$ZK" 4
encryption dump "$ZK" "$DIR/ours.dump"
server_kill_running
no_plain_text "$DIR/ours"
cp -r "$DIR/ours" "$DIR/there"
hbase_begin there "$KEYS"
encryption dump "$HBASE_ZK" "$DIR/there.dump"
same "Halcyon's directory, killed, in HBase" ours there
encryption load "$HBASE_ZK" "$DIR/loaded-there"
encryption work "$HBASE_ZK"
encryption dump "$HBASE_ZK" "$DIR/worked.dump"
hbase_kill
cp -r "$DIR/there" "$DIR/back"
halcyon_begin back "$KEYS"
encryption dump "$ZK" "$DIR/back.dump"
same "HBase, killed, in Halcyon" worked back
encryption work "$ZK" 2>> "$DIR/client.log" || true # both daughters are split already
encryption dump "$ZK" "$DIR/back.dump"
server_stop
no_plain_text "$DIR/back"

# ---- replication both ways, out of encrypted logs
halcyon_begin peer-ours "$KEYS"
hbase_begin peer-there "$KEYS"
for server in "$ZK" "$HBASE_ZK"; do encryption copies "$server"; done
encryption peer "$ZK" "$HBASE_ZK"
encryption peer "$HBASE_ZK" "$ZK"
encryption replicate "$ZK" "$HBASE_ZK" 300
encryption replicate "$HBASE_ZK" "$ZK" 300
server_kill_running
hbase_kill
no_plain_text "$DIR/peer-ours"

# ---- new keys: a new master key with the old one beside it, new family keys and a major compaction, then without the old one
halcyon_begin back "$STORE hbase.crypto.master.key.name=next hbase.crypto.master.alternate.key.name=master
  hbase.crypto.wal.key.name=walkey hbase.regionserver.wal.encryption=true"
encryption dump "$ZK" "$DIR/rotating.dump"
same "with a new master key" back rotating
encryption rotate "$ZK" next
server_stop
rm -rf "$DIR/back/archive" # files of before
halcyon_begin back "$STORE hbase.crypto.master.key.name=next hbase.crypto.wal.key.name=walkey hbase.regionserver.wal.encryption=true"
encryption dump "$ZK" "$DIR/rotated.dump"
same "without the old master key" back rotated
server_stop

# ---- a key store without the key: encrypted regions do not open and say why, nothing else is harmed
halcyon_begin back "${STORE%keys.jceks*}others.jceks?password=hush-hush hbase.crypto.master.key.name=next"
encryption tables "$ZK" > "$DIR/tables.txt"
printf 'plain is read\nsecret is not read\n' | diff - "$DIR/tables.txt" >&2 || { echo "FAILED: tables without their key" >&2; exit 1; }
grep -q "No key found for subject 'next'" "$DIR/back.halcyon.log" || { echo "FAILED: the log does not say which key is missing" >&2; exit 1; }
server_kill_running
halcyon_begin back "$STORE hbase.crypto.master.key.name=next hbase.crypto.wal.key.name=walkey"
encryption dump "$ZK" "$DIR/found.dump"
same "with the key again" back found
server_stop
if grep -rl hush-hush "$DIR"/*.log; then
  echo "FAILED: a password is in a log" >&2
  exit 1
fi
echo "encryption: all the same"
