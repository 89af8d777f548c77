#!/usr/bin/env bash
# Measures a live document of 4,195 bytes on this machine, in turns with nginx, which serves
# the same bytes from a file with one worker: 1,000 connections that are kept, without and
# with TLS; then 10,000 readers that ask once a second each. Prints medians and ratios.
#
#   bench/live.sh [CASE...]      all cases: plain tls poll
#
# ROUNDS (3) and SECONDS_EACH (4) set how often and how long. Needs go, nginx with its ssl
# module, wrk, curl, openssl and, for poll, h2load (Debian: nginx-light wrk curl openssl
# nghttp2-client). Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-4}
[ $# -gt 0 ] || set -- plain tls poll
for tool in go nginx wrk curl openssl; do
  command -v "$tool" >/dev/null || { echo "bench/live.sh: $tool is missing; see the top of the script" >&2; exit 2; }
done

dir=$(mktemp -d)
chmod 755 "$dir"
pids=()
finish() {
  for pid in ${pids[@]+"${pids[@]}"}; do kill -TERM "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT
go build -o "$dir/isotone" ./cmd/isotone
ulimit -n 65536 2>/dev/null || true

# The document changes every second, as on an election night.
document() {
  printf '{"counted":%d,"votes":"' "$1"
  head -c 5000 /dev/zero | tr '\0' x | head -c $((4195 - 23 - ${#1}))
  printf '"}'
}
document 100 >"$dir/doc.json"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
  -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
cat >"$dir/nginx.conf" <<CONF
worker_processes 1; daemon off; pid $dir/nginx.pid; error_log $dir/nginx.log;
events { worker_connections 20000; }
http { access_log off; keepalive_requests 100000000; open_file_cache max=10; sendfile on; tcp_nodelay on;
  client_body_temp_path $dir/1; proxy_temp_path $dir/2; fastcgi_temp_path $dir/3; uwsgi_temp_path $dir/4; scgi_temp_path $dir/5;
  server { listen 127.0.0.1:38080 backlog=16384; listen 127.0.0.1:38443 ssl backlog=16384; root $dir;
    ssl_certificate $dir/cert.pem; ssl_certificate_key $dir/key.pem; } }
CONF
nginx -c "$dir/nginx.conf" & pids+=($!)
sleep 0.3
worker=$(pgrep -P "$!" | head -1)
NODE_ID=1 HTTP_HOST=127.0.0.1 HTTP_PORT=38111 RAFT_ADDR=127.0.0.1:38101 PEERS=1=127.0.0.1:38101 THRIFT_PORT=0 DATA_DIR="$dir/node" \
  TLS_CERT="$dir/cert.pem" TLS_KEY="$dir/key.pem" LIVE="doc=file:$dir/doc.json" "$dir/isotone" serve 2>"$dir/log" & pids+=($!)
node=$!
for _ in $(seq 200); do
  [ "$(curl -s http://127.0.0.1:38111/live/doc | wc -c)" = 4195 ] && break
  sleep 0.05
done
[ "$(curl -s http://127.0.0.1:38111/live/doc | wc -c)" = 4195 ] || { echo "no document; log:" >&2; tail -5 "$dir/log" >&2; exit 1; }
(n=100; while sleep 1; do n=$((n + 1)); document "$n" >"$dir/next" && mv "$dir/next" "$dir/doc.json"; done) & pids+=($!)

ticks() { cat "/proc/$1/stat" | awk '{ sub(/.*\) /, ""); print $12 + $13 }'; }
median() { sort -g | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
column() { cut -d' ' -f"$2" "$dir/out.$1" | median; }

# load NAME PID URL: appends "RATE P99us CPUus" to the results of NAME
load() {
  local before after
  before=$(ticks "$2")
  timeout $((seconds + 20)) wrk -t1 -c1000 -d"${seconds}s" --timeout 10s --latency "$3" >"$dir/wrk"
  after=$(ticks "$2")
  awk -v t=$((after - before)) '
    function us(v) { if (v ~ /us$/) return v+0; if (v ~ /ms$/) return (v+0)*1000; return (v+0)*1000000 }
    $1 == "99%" { p = us($2) } /requests in/ { n = $1 } /Requests\/sec/ { r = $2 } END { print r, p, t * 10000 / n }' "$dir/wrk" >>"$dir/out.$1"
}
row() { printf '%-14s %10.0f %10.0f %10.2f %7.2f\n' "$1" "$(column "$1" 1)" "$(column "$1" 2)" "$(column "$1" 3)" "$(awk "BEGIN { print $(column "$1" 1) / $(column "$2" 1) }")"; }
header() { printf '\n%s\n%-14s %10s %10s %10s %7s\n' "$1" server "req/s" p99_us "cpu_us/req" ratio; }

for name in "$@"; do
  case $name in
    plain)
      header "4,195 bytes, 1,000 connections, wrk -t1"
      for _ in $(seq "$rounds"); do load nginx "$worker" http://127.0.0.1:38080/doc.json; load isotone "$node" http://127.0.0.1:38111/live/doc; done
      row nginx nginx; row isotone nginx ;;
    tls)
      header "the same over TLS 1.3, ECDSA P-256"
      for _ in $(seq "$rounds"); do load nginx-tls "$worker" https://127.0.0.1:38443/doc.json; load isotone-tls "$node" https://127.0.0.1:38111/live/doc; done
      row nginx-tls nginx-tls; row isotone-tls nginx-tls
      [ -f "$dir/out.isotone" ] && printf 'isotone, with TLS to without: %.2f\n' "$(awk "BEGIN { print $(column isotone-tls 1) / $(column isotone 1) }")" ;;
    poll)
      command -v h2load >/dev/null || { echo "h2load is missing; see the top of the script" >&2; continue; }
      printf '\n10,000 readers, each asking once a second, h2load --h1\n'
      h2load --h1 -c10000 -t1 --rps 1 -D $((seconds * 3 + 5)) --warm-up-time 5 http://127.0.0.1:38111/live/doc >"$dir/h2" & pids+=($!)
      load_pid=$!
      sleep 8
      before=$(ticks "$node"); sleep $((seconds * 2)); after=$(ticks "$node")
      wait "$load_pid" || true
      grep -E '^finished|^requests' "$dir/h2"
      awk -v t=$((after - before)) -v s=$((seconds * 2)) 'BEGIN { printf "the node used %.0f %% of one core\n", t / s }' ;;
    *) echo "bench/live.sh: there is no case $name" >&2; exit 2 ;;
  esac
done
