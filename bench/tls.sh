#!/usr/bin/env bash
# Measures HTTP/1.1 over TLS 1.3 on this machine, alternating with nginx, which serves a static
# file of 16 bytes with one worker and the same ECDSA P-256 key. Prints medians, the server's
# CPU time per request, and ratios.
#
#   bench/tls.sh [CASE...]       all cases: one three handshakes
#
#   one         one node: lease, quorum, and lease without TLS
#   three       three nodes: lease and quorum
#   handshakes  one node: a new connection for each request, and openssl s_time -new
#
# ROUNDS (3) is the number of measurements of each, SECONDS_EACH (3) their length, CONNECTIONS
# (64 256 1000) the numbers of connections for one and three, NICE (0) the niceness of all
# processes. Needs go, nginx with its ssl module, wrk, curl and openssl. Everything listens on
# 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=3 connections=${CONNECTIONS:-64 256 1000}
. bench/lib.sh
[ $# -gt 0 ] || set -- one three handshakes
need go nginx wrk curl openssl || exit 2
build
certificate
start_nginx "127.0.0.1:27443 ssl"
export TLS_CERT=$dir/cert.pem TLS_KEY=$dir/key.pem

# fresh PORT: full handshakes, one after another; prints "COUNT RATE 0 0"
fresh() {
  timeout $((seconds + 20)) nice -n "$nice" openssl s_time -connect "127.0.0.1:$1" -new -time "$seconds" 2>/dev/null |
    awk -v s="$seconds" '/real seconds/ { print $1, $1 / s, 0, 0 }'
}

one_case() {
  start_nodes 1 27100
  header "one node, keep-alive, wrk -t1; nginx: static, 1 worker"
  for c in $connections; do
    forget
    for _ in $(seq "$rounds"); do
      measured nginx "$worker" load https://127.0.0.1:27443/index.html "$c"
      measured lease "${nodes[*]}" load "https://$leader/timestamp?mode=lease" "$c"
      measured quorum "${nodes[*]}" load "https://$leader/timestamp?mode=quorum" "$c"
      measured lease-plain "${nodes[*]}" load "http://$leader/timestamp?mode=lease" "$c"
    done
    for s in nginx lease quorum lease-plain; do row "$s" "$c" nginx; done
    printf '%-20s %6s ratio of lease with TLS to without: %s\n' "" "$c" "$(ratio lease lease-plain)"
  done
}

three_case() {
  start_nodes 3 27100
  header "three nodes, keep-alive, wrk -t1; nginx: static, 1 worker"
  for c in $connections; do
    forget
    for _ in $(seq "$rounds"); do
      measured nginx "$worker" load https://127.0.0.1:27443/index.html "$c"
      measured lease "${nodes[*]}" load "https://$leader/timestamp?mode=lease" "$c"
      measured quorum "${nodes[*]}" load "https://$leader/timestamp?mode=quorum" "$c"
    done
    for s in nginx lease quorum; do row "$s" "$c" nginx; done
  done
}

handshakes_case() {
  start_nodes 1 27100
  header "one node, a full handshake for each request"
  forget
  for _ in $(seq "$rounds"); do
    measured nginx "$worker" load https://127.0.0.1:27443/index.html 32 -H 'Connection: close'
    measured lease "${nodes[*]}" load "https://$leader/timestamp?mode=lease" 32 -H 'Connection: close'
    measured nginx-s_time "$worker" fresh 27443
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
