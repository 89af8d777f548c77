#!/usr/bin/env bash
# Measures GET /timestamp of three nodes on this machine against a static file of 16
# bytes from nginx with one worker, in turns, and prints medians and ratios.
#
#   bench/http.sh [ROUNDS [SECONDS]]      default: 3 rounds of 4 seconds
#
# Needs go, wrk, nginx and curl. Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3} seconds=${2:-4}
for tool in go wrk nginx curl; do
  command -v "$tool" >/dev/null || { echo "bench/http.sh: $tool is missing (Debian: apt-get install wrk nginx-light curl)" >&2; exit 2; }
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

peers=1=127.0.0.1:18101,2=127.0.0.1:18102,3=127.0.0.1:18103
for id in 1 2 3; do
  NODE_ID=$id HTTP_HOST=127.0.0.1 HTTP_PORT=1811$id ADVERTISE_ADDR=127.0.0.1:1811$id RAFT_ADDR=127.0.0.1:1810$id \
    PEERS=$peers DATA_DIR="$dir/node$id" "$dir/isotone" serve 2>"$dir/log$id" & pids+=($!)
done
leader=
for _ in $(seq 200); do
  leader=$(curl -s http://127.0.0.1:18111/members | sed -n 's/.*"leader":{"nodeID":[0-9]*,"addr":"\([^"]*\)".*/\1/p') || true
  [ -n "$leader" ] && [ "$(curl -s -o /dev/null -w '%{http_code}' "http://$leader/timestamp")" = 200 ] && break
  sleep 0.05
done
[ -n "$leader" ] || { echo "no leader; logs:"; tail -5 "$dir"/log*; exit 1; }

# one URL C: prints "rate p50us p99us"
one() {
  wrk -t1 -c"$2" -d"${seconds}s" --latency "$1" | awk '
    function us(v) { if (v ~ /us$/) return v+0; if (v ~ /ms$/) return (v+0)*1000; return (v+0)*1000000 }
    $1 == "50%" { p50 = us($2) } $1 == "99%" { p99 = us($2) } /Requests\/sec/ { r = $2 } /Non-2xx/ { bad = $NF }
    END { if (bad) { print "bad answers:", bad > "/dev/stderr"; exit 1 } print r, p50, p99 }'
}
median() { sort -g | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

printf '%-8s %5s %12s %9s %9s %8s\n' server c req/s p50_us p99_us ratio
for c in 1 8 64 256; do
  : >"$dir/nginx.out"; : >"$dir/quorum.out"; : >"$dir/lease.out"
  for _ in $(seq "$rounds"); do
    one "http://127.0.0.1:18080/index.html" "$c" >>"$dir/nginx.out"
    one "http://$leader/timestamp" "$c" >>"$dir/quorum.out"
    one "http://$leader/timestamp?mode=lease" "$c" >>"$dir/lease.out"
  done
  base=$(cut -d' ' -f1 "$dir/nginx.out" | median)
  for s in nginx quorum lease; do
    r=$(cut -d' ' -f1 "$dir/$s.out" | median) p50=$(cut -d' ' -f2 "$dir/$s.out" | median) p99=$(cut -d' ' -f3 "$dir/$s.out" | median)
    printf '%-8s %5s %12.0f %9.0f %9.0f %8.2f\n' "$s" "$c" "$r" "$p50" "$p99" "$(awk "BEGIN { print $r / $base }")"
  done
done
