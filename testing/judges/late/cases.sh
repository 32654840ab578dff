# Cases of bench/recovery.sh in which an assignment is five seconds late. LATE_CLASSES has the class halcyon.judges.late.LateOpen.
# late_move  HBase: the table has a coprocessor that waits before each region opens
# late_kill  Halcyon: the active master is frozen when the region server is killed, for five seconds

round_late_move() { # round_late_move SYSTEM NUMBER
  local name
  if [ "$2" = 0 ]; then
    for name in hregionserver1 hregionserver2 hregionserver3 hmaster hmaster2; do cp -r "$LATE_CLASSES/." "$CLUSTER_DIR/$name/conf/"; done # on its class path
    sh_halcyon "alter 'rows', METADATA => {'coprocessor\$1' => '|halcyon.judges.late.LateOpen|1001|'}" > /dev/null
    wait_for 120 all_open
    sh_halcyon "describe 'rows'" | grep -q LateOpen || fail "the table has no coprocessor"
  fi
  round_move "$1" "$2" late_move
}
round_late_kill() { # round_late_kill SYSTEM NUMBER
  local process name master
  process="$(server "$1" "$2")" name="$(name_of "$(server "$1" "$2")")"
  move_half rows "$name"
  master="$(active_process "$1")"
  round_begin "late_kill$2"
  cluster freeze "$master"
  cluster kill-server "$process"
  sleep 5
  cluster thaw "$master"
  round_end "$1" late_kill "late_kill$2"
  back "$process" "$name"
}
