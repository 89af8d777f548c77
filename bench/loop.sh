#!/usr/bin/env bash
# Measures three nodes on this machine, protocol by protocol, each in turns with a
# reference, and prints medians and ratios.
#
#   bench/loop.sh [CASE...]      all cases: http many redis batch h2c fsync tls loops ids
#
# ROUNDS (3) and SECONDS_EACH (4) set how often and how long. Needs go, nginx, wrk, curl,
# redis-server, redis-benchmark, h2load and strace (Debian: nginx-light wrk curl redis-server
# redis-tools nghttp2-client strace); a case whose tools are missing says so. Everything
# listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-4}
[ $# -gt 0 ] || set -- http many redis batch h2c fsync tls loops ids

need() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || { echo "bench/loop.sh: $tool is missing; see the top of the script" >&2; return 1; }
  done
}
need go curl || exit 2

dir=$(mktemp -d)
chmod 755 "$dir"
pids=() nodes=()
finish() {
  for pid in ${pids[@]+"${pids[@]}"} ${nodes[@]+"${nodes[@]}"}; do kill -9 "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT
go build -o "$dir/isotone" ./cmd/isotone
ulimit -n 65536 2>/dev/null || true

median() { sort -g | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
column() { cut -d' ' -f"$2" "$dir/out.$1" | median; }

# cluster [COMMAND...]: starts three nodes, each below the command if there is one
leader=
cluster() {
  local id peers=1=127.0.0.1:17101,2=127.0.0.1:17102,3=127.0.0.1:17103
  for pid in ${nodes[@]+"${nodes[@]}"}; do kill -9 "$pid" 2>/dev/null || true; done
  wait "${nodes[@]+"${nodes[@]}"}" 2>/dev/null || true
  nodes=() leader=
  pkill -9 -f "^$dir/isotone serve" 2>/dev/null || true
  rm -rf "$dir"/node?
  for id in 1 2 3; do
    NODE_ID=$id HTTP_HOST=127.0.0.1 HTTP_PORT=1711$id ADVERTISE_ADDR=127.0.0.1:1711$id RAFT_ADDR=127.0.0.1:1710$id \
      PEERS=$peers DATA_DIR="$dir/node$id" "$@" "$dir/isotone" serve 2>"$dir/log$id" & nodes+=($!)
  done
  for _ in $(seq 200); do
    leader=$(curl -s http://127.0.0.1:17111/members | sed -n 's/.*"leader":{"nodeID":[0-9]*,"addr":"\([^"]*\)".*/\1/p') || true
    [ -n "$leader" ] && [ "$(curl -s -o /dev/null -w '%{http_code}' "http://$leader/timestamp")" = 200 ] && return
    sleep 0.05
  done
  echo "no leader; logs:"; tail -5 "$dir"/log*; exit 1
}

# ticks PID...: CPU time used so far, in ticks of 1/100 s, user and system
ticks() { local p; for p in "$@"; do cat "/proc/$p/stat"; done | awk '{ sub(/.*\) /, ""); s += $12 + $13 } END { print s + 0 }'; }

# measured NAME PIDS COMMAND...: runs the command, which prints "RATE ...", and appends the
# line and the CPU time in microseconds for each request to the results of NAME
measured() {
  local name=$1 who=$2 before after; shift 2
  # shellcheck disable=SC2086
  before=$(ticks $who)
  local begin end line
  begin=$(date +%s.%N)
  line=$("$@")
  end=$(date +%s.%N)
  # shellcheck disable=SC2086
  after=$(ticks $who)
  echo "$line $(awk "BEGIN { r = ${line%% *}; print (r > 0) ? ($after - $before) * 10000 / (r * ($end - $begin)) : 0 }")" >>"$dir/out.$name"
}

# load URL C: prints "RATE P50us P99us"
load() {
  wrk -t1 -c"$2" -d"${seconds}s" --timeout 10s --latency "$1" | awk '
    function us(v) { if (v ~ /us$/) return v+0; if (v ~ /ms$/) return (v+0)*1000; return (v+0)*1000000 }
    $1 == "50%" { p50 = us($2) } $1 == "99%" { p99 = us($2) } /Requests\/sec/ { r = $2 } /Non-2xx/ { bad = $NF }
    END { if (bad) { print "bad answers:", bad > "/dev/stderr"; exit 1 } print r, p50, p99 }'
}

header() { printf '\n%s\n%-26s %6s %12s %8s %8s %9s %7s\n' "$1" server c "req/s" p50_us p99_us "cpu_us/req" ratio; }
# row NAME C REFERENCE [COLUMN]: one line of the table; the ratio is to REFERENCE
row() {
  printf '%-26s %6s %12.0f %8.0f %8.0f %9.2f %7.2f\n' "$1" "$2" "$(column "$1" 1)" "$(column "$1" 2)" "$(column "$1" 3)" "$(column "$1" 4)" \
    "$(awk "BEGIN { print $(column "$1" 1) / $(column "$3" 1) }")"
}

web() {
  head -c 16 /dev/zero | tr '\0' x >"$dir/index.html"
  cat >"$dir/nginx.conf" <<CONF
worker_processes 1; daemon off; pid $dir/nginx.pid; error_log $dir/nginx.log;
events { worker_connections 20000; }
http { access_log off; keepalive_requests 100000000; open_file_cache max=10; sendfile on; tcp_nodelay on;
  client_body_temp_path $dir/1; proxy_temp_path $dir/2; fastcgi_temp_path $dir/3; uwsgi_temp_path $dir/4; scgi_temp_path $dir/5;
  server { listen 127.0.0.1:17080 backlog=16384; root $dir; }
  server { listen 127.0.0.1:17443 ssl; root $dir; ssl_certificate $dir/node1/cert.pem; ssl_certificate_key $dir/node1/key.pem; } }
CONF
  nginx -c "$dir/nginx.conf" & pids+=($!)
  sleep 0.3
  worker="$(pgrep -P "$!" | head -1) $!"
}
stop_web() { kill "$(cat "$dir/nginx.pid")" 2>/dev/null || true; sleep 0.2; }

http_case() { # CONNECTIONS...
  need nginx wrk || return 0
  cluster; web
  header "HTTP/1.1 GET /timestamp, wrk -t1; nginx: a static file of 16 bytes, 1 worker"
  for c in "$@"; do
    rm -f "$dir"/out.*
    for _ in $(seq "$rounds"); do
      measured nginx "$worker" load "http://127.0.0.1:17080/index.html" "$c"
      measured quorum "${nodes[*]}" load "http://$leader/timestamp" "$c"
      measured lease "${nodes[*]}" load "http://$leader/timestamp?mode=lease" "$c"
    done
    for s in nginx quorum lease; do row "$s" "$c" nginx; done
    printf '%-26s %6s p50 to nginx: quorum %.2f, lease %.2f\n' "" "$c" \
      "$(awk "BEGIN { print $(column quorum 2) / $(column nginx 2) }")" "$(awk "BEGIN { print $(column lease 2) / $(column nginx 2) }")"
  done
  for p in "${nodes[@]}"; do awk '/VmHWM/ { printf "node: %.0f MB resident at most\n", $2 / 1024 }' "/proc/$p/status"; done
  stop_web
}

# redis PORT PIPELINE COMMAND...: prints "RATE P50us P99us"
redis() {
  local port=$1 pipeline=$2 requests; shift 2
  requests=$((seconds * (pipeline > 1 ? 2000000 : 80000)))
  redis-benchmark -h 127.0.0.1 -p "$port" -c 64 -n "$requests" -P "$pipeline" --csv "$@" | tail -1 | tr -d '"' | awk -F, '{ print $2, $5 * 1000, $7 * 1000 }'
}

redis_case() {
  need redis-server redis-benchmark || return 0
  cluster
  redis-server --port 17379 --bind 127.0.0.1 --save '' --appendonly no --dir "$dir" >"$dir/redis.log" & pids+=($!)
  local server=$! port=${leader##*:}
  sleep 0.5
  header "RESP, redis-benchmark -c 64; redis: INCR counter"
  for p in 1 32; do
    rm -f "$dir"/out.*
    for _ in $(seq "$rounds"); do
      measured redis "$server" redis 17379 "$p" INCR counter
      measured quorum "${nodes[*]}" redis "$port" "$p" TS
      measured lease "${nodes[*]}" redis "$port" "$p" TS 1 LEASE
    done
    for s in redis quorum lease; do row "$s" "P=$p" redis; done
  done
  kill "$server"
}

batch_case() {
  need redis-benchmark || return 0
  cluster
  rm -f "$dir"/out.*
  header "RESP, TS 1000, redis-benchmark -c 64 -P 32 (timestamps a second: times 1000)"
  for _ in $(seq "$rounds"); do
    measured quorum "${nodes[*]}" redis "${leader##*:}" 32 TS 1000
    measured lease "${nodes[*]}" redis "${leader##*:}" 32 TS 1000 LEASE
  done
  for s in quorum lease; do row "$s" P=32 quorum; done
}

# h2 URL: prints "RATE P50us P99us"
h2() { h2load -c8 -m32 -t1 -D"$seconds" "$1" | awk '
  /^finished in/ { r = $4 } /^time for request:/ { p = $5 } END { print r, 0, 0 }'; }

h2c_case() {
  need h2load || return 0
  cluster
  go build -o "$dir/static" ./bench/static
  "$dir/static" 127.0.0.1:17081 & pids+=($!)
  local server=$!
  sleep 0.3
  rm -f "$dir"/out.*
  header "HTTP/2 in the clear, h2load -c8 -m32 (no percentiles); net/http: 16 static bytes"
  for _ in $(seq "$rounds"); do
    measured nethttp "$server" h2 http://127.0.0.1:17081/
    measured quorum "${nodes[*]}" h2 "http://$leader/timestamp"
  done
  for s in nethttp quorum; do row "$s" 8x32 nethttp; done
  kill "$server"
}

tls_case() {
  need nginx h2load || return 0
  cluster; web
  rm -f "$dir"/out.*
  header "HTTP/1.1 over TLS, keep-alive, h2load --h1 -c256; nginx: static, 1 worker"
  https() { h2load --h1 -c256 -m1 -t1 -D"$seconds" "$1" | awk '/^finished in/ { print $4, 0, 0 }'; }
  for _ in $(seq "$rounds"); do
    measured nginx "$worker" https https://127.0.0.1:17443/index.html
    measured quorum "${nodes[*]}" https "https://$leader/timestamp"
  done
  for s in nginx quorum; do row "$s" 256 nginx; done
  stop_web
}

loops_case() {
  need wrk || return 0
  rm -f "$dir"/out.*
  header "HTTP/1.1 GET /timestamp, quorum, wrk -t1 -c64: LOOPS=2 to LOOPS=1"
  for _ in $(seq "$rounds"); do
    cluster env LOOPS=1
    measured one "${nodes[*]}" load "http://$leader/timestamp" 64
    cluster env LOOPS=2
    measured two "${nodes[*]}" load "http://$leader/timestamp" 64
  done
  for s in one two; do row "$s" 64 one; done
}

ids_case() {
  need nginx wrk redis-benchmark || return 0
  cluster; web
  local follower=${leader%?}$((${leader: -1} % 3 + 1))
  header "HTTP/1.1 GET /api/snowflake, wrk -t1; nginx: a static file of 16 bytes, 1 worker"
  for c in 30 64 256; do
    rm -f "$dir"/out.*
    for _ in $(seq "$rounds"); do
      measured nginx "$worker" load "http://127.0.0.1:17080/index.html" "$c"
      measured leader "${nodes[*]}" load "http://$leader/api/snowflake" "$c"
      measured follower "${nodes[*]}" load "http://$follower/api/snowflake" "$c"
    done
    for s in nginx leader follower; do row "$s" "$c" nginx; done
  done
  stop_web
  rm -f "$dir"/out.*
  header "RESP, redis-benchmark -c 64, of a follower; snowflake100: SNOWFLAKE 100 (ids a second: times 100)"
  for _ in $(seq "$rounds"); do
    measured snowflake "${nodes[*]}" redis "${follower##*:}" 1 SNOWFLAKE
    measured snowflake100 "${nodes[*]}" redis "${follower##*:}" 1 SNOWFLAKE 100
  done
  for s in snowflake snowflake100; do row "$s" P=1 snowflake; done
}

# paced RATE: prints p99.9 in microseconds under an open loop of that rate
paced() {
  "$dir/isotone" bench --target "$leader" --connections 64 --rate "$1" --warmup 1s --duration "$((seconds * 2))s" --json "$dir/paced.json" >/dev/null
  tr -d ' \n' <"$dir/paced.json" | sed 's/.*"latency_us":{[^}]*"p99_9":\([0-9.]*\).*/\1\n/'
}

fsync_case() {
  need strace wrk || return 0
  cluster
  local half
  half=$(load "http://$leader/timestamp" 64 | awk '{ print int($1 / 2) }')
  printf '\np99.9 at half load (%s req/s, open loop), all nodes below strace -f --seccomp-bpf -e fdatasync\n' "$half"
  rm -f "$dir"/out.*
  for _ in $(seq "$rounds"); do
    cluster strace -qq -f --seccomp-bpf -o /dev/null -e trace=fdatasync
    paced "$half" >>"$dir/out.plain"
    cluster strace -qq -f --seccomp-bpf -o /dev/null -e trace=fdatasync -e inject=fdatasync:delay_enter=200000:when=40+20
    paced "$half" >>"$dir/out.slow"
  done
  printf 'as it is %.0f us, with a sync of 200 ms every 20th (about one a second) %.0f us, ratio %.2f\n' \
    "$(column plain 1)" "$(column slow 1)" "$(awk "BEGIN { print $(column slow 1) / $(column plain 1) }")"
}

for name in "$@"; do
  case $name in
    http) http_case 1 8 64 256 ;;
    many) http_case 10000 ;;
    redis) redis_case ;;
    batch) batch_case ;;
    h2c) h2c_case ;;
    fsync) fsync_case ;;
    tls) tls_case ;;
    loops) loops_case ;;
    ids) ids_case ;;
    *) echo "bench/loop.sh: no case named $name" >&2; exit 2 ;;
  esac
done
