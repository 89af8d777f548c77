#!/usr/bin/env bash
# Measures GET /timestamp and GET /api/snowflake with ApacheBench, of one node and of the leader
# of three, in turns with nginx, which serves 16 static bytes; first with keep-alive, then with a
# connection for each request. Prints Markdown: medians of the rate, of the 90th percentile and of
# the CPU time, which is in percent of one core, the ratio of the rates to nginx, and how often the
# server that is asked sleeps in 100 requests (voluntary context switches).
#
#   bench/ab.sh [CONCURRENCY...]      default: 1 2 5 10 15 20 25 30
#
# ROUNDS (3) is the number of measurements of each, SECONDS_EACH (3) their length, CASES ("keep
# close") is with keep-alive and without, NICE (0) the niceness of the servers and LOAD_NICE (NICE)
# that of ab. By default it takes about 17 minutes. Needs go, ab, nginx and curl (Debian:
# apache2-utils nginx-light curl). Everything listens on 127.0.0.1 and ends with the script.
#
# ab is one thread, and its own CPU time is printed as well: at 100 % it is ab that is measured.
# A failed request, an answer without status 200 and a failure of ab are errors.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=3 seconds=3
. bench/lib.sh
[ $# -gt 0 ] || set -- 1 2 5 10 15 20 25 30
for c in "$@"; do
  [[ $c =~ ^[1-9][0-9]*$ ]] || { echo "bench/ab.sh: CONCURRENCY $c: want whole numbers of at least 1" >&2; exit 2; }
done
cases=${CASES:-keep close}
need go ab nginx curl || exit 2
build
start_nginx 127.0.0.1:17380

# ab_run URL CONCURRENCY [OPTION...]: prints "RATE P90us SECONDS". -l: the length of an answer may
# vary. ab rounds its own percentiles to milliseconds; those in the file have microseconds.
ab_run() {
  local url=$1 c=$2; shift 2
  timeout $((seconds + 60)) ab -q -l -t "$seconds" -n $((seconds * 300000)) -c "$c" -e "$dir/ab.csv" "$@" "$url" >"$dir/ab.txt" 2>"$dir/ab.err" ||
    { tail -n 3 "$dir/ab.txt" "$dir/ab.err" >&2; fail "ab -c $c $* $url failed"; }
  awk -F'[:,] *' '
    FILENAME ~ /csv$/ { if ($1 == 90) p90 = $2 * 1000; next }
    /^Time taken/ { t = $2 + 0 } /^Requests per second/ { r = $2 + 0 } /^Failed requests/ { bad += $2 } /^Non-2xx/ { bad += $2 }
    END { if (bad) { print "failed requests:", bad > "/dev/stderr"; exit 1 } print r, p90, t }' "$dir/ab.csv" "$dir/ab.txt" ||
    fail "ab -c $c $* $url: not every request was answered"
}

# CPU time of the children that this shell has waited for, in ticks of 1/100 s: that is ab's.
children() { awk '{ sub(/.*\) /, ""); print $14 + $15 }' "/proc/$$/stat"; }

# sleeps PID...: how often these processes have waited, which are voluntary context switches.
sleeps() { local pid; for pid; do cat "/proc/$pid"/task/*/status; done | awk '/^voluntary_ctxt_switches/ { n += $2 } END { print n + 0 }'; }

# measure NAME ASKED ALL URL CONCURRENCY [OPTION...]: ASKED and ALL are process IDs. Appends "RATE
# P90us ASKED% ALL% AB% SLEEPS" to the results of NAME.
measure() {
  local name=$1 asked=$2 all=$3 a b c d; shift 3
  # shellcheck disable=SC2086
  a=$(ticks $asked) b=$(ticks $all) c=$(children) d=$(sleeps $asked)
  ab_run "$@" >"$dir/line"
  # shellcheck disable=SC2086
  echo "$(cat "$dir/line") $(($(ticks $asked) - a)) $(($(ticks $all) - b)) $(($(children) - c)) $(($(sleeps $asked) - d))" |
    awk '{ print $1, $2, $4 / $3, $5 / $3, $6 / $3, $7 / ($1 * $3) * 100 }' >>"$dir/out.$name"
}

# leader_pid: prints the process ID of the leader.
leader_pid() { echo "${nodes[$((${leader: -1} - 1))]}"; }

# cluster N: starts N nodes, and warms them.
cluster() {
  start_nodes "$1" 17300
  await "http://$leader/api/snowflake" || fail "no IDs from $leader"
  seconds=1 ab_run "http://$leader/timestamp" 5 -k >/dev/null
}

line() { # NAME TEXT CONCURRENCY
  awk -v c="$3" -v text="$2" -v r="$(column "$1" 1)" -v n="$(column nginx 1)" -v p="$(column "$1" 2)" -v cpu="$(column "$1" 3)" -v all="$(column "$1" 4)" \
    -v ab="$(column "$1" 5)" -v sleeps="$(column "$1" 6)" \
    'BEGIN { printf "| %s | %s | %.0f | %.2f | %.3f | %.0f | %.0f | %.0f | %.0f |\n", c, text, r, n ? r / n : 0, p / 1000, cpu, all, ab, sleeps }'
}

echo "ab $(ab -V | sed -n 's/.*Version \([0-9.]*\).*/\1/p'), $(nginx -v 2>&1 | sed 's/.*: //'), $(uname -sr), $(getconf _NPROCESSORS_ONLN) cores; medians of $rounds rounds of $seconds s."
for case in $cases; do
  case $case in
    keep) options=(-k) title='keep-alive (`ab -k`)' ;;
    close) options=() title='a connection for each request' ;;
    *) echo "bench/ab.sh: CASES: no case named $case; want keep or close" >&2; exit 2 ;;
  esac
  printf '\n%s\n\n' "With $title:"
  echo '| concurrency | | req/s | ratio to nginx | p90, ms | CPU asked, % | CPU all, % | CPU of ab, % | sleeps in 100 requests |'
  echo '|---:|---|---:|---:|---:|---:|---:|---:|---:|'
  for c in "$@"; do
    forget
    for _ in $(seq "$rounds"); do
      end_nodes
      measure nginx "$worker $nginx" "$worker $nginx" http://127.0.0.1:17380/index.html "$c" ${options[@]+"${options[@]}"}
      for n in 1 3; do
        cluster "$n"
        for path in timestamp api/snowflake; do
          measure "$n.${path#api/}" "$(leader_pid)" "${nodes[*]}" "http://$leader/$path" "$c" ${options[@]+"${options[@]}"}
        done
      done
    done
    line nginx 'nginx, 16 static bytes' "$c"
    line 1.timestamp '1 node, `/timestamp`' "$c"
    line 3.timestamp '3 nodes, `/timestamp`' "$c"
    line 1.snowflake '1 node, `/api/snowflake`' "$c"
    line 3.snowflake '3 nodes, `/api/snowflake`' "$c"
  done
done
