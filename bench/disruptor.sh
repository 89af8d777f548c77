#!/usr/bin/env bash
# Runs the benchmarks of package disruptor, of go-disruptor doing the same work
# (bench/disruptor, a module of its own) and of channels, and prints a Markdown table: the
# median, minimum and maximum of each in nanoseconds per element, and ratios to the medians of
# package disruptor.
#
#   bench/disruptor.sh [ROUNDS [TIME]]    default: 9 rounds, 200ms for each benchmark
#   bench/disruptor.sh latency [FLAGS]    one-way latencies at a constant rate; --help lists the flags
#
# BENCH is a regular expression that selects benchmarks (default: all). Needs go, and the module
# proxy for go-disruptor. Every benchmark runs once in every round, in turns with go-disruptor,
# so that a disturbance of the machine affects all of them. GOMAXPROCS is the number of cores
# they use. A benchmark that takes longer than a minute in a round is ended, and counted in the
# column "mode" or, if it is one of this project, in the first one.
#
# In the column "mode" are the number of writers that go-disruptor is configured for (one, or
# many: any number above one is the same to it) and the wait strategy, if it is not its default.
# A dash is work that go-disruptor has no equivalent of.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-9} time=${2:-200ms} only=${BENCH:-.}
command -v go >/dev/null || { echo "bench/disruptor.sh: missing: go (https://go.dev/dl)" >&2; exit 2; }

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
if [ "${1-}" = latency ]; then
  (cd bench/disruptor && go build -o "$dir/latency" ./latency)
  "$dir/latency" "${@:2}"
  exit
fi
go test -c -o "$dir/ring.test" ./disruptor
(cd bench/disruptor && go test -c -o "$dir/other.test" . && go list -m -f '{{.Path}} {{.Version}}' github.com/smarty/go-disruptor >"$dir/version")

# once KIND NAME: runs a benchmark once, and appends "KIND/NAME NS ALLOCS", or "KIND/NAME late".
once() {
  local status=0
  timeout 60 "$dir/$1.test" -test.run '^$' -test.bench "^Benchmark$2\$" -test.benchtime "$time" >"$dir/out" 2>&1 || status=$?
  [ $status != 124 ] || { echo "$1/$2 late" >>"$dir/all"; return 0; }
  if [ $status != 0 ] || ! grep -q 'ns/op' "$dir/out"; then
    cat "$dir/out" >&2
    exit 1
  fi
  grep '^cpu:' "$dir/out" >"$dir/cpu" || true
  # BenchmarkDisruptor_A_B-2  1000  9.1 ns/op  0 B/op  0 allocs/op
  awk -v key="$1/$2" '$4 == "ns/op" { print key, $3, $7 }' "$dir/out" >>"$dir/all"
}
names() { "$dir/$1.test" -test.list . | sed -n 's/^Benchmark//p' | grep -E "$only" || true; }
names ring >"$dir/ring"
names other >"$dir/other"
[ -s "$dir/ring" ] || { echo "bench/disruptor.sh: no benchmark matches BENCH=$only" >&2; exit 2; }
for _ in $(seq "$rounds"); do
  while read -r name; do
    once ring "$name"
    ! grep -qx "$name" "$dir/other" || once other "$name"
  done <"$dir/ring"
done

echo "$(sed 's/^cpu: //' "$dir/cpu"), $(go version | cut -d' ' -f3-4), GOMAXPROCS=${GOMAXPROCS:-$(getconf _NPROCESSORS_ONLN)}, $(cat "$dir/version")."
echo "Median of $rounds rounds of $time, in nanoseconds per element; for a round trip, in nanoseconds for both ways."
echo
echo '| benchmark | ns | min–max | allocations | channel, ns | ratio | go-disruptor, ns | min–max | ratio | mode |'
echo '|---|---:|---:|---:|---:|---:|---:|---:|---:|---|'
sort -k1,1 -k2,2g "$dir/all" | awk '
  $2 == "late" { late[$1]++; known[$1]; next }
  { known[$1]; value[$1, ++count[$1]] = $2; if ($3 > allocs[$1]) allocs[$1] = $3 }
  function number(v) { return sprintf(v < 10 ? "%.2f" : v < 100 ? "%.1f" : "%.0f", v) }
  function unfinished(key) { return late[key] ? "; " late[key] " of " late[key] + count[key] " rounds ended after a minute" : "" }
  function range(key) { return number(value[key, 1]) "–" number(value[key, count[key]]) }
  # cells of another program: the median, its range if asked for, and how often the own fits in it.
  function beside(key, own, ranges) {
    if (!(key in median)) return ranges ? " | | " : " | "
    return number(median[key]) (ranges ? " | " range(key) : "") " | " sprintf("%.2f", median[key] / own)
  }
  function channel(name, part, parts) {
    # The last part of the name gives the writers and readers, which select the channel.
    parts = split(name, part, "_")
    if (name ~ /^Channel/ || name ~ /NoData/) return ""
    if (name ~ /RoundTrip/) return "ring/Channel_RoundTrip"
    if (part[parts] ~ /(One|Yielding)Reader$/) return "ring/Channel_Blocking_OneWriter"
    return "ring/Channel_Blocking_" part[parts]
  }
  function mode(name) {
    if (!(("other/" name) in known)) return "–"
    return (name ~ /Shared/ ? "many writers" : "one writer") (name ~ /Yield/ ? ", Gosched" : name ~ /Spin/ ? ", spinning" : "") unfinished("other/" name)
  }
  function label(name) {
    sub(/^Disruptor_/, "", name)
    sub(/SingleWriter/, "one writer", name); sub(/SharedWriter/, "shared", name); sub(/NoData/, "no data", name)
    sub(/ReserveOne/, "reserve 1", name); sub(/Reserve4/, "reserve 4", name); sub(/Reserve16/, "reserve 16", name)
    sub(/OneReader/, "one reader", name); sub(/ThreeReaders/, "three readers", name); sub(/YieldingReader/, "a reader with Yield", name)
    sub(/FourWritersPerCore/, "four writers for each core", name); sub(/WriterPerCore/, "a writer for each core", name)
    sub(/OneWriter/, "one writer", name); sub(/256Writers/, "256 writers", name)
    sub(/ParkThenArm/, "reserve 1, Park before Arm", name); sub(/Armed/, "reserve 1, Arm at once", name)
    sub(/RoundTrip/, "round trip", name); sub(/^Channel/, "channel", name); sub(/NonBlocking/, "select and default", name); sub(/_Blocking/, "", name)
    gsub("_", ", ", name)
    return name
  }
  END {
    for (key in count) median[key] = value[key, int((count[key] + 1) / 2)]
    for (key in known) if (key ~ /^ring/) {
      name = substr(key, 6)
      if (!(key in median)) { printf "9\t| %s%s | | | | | | | | | %s |\n", label(name), unfinished(key), mode(name); continue }
      own = median[key]
      order = (name ~ /^Channel_RoundTrip/ ? 5 : name ~ /RoundTrip/ ? 4 : name ~ /^Channel/ ? 1 : name ~ /NoData/ ? 3 : 2) (name ~ /Shared/ ? 1 : 0)
      printf "%s%012d\t| %s | %s | %s | %d | %s | %s | %s |\n", order, own * 100, label(name) unfinished(key), number(own), range(key), allocs[key],
        beside(channel(name), own, 0), beside("other/" name, own, 1), mode(name)
    }
  }' | sort -n | cut -f2
