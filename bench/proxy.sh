#!/usr/bin/env bash
# Measures isotone proxy alternating with HAProxy on this machine, in front of one nginx that
# serves 16 static bytes, and prints medians, the CPU time per request, and ratios.
#
#   bench/proxy.sh [CONNECTIONS...]      default: 64
#
# ROUNDS (5) is the number of measurements of each, SECONDS_EACH (4) their length, NICE (0) the
# niceness of all processes. Needs go, nginx, haproxy, wrk and curl (Debian: nginx-light haproxy
# wrk curl). Everything listens on 127.0.0.1 and ends with the script.
#
# haproxy:   nbthread 1, least connections, keep-alive; it only forwards.
# haproxy+:  the same, but like isotone proxy it adds to every request a unique ID, which both
#            the backend and the client receive, and X-Forwarded-For.
# haproxy 2: haproxy with two threads, its default on two cores.
# nethttp:   httputil.ReverseProxy of Go's standard library.
#
# STATS=1 compares isotone proxy with itself instead: with --request-stats (all), also with
# --request-stats-sample 100 (sample), and with --log-requests (log) to a file.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=5
. bench/lib.sh
[ $# -gt 0 ] || set -- 64
need go nginx haproxy wrk curl || exit 2
build proxy
start_nginx 127.0.0.1:31180

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

declare -A pid port=([haproxy]=31181 [haproxy+]=31182 ["haproxy 2"]=31183 [isotone]=31184 [nethttp]=31185)
for name in haproxy haproxy+ "haproxy 2"; do
  nice -n "$nice" haproxy -f "$dir/${name// /}.cfg" >/dev/null 2>&1 & pid[$name]=$!
done
nice -n "$nice" "$dir/isotone" proxy --listen 127.0.0.1:31184 --backend http://127.0.0.1:31180 >/dev/null 2>"$dir/isotone.log" & pid[isotone]=$!
nice -n "$nice" "$dir/proxy" 127.0.0.1:31185 http://127.0.0.1:31180 >/dev/null 2>&1 & pid[nethttp]=$!
names=(haproxy isotone haproxy+ "haproxy 2" nethttp) reference=haproxy
if [ -n "${STATS:-}" ]; then
  names=(isotone sample all log) reference=isotone number=31186
  declare -A flags=([sample]="--request-stats --request-stats-sample 100" [all]=--request-stats [log]=--log-requests)
  for name in sample all log; do
    port[$name]=$number
    nice -n "$nice" "$dir/isotone" proxy --listen 127.0.0.1:$number --backend http://127.0.0.1:31180 ${flags[$name]} >/dev/null 2>"$dir/$name.log" & pid[$name]=$!
    number=$((number + 1))
  done
fi
pids+=("${pid[@]}")
for name in "${names[@]}"; do
  await "http://127.0.0.1:${port[$name]}/index.html" || { cat "$dir"/*.log >&2; fail "$name does not answer"; }
done

for c in "$@"; do
  forget
  header "HTTP/1.1 GET, wrk -t1, $rounds rounds of $seconds s; the second ratio is of the CPU times"
  for _ in $(seq "$rounds"); do
    for name in "${names[@]}"; do measured "$name" "${pid[$name]}" load "http://127.0.0.1:${port[$name]}/index.html" "$c"; done
  done
  for name in "${names[@]}"; do printf '%s %7s\n' "$(row "$name" "$c" "$reference")" "$(ratio "$name" "$reference" 4)"; done
done
awk '/VmHWM/ { printf "isotone: peak resident size %.0f MB\n", $2 / 1024 }' "/proc/${pid[isotone]}/status"
