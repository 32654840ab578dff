# Sourced by coprocessors.sh: faults of the JVM, then the end of the server.
client Faults "$ZK" "$MARKS_JAR" "$DIR/server.log" || { echo "FAILED: a fault of the JVM of coprocessors" >&2; exit 1; }
jvm_pid() { sed 's/\x1b\[[0-9;]*m//g' "$DIR/server.log" | sed -n 's/.*the JVM of coprocessors is running.* pid=\([0-9]*\).*/\1/p' | tail -n 1; }
jvm_ends() { ! kill -0 "$1" 2> /dev/null; }
JVM="$(jvm_pid)"
kill -0 "$JVM"
kill -STOP "$JVM" # not even a frozen JVM may outlive the server
server_kill_running
process_await $$ 10 jvm_ends "$JVM" || { echo "FAILED: the JVM $JVM outlives a server that was killed" >&2; exit 1; }
echo "the JVM, frozen, has ended with a server that was killed"
server_start "$DIR/data" "$DIR/server2.log"
JVM="$(sed 's/\x1b\[[0-9;]*m//g' "$DIR/server2.log" | sed -n 's/.*the JVM of coprocessors is running.* pid=\([0-9]*\).*/\1/p' | tail -n 1)"
server_stop
process_await $$ 10 jvm_ends "$JVM" || { echo "FAILED: the JVM $JVM outlives a server that was stopped" >&2; exit 1; }
echo "the JVM has ended with a server that was stopped"
