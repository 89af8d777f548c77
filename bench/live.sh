#!/usr/bin/env bash
# Measures a live document of 4,195 bytes on this machine, alternating with nginx, which serves
# the same bytes from a file with one worker: 1,000 keep-alive connections, without and with
# TLS; then 10,000 readers, each polling once a second. Prints medians and ratios.
#
#   bench/live.sh [CASE...]      all cases: plain tls poll
#
# ROUNDS (3) is the number of measurements of each, SECONDS_EACH (4) their length. Needs go,
# nginx with its ssl module, wrk, curl, openssl and, for poll, h2load (Debian: nginx-light wrk
# curl openssl nghttp2-client). Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/lib.sh
[ $# -gt 0 ] || set -- plain tls poll
need go nginx wrk curl openssl || exit 2
build

# The document changes every second.
document() {
  printf '{"counted":%d,"votes":"' "$1"
  head -c 5000 /dev/zero | tr '\0' x | head -c $((4195 - 23 - ${#1}))
  printf '"}'
}
document 100 >"$dir/doc.json"
certificate
start_nginx 127.0.0.1:28080 "127.0.0.1:28443 ssl"
TLS_CERT="$dir/cert.pem" TLS_KEY="$dir/key.pem" LIVE="doc=file:$dir/doc.json" start_nodes 1 28100
node=${nodes[0]}
await http://127.0.0.1:28111/live/doc || { tail -n 5 "$dir/log1" >&2; fail "no document"; }
[ "$(curl -s http://127.0.0.1:28111/live/doc | wc -c)" = 4195 ] || fail "the document does not have 4,195 bytes"
(n=100; while sleep 1; do n=$((n + 1)); document "$n" >"$dir/next" && mv "$dir/next" "$dir/doc.json"; done) & pids+=($!)

for name in "$@"; do
  case $name in
    plain)
      header "4,195 bytes, 1,000 connections, wrk -t1"
      for _ in $(seq "$rounds"); do
        measured nginx "$worker" load http://127.0.0.1:28080/doc.json 1000
        measured isotone "$node" load http://127.0.0.1:28111/live/doc 1000
      done
      row nginx 1000 nginx; row isotone 1000 nginx ;;
    tls)
      header "4,195 bytes, 1,000 connections, wrk -t1, over TLS 1.3, ECDSA P-256"
      for _ in $(seq "$rounds"); do
        measured nginx-tls "$worker" load https://127.0.0.1:28443/doc.json 1000
        measured isotone-tls "$node" load https://127.0.0.1:28111/live/doc 1000
      done
      row nginx-tls 1000 nginx-tls; row isotone-tls 1000 nginx-tls
      [ -f "$dir/out.isotone" ] && printf 'isotone, ratio with TLS to without: %s\n' "$(ratio isotone-tls isotone)" ;;
    poll)
      need h2load || continue
      printf '\n10,000 readers, each asking once a second, h2load --h1\n'
      h2load --h1 -c10000 -t1 --rps 1 -D $((seconds * 3 + 5)) --warm-up-time 5 http://127.0.0.1:28111/live/doc >"$dir/h2" & pids+=($!)
      load_pid=$!
      sleep 8
      before=$(ticks "$node"); sleep $((seconds * 2)); after=$(ticks "$node")
      wait "$load_pid" || true
      grep -E '^finished|^requests' "$dir/h2"
      awk -v t=$((after - before)) -v s=$((seconds * 2)) 'BEGIN { printf "the node used %.0f %% of one core\n", t / s }' ;;
    *) echo "bench/live.sh: no case named $name" >&2; exit 2 ;;
  esac
done
