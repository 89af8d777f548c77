#!/usr/bin/env bash
# Runs the benchmarks of package disruptor and prints a table: the median, minimum and
# maximum of each, and the median of the channel that does the same work.
#
#   bench/disruptor.sh [ROUNDS [TIME]]    default: 9 rounds, 200ms for each benchmark
#
# Needs go. Every benchmark runs once in every round, so that a disturbance of the machine
# affects all of them. GOMAXPROCS is the number of cores they use.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-9} time=${2:-200ms}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go test -c -o "$dir/disruptor.test" ./disruptor
for _ in $(seq "$rounds"); do
  "$dir/disruptor.test" -test.run '^$' -test.bench . -test.benchtime "$time" | tee "$dir/out" |
    grep '^cpu:' >"$dir/cpu" || true
  grep -q '^PASS' "$dir/out" || { cat "$dir/out" >&2; exit 1; }
  # BenchmarkDisruptor_A_B-2  1000  9.1 ns/op  0 B/op  0 allocs/op
  awk '$4 == "ns/op" { print $1, $3, $7 }' "$dir/out" >>"$dir/all"
done

echo "$(cat "$dir/cpu"), $(go version | cut -d' ' -f3-4), GOMAXPROCS=${GOMAXPROCS:-$(getconf _NPROCESSORS_ONLN)}"
echo "median of $rounds rounds of $time, in nanoseconds per element"
echo
sort -k1,1 -k2,2g "$dir/all" | awk '
  { name = $1; sub(/^Benchmark/, "", name); sub(/-[0-9]+$/, "", name) }
  { value[name, ++count[name]] = $2; if ($3 > allocs[name]) allocs[name] = $3 }
  END {
    for (name in count) median[name] = value[name, int((count[name] + 1) / 2)]
    for (name in count) {
      # The last part of the name gives the writers and readers, which select the channel.
      parts = split(name, part, "_")
      channel = "Channel_Blocking_" part[parts]
      if (part[parts] ~ /(One|Yielding)Reader$/) channel = "Channel_Blocking_OneWriter"
      if (name ~ /RoundTrip/) channel = "Channel_RoundTrip"
      if (name ~ /^Channel/ || name ~ /NoData/ || !(channel in median)) { reference = "-"; factor = "-" }
      else { reference = sprintf("%.1f", median[channel]); factor = sprintf("%.1f", median[channel] / median[name]) }
      label = name; gsub("_", " ", label)
      order = (name ~ /RoundTrip/ ? 4 : name ~ /^Channel/ ? 1 : name ~ /NoData/ ? 3 : 2) (name ~ /Shared/ ? 1 : 0)
      printf "%s%09d\t%-54s %8.2f %8.2f %9.2f %9s %7s %7d\n", order, median[name] * 100, label, median[name],
        value[name, 1], value[name, count[name]], reference, factor, allocs[name]
    }
  }' | sort -n | cut -f2 | {
  printf '%-54s %8s %8s %9s %9s %7s %7s\n' benchmark median min max channel factor allocs
  cat
}
