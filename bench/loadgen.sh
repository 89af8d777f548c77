#!/usr/bin/env bash
# Measures what the load generator itself costs: "isotone bench" with all its checking
# against wrk, in turns, both with 64 connections to the same nginx with one worker and a
# static file of 16 bytes. Prints each pair, the medians and the ratio.
#
#   bench/loadgen.sh [ROUNDS [SECONDS]]      default: 7 rounds of 4 seconds
#
# Needs go, wrk and nginx. Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-7} seconds=${2:-4} connections=${CONNECTIONS:-64}
for tool in go wrk nginx; do
  command -v "$tool" >/dev/null || { echo "bench/loadgen.sh: $tool is missing (Debian: apt-get install wrk nginx-light)" >&2; exit 2; }
done

dir=$(mktemp -d)
pids=()
finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT

go build -o "$dir/isotone" ./cmd/isotone

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

ours() {
  "$dir/isotone" bench -t 127.0.0.1:18080 --static /index.html -c "$connections" -d "${seconds}s" --json - ${BENCH_FLAGS:-} 2>/dev/null |
    sed -n 's/.*"answers_per_s": \([0-9.]*\).*/\1/p'
}
theirs() { wrk -t1 -c"$connections" -d"${seconds}s" http://127.0.0.1:18080/index.html | sed -n 's/^Requests\/sec: *//p'; }
median() { sort -g | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

theirs >/dev/null # warms nginx up
printf '%12s %12s %8s\n' wrk bench ratio
for round in $(seq "$rounds"); do
  if [ $((round % 2)) = 1 ]; then w=$(theirs) b=$(ours); else b=$(ours) w=$(theirs); fi
  ratio=$(awk "BEGIN { print $b / $w }")
  echo "$w" >>"$dir/wrk.out"; echo "$b" >>"$dir/bench.out"; echo "$ratio" >>"$dir/ratio.out"
  printf '%12.0f %12.0f %8.2f\n' "$w" "$b" "$ratio"
done
printf '%12.0f %12.0f %8.2f   medians, requests a second\n' "$(median <"$dir/wrk.out")" "$(median <"$dir/bench.out")" "$(median <"$dir/ratio.out")"
