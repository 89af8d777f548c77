#!/usr/bin/env bash
# Measures HTTP/1.1 over TLS on this machine, in turns with nginx, which serves a static file
# of 16 bytes with one worker, the same ECDSA P-256 key, and TLS 1.3. Prints medians, the
# server's CPU time for each request, and ratios.
#
#   bench/tls.sh [CASE...]       all cases: one three handshakes
#
#   one         one node: lease, quorum, and lease without TLS; CONNECTIONS at a time
#   three       three nodes: lease and quorum
#   handshakes  one node: a new connection for each request, and openssl s_time -new
#
# ROUNDS (3), SECONDS_EACH (3) and CONNECTIONS (64 256 1000) set how often, how long and how
# many. NICE (0) is the niceness of everything measured. Needs go, nginx with its ssl module,
# wrk, curl and openssl. Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-3} connections=${CONNECTIONS:-64 256 1000} nice=${NICE:-0}
[ $# -gt 0 ] || set -- one three handshakes

for tool in go nginx wrk curl openssl; do
  command -v "$tool" >/dev/null || { echo "bench/tls.sh: $tool is missing; see the top of the script" >&2; exit 2; }
done

dir=$(mktemp -d)
chmod 755 "$dir"
nodes=() nginx=
finish() {
  for pid in $nginx ${nodes[@]+"${nodes[@]}"}; do kill -TERM "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT
go build -o "$dir/isotone" ./cmd/isotone
ulimit -n 65536 2>/dev/null || true

median() { sort -g | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
column() { cut -d' ' -f"$2" "$dir/out.$1" | median; }

# cluster N: starts N nodes in the place of those there are
leader=
cluster() {
  local id peers=
  for pid in ${nodes[@]+"${nodes[@]}"}; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in ${nodes[@]+"${nodes[@]}"}; do wait "$pid" 2>/dev/null || true; done
  nodes=() leader=
  rm -rf "$dir"/node?
  for id in $(seq "$1"); do peers=${peers:+$peers,}$id=127.0.0.1:3710$id; done
  for id in $(seq "$1"); do
    NODE_ID=$id HTTP_HOST=127.0.0.1 HTTP_PORT=3711$id ADVERTISE_ADDR=127.0.0.1:3711$id RAFT_ADDR=127.0.0.1:3710$id THRIFT_PORT=0 \
      PEERS=$peers DATA_DIR="$dir/node$id" TLS_CERT="$dir/cert.pem" TLS_KEY="$dir/key.pem" \
      nice -n "$nice" "$dir/isotone" serve 2>"$dir/log$id" & nodes+=($!)
  done
  for _ in $(seq 200); do
    leader=$(curl -s http://127.0.0.1:37111/members | sed -n 's/.*"leader":{"nodeID":[0-9]*,"addr":"\([^"]*\)".*/\1/p') || true
    [ -n "$leader" ] && [ "$(curl -sk -o /dev/null -w '%{http_code}' "https://$leader/timestamp")" = 200 ] && return
    sleep 0.05
  done
  echo "no leader; logs:"; tail -n 5 "$dir"/log*; exit 1
}

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
  -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
head -c 16 /dev/zero | tr '\0' x >"$dir/index.html"
cat >"$dir/nginx.conf" <<CONF
worker_processes 1; daemon off; pid $dir/nginx.pid; error_log $dir/nginx.log;
events { worker_connections 20000; }
http { access_log off; keepalive_requests 100000000; open_file_cache max=10; sendfile on; tcp_nodelay on;
  client_body_temp_path $dir/1; proxy_temp_path $dir/2; fastcgi_temp_path $dir/3; uwsgi_temp_path $dir/4; scgi_temp_path $dir/5;
  server { listen 127.0.0.1:37443 ssl backlog=16384; root $dir;
    ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate $dir/cert.pem; ssl_certificate_key $dir/key.pem; } }
CONF
nice -n "$nice" nginx -c "$dir/nginx.conf" & nginx=$!
sleep 0.3
worker=$(pgrep -P "$nginx" | head -1)

# ticks PID...: CPU time used so far, in ticks of 1/100 s, user and system
ticks() { local p; for p in "$@"; do cat "/proc/$p/stat"; done | awk '{ sub(/.*\) /, ""); s += $12 + $13 } END { print s + 0 }'; }

# measured NAME PIDS COMMAND...: runs the command, which prints "COUNT RATE P50us P99us", and
# appends "RATE P50us P99us CPUus" to the results of NAME
measured() {
  local name=$1 who=$2 before after line; shift 2
  # shellcheck disable=SC2086
  before=$(ticks $who)
  line=$("$@")
  # shellcheck disable=SC2086
  after=$(ticks $who)
  echo "$line $((after - before))" | awk '{ print $2, $3, $4, ($1 > 0) ? $5 * 10000 / $1 : 0 }' >>"$dir/out.$name"
}

# load URL C [OPTION...]
load() {
  local url=$1 c=$2; shift 2
  timeout $((seconds + 20)) nice -n "$nice" wrk -t1 -c"$c" -d"${seconds}s" --timeout 10s --latency "$@" "$url" | awk '
    function us(v) { if (v ~ /us$/) return v+0; if (v ~ /ms$/) return (v+0)*1000; return (v+0)*1000000 }
    $1 == "50%" { p50 = us($2) } $1 == "99%" { p99 = us($2) } /requests in/ { n = $1 } /Requests\/sec/ { r = $2 } /Non-2xx/ { bad = $NF }
    END { if (bad) { print "bad answers:", bad > "/dev/stderr"; exit 1 } print n, r, p50, p99 }'
}

# fresh PORT: full handshakes one after the other
fresh() {
  timeout $((seconds + 20)) nice -n "$nice" openssl s_time -connect "127.0.0.1:$1" -new -time "$seconds" 2>/dev/null |
    awk -v s="$seconds" '/real seconds/ { print $1, $1 / s, 0, 0 }'
}

header() { printf '\n%s\n%-18s %6s %10s %8s %8s %10s %7s\n' "$1" server c "req/s" p50_us p99_us "cpu_us/req" ratio; }
# row NAME C REFERENCE
row() {
  printf '%-18s %6s %10.0f %8.0f %8.0f %10.2f %7.2f\n' "$1" "$2" "$(column "$1" 1)" "$(column "$1" 2)" "$(column "$1" 3)" "$(column "$1" 4)" \
    "$(awk "BEGIN { print $(column "$1" 1) / $(column "$3" 1) }")"
}

one_case() {
  cluster 1
  header "one node, keep-alive, wrk -t1; nginx: static, 1 worker"
  for c in $connections; do
    rm -f "$dir"/out.*
    for _ in $(seq "$rounds"); do
      measured nginx "$worker" load https://127.0.0.1:37443/index.html "$c"
      measured lease "${nodes[*]}" load "https://$leader/timestamp?mode=lease" "$c"
      measured quorum "${nodes[*]}" load "https://$leader/timestamp?mode=quorum" "$c"
      measured lease-plain "${nodes[*]}" load "http://$leader/timestamp?mode=lease" "$c"
    done
    for s in nginx lease quorum lease-plain; do row "$s" "$c" nginx; done
    printf '%-18s %6s lease with TLS to lease without %.2f\n' "" "$c" "$(awk "BEGIN { print $(column lease 1) / $(column lease-plain 1) }")"
  done
}

three_case() {
  cluster 3
  header "three nodes, keep-alive, wrk -t1; nginx: static, 1 worker"
  for c in $connections; do
    rm -f "$dir"/out.*
    for _ in $(seq "$rounds"); do
      measured nginx "$worker" load https://127.0.0.1:37443/index.html "$c"
      measured lease "${nodes[*]}" load "https://$leader/timestamp?mode=lease" "$c"
      measured quorum "${nodes[*]}" load "https://$leader/timestamp?mode=quorum" "$c"
    done
    for s in nginx lease quorum; do row "$s" "$c" nginx; done
  done
}

handshakes_case() {
  cluster 1
  header "one node, a full handshake for each request"
  rm -f "$dir"/out.*
  for _ in $(seq "$rounds"); do
    measured nginx "$worker" load https://127.0.0.1:37443/index.html 32 -H 'Connection: close'
    measured lease "${nodes[*]}" load "https://$leader/timestamp?mode=lease" 32 -H 'Connection: close'
    measured nginx-s_time "$worker" fresh 37443
    measured lease-s_time "${nodes[*]}" fresh "${leader##*:}"
  done
  row nginx 32 nginx; row lease 32 nginx
  row nginx-s_time 1 nginx-s_time; row lease-s_time 1 nginx-s_time
}

for name in "$@"; do
  case $name in
    one) one_case ;;
    three) three_case ;;
    handshakes) handshakes_case ;;
    *) echo "bench/tls.sh: no case named $name" >&2; exit 2 ;;
  esac
done
