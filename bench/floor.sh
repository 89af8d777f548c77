#!/usr/bin/env bash
# Measures three nodes beside the floor: a program in C that makes the same system calls for
# each request and round and nothing else (bench/floor/floor.c). It runs twice: "sleep" waits for the kernel at once, and "spin"
# polls for SPIN_US (20) before, which keeps a virtual processor awake. Prints medians and ratios to the better one.
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

# start_floor PORT [SPIN_US]: sets floor to the processes of a floor.
start_floor() {
  local port=$1; shift
  nice -n "$nice" "$dir/floor" follower $((port + 1)) "$@" & floor=$!; pids+=($!)
  sleep 0.3
  nice -n "$nice" "$dir/floor" leader "$port" $((port + 1)) "$@" & floor="$floor $!"; pids+=($!)
  await "http://127.0.0.1:$port/timestamp" || fail "the floor does not answer"
}
start_floor 17190; sleeping=$floor
start_floor 17192 "${SPIN_US:-20}"; spinning=$floor
start_nodes 3 17100

# better MODE: prints the name of the floor that answered more.
better() {
  [ "$(ratio "sleep_$1" "spin_$1" | tr -d .)" -gt 100 ] && echo "sleep_$1" || echo "spin_$1"
}
rows() { # CONNECTIONS
  local mode name
  for mode in quorum lease; do
    for name in "sleep_$mode" "spin_$mode" "$mode"; do row "$name" "$1" "$(better "$mode")"; done
  done
}

header "HTTP/1.1 GET /timestamp, wrk -t1; ratio to the better floor of the same mode"
for c in "$@"; do
  forget
  for _ in $(seq "$rounds"); do
    measured sleep_quorum "$sleeping" load http://127.0.0.1:17190/timestamp "$c"
    measured spin_quorum "$spinning" load http://127.0.0.1:17192/timestamp "$c"
    measured quorum "${nodes[*]}" load "http://$leader/timestamp" "$c"
    measured sleep_lease "$sleeping" load http://127.0.0.1:17190/lease "$c"
    measured spin_lease "$spinning" load http://127.0.0.1:17192/lease "$c"
    measured lease "${nodes[*]}" load "http://$leader/timestamp?mode=lease" "$c"
  done
  rows "$c"
done

header "RESP TS, redis-benchmark; ratio to the better floor of the same mode"
for c in "$@"; do
  forget
  for _ in $(seq "$rounds"); do
    measured sleep_quorum "$sleeping" redis "$c" 17190 1 TS
    measured spin_quorum "$spinning" redis "$c" 17192 1 TS
    measured quorum "${nodes[*]}" redis "$c" "${leader##*:}" 1 TS
    measured sleep_lease "$sleeping" redis "$c" 17190 1 TS 1 LEASE
    measured spin_lease "$spinning" redis "$c" 17192 1 TS 1 LEASE
    measured lease "${nodes[*]}" redis "$c" "${leader##*:}" 1 TS 1 LEASE
  done
  rows "$c"
done
