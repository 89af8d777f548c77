#!/usr/bin/env bash
# Checks what Twitter required of its ID service: at least 10,000 IDs a second from one process,
# each within 2 ms. Loads one node over Thrift (framed binary, get_id) and over HTTP/1.1 (GET
# /api/snowflake), from one connection and from several, each of which sends its next call when
# the last one is answered. Prints a Markdown table of medians, and the worst latency of all
# rounds. Exits with status 1 if a row has a lower rate or a larger 99th percentile.
#
#   bench/twitter.sh [CONNECTIONS...]      default: 1 8 64
#
# ROUNDS (5) is the number of measurements of each, SECONDS_EACH (3) their length, LEAST (10000)
# the rate and P99_US (2000) the latency that are required, NICE (0) the niceness of the node and
# LOAD_NICE (NICE) that of the load generator. By default it takes a minute and a half. Needs go
# and curl. Everything listens on 127.0.0.1 and ends with the script.
#
# Many connections ask for more than is required: they saturate the node, and their latencies are
# those of a queue. The load generator (bench/thrift) shares the machine, and the time that it
# takes is part of these figures. It checks that the IDs of each connection increase.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=5 seconds=3
. bench/lib.sh
least=${LEAST:-10000} p99_most=${P99_US:-2000}
[ $# -gt 0 ] || set -- 1 8 64
for c in "$@" "$least" "$p99_most"; do
  [[ $c =~ ^[1-9][0-9]*$ ]] || { echo "bench/twitter.sh: $c: want whole numbers of at least 1" >&2; exit 2; }
done
need go curl || exit 2
build thrift
start_nodes 1 17500 env THRIFT_PORT=17520
await "http://$leader/api/snowflake" || fail "no IDs from $leader"

# ask PROTOCOL CONNECTIONS SECONDS: prints "RATE P50us P99us P99.9us MAXus".
ask() {
  local flags=(-addr 127.0.0.1:17520)
  [ "$1" = Thrift ] || flags=(-http -addr "$leader")
  timeout $(($3 + 30)) nice -n "$load_nice" "$dir/thrift" "${flags[@]}" -c "$2" -p 1 -n 1 -d "$3s" >"$dir/line" ||
    fail "$1 with $2 connections: the load generator failed"
  awk 'END { print $2, $3, $4, $5, $6 }' "$dir/line"
}

missed=0
echo "$(uname -sr), $(getconf _NPROCESSORS_ONLN) cores; medians of $rounds rounds of $seconds s. Required: $least IDs a second, p99 of $p99_most µs."
echo
echo '| protocol | connections | IDs/s | p50, µs | p99, µs | p99.9, µs | worst, µs | CPU of the node, µs per ID | required |'
echo '|---|---:|---:|---:|---:|---:|---:|---:|---|'
for c in "$@"; do
  forget
  for round in $(seq "$rounds"); do
    for protocol in Thrift HTTP; do
      [ "$round" != 1 ] || ask "$protocol" "$c" 1 >/dev/null # warm
      before=$(ticks "${nodes[@]}")
      line=$(ask "$protocol" "$c" "$seconds")
      echo "$line $(($(ticks "${nodes[@]}") - before))" | awk -v s="$seconds" '{ print $0, $1 ? $6 * 10000 / ($1 * s) : 0 }' >>"$dir/out.$protocol"
    done
  done
  for protocol in Thrift HTTP; do
    verdict=met
    rate=$(column "$protocol" 1) p99=$(column "$protocol" 3)
    if ! awk -v r="$rate" -v p="$p99" -v least="$least" -v most="$p99_most" 'BEGIN { exit !(r >= least && p <= most) }'; then
      verdict=missed missed=$((missed + 1))
    fi
    worst=$(cut -d' ' -f5 "$dir/out.$protocol" | sort -g | tail -1)
    printf '| %s | %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.1f | %s |\n' "$protocol" "$c" "$rate" "$(column "$protocol" 2)" "$p99" \
      "$(column "$protocol" 4)" "$worst" "$(column "$protocol" 7)" "$verdict"
  done
done
[ "$missed" = 0 ] || fail "$missed of the rows above miss the requirement"
