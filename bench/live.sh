#!/usr/bin/env bash
# Measures a live document with a URL as its source (GET /live/NAME), as a cache in front of a slow
# origin, alternating with other ways to do that, and prints Markdown tables of medians. The document has
# 4,195 bytes and changes every second; the origin takes 50 ms for an answer, and says max-age=1. Then 10,000
# readers of the node, each of which asks once a second.
#
#   bench/live.sh [CASE...]      all cases: plain tls poll
#
#   nginx-file   nginx, one worker: a static file, which curl replaces once a second
#   isotone      one node, which loads the document once a second
#   nginx-cache  nginx, one worker: proxy_cache; one request at a time goes to the origin, and
#                meanwhile the old document is served
#   haproxy      HAProxy, one thread: cache
#   varnish      Varnish, with an old document served meanwhile (grace); without TLS, which it has not
#
# In the case plain without TLS, in the case tls with TLS 1.3 and one ECDSA P-256 key. Servers that are
# not installed are left out, and named. In the case poll the node alone, with h2load.
#
# ROUNDS (5) is the number of measurements of each, SECONDS_EACH (4) their length, CONNECTIONS (1000)
# the number of keep-alive connections of the first two, NICE (0) the niceness of all processes. Needs go, nginx with its
# ssl module, wrk, curl and openssl, and has haproxy and varnishd if they are there (Debian: nginx-light
# haproxy varnish nghttp2-client wrk curl openssl). Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=5 connections=${CONNECTIONS:-1000}
. bench/lib.sh
[ $# -gt 0 ] || set -- plain tls poll
for name; do
  case $name in plain|tls|poll) ;; *) fail "no case named $name; want plain, tls or poll" ;; esac
done
need go nginx wrk curl openssl || exit 2
build origin
certificate

"$dir/origin" 127.0.0.1:29000 & pids+=($!)
origin=http://127.0.0.1:29000
await "$origin/doc.json" || fail "the origin does not answer"

declare -A plain=() tls=() processes=()
names=()

# nginx NAME PORT TLS_PORT LINES LOCATION: starts an nginx of its own, so that the CPU time of its
# worker is that of one kind
nginx() {
  local name=$1 port=$2 secure=$3 master worker
  cat >"$dir/$name.conf" <<CONF
worker_processes 1; daemon off; pid $dir/$name.pid; error_log $dir/$name.log;
events { worker_connections 20000; }
http { access_log off; keepalive_requests 100000000; tcp_nodelay on; sendfile on; open_file_cache max=10; open_file_cache_valid 1s;
  client_body_temp_path $dir/$name.1; proxy_temp_path $dir/$name.2; fastcgi_temp_path $dir/$name.3; uwsgi_temp_path $dir/$name.4;
  scgi_temp_path $dir/$name.5; $4
  server { listen 127.0.0.1:$port backlog=16384; listen 127.0.0.1:$secure ssl backlog=16384;
    ssl_certificate $dir/cert.pem; ssl_certificate_key $dir/key.pem; ssl_protocols TLSv1.2 TLSv1.3;
    location / { $5 } } }
CONF
  nice -n "$nice" "$(type -P nginx)" -c "$dir/$name.conf" & master=$!
  pids+=("$master")
  await "http://127.0.0.1:$port/doc.json" || { cat "$dir/$name.log" >&2; fail "$name does not answer"; }
  # The processes that load and expire a cache have other names.
  worker=$(pgrep -P "$master" -f 'worker process') || fail "$name has no worker"
  names+=("$name") processes[$name]=$worker plain[$name]=http://127.0.0.1:$port/doc.json tls[$name]=https://127.0.0.1:$secure/doc.json
}

mkdir "$dir/files"
chmod 755 "$dir/files"
curl -s -o "$dir/files/doc.json" "$origin/doc.json"
(while sleep 1; do curl -s -o "$dir/files/next" "$origin/doc.json" && mv "$dir/files/next" "$dir/files/doc.json"; done) & pids+=($!)
nginx nginx-file 29080 29443 "" "root $dir/files;"

TLS_CERT="$dir/cert.pem" TLS_KEY="$dir/key.pem" LIVE="doc=$origin/doc.json" start_nodes 1 29100
names+=(isotone) processes[isotone]=${nodes[0]} plain[isotone]=http://127.0.0.1:29111/live/doc tls[isotone]=https://127.0.0.1:29111/live/doc

nginx nginx-cache 29081 29444 "proxy_cache_path $dir/cache keys_zone=one:1m max_size=10m use_temp_path=off;" \
  "proxy_pass $origin; proxy_cache one; proxy_cache_lock on; proxy_cache_background_update on; proxy_cache_use_stale updating error timeout;"

if command -v haproxy >/dev/null; then
  cat "$dir/cert.pem" "$dir/key.pem" >"$dir/both.pem"
  cat >"$dir/haproxy.cfg" <<CONF
global
  maxconn 4000
  nbthread 1
  ssl-default-bind-options ssl-min-ver TLSv1.2
defaults
  mode http
  timeout connect 2s
  timeout client 30s
  timeout server 30s
  option http-keep-alive
