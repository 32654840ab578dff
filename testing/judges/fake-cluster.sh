#!/usr/bin/env bash
# Stands for `halcyon shell` and, when it is called curl, for the fsck of a NameNode, in a cluster whose tables have two regions. STATE is a directory:
# places has "region server", files has "region/family name". FAKE=idle: a master that answers with success and does nothing; lazy: it
# flushes and does not compact.
places="$STATE/places" files="$STATE/files"
region() { printf '%032d' "$1"; }
if [ "$(basename "$0")" = curl ]; then
  table="${*: -1}" table="${table#*/hbase/data/default/}" table="${table%%&*}"
  echo "/hbase/data/default/$table <dir>"
  sed "s|^\([^ ]*\) \(.*\)|/hbase/data/default/$table/\1/\2 4123 bytes, replicated: replication=3, 1 block(s):  OK|" "$files"
  exit 0
fi
line="${*: -1}"
case "$line" in
  list_regions*)
    while read -r region server; do
      echo "{\"server_name\":\"$server\",\"region_name\":\"t,5,1.$region.\",\"start_key\":\"5\",\"end_key\":\"\",\"state\":\"OPEN\"}"
    done < "$places" ;;
  move*)
    [ "${FAKE:-}" = idle ] || { region="$(cut -d "'" -f 2 <<< "$line")"; sed -i "s/^$region .*/$region $(cut -d "'" -f 4 <<< "$line")/" "$places"; } ;;
  flush*) [ "${FAKE:-}" = idle ] || echo "$(region 1)/f new$RANDOM" >> "$files" ;;
  major_compact*) [ -n "${FAKE:-}" ] || echo "$(region 1)/f whole$RANDOM" > "$files" ;;
  put*) ;;
  get*) echo " f:clock  timestamp=$(date -u -d "${OFFSET:-0} sec" +%Y-%m-%dT%H:%M:%S.%3N), value=x" ;;
esac
