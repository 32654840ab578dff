# Shared by the scripts that run coprocessors in a JVM beside Halcyon. Source it after java.sh and hbase.sh.
# coprocessor_host DIR       builds the program of that JVM below DIR with the jars of HBASE_LIB, and sets COPROCESSOR_HOST_JAR
# coprocessor_tests DIR      compiles the programs and classes of testing/compat/coprocessors, and sets MARKS_JAR with the observer,
#                            COPROCESSORS_SERVERS, what servers need on their class path, and COPROCESSORS_CLIENT, that of the programs
# coprocessor_site CLASSPATH [NAME=VALUE...]   prints an hbase-site.xml that turns it on
# HALCYON_COPROCESSOR_HOST   a jar that is there already
coprocessor_host() {
  COPROCESSOR_HOST_JAR="${HALCYON_COPROCESSOR_HOST:-$1/halcyon-coprocessor-host.jar}"
  [ -z "${HALCYON_COPROCESSOR_HOST:-}" ] || return 0
  local source="$COMPAT/../../cluster/coprocessor-host/src/main/java"
  mkdir -p "$1/classes"
  # With the jars at hand Maven has nothing to add; `make coprocessor-host` builds the same by Maven.
  find "$source" -name '*.java' > "$1/sources.txt"
  javac -nowarn -Xlint:none --release 17 -d "$1/classes" -cp "$HBASE_LIB/*" @"$1/sources.txt" 2> "$1/javac.log" ||
    { cat "$1/javac.log" >&2; return 1; }
  (cd "$1/classes" && jar cf "$COPROCESSOR_HOST_JAR" .)
}

coprocessor_tests() {
  local source="$COMPAT/coprocessors" examples="$HOME/.cache/halcyon/compat-coprocessors"
  maven_jars "$source/pom.xml" "$examples"
  mkdir -p "$1/marks" "$1/filters" "$1/client"
  # On the class path of the server, as filters have to be.
  javac -nowarn -d "$1/filters" -cp "$HBASE_LIB/*" "$source"/filters/halcyon/compat/*.java 2> "$1/javac.log"
  javac -nowarn -d "$1/marks" -cp "$HBASE_LIB/*:$examples/*" "$source"/src/halcyon/compat/*.java 2>> "$1/javac.log"
  MARKS_JAR="$1/marks.jar"
  (cd "$1/marks" && jar cf "$MARKS_JAR" .)
  javac -nowarn -d "$1/client" -cp "$1/filters:$HBASE_LIB/*:$examples/*" "$source"/*.java 2>> "$1/javac.log"
  COPROCESSORS_SERVERS="$1/filters:$HBASE_LIB/*:$examples/*"
  COPROCESSORS_CLIENT="$1/client:$COPROCESSORS_SERVERS"
}

coprocessor_site() {
  local classpath="$1" property
  shift
  echo '<configuration>'
  for property in "halcyon.coprocessor.host.classpath=$classpath" "$@"; do
    echo "<property><name>${property%%=*}</name><value>${property#*=}</value></property>"
  done
  echo '</configuration>'
}