cache one
  total-max-size 4
  max-age 1
frontend f
  bind 127.0.0.1:29082 backlog 16384
  bind 127.0.0.1:29445 backlog 16384 ssl crt $dir/both.pem
  http-request cache-use one
  http-response cache-store one
  default_backend b
backend b
  server s 127.0.0.1:29000
CONF
  nice -n "$nice" haproxy -f "$dir/haproxy.cfg" >"$dir/haproxy.log" 2>&1 & haproxy=$!
  pids+=("$haproxy")
  await http://127.0.0.1:29082/doc.json || { cat "$dir/haproxy.log" >&2; fail "haproxy does not answer"; }
  names+=(haproxy) processes[haproxy]=$haproxy plain[haproxy]=http://127.0.0.1:29082/doc.json tls[haproxy]=https://127.0.0.1:29445/doc.json
else
  echo "haproxy is not installed: it is left out"
fi

if command -v varnishd >/dev/null; then
  cat >"$dir/default.vcl" <<'CONF'
vcl 4.0;
backend default { .host = "127.0.0.1"; .port = "29000"; }
sub vcl_backend_response { set beresp.ttl = 1s; set beresp.grace = 10s; }
CONF
  mkdir "$dir/varnish"
  chmod 777 "$dir/varnish" # its workers may run as another user
  nice -n "$nice" varnishd -F -j none -n "$dir/varnish" -a 127.0.0.1:29083 -f "$dir/default.vcl" -s malloc,16m \
    -p listen_depth=16384 >"$dir/varnish.log" 2>&1 & varnish=$!
  pids+=("$varnish")
  await http://127.0.0.1:29083/doc.json || { cat "$dir/varnish.log" >&2; fail "varnishd does not answer"; }
  child=$(pgrep -P "$varnish" | head -1) || fail "varnishd has no worker"
  names+=(varnish) processes[varnish]=$child plain[varnish]=http://127.0.0.1:29083/doc.json
else
  echo "varnishd is not installed: it is left out"
fi

# fresh URL: returns when the document has its size and is at most three seconds old, or fails after ten
# seconds. A cache loads it only when it is asked.
fresh() {
  local body counted _
  for _ in $(seq 20); do
    body=$(curl -sk "$1")
    counted=$(sed -n 's/^{"counted":\([0-9]*\),.*/\1/p' <<<"$body")
    [ "${#body}" = 4195 ] || fail "$1 has ${#body} bytes, not 4,195"
    [ $(($(date +%s) - ${counted:-0})) -gt 3 ] || return 0
    sleep 0.5
  done
  fail "$1 stays as old as $counted; now it is $(date +%s)"
}

# compare CASE URLS TITLE
compare() {
  local case=$1 title=$3 name before
  local -n urls=$2
  printf '\n%s, %s keep-alive connections, wrk -t1, medians of %s rounds of %s s in turns:\n\n' "$title" "$connections" "$rounds" "$seconds"
  forget
  before=$(curl -s "$origin/requests")
  for _ in $(seq "$rounds"); do
    for name in "${names[@]}"; do
      [ -n "${urls[$name]:-}" ] || continue
      fresh "${urls[$name]}"
      measured "$name" "${processes[$name]}" load "${urls[$name]}" "$connections"
    done
  done
  printf '| %s | req/s | p50 | p99 | CPU for a request | ratio |\n|---|---:|---:|---:|---:|---:|\n' "$case"
  for name in "${names[@]}"; do
    [ -n "${urls[$name]:-}" ] || continue
    printf '| %s | %.0f | %.1f ms | %.1f ms | %.1f µs | %s |\n' "$name" "$(column "$name" 1)" "$(column "$name" 2 | awk '{ print $1 / 1000 }')" \
      "$(column "$name" 3 | awk '{ print $1 / 1000 }')" "$(column "$name" 4)" "$(ratio "$name" nginx-file)"
  done
  printf '\nThe origin got %s requests meanwhile.\n' $(($(curl -s "$origin/requests") - before))
}

# poll prints what h2load counted, and the CPU time of the node.
poll() {
  local before after loading node=${processes[isotone]}
  need h2load || return 0
  printf '\n10,000 readers, each of which asks once a second, h2load --h1:\n\n'
  h2load --h1 -c10000 -t1 --rps 1 -D $((seconds * 3 + 5)) --warm-up-time 5 "${plain[isotone]}" >"$dir/h2" & loading=$!
  pids+=("$loading")
  sleep 8
  before=$(ticks "$node")
  sleep $((seconds * 2))
  after=$(ticks "$node")
  wait "$loading" || true
  grep -E '^finished|^requests' "$dir/h2"
  awk -v t=$((after - before)) -v s=$((seconds * 2)) 'BEGIN { printf "the node used %.0f %% of one core\n", t / s }'
}

for name in "$@"; do
  case $name in
    plain) compare plain plain "Without TLS" ;;
    tls) compare tls tls "TLS 1.3, ECDSA P-256" ;;
    poll) poll ;;
  esac
done
