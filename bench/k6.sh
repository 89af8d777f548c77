#!/usr/bin/env bash
# Measures the leader of three nodes with k6: virtual users, each of which sends one request after
# the other and checks every answer. The timestamps of a user must ascend, and no ID may come
# twice; see bench/k6.js. nginx, which serves 16 static bytes, is measured in turns. Prints a
# Markdown table: medians of the rates and the percentiles, and the sums of failed requests and of
# wrong answers. Says on standard error why requests failed, and exits with status 1 after a wrong
# answer.
#
#   bench/k6.sh [USERS...]      default: 100 10000
#
# ROUNDS (3) is the number of measurements of each, SECONDS_EACH (20) their length, NODES (3) the
# number of nodes, TIMESTAMP_REQUEST_BUFFER (10000) how many requests may wait in a node, NICE (0)
# the niceness of the servers and LOAD_NICE (NICE) that of k6. By default it takes about ten
# minutes. Needs go, k6, nginx and curl (Debian: nginx-light curl; k6: go install
# go.k6.io/k6@v1.8.1). Everything listens on 127.0.0.1 and ends with the script.
#
# k6 interprets JavaScript, and takes most of a small machine for that: compare the rows with
# nginx. The script refuses more users than there is memory or there are file descriptors for.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=3 seconds=20
. bench/lib.sh
[ $# -gt 0 ] || set -- 100 10000
for users in "$@"; do
  [[ $users =~ ^[1-9][0-9]{0,5}$ ]] || { echo "bench/k6.sh: USERS $users: want whole numbers from 1 to 999999" >&2; exit 2; }
done
need go curl nginx || exit 2
PATH=$PATH:$(go env GOPATH)/bin
need k6 || exit 2

kib_per_user=400 # of k6: 250 were measured for runs of some seconds
for users in "$@"; do
  have=$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)
  [ $((users * kib_per_user + 500000)) -le "$have" ] ||
    fail "$users users need about $((users * kib_per_user / 1024 + 500)) MiB of memory, of which $((have / 1024)) MiB are available"
  [ $((users + 200)) -le "$(ulimit -n)" ] || fail "$users users need $((users + 200)) file descriptors (ulimit -n)"
done

export TIMESTAMP_REQUEST_BUFFER=${TIMESTAMP_REQUEST_BUFFER:-10000}
build
start_nodes "${NODES:-3}" 17600
start_nginx 127.0.0.1:17680
await "http://$leader/api/snowflake" || fail "no IDs from $leader"

# failures NAME USERS: prints on standard error why requests failed, the most frequent reasons
# first, by how many users met each first. Empties the log.
failures() {
  sed -n 's/.*level=error msg="\(.*\)" source=console.*/\1/p' "$dir/k6.log" | sort | uniq -c | sort -rn >"$dir/reasons"
  [ ! -s "$dir/reasons" ] || { echo "$1, $2 users, failed requests (users, reason):"; head -n 5 "$dir/reasons"; } >&2
  : >"$dir/k6.log"
}

# users_ask NAME KIND URL USERS: appends "RATE P50us P90us P99us MAXus FAILED WRONG MiB" to the
# results of NAME; MiB is the peak resident size of k6.
users_ask() {
  local name=$1 pid peak=0 now servers=("${pids[@]}")
  K6_NO_USAGE_REPORT=true KIND=$2 URL=$3 VUS=$4 SECONDS=$seconds timeout $((seconds + 240)) \
    nice -n "$load_nice" k6 run --quiet --no-color --include-system-env-vars --log-output="file=$dir/k6.log,level=error" bench/k6.js >"$dir/k6.out" 2>"$dir/k6.err" & pid=$!
  pids+=("$pid")
  while kill -0 "$pid" 2>/dev/null; do
    now=$(pgrep -P "$pid" -x k6 | head -1) || true
    now=$(awk '/^VmHWM/ { print int($2 / 1024) }' "/proc/${now:-$pid}/status" 2>/dev/null) || true
    peak=${now:-$peak}
    sleep 0.5
  done
  pids=("${servers[@]}")
  wait "$pid" && [ "$(wc -w <"$dir/k6.out")" = 8 ] || { tail -n 5 "$dir"/k6.{out,err,log} >&2; fail "k6 with $4 users at $3 failed"; }
  failures "$name" "$4"
  awk -v mib="$peak" '{ print $2, $3, $4, $5, $6, $7, $8, mib }' "$dir/k6.out" >>"$dir/out.$name"
}

sum() { awk -v n="$2" '{ s += $n } END { print s + 0 }' "$dir/out.$1"; }
most() { cut -d' ' -f"$2" "$dir/out.$1" | sort -g | tail -1; }
ms() { awk -v us="$1" 'BEGIN { printf us < 10000 ? "%.2f" : "%.0f", us / 1000 }'; }

wrong=0
echo "$(k6 version | cut -d' ' -f1,2), ${NODES:-3} nodes, a buffer of $TIMESTAMP_REQUEST_BUFFER requests, $(uname -sr), $(getconf _NPROCESSORS_ONLN) cores; medians of $rounds rounds of $seconds s."
echo
echo '| virtual users | | req/s | p50, ms | p90, ms | p99, ms | worst, ms | failed requests | wrong answers | memory of k6, MiB |'
echo '|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|'
for users in "$@"; do
  forget
  for _ in $(seq "$rounds"); do
    find_leader 17600 # another one, if the nodes had no processor time
    users_ask nginx static http://127.0.0.1:17680/index.html "$users"
    users_ask timestamp timestamp "http://$leader/timestamp" "$users"
    users_ask snowflake snowflake "http://$leader/api/snowflake" "$users"
  done
  for name in nginx timestamp snowflake; do
    case $name in
      nginx) text='nginx, 16 static bytes' ;;
      timestamp) text='`/timestamp`' ;;
      snowflake) text='`/api/snowflake`' ;;
    esac
    printf '| %s | %s | %.0f | %s | %s | %s | %s | %s | %s | %s |\n' "$users" "$text" "$(column $name 1)" "$(ms "$(column $name 2)")" \
      "$(ms "$(column $name 3)")" "$(ms "$(column $name 4)")" "$(ms "$(most $name 5)")" "$(sum $name 6)" "$(sum $name 7)" "$(most $name 8)"
    wrong=$((wrong + $(sum $name 7)))
  done
done
[ "$wrong" = 0 ] || fail "$wrong answers were wrong, or could not be checked"
