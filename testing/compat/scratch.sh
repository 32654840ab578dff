# Shared by the scripts that compare one Halcyon with one HBase. Source it after server.sh and hbase.sh.
# scratch NAME   sets DIR, for data and logs: NAME_DIR in capitals if that is set, else a fresh directory that is removed after success.
#                Servers that still run are ended when the script ends.
scratch() {
  local variable="${1^^}_DIR"
  SCRATCH_GIVEN="${!variable:-}"
  DIR="${SCRATCH_GIVEN:-$(mktemp -d "${TMPDIR:-/tmp}/halcyon-$1.XXXXXX")}"
  mkdir -p "$DIR"
  DIR="$(cd "$DIR" && pwd)"
  trap scratch_end EXIT
}

scratch_end() {
  local code=$?
  server_kill
  hbase_kill
  if [ $code -eq 0 ] && [ -z "$SCRATCH_GIVEN" ]; then rm -rf "$DIR"; else echo "answers and logs are in $DIR" >&2; fi
}
