#!/usr/bin/env bash
# Runs the benchmarks of package snowflake, and those that compare it with another
# generator, and prints the median, minimum and maximum of each in nanoseconds per ID.
#
#   bench/snowflake/run.sh [ROUNDS [TIME]]    default: 9 rounds, 200ms for each benchmark
#
# Needs go. Every benchmark runs once in every round, so that a disturbance of the machine
# affects all of them. GOMAXPROCS is the number of cores they use.
set -euo pipefail
cd "$(dirname "$0")"
rounds=${1:-9} time=${2:-200ms}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
(cd ../.. && go test -c -o "$dir/alone.test" ./snowflake)
go test -c -o "$dir/beside.test" .
for _ in $(seq "$rounds"); do
  for name in alone beside; do
    "$dir/$name.test" -test.run '^$' -test.bench . -test.benchtime "$time" >"$dir/out" || { cat "$dir/out" >&2; exit 1; }
    grep '^cpu:' "$dir/out" >"$dir/cpu" || true
    # BenchmarkA/b-2  1000  9.1 ns/op  [110 million/s]  0 B/op  0 allocs/op
    awk -v name="$name" '$4 == "ns/op" { print name "/" $1, $3, ($NF == "allocs/op" ? $(NF - 1) : "-") }' "$dir/out" >>"$dir/all"
  done
done

echo "$(cat "$dir/cpu"), $(go version | cut -d' ' -f3-4), GOMAXPROCS=${GOMAXPROCS:-$(getconf _NPROCESSORS_ONLN)}"
echo "median of $rounds rounds of $time, in nanoseconds per ID"
echo
printf '%-52s %8s %8s %9s %7s\n' benchmark median min max allocs
sort -k1,1 -k2,2g "$dir/all" | awk '
  function flush() {
    if (n) printf "%-52s %8.2f %8.2f %9.2f %7s\n", name, value[int((n + 1) / 2)], value[1], value[n], allocs
    n = 0
  }
  { label = $1; sub(/-[0-9]+$/, "", label); sub(/Benchmark/, "", label); sub(/^alone\//, "", label) }
  label != name { flush(); name = label; allocs = $3 }
  { value[++n] = $2; if ($3 > allocs) allocs = $3 }
  END { flush() }'
