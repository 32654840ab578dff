# HBase's own shell, in a cluster of cluster.sh. Source it after mixed.sh, ../compat/java.sh and ../compat/hbase.sh.
# HBASE_SHELL   where the shell is: the jar hbase-shell of a release, or the directory hbase-shell/src/main/ruby of HBase's source
# hbase_shell_fetch, then hbase_shell FILE. hbase_shell_moves: regions, move_all, move_half and at_server of mixed.sh use it.
HBASE_SHELL_LIB="${HALCYON_HBASE_SHELL_LIB:-$HOME/.cache/halcyon/hbase-shell-lib}"

hbase_shell_fetch() { # JRuby, and the jars of HBase
  [ -e "${HBASE_SHELL:-}" ] || { echo "HBASE_SHELL is not set: the jar hbase-shell of HBase 2.6, or hbase-shell/src/main/ruby of its source" >&2; return 66; }
  [ -n "${HALCYON_HBASE_SHELL_LIB:-}" ] || maven_jars "$HERE/shell/pom.xml" "$HBASE_SHELL_LIB"
  hbase_fetch
}

hbase_shell() { # hbase_shell FILE: runs its commands; the first error ends it
  local main=(org.jruby.JarBootstrapMain) conf="$CLUSTER_DIR/hbase-shell"
  if [ ! -d "$conf" ]; then
    mkdir "$conf"
    cp "$CLUSTER_DIR/client/"*.xml "$conf/"
    echo "log4j.rootLogger=OFF" > "$conf/log4j.properties"
  fi
  if [ -d "$HBASE_SHELL" ]; then main=("-Dhbase.ruby.sources=$HBASE_SHELL" org.jruby.Main "$HBASE_SHELL/jar-bootstrap.rb"); fi
  JRUBY_OPTS=-X+O timeout 600 "$JAVA" -Xmx500m "${JAVA_FLAGS[@]}" -cp "$conf:$HBASE_SHELL:$HBASE_SHELL_LIB/*:$HBASE_LIB/*" "${main[@]}" -n < "$1"
}

hbase_shell_moves() {
  # list_regions leaves out regions with a locality above 1. HBase's servers report 3 where three DataNodes have the same host name,
  # as here, so the names come from hbase:meta.
  regions() {
    { echo "list_regions '$1'"; echo "scan 'hbase:meta', {ROWPREFIXFILTER => '$1,', COLUMNS => 'info:sn'}"; } > "$CLUSTER_DIR/list"
    hbase_shell "$CLUSTER_DIR/list" > "$CLUSTER_DIR/regions" 2> "$CLUSTER_DIR/shell.log" || fail "list_regions: $(tail -n 3 "$CLUSTER_DIR/shell.log")"
    sed -n 's/.*\.\([0-9a-f]\{32\}\)\. .*column=info:sn.*/\1/p' "$CLUSTER_DIR/regions"
  }
  at_server() {
    regions "$1" > /dev/null
    grep -cF "value=$2" "$CLUSTER_DIR/regions" || true
  }
  move_these() { # move_these SERVER: the regions that are read
    sed "s|.*|move '&', '$1'|" > "$CLUSTER_DIR/commands"
    hbase_shell "$CLUSTER_DIR/commands" > "$CLUSTER_DIR/shell.out" 2> "$CLUSTER_DIR/shell.log" || fail "move: $(tail -n 3 "$CLUSTER_DIR/shell.out" "$CLUSTER_DIR/shell.log")"
    [ -s "$CLUSTER_DIR/commands" ] || fail "move: list_regions named no region"
    MOVED=$((${MOVED:-0} + $(wc -l < "$CLUSTER_DIR/commands")))
  }
  move_all() { move_these "$2" < <(regions "$1"); }
  move_half() { move_these "$2" < <(regions "$1" | sed -n 'p;n'); }
}
