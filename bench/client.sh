#!/usr/bin/env bash
# Measures the Go client: starts three nodes on this machine, runs bench/client against
# them, and ends them.
#
#   bench/client.sh [FLAGS]      the flags of bench/client, such as --json, --mode lease,
#                                --goroutines 1,64,1000,10000, --duration 3s
#
# Needs go and curl. Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in go curl; do
  command -v "$tool" >/dev/null || { echo "bench/client.sh: $tool is missing" >&2; exit 2; }
done

dir=$(mktemp -d)
pids=()
finish() {
  for pid in ${pids[@]+"${pids[@]}"}; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT

go build -o "$dir/isotone" ./cmd/isotone
go build -o "$dir/client" ./bench/client
peers=1=127.0.0.1:30701,2=127.0.0.1:30702,3=127.0.0.1:30703
for id in 1 2 3; do
  NODE_ID=$id HTTP_HOST=127.0.0.1 HTTP_PORT=3071$id ADVERTISE_ADDR=127.0.0.1:3071$id RAFT_ADDR=127.0.0.1:3070$id \
    PEERS=$peers THRIFT_PORT=0 DATA_DIR="$dir/node$id" "$dir/isotone" serve 2>"$dir/log$id" & pids+=($!)
done
ready=
for _ in $(seq 200); do
  ready=$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:30711/ready) || true
  [ "$ready" = 200 ] && break
  sleep 0.05
done
[ "$ready" = 200 ] || { echo "bench/client.sh: no leader; logs:" >&2; tail -5 "$dir"/log* >&2; exit 1; }
"$dir/client" "$@" 127.0.0.1:30711 127.0.0.1:30712 127.0.0.1:30713
