#!/usr/bin/env bash
# Measures what the load generator itself costs: "isotone bench" with all its checking
# against another one without, in turns, both with 64 connections to the same server.
# Prints each pair, the medians and the ratio.
#
#   bench/loadgen.sh [http] [ROUNDS [SECONDS]]      default: 7 rounds of 4 seconds
#   bench/loadgen.sh resp [ROUNDS [SECONDS]]
#
# http: wrk; nginx with one worker and a static file of 16 bytes.
# resp: redis-benchmark with 32 commands under way on each connection; the leader of three
# nodes on this machine.
#
# Needs go, and wrk and nginx, or redis-benchmark and curl. Everything listens on
# 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=http
case ${1:-} in http | resp) mode=$1; shift ;; esac
rounds=${1:-7} seconds=${2:-4} connections=${CONNECTIONS:-64} depth=32

need() {
  for tool in "$@"; do
    command -v "$tool" >/dev/null || { echo "bench/loadgen.sh: $tool is missing (Debian: apt-get install wrk nginx-light redis-tools curl)" >&2; exit 2; }
  done
}

dir=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT

# bench FLAGS: prints the answers a second.
bench() {
  "$dir/isotone" bench "$@" -c "$connections" -d "${seconds}s" --violations "$dir/violations" --json - ${BENCH_FLAGS:-} 2>/dev/null |
    sed -n 's/.*"answers_per_s": \([0-9.]*\).*/\1/p'
}

median() { sort -g | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

http() {
  need go wrk nginx
  head -c 16 /dev/zero | tr '\0' x >"$dir/index.html"
  cat >"$dir/nginx.conf" <<CONF
worker_processes 1; daemon off; pid $dir/nginx.pid; error_log $dir/nginx.log;
events { worker_connections 20000; }
http { access_log off; keepalive_requests 100000000; open_file_cache max=10; sendfile on; tcp_nodelay on;
  client_body_temp_path $dir/1; proxy_temp_path $dir/2; fastcgi_temp_path $dir/3; uwsgi_temp_path $dir/4; scgi_temp_path $dir/5;
  server { listen 127.0.0.1:18080; root $dir; } }
CONF
  chmod 755 "$dir"
  nginx -c "$dir/nginx.conf" & pids+=($!)
  sleep 0.5
  name=wrk
  ours() { bench -t 127.0.0.1:18080 --static /index.html; }
  theirs() { wrk -t1 -c"$connections" -d"${seconds}s" http://127.0.0.1:18080/index.html | sed -n 's/^Requests\/sec: *//p'; }
}

resp() {
  need go redis-benchmark curl
  local id peers=1=127.0.0.1:21101,2=127.0.0.1:21102,3=127.0.0.1:21103
  for id in 1 2 3; do
    NODE_ID=$id HTTP_HOST=127.0.0.1 HTTP_PORT=2111$id ADVERTISE_ADDR=127.0.0.1:2111$id RAFT_ADDR=127.0.0.1:2110$id \
      PEERS=$peers DATA_DIR="$dir/node$id" "$dir/isotone" serve 2>"$dir/log$id" & pids+=($!)
  done
  leader=
  for _ in $(seq 200); do
    leader=$(curl -s http://127.0.0.1:21111/members | sed -n 's/.*"leader":{"nodeID":[0-9]*,"addr":"\([^"]*\)".*/\1/p') || true
    [ -n "$leader" ] && [ "$(curl -s -o /dev/null -w '%{http_code}' "http://$leader/timestamp")" = 200 ] && break
    sleep 0.05
  done
  [ -n "$leader" ] || { echo "no leader; logs:"; tail -5 "$dir"/log*; exit 1; }
  name=redis-benchmark
  ours() { bench -t "$leader" -p resp -P "$depth"; }
  commands=300000 # of redis-benchmark, which ends after a number, not after a time
  theirs() { redis-benchmark -p "${leader##*:}" -c "$connections" -P "$depth" -n "$commands" --csv TS 2>/dev/null | sed -n 's/^"TS","\([0-9.]*\)".*/\1/p'; }
  commands=$(theirs | awk "{ print int(\$1 * $seconds) }")
}

go build -o "$dir/isotone" ./cmd/isotone
"$mode"
theirs >/dev/null # warms the server up
printf '%15s %12s %8s\n' "$name" bench ratio
for round in $(seq "$rounds"); do
  if [ $((round % 2)) = 1 ]; then w=$(theirs) b=$(ours); else b=$(ours) w=$(theirs); fi
  ratio=$(awk "BEGIN { print $b / $w }")
  echo "$w" >>"$dir/theirs.out"; echo "$b" >>"$dir/ours.out"; echo "$ratio" >>"$dir/ratio.out"
  printf '%15.0f %12.0f %8.2f\n' "$w" "$b" "$ratio"
done
printf '%15.0f %12.0f %8.2f   medians, requests a second\n' "$(median <"$dir/theirs.out")" "$(median <"$dir/ours.out")" "$(median <"$dir/ratio.out")"
