#!/usr/bin/env bash
# Measures what a proxy near the clients is worth when the nodes are far: 2,000 HTTP clients
# ask for timestamps, in turns directly and through isotone proxy, and every byte to or from
# a node takes half a millisecond (bench/far), so that a round trip takes one. Three nodes,
# quorum mode. Prints medians and the ratio.
#
#   bench/far.sh [CONNECTIONS]      default: 2000
#
# ROUNDS (3) and SECONDS_EACH (4) set how often and how long. Needs go, wrk and curl. Everything
# listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-4} connections=${1:-2000}
for tool in go wrk curl; do
  command -v "$tool" >/dev/null || { echo "bench/far.sh: $tool is missing; see the top of the script" >&2; exit 2; }
done
dir=$(mktemp -d)
pids=()
finish() {
  for pid in ${pids[@]+"${pids[@]}"}; do kill -TERM "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT
go build -o "$dir/isotone" ./cmd/isotone
go build -o "$dir/far" ./bench/far
ulimit -n 65536 2>/dev/null || true

# Clients know the nodes by the far addresses only. The nodes are near each other.
"$dir/far" --delay 500us 127.0.0.1:39211=127.0.0.1:39111 127.0.0.1:39212=127.0.0.1:39112 127.0.0.1:39213=127.0.0.1:39113 & pids+=($!)
peers=1=127.0.0.1:39101,2=127.0.0.1:39102,3=127.0.0.1:39103
for id in 1 2 3; do
  NODE_ID=$id HTTP_HOST=127.0.0.1 HTTP_PORT=3911$id ADVERTISE_ADDR=127.0.0.1:3921$id RAFT_ADDR=127.0.0.1:3910$id PEERS=$peers \
    THRIFT_PORT=0 DATA_DIR="$dir/node$id" "$dir/isotone" serve 2>"$dir/log$id" & pids+=($!)
done
"$dir/isotone" proxy --listen 127.0.0.1:39300 --node 127.0.0.1:39211 --node 127.0.0.1:39212 --node 127.0.0.1:39213 2>"$dir/proxy" & pids+=($!)
leader=
for _ in $(seq 200); do
  leader=$(curl -s http://127.0.0.1:39111/members | sed -n 's/.*"leader":{"nodeID":[0-9]*,"addr":"\([^"]*\)".*/\1/p') || true
  [ -n "$leader" ] && [ "$(curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:39300/timestamp)" = 200 ] && break
  sleep 0.05
done
[ -n "$leader" ] || { echo "bench/far.sh: no leader; logs:" >&2; tail -n 5 "$dir"/log* >&2; exit 1; }

load() { timeout $((seconds + 20)) wrk -t1 -c"$connections" -d"${seconds}s" --timeout 10s --latency "$1" | awk '
  $1 == "50%" { p = $2 } /Requests\/sec/ { r = $2 } /Non-2xx/ { bad = $NF } END { if (bad) { print "bad answers:", bad > "/dev/stderr"; exit 1 } print r, p }'; }
median() { sort -g | awk '{ a[NR] = $0 } END { print a[int((NR + 1) / 2)] }'; }
for _ in $(seq "$rounds"); do
  load "http://$leader/timestamp" >>"$dir/direct"
  load http://127.0.0.1:39300/timestamp >>"$dir/through"
done
echo "$connections clients, nodes 1 ms away: req/s and p50"
echo "directly           $(median <"$dir/direct")"
echo "through the proxy  $(median <"$dir/through")"
awk -v d="$(median <"$dir/direct")" -v t="$(median <"$dir/through")" 'BEGIN { split(d, a, " "); split(t, b, " "); printf "ratio %.2f\n", b[1] / a[1] }'
