#!/usr/bin/env bash
# Measures the speed of the load generator itself: "isotone bench" with all its checks,
# alternating with a load generator without checks, both with 64 connections to the same
# server. Prints each pair, the medians and the ratio.
#
#   bench/loadgen.sh [http] [ROUNDS [SECONDS]]      default: 7 rounds of 4 seconds
#   bench/loadgen.sh resp [ROUNDS [SECONDS]]
#
# http: wrk, against nginx with one worker and a static file of 16 bytes.
# resp: redis-benchmark with 32 pipelined commands per connection, against the leader of
# three nodes on this machine.
#
# Needs go, and wrk and nginx, or redis-benchmark and curl (Debian: wrk nginx-light redis-tools
# curl). Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=http
case ${1:-} in http | resp) mode=$1; shift ;; esac
rounds=${1:-7} seconds=${2:-4} connections=${CONNECTIONS:-64} depth=32
ROUNDS='' SECONDS_EACH=''
. bench/lib.sh

# bench FLAGS: prints the answers per second.
bench() {
  "$dir/isotone" bench "$@" -c "$connections" -d "${seconds}s" --violations "$dir/violations" --json - ${BENCH_FLAGS:-} 2>/dev/null |
    sed -n 's/.*"answers_per_s": \([0-9.]*\).*/\1/p'
}

http() {
  need go wrk nginx || exit 2
  start_nginx 127.0.0.1:18080
  name=wrk
  ours() { bench -t 127.0.0.1:18080 --static /index.html; }
  theirs() { wrk -t1 -c"$connections" -d"${seconds}s" http://127.0.0.1:18080/index.html | sed -n 's/^Requests\/sec: *//p'; }
}

resp() {
  need go redis-benchmark curl || exit 2
  start_nodes 3 21100
  name=redis-benchmark
  ours() { bench -t "$leader" -p resp -P "$depth"; }
  commands=300000 # redis-benchmark runs for a number of commands, not for a time
  theirs() { redis-benchmark -p "${leader##*:}" -c "$connections" -P "$depth" -n "$commands" --csv TS 2>/dev/null | sed -n 's/^"TS","\([0-9.]*\)".*/\1/p'; }
  commands=$(theirs | awk "{ print int(\$1 * $seconds) }")
}

build
"$mode"
theirs >/dev/null # warm-up
printf '%15s %12s %8s\n' "$name" bench ratio
for round in $(seq "$rounds"); do
  if [ $((round % 2)) = 1 ]; then w=$(theirs) b=$(ours); else b=$(ours) w=$(theirs); fi
  ratio=$(awk "BEGIN { print $b / $w }")
  echo "$w" >>"$dir/theirs.out"; echo "$b" >>"$dir/ours.out"; echo "$ratio" >>"$dir/ratio.out"
  printf '%15.0f %12.0f %8.2f\n' "$w" "$b" "$ratio"
done
printf '%15.0f %12.0f %8.2f   medians, requests per second\n' "$(median <"$dir/theirs.out")" "$(median <"$dir/ours.out")" "$(median <"$dir/ratio.out")"
