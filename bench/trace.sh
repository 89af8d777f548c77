#!/usr/bin/env bash
# Measures what protocol traces (TRACE_FILE) cost three nodes: their processor time for each request, without traces and with them, in turns. A shared machine disturbs that less
# than rates. redis-benchmark sends TS to the leader over 50 connections, with 1 and with 32 commands under way on each.
#
#   bench/trace.sh
#
# ROUNDS (5) is the number of turns, of which it prints the medians, and REQUESTS (200000) that of requests in each, ten times as many with 32 under way. Needs go, curl and redis-benchmark
# (Debian: curl redis-tools). Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=5
. bench/lib.sh
need go curl redis-benchmark || exit 2
build

# cpu PIPELINE REQUESTS: prints the nanoseconds of processor time of all nodes for each request.
cpu() {
  local before after
  before=$(ticks "${nodes[@]}")
  redis-benchmark -h "${leader%:*}" -p "${leader#*:}" -n "$2" -c 50 -P "$1" -q TS >/dev/null
  after=$(ticks "${nodes[@]}")
  echo $(((after - before) * 10000000 / $2))
}
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

for _ in $(seq "$rounds"); do
  for traced in no yes; do
    if [ $traced = yes ]; then
      start_nodes 3 17500 bash -c 'TRACE_FILE=$DATA_DIR.trace exec "$@"' trace
    else
      start_nodes 3 17500
    fi
    cpu 1 "${REQUESTS:-200000}" >>"$dir/1.$traced"
    cpu 32 $((${REQUESTS:-200000} * 10)) >>"$dir/32.$traced"
    rm -f "$dir"/*.trace
  done
done
printf '%-10s %14s %14s %8s\n' 'under way' 'without, ns' 'with, ns' more
for n in 1 32; do
  without=$(median "$dir/$n.no") with=$(median "$dir/$n.yes")
  printf '%-10d %14d %14d %7d%%\n' $n "$without" "$with" $(((with - without) * 100 / without))
done
