# Shared by the scripts that run Java programs. Source it.
# JAVA               the launcher, default java
# JAVA_FLAGS         is set: the flags that HBase's classes need on JDK 11 and later, and those for short runs
# maven_jars, client26_classes, client26      see below
COMPAT="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
JAVA="${JAVA:-java}"
JAVA_FLAGS=(-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true --add-modules=jdk.unsupported
  -Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true
  --add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED)
for package in java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.security java.util java.util.concurrent \
  java.util.concurrent.atomic sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar jdk.internal.util.random jdk.internal.misc; do
  JAVA_FLAGS+=("--add-opens=java.base/$package=ALL-UNNAMED" "--add-exports=java.base/$package=ALL-UNNAMED")
done
# Hadoop's classes ask for the current subject. JDK 18 to 23 refuse that without this flag; later ones do not know the flag.
if "$JAVA" -Djava.security.manager=allow -version > /dev/null 2>&1; then
  JAVA_FLAGS+=(-Djava.security.manager=allow)
fi

# maven_jars POM DIRECTORY: copies the jars that POM names and all they depend on into DIRECTORY, once for each state of POM.
maven_jars() {
  cmp -s "$1" "$2/.complete" && return 0
  rm -rf "$2"
  mkdir -p "$2"
  mvn -q -B -ntp -f "$1" dependency:copy-dependencies -DoutputDirectory="$2" < /dev/null >&2 || return 69
  cp "$1" "$2/.complete"
}

# client26_classes: compiles the programs of client26 if they changed, and sets CLIENT26_CLASS_PATH.
client26_classes() {
  local target="$COMPAT/client26/target"
  if [ ! -f "$target/classpath.txt" ] ||
    [ -n "$(find "$COMPAT/client26/src/main" -newer "$target/classpath.txt" -name '*.java')" ]; then
    mvn -q -B -ntp -f "$COMPAT/pom.xml" -pl client26 process-classes < /dev/null >&2 || return 69
  fi
  CLIENT26_CLASS_PATH="$target/classes:$(cat "$target/classpath.txt")"
}

# client26 CLASS ARGUMENT...: runs a program of client26, after client26_classes, for at most CLIENT26_SECONDS (default 600).
# CLIENT26_MEMORY is its heap, default 400m; CLIENT26_OPTIONS has more options of the JVM; CLIENT26_FIRST is before its class path.
client26() {
  timeout "${CLIENT26_SECONDS:-600}" "$JAVA" "-Xmx${CLIENT26_MEMORY:-400m}" "${JAVA_FLAGS[@]}" "-Dorg.slf4j.simpleLogger.defaultLogLevel=${CLIENT26_LOG:-off}" \
    ${CLIENT26_OPTIONS:-} -cp "${CLIENT26_FIRST:+$CLIENT26_FIRST:}$CLIENT26_CLASS_PATH" "$@"
}
