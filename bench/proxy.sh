#!/usr/bin/env bash
# Measures isotone proxy beside HAProxy on this machine, in turns, in front of one nginx that
# serves 16 static bytes, and prints medians, the CPU time for each request, and ratios.
#
#   bench/proxy.sh [CONNECTIONS...]      default: 64
#
# ROUNDS (5) and SECONDS_EACH (4) set how often and how long. Needs go, nginx, haproxy, wrk and
# curl (Debian: nginx-light haproxy wrk curl). NICE is what servers and clients are started
# with ("nice -n -15" where other things run and root is at hand; default: nothing). Everything
# listens on 127.0.0.1 and ends with the script.
#
# haproxy:   nbthread 1, least connections, connections kept; it only forwards.
# haproxy+:  the same with what isotone proxy does to every request: a unique ID, forwarded
#            to the backend and to the client, and X-Forwarded-For.
# haproxy 2: haproxy with two threads, its default on two cores.
# nethttp:   httputil.ReverseProxy of Go's standard library.
#
# With STATS=1 instead: isotone proxy beside itself with --request-stats (all), with a sample
# of 100 (sample), and with --log-requests (log); logs go to a file.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-5} seconds=${SECONDS_EACH:-4} nice=${NICE:-}
[ $# -gt 0 ] || set -- 64

for tool in go nginx haproxy wrk curl; do
  command -v "$tool" >/dev/null || { echo "bench/proxy.sh: $tool is missing; see the top of the script" >&2; exit 2; }
done

dir=$(mktemp -d)
chmod 755 "$dir"
pids=()
finish() {
  for pid in ${pids[@]+"${pids[@]}"}; do kill "$pid" 2>/dev/null || true; done # nginx must end its worker
  wait 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT
go build -o "$dir/isotone" ./cmd/isotone
go build -o "$dir/nethttp" ./bench/proxy
ulimit -n 65536 2>/dev/null || true

printf xxxxxxxxxxxxxxxx >"$dir/index.html"
cat >"$dir/nginx.conf" <<CONF
worker_processes 1; daemon off; pid $dir/nginx.pid; error_log $dir/nginx.log;
events { worker_connections 4000; }
http { access_log off; keepalive_requests 100000000; open_file_cache max=10; sendfile on; tcp_nodelay on;
  client_body_temp_path $dir/1; proxy_temp_path $dir/2; fastcgi_temp_path $dir/3; uwsgi_temp_path $dir/4; scgi_temp_path $dir/5;
  server { listen 127.0.0.1:31180 backlog=4096; root $dir; } }
CONF
haproxy_conf() { # NAME PORT THREADS LINES
  cat >"$dir/$1.cfg" <<CONF
global
  maxconn 4000
  nbthread $3
defaults
  mode http
  timeout connect 2s
  timeout client 30s
  timeout server 30s
  option http-keep-alive
  http-reuse always
  balance leastconn
frontend f
  bind 127.0.0.1:$2
$4
  default_backend b
backend b
  server s 127.0.0.1:31180
CONF
}
haproxy_conf haproxy 31181 1 ''
haproxy_conf haproxy+ 31182 1 '  unique-id-format %{+X}o%ci:%cp_%fi:%fp_%Ts_%rt:%pid
  unique-id-header X-Request-ID
  http-response set-header X-Request-ID %[unique-id]
  option forwardfor'
haproxy_conf haproxy2 31183 2 ''

$nice nginx -c "$dir/nginx.conf" >/dev/null 2>&1 & pids+=($!)
declare -A pid port=([haproxy]=31181 [haproxy+]=31182 ["haproxy 2"]=31183 [isotone]=31184 [nethttp]=31185)
for name in haproxy haproxy+ "haproxy 2"; do
  $nice haproxy -f "$dir/${name// /}.cfg" >/dev/null 2>&1 & pid[$name]=$!
done
$nice "$dir/isotone" proxy --listen 127.0.0.1:31184 --backend http://127.0.0.1:31180 >/dev/null 2>"$dir/isotone.log" & pid[isotone]=$!
$nice "$dir/nethttp" 127.0.0.1:31185 http://127.0.0.1:31180 >/dev/null 2>&1 & pid[nethttp]=$!
names=(haproxy isotone haproxy+ "haproxy 2" nethttp) reference=haproxy
if [ -n "${STATS:-}" ]; then
  names=(isotone sample all log) reference=isotone number=31186
  declare -A flags=([sample]="--request-stats --request-stats-sample 100" [all]=--request-stats [log]=--log-requests)
  for name in sample all log; do
    port[$name]=$number
    $nice "$dir/isotone" proxy --listen 127.0.0.1:$number --backend http://127.0.0.1:31180 ${flags[$name]} >/dev/null 2>"$dir/$name.log" & pid[$name]=$!
    number=$((number + 1))
  done
fi
pids+=("${pid[@]}")
for name in "${names[@]}"; do
  for _ in $(seq 100); do
    [ "$(curl -s "http://127.0.0.1:${port[$name]}/index.html")" = xxxxxxxxxxxxxxxx ] && continue 2
    sleep 0.05
  done
  echo "$name does not answer" >&2
  cat "$dir"/*.log >&2
  exit 1
done

# ticks PID...: CPU time used so far, in ticks of 1/100 s, user and system
ticks() { cat "${@/%//stat}" | awk '{ sub(/.*\) /, ""); s += $12 + $13 } END { print s + 0 }'; }
# load PORT C: prints "REQUESTS RATE P50us P99us"
load() {
  $nice wrk -t1 -c"$2" -d"${seconds}s" --timeout 10s --latency "http://127.0.0.1:$1/index.html" | awk '
    function us(v) { if (v ~ /us$/) return v+0; if (v ~ /ms$/) return (v+0)*1000; return (v+0)*1000000 }
    $1 == "50%" { p50 = us($2) } $1 == "99%" { p99 = us($2) } /Requests\/sec/ { r = $2 } / requests in / { n = $1 } /Non-2xx/ { bad = $NF }
    END { if (bad) { print "bad answers:", bad > "/dev/stderr"; exit 1 } print n, r, p50, p99 }'
}
column() { cut -d' ' -f"$2" "$dir/out.${1// /_}" | sort -g | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

for c in "$@"; do
  rm -f "$dir"/out.*
  printf '\nHTTP/1.1 GET, wrk -t1 -c%s, %s rounds of %s s\n%-12s %10s %8s %8s %10s %8s %8s\n' "$c" "$rounds" "$seconds" proxy "req/s" p50_us p99_us "cpu_us/req" "req/s" "cpu"
  for _ in $(seq "$rounds"); do
    for name in "${names[@]}"; do
      before=$(ticks "/proc/${pid[$name]}")
      line=$(load "${port[$name]}" "$c")
      after=$(ticks "/proc/${pid[$name]}")
      echo "$line $(awk "BEGIN { print ($after - $before) * 10000 / ${line%% *} }")" >>"$dir/out.${name// /_}"
    done
  done
  for name in "${names[@]}"; do
    printf '%-12s %10.0f %8.0f %8.0f %10.2f %8.2f %8.2f\n' "$name" "$(column "$name" 2)" "$(column "$name" 3)" "$(column "$name" 4)" "$(column "$name" 5)" \
      "$(awk "BEGIN { print $(column "$name" 2) / $(column $reference 2) }")" "$(awk "BEGIN { print $(column "$name" 5) / $(column $reference 5) }")"
  done
done
awk '/VmHWM/ { printf "isotone: %.0f MB resident at most\n", $2 / 1024 }' "/proc/${pid[isotone]}/status"
