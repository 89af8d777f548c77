#!/usr/bin/env bash
# Measures three nodes beside the floor: a program in C that makes the same system calls for
# each request and round and nothing else (bench/floor/floor.c). Prints medians and ratios.
#
#   bench/floor.sh [CONNECTIONS...]      default: 1 8 64 256
#
# ROUNDS (5) is the number of measurements of each, SECONDS_EACH (3) their length. Needs go, cc,
# curl, wrk and redis-benchmark (Debian: gcc curl wrk redis-tools). Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=5 seconds=3
. bench/lib.sh
need go cc curl wrk redis-benchmark || exit 2
[ $# -gt 0 ] || set -- 1 8 64 256
build
cc -O2 -Wall -Wextra -o "$dir/floor" bench/floor/floor.c

nice -n "$nice" "$dir/floor" follower 17191 & pids+=($!)
sleep 0.3
nice -n "$nice" "$dir/floor" leader 17190 17191 & pids+=($!)
floor="${pids[*]}"
await http://127.0.0.1:17190/timestamp || fail "the floor does not answer"
start_nodes 3 17100

rows() { # CONNECTIONS
  for mode in quorum lease; do
    row "floor_$mode" "$1" "floor_$mode"
    row "$mode" "$1" "floor_$mode"
  done
}

header "HTTP/1.1 GET /timestamp, wrk -t1; ratio to the floor of the same mode"
for c in "$@"; do
  forget
  for _ in $(seq "$rounds"); do
    measured floor_quorum "$floor" load http://127.0.0.1:17190/timestamp "$c"
    measured quorum "${nodes[*]}" load "http://$leader/timestamp" "$c"
    measured floor_lease "$floor" load http://127.0.0.1:17190/lease "$c"
    measured lease "${nodes[*]}" load "http://$leader/timestamp?mode=lease" "$c"
  done
  rows "$c"
done

header "RESP TS, redis-benchmark; ratio to the floor of the same mode"
for c in "$@"; do
  forget
  for _ in $(seq "$rounds"); do
    measured floor_quorum "$floor" redis "$c" 17190 1 TS
    measured quorum "${nodes[*]}" redis "$c" "${leader##*:}" 1 TS
    measured floor_lease "$floor" redis "$c" 17190 1 TS 1 LEASE
    measured lease "${nodes[*]}" redis "$c" "${leader##*:}" 1 TS 1 LEASE
  done
  rows "$c"
done
