#!/usr/bin/env bash
# Stands for the program PROGRAM. A region server that has stopped in order ends by SIGABRT after all, as one does whose last assertion fails.
[ "$1" = regionserver ] || exec "$PROGRAM" "$@"
ulimit -c 0
setpriv --pdeathsig KILL -- "$PROGRAM" "$@" &
trap 'kill $!' TERM
wait $!
kill -ABRT $$
