#!/usr/bin/env bash
# Measures the clients in all languages against three nodes on this machine, in turns: 1,000 callers in one process that each ask for
# one timestamp at a time, and a lone call beside the same request on a bare socket of the language. Prints a Markdown table of medians.
#
#   bench/clients.sh [LANGUAGE...]      default: go python typescript java rust
#
# ROUNDS (3) is the number of measurements of each, SECONDS_EACH (4) their length, CALLERS 1000. Needs go, curl, and for each language
# what its check.sh needs, which is to be run before. Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/lib.sh
need go curl || exit 2
callers=${CALLERS:-1000}
[ $# -gt 0 ] || set -- go python typescript java rust

prepare_go() { build client; }
prepare_python() { :; }
prepare_typescript() { (cd clients/typescript && npm run --silent build:all); }
prepare_java() { (cd clients/java && mvn -q -o compile); }
prepare_rust() { (cd clients/rust && cargo bench --quiet --no-run --bench load); }

# measure_LANGUAGE prints the rate and the median latency in microseconds on a line that begins with "load", and the ratio of a lone call
# to a bare socket on one that begins with "lone".
measure_go() {
  "$dir/client" --json --goroutines "$callers" --duration "${seconds}s" --rounds 3 "${addrs[@]}" |
    awk -F '[:,]' '/"ratio"/ { print "lone", $2 } /timestamps_per_s/ { rate = $2 } /p50_us/ && rate { print "load", rate, $2; rate = 0 }'
}
measure_python() {
  PYTHONPATH=clients/python/src python3 clients/python/bench/bench.py --callers "$callers" --seconds "$seconds" "${addrs[@]}" | awk '{ print "load", $2, $3 }'
  PYTHONPATH=clients/python/src python3 clients/python/bench/bench.py --lone --seconds "$seconds" "${addrs[@]}" | lone
}
measure_typescript() {
  node clients/typescript/build/bench/main.js --callers "$callers" --seconds "$seconds" "${addrs[@]}" | both
}
measure_java() { java -cp clients/java/target/classes clients/java/bench/Bench.java "$callers" "$seconds" "${addrs[@]}" | both; }
measure_rust() { (cd clients/rust && cargo bench --quiet --bench load -- "$callers" "$seconds" "${addrs[@]}") | both; }

lone() { sed -n 's/^ratio of the medians \([0-9.]*\)$/lone \1/p'; }
both() { awk '/^[0-9]+ [0-9.]+ / { print "load", $2, $3 } match($0, /ratio [0-9.]+/) { print "lone", substr($0, RSTART + 6, RLENGTH - 6) }'; }
median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
of() { awk -v kind="$2" -v field="$3" '$1 == kind { print $field }' "$dir/$1.measured" | median; } # LANGUAGE KIND FIELD

for language; do "prepare_$language"; done
start_nodes 3 30600
addrs=(127.0.0.1:30611 127.0.0.1:30612 127.0.0.1:30613)
for _ in $(seq "$rounds"); do
  for language; do "measure_$language" >>"$dir/$language.measured"; done
done
printf '| client | timestamps a second, %s callers | to Go | p50 | lone call to a bare socket |\n|---|---:|---:|---:|---:|\n' "$callers"
for language; do
  rate=$(of "$language" load 2)
  [ "$language" != go ] || go=$rate
  printf '| %s | %.0f | %s | %.0f µs | %.2f |\n' "$language" "$rate" "$(awk -v a="$rate" -v b="${go:-0}" 'BEGIN { if (b > 0) printf "%.2f", a / b }')" "$(of "$language" load 3)" "$(of "$language" lone 2)"
done
