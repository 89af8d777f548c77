#!/usr/bin/env bash
# Measures three nodes on this machine, protocol by protocol, each alternating with a
# reference, and prints medians and ratios.
#
#   bench/loop.sh [CASE...]      all cases: http many redis batch h2 grpc fsync tls loops ids intervals
#
# ROUNDS (3) is the number of measurements of each, SECONDS_EACH (4) their length. Needs go,
# nginx, wrk, curl, redis-server, redis-benchmark, h2load and strace (Debian: nginx-light wrk
# curl redis-server redis-tools nghttp2-client strace). A case whose tools are missing is
# skipped with a message. Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/lib.sh
[ $# -gt 0 ] || set -- http many redis batch h2 grpc fsync tls loops ids intervals
need go curl || exit 2
build

cluster() { start_nodes 3 17100 "$@"; }
web() {
  certificate
  start_nginx 127.0.0.1:17080 "127.0.0.1:17443 ssl"
}
stop_web() { end TERM "$nginx"; }

http_case() { # CONNECTIONS...
  need nginx wrk || return 0
  cluster; web
  header "HTTP/1.1 GET /timestamp, wrk -t1; nginx: a static file of 16 bytes, 1 worker"
  for c in "$@"; do
    forget
    for _ in $(seq "$rounds"); do
      measured nginx "$worker $nginx" load "http://127.0.0.1:17080/index.html" "$c"
      measured quorum "${nodes[*]}" load "http://$leader/timestamp" "$c"
      measured lease "${nodes[*]}" load "http://$leader/timestamp?mode=lease" "$c"
    done
    for s in nginx quorum lease; do row "$s" "$c" nginx; done
    printf '%-20s %6s ratio of p50 to nginx: quorum %s, lease %s\n' "" "$c" "$(ratio quorum nginx 2)" "$(ratio lease nginx 2)"
  done
  for p in "${nodes[@]}"; do awk '/VmHWM/ { printf "node: peak resident size %.0f MB\n", $2 / 1024 }' "/proc/$p/status"; done
  stop_web
}

redis_case() {
  need redis-server redis-benchmark || return 0
  cluster
  redis-server --port 17379 --bind 127.0.0.1 --save '' --appendonly no --dir "$dir" >"$dir/redis.log" & pids+=($!)
  local server=$! port=${leader##*:}
  sleep 0.5
  header "RESP, redis-benchmark -c 64; redis: INCR counter"
  for p in 1 32; do
    forget
    for _ in $(seq "$rounds"); do
      measured redis "$server" redis 64 17379 "$p" INCR counter
      measured quorum "${nodes[*]}" redis 64 "$port" "$p" TS
      measured lease "${nodes[*]}" redis 64 "$port" "$p" TS 1 LEASE
    done
    for s in redis quorum lease; do row "$s" "P=$p" redis; done
  done
  end TERM "$server"
}

batch_case() {
  need redis-benchmark || return 0
  cluster
  forget
  header "RESP, TS 1000, redis-benchmark -c 64 -P 32 (timestamps per second: times 1000)"
  for _ in $(seq "$rounds"); do
    measured quorum "${nodes[*]}" redis 64 "${leader##*:}" 32 TS 1000
    measured lease "${nodes[*]}" redis 64 "${leader##*:}" 32 TS 1000 LEASE
  done
  for s in quorum lease; do row "$s" P=32 quorum; done
}

# h2 URL OPTION...: prints "COUNT RATE 0 0"
h2() {
  local url=$1; shift
  h2load -t1 -D"$seconds" "$@" "$url" | awk '/^finished in/ { r = $4 } /^requests:/ { n = $2 } END { print n, r, 0, 0 }'
}

# h2_rows NAME URL NGINX_URL OPTION...: a table of the nodes in both modes beside nginx
h2_rows() {
  local what=$1 url=$2 reference=$3; shift 3
  forget
  for _ in $(seq "$rounds"); do
    measured nginx "$worker $nginx" h2 "$reference" "$@"
    measured quorum "${nodes[*]}" h2 "$url" "$@"
    measured lease "${nodes[*]}" h2 "$url?mode=lease" "$@"
  done
  for s in nginx quorum lease; do row "$s" "$what" nginx; done
}

# HTTP/2; h2load tells no percentiles. With one stream on one connection, the time of a request is 1/rate.
h2_case() {
  need nginx h2load || return 0
  head -c 4000 /dev/zero | tr '\0' x | sed 's/.*/"&"/' >"$dir/doc.json"
  export LIVE="doc=file:$dir/doc.json"
  cluster
  unset LIVE
  certificate
  start_nginx "127.0.0.1:17082 http2" "127.0.0.1:17444 ssl http2"
  # Of a file, nginx sends head and body apart, and waits for the client between them.
  header "HTTP/2 without TLS, h2load; nginx: 16 bytes that are no file, 1 worker"
  h2_rows 8x32 "http://$leader/timestamp" http://127.0.0.1:17082/answer -c8 -m32
  h2_rows 64x1 "http://$leader/timestamp" http://127.0.0.1:17082/answer -c64 -m1
  header "one request at a time: HTTP/2 beside HTTP/1.1 of the nodes, h2load -c1 -m1"
  forget
  for _ in $(seq "$rounds"); do
    measured http1 "${nodes[*]}" h2 "http://$leader/timestamp" -c1 -m1 --h1
    measured http2 "${nodes[*]}" h2 "http://$leader/timestamp" -c1 -m1
  done
  for s in http1 http2; do row "$s" 1x1 http1; done
  header "HTTP/2 within TLS"
  h2_rows 8x32 "https://$leader/timestamp" https://127.0.0.1:17444/answer -c8 -m32
  header "HTTP/2 within TLS, a live document of 4 KiB; nginx: a static file"
  forget
  for _ in $(seq "$rounds"); do
    measured nginx "$worker $nginx" h2 https://127.0.0.1:17444/doc.json -c8 -m32
    measured live "${nodes[*]}" h2 "https://$leader/live/doc" -c8 -m32
  done
  for s in nginx live; do row "$s" 8x32 nginx; done
  stop_web
}

# grpc_stream ADDR CALLERS SECONDS: prints "COUNT RATE P50us P99us"
grpc_stream() { "$dir/grpc" stream "$@" | awk '{ print $1, $3, $7, $10 }'; }

# Unary calls by h2load, as a client of grpc-go is slower than a node; the stream is one client of grpc-go.
grpc_case() {
  need h2load || return 0
  cluster
  (cd bench/grpc && go build -o "$dir/grpc" .)
  "$dir/grpc" constant 127.0.0.1:17083 & pids+=($!)
  local server=$! call=/isotone.v1.Timestamps/Get
  printf '\0\0\0\0\0' >"$dir/quorum.call"
  printf '\0\0\0\0\2\20\2' >"$dir/lease.call"
  sleep 0.5
  header "gRPC, unary, h2load -c8 -m32; grpc-go: a server that answers a constant"
  forget
  local fields=(-H 'content-type: application/grpc' -H 'te: trailers')
  for _ in $(seq "$rounds"); do
    measured grpc-go "$server" h2 "http://127.0.0.1:17083$call" -c8 -m32 -d "$dir/quorum.call" "${fields[@]}"
    measured quorum "${nodes[*]}" h2 "http://$leader$call" -c8 -m32 -d "$dir/quorum.call" "${fields[@]}"
    measured lease "${nodes[*]}" h2 "http://$leader$call" -c8 -m32 -d "$dir/lease.call" "${fields[@]}"
  done
  for s in grpc-go quorum lease; do row "$s" 8x32 grpc-go; done
  end TERM "$server"
  header "gRPC, Timestamps.Stream, one client of grpc-go"
  local callers
  for callers in 1 64 1000 10000; do
    forget
    for _ in $(seq "$rounds"); do measured stream "${nodes[*]}" grpc_stream "$leader" "$callers" "$seconds"; done
    row stream "$callers" stream
  done
}

tls_case() {
  need nginx h2load || return 0
  cluster; web
  forget
  header "HTTP/1.1 over TLS, keep-alive, h2load --h1 -c256; nginx: static, 1 worker"
  for _ in $(seq "$rounds"); do
    measured nginx "$worker $nginx" h2 https://127.0.0.1:17443/index.html --h1 -c256 -m1
    measured quorum "${nodes[*]}" h2 "https://$leader/timestamp" --h1 -c256 -m1
  done
  for s in nginx quorum; do row "$s" 256 nginx; done
  stop_web
}

# The load generator gets what the nodes leave.
loops_case() {
  need wrk || return 0
  local load_nice=15
  forget
  header "HTTP/1.1 GET /timestamp, quorum, wrk -t1 -c64, niceness $load_nice: LOOPS=2 to LOOPS=1"
  for _ in $(seq "$rounds"); do
    cluster env LOOPS=1
    measured one "${nodes[*]}" load "http://$leader/timestamp" 64
    cluster env LOOPS=2
    measured two "${nodes[*]}" load "http://$leader/timestamp" 64
  done
  for s in one two; do row "$s" 64 one; done
}

# A cluster clock costs a round with every tick, and three system calls a turn.
intervals_case() {
  need wrk || return 0
  forget
  header "HTTP/1.1 GET /timestamp, quorum, wrk -t1 -c64: INTERVAL_MS=100 to 0; reading: GET /interval of a follower"
  for _ in $(seq "$rounds"); do
    cluster
    measured off "${nodes[*]}" load "http://$leader/timestamp" 64
    cluster env INTERVAL_MS=100
    measured on "${nodes[*]}" load "http://$leader/timestamp" 64
    measured reading "${nodes[*]}" load "http://${leader%?}$((${leader: -1} % 3 + 1))/interval" 64
  done
  for s in off on reading; do row "$s" 64 off; done
}

ids_case() {
  need nginx wrk redis-benchmark || return 0
  cluster; web
  local follower=${leader%?}$((${leader: -1} % 3 + 1))
  header "HTTP/1.1 GET /api/snowflake, wrk -t1; nginx: a static file of 16 bytes, 1 worker"
  for c in 30 64 256; do
    forget
    for _ in $(seq "$rounds"); do
      measured nginx "$worker $nginx" load "http://127.0.0.1:17080/index.html" "$c"
      measured leader "${nodes[*]}" load "http://$leader/api/snowflake" "$c"
      measured follower "${nodes[*]}" load "http://$follower/api/snowflake" "$c"
    done
    for s in nginx leader follower; do row "$s" "$c" nginx; done
  done
  stop_web
  forget
  header "RESP, redis-benchmark -c 64, of a follower; snowflake100: SNOWFLAKE 100 (IDs per second: times 100)"
  for _ in $(seq "$rounds"); do
    measured snowflake "${nodes[*]}" redis 64 "${follower##*:}" 1 SNOWFLAKE
    measured snowflake100 "${nodes[*]}" redis 64 "${follower##*:}" 1 SNOWFLAKE 100
  done
  for s in snowflake snowflake100; do row "$s" P=1 snowflake; done
}

# paced RATE: prints p99.9 in microseconds under open-loop load at that rate
paced() {
  "$dir/isotone" bench --target "$leader" --connections 64 --rate "$1" --warmup 1s --duration "$((seconds * 2))s" --json "$dir/paced.json" >/dev/null
  tr -d ' \n' <"$dir/paced.json" | sed 's/.*"latency_us":{[^}]*"p99_9":\([0-9.]*\).*/\1\n/'
}

fsync_case() {
  need strace wrk || return 0
  cluster
  local half
  half=$(load "http://$leader/timestamp" 64 | awk '{ print int($2 / 2) }')
  printf '\np99.9 at half load (%s req/s, open loop), all nodes under strace -f --seccomp-bpf -e fdatasync\n' "$half"
  forget
  for _ in $(seq "$rounds"); do
    cluster strace -qq -f --seccomp-bpf -o /dev/null -e trace=fdatasync
    paced "$half" >>"$dir/out.plain"
    cluster strace -qq -f --seccomp-bpf -o /dev/null -e trace=fdatasync -e inject=fdatasync:delay_enter=200000:when=40+20
    paced "$half" >>"$dir/out.slow"
  done
  printf 'unchanged %.0f us, with every 20th sync (about one a second) delayed by 200 ms %.0f us, ratio %s\n' \
    "$(column plain 1)" "$(column slow 1)" "$(ratio slow plain)"
}

for name in "$@"; do
  case $name in
    http) http_case 1 8 64 256 ;;
    many) http_case 10000 ;;
    redis) redis_case ;;
    batch) batch_case ;;
    h2) h2_case ;;
    grpc) grpc_case ;;
    fsync) fsync_case ;;
    tls) tls_case ;;
    loops) loops_case ;;
    ids) ids_case ;;
    intervals) intervals_case ;;
    *) echo "bench/loop.sh: no case named $name" >&2; exit 2 ;;
  esac
done
