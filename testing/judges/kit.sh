# Shared by the judges of judges. Source it: HERE, COMPAT, HALCYON and DIR, a directory that is removed after success.
# expect 0|not REASON COMMAND...    COMMAND succeeds, or fails, and its output has REASON (a pattern of grep -E). Its output is in $DIR/said
# with_fault FAULT COMMAND...       COMMAND with a FAULT of src/halcyon/judges/Fault.java in the Java client; NONE for none
# work_until PID PATTERN            for a command of `expect`: waits until its output has PATTERN or the process has ended, at most 120 s
# faulty_client                     compiles that client, once, and sets CLIENT26_FIRST
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
TESTING="$(cd "$HERE/.." && pwd)"
HALCYON="${HALCYON:-${CARGO_TARGET_DIR:-$HOME/.cache/halcyon/target}/release/halcyon}"
. "$TESTING/compat/server.sh"
. "$TESTING/compat/java.sh"
DIR="$(mktemp -d "${TMPDIR:-/tmp}/halcyon-judges.XXXXXX")"
JUDGE="$(basename "$0" .sh)"
kit_end() {
  local code=$?
  server_kill
  if [ $code -eq 0 ]; then rm -rf "$DIR"; else echo "logs and data stay in $DIR" >&2; fi
}
trap kit_end EXIT
trap 'exit 130' INT TERM

expect() {
  local wanted="$1" reason="$2" result=0
  shift 2
  "$@" > "$DIR/said" 2>&1 < /dev/null || result=$?
  if [ "$wanted" = 0 ] && [ "$result" -ne 0 ]; then
    echo "$JUDGE: without a fault the judge says no ($result): $*" >&2
  elif [ "$wanted" = not ] && [ "$result" -eq 0 ]; then
    echo "$JUDGE: the judge did not notice what was planted ($reason): $*" >&2
  elif ! grep -qE -e "$reason" "$DIR/said"; then
    echo "$JUDGE: the judge ended with $result, and does not say \"$reason\": $*" >&2
  else
    echo "$JUDGE: $([ "$wanted" = 0 ] && echo "yes" || echo "no"): $(grep -E -m 1 -e "$reason" "$DIR/said" | cut -c 1-160)"
    return 0
  fi
  tail -n 30 "$DIR/said" >&2
  exit 1
}

work_until() {
  process_await "$1" 120 grep -qE -e "$2" "$DIR/said" || true
}

faulty_client() {
  client26_classes
  mkdir -p "$DIR/classes"
  "${JAVA}c" -nowarn -d "$DIR/classes" -cp "$CLIENT26_CLASS_PATH" "$HERE"/src/halcyon/judges/*.java
  export CLIENT26_FIRST="$HERE/conf:$DIR/classes"
}

with_fault() {
  local fault="$1"
  shift
  CLIENT26_OPTIONS="-Dfault=$fault ${CLIENT26_OPTIONS:-}" "$@"
}
