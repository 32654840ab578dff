# Shared by the scripts that run HBase's own HBCK2 1.3.0 (hbase-operator-tools). Source it after java.sh and hbase.sh, with DIR, a directory.
# hbck2_fetch, then the others. CONF is a directory with the configuration of a client; shell runs a command of our shell.
# HALCYON_HBCK2_SOURCE   a checkout of apache/hbase-operator-tools at rel/1.3.0: the tool is not on Maven Central. It is compiled here
: "${HALCYON_HBCK2_SOURCE:?a checkout of apache/hbase-operator-tools}"

hbck2_fetch() { # compiles it into DIR
  hbase_fetch
  maven_jars "$COMPAT/hbck2/pom.xml" "$DIR/lib"
  HBCK2_CLASS_PATH="$DIR/classes:$DIR/lib/*:$HBASE_LIB/*"
  mkdir -p "$DIR/classes"
  find "$HALCYON_HBCK2_SOURCE/hbase-hbck2/src/main/java" -name '*.java' > "$DIR/sources"
  javac -nowarn -d "$DIR/classes" -cp "$HBCK2_CLASS_PATH" @"$DIR/sources" 2> "$DIR/javac.log" || { cat "$DIR/javac.log" >&2; fail "it does not compile"; }
  cp "$HALCYON_HBCK2_SOURCE"/hbase-hbck2/src/main/resources/* "$DIR/classes/"
}
hbck2() { # hbck2 ARGUMENT...: its output goes to $DIR/out
  timeout 120 "$JAVA" -Xmx300m "${JAVA_FLAGS[@]}" -cp "$CONF:$HBCK2_CLASS_PATH" org.apache.hbase.HBCK2 "$@" > "$DIR/out" 2> "$DIR/err"
}
run() { # run ARGUMENT...: as hbck2, which has to succeed
  local code=0
  hbck2 "$@" || code=$?
  [ "$code" = 0 ] || { tail -n 20 "$DIR/out" "$DIR/err" >&2; fail "$* ended with $code"; }
}
says() { # says TEXT: the last output has it
  grep -qF -- "$1" "$DIR/out" || { cat "$DIR/out" >&2; fail "the output lacks: $1"; }
}
state() { # state REGION: as hbase:meta has it
  shell "get 'hbase:meta', '$1', 'info:state'" | sed -n 's/.*value=//p'
}
await_state() { # await_state REGION STATE
  local tries=200
  until [ "$(state "$1")" = "$2" ]; do
    [ $((tries--)) -gt 0 ] || fail "region $1 is $(state "$1"), not $2"
    sleep 0.1
  done
}
