#!/usr/bin/env bash
# Stands for `halcyon standalone` where only its life matters. FAKE says how it ends:
#   sound      0 after SIGTERM
#   aborts     by SIGABRT after SIGTERM, as an assertion of the last flush does
#   panics     0 after SIGTERM, and its log tells of a panic
#   dies       by SIGABRT half a second after its start
#   stays      not at all after SIGTERM
end() {
  case "${FAKE:-sound}" in
    aborts) echo "thread 'flush' panicked at storage/region/src/flush.rs:1:1"; kill -ABRT $$ ;;
    panics) echo "thread 'network-1' panicked at wire/rpc/src/calls.rs:1:1" ;;
    stays) return ;;
  esac
  exit 0
}
trap end TERM
ulimit -c 0
for port in zookeeper master regionserver; do echo "$port 127.0.0.1:1"; done
echo ready
[ "${FAKE:-sound}" != dies ] || { sleep 0.5; kill -ABRT $$; }
while :; do sleep 0.1; done
