#!/usr/bin/env bash
# Measures timelines on three nodes of this machine:
#
#   cpu     processor time of all nodes for a request of the default order, and of a timeline that a follower owns, in turn, by the
#           Redis protocol; and the rates. Medians of ROUNDS (5), SECONDS_EACH (4) each
#   flood   p99 and rate of a timeline beside another one of the same owner that has a quota, with and without requests at ten times that quota
#   idle    100,000 timelines: how long it takes to create them, the size of a backup, and what a node needs more: memory, processor time
#           in a minute, and time to start
#
#   bench/timelines.sh [cpu] [flood] [idle]      default: all
#
# Needs go and curl. ROUNDS, SECONDS_EACH and NICE as in bench/lib.sh; TIMELINES_IDLE (100000) is their number.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=5
# shellcheck source=bench/lib.sh
. bench/lib.sh
need go curl
build
base=21300 many=${TIMELINES_IDLE:-100000}
export TIMELINES=1 GROUP_PLACEMENT=leader
[ $# -gt 0 ] || set -- cpu flood idle

# operate ARGUMENT...: runs a command about timelines, and prints what it says only if it fails.
operate() {
  "$dir/isotone" "$@" --yes --endpoint "$leader" >"$dir/said" 2>&1 || { cat "$dir/said" >&2; fail "isotone $1 $2 has failed"; }
}

median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR+1)/2] : (v[NR/2] + v[NR/2+1]) / 2 }'; }

# ticks PID...: processor time of the processes, in clock ticks.
ticks() {
  local pid
  for pid; do sed 's/.*) //' "/proc/$pid/stat"; done | awk '{ n += $12 + $13 } END { print n }'
}

resident() { awk '/^VmRSS/ { print $2 }' "/proc/$1/status"; } # PID: in KiB

# follower: an address for clients and the ID of a node that does not lead.
follower() {
  local id
  for id in 1 2 3; do
    [ "127.0.0.1:$((base + 10 + id))" = "$leader" ] || { echo "$id"; return; }
  done
}

# load FILE ARGUMENT...: one run of isotone bench, with its results in FILE.
load() {
  local file=$1; shift
  nice -n "$load_nice" "$dir/isotone" bench --protocol resp --duration "${seconds}s" --warmup 500ms --json "$file" "$@" >/dev/null 2>"$dir/said" ||
    { cat "$dir/said" >&2; fail "isotone bench has failed"; }
}
field() { sed -n "s/^ *\"$2\": \([0-9.e+]*\),\{0,1\}$/\1/p" "$1" | head -n 1; } # FILE NAME

own() { # TIMELINE NODE: creates a timeline in a group of its own, which the node owns
  operate group create "$1"
  operate timeline create "$1" --group "$1"
  operate group move "$1" "$2"
  await "http://127.0.0.1:$((base + 10 + $2))/timestamp?timeline=$1" || fail "node $2 does not answer for the timeline $1"
}

measure_cpu() {
  local c pids_now before after what owner hz r
  hz=$(getconf CLK_TCK)
  start_nodes 3 $base
  owner=$(follower)
  own measured "$owner"
  printf '\n%-34s %6s %12s %14s\n' "CPU, medians of $rounds" c "requests/s" "µs a request"
  for c in ${CONNECTIONS:-1 16 64 256}; do
    rm -f "$dir"/cpu-*
    for r in $(seq "$rounds"); do
      for what in default timeline; do
        pids_now=("${nodes[@]}")
        before=$(ticks "${pids_now[@]}")
        if [ $what = default ]; then
          load "$dir/out" --target "$leader" --connections "$c"
        else
          load "$dir/out" --target "127.0.0.1:$((base + 10 + owner))" --connections "$c" --timeline measured
        fi
        after=$(ticks "${pids_now[@]}")
        awk -v t=$((after - before)) -v hz="$hz" -v rate="$(field "$dir/out" answers_per_s)" -v s="$seconds" 'BEGIN { print t / hz / (rate * (s + 0.5)) * 1e6, rate }' >>"$dir/cpu-$what"
      done
    done
    for what in default timeline; do
      printf '%-34s %6d %12.0f %14.2f\n' "$what" "$c" "$(cut -d' ' -f2 "$dir/cpu-$what" | median)" "$(cut -d' ' -f1 "$dir/cpu-$what" | median)"
    done
    paste -d' ' "$dir/cpu-default" "$dir/cpu-timeline" | awk '{ print $3 / $1 }' | median | awk -v c="$c" '{ printf "%-34s %6d %27.3f\n", "timeline / default, CPU", c, $1 }'
  done
}

measure_flood() {
  local owner what r flooder quota=2000
  start_nodes 3 $base
  owner=$(follower)
  own calm "$owner"
  own flooded "$owner"
  operate timeline quota flooded --requests "$quota"
  printf '\n%-34s %12s %14s\n' "flood, medians of $rounds" "requests/s" "p99, µs"
  rm -f "$dir"/flood-*
  for r in $(seq "$rounds"); do
    for what in alone beside; do
      flooder=
      if [ $what = beside ]; then # it ends by itself
        "$dir/isotone" bench --protocol resp --target "127.0.0.1:$((base + 10 + owner))" --timeline flooded --connections 16 --rate $((10 * quota)) \
          --duration "$((seconds + 2))s" >/dev/null 2>&1 & flooder=$!
      fi
      load "$dir/out" --target "127.0.0.1:$((base + 10 + owner))" --connections 8 --rate 5000 --timeline calm
      [ -z "$flooder" ] || end INT "$flooder"
      echo "$(field "$dir/out" answers_per_s) $(field "$dir/out" p99)" >>"$dir/flood-$what"
    done
  done
  for what in alone beside; do
    printf '%-34s %12.0f %14.0f\n' "a timeline, $what" "$(cut -d' ' -f1 "$dir/flood-$what" | median)" "$(cut -d' ' -f2 "$dir/flood-$what" | median)"
  done
}

measure_idle() {
  local began took before after rss0 rss1 start0 start1
  start_nodes 3 $base
  sleep 5
  rss0=$(resident "${nodes[0]}")
  before=$(ticks "${nodes[@]}"); sleep 60; after=$(ticks "${nodes[@]}")
  local cpu0=$((after - before))
  restart; start0=$ready_ms
  began=$(date +%s%N)
  seq -f 't/%06g' "$many" | xargs -n 2048 "$dir/isotone" timeline create --endpoint "$leader" >/dev/null
  took=$(( ($(date +%s%N) - began) / 1000000 ))
  "$dir/isotone" backup "$dir/backup" --endpoint "$leader" >/dev/null
  sleep 5
  rss1=$(resident "${nodes[0]}")
  before=$(ticks "${nodes[@]}"); sleep 60; after=$(ticks "${nodes[@]}")
  restart; start1=$ready_ms
  printf '\n%-50s %10s\n' "$many timelines, idle" ""
  printf '%-50s %10s\n' "to create them, ms" "$took" "a backup, KiB" "$(($(stat -c %s "$dir/backup") / 1024))" \
    "memory of a node more, KiB" "$((rss1 - rss0))" "CPU of three nodes in 60 s before, ticks" "$cpu0" "and with them, ticks" "$((after - before))" \
    "a node ready after its start before, ms" "$start0" "and with them, ms" "$start1"
}

# restart: ends node 1 by SIGTERM and starts it again; ready_ms is after how many milliseconds it is ready.
restart() {
  local began peers=1=127.0.0.1:$((base + 1)),2=127.0.0.1:$((base + 2)),3=127.0.0.1:$((base + 3))
  "$dir/isotone" leader transfer 2 --endpoint "127.0.0.1:$((base + 11))" >/dev/null 2>&1 || true
  end TERM "${nodes[0]}"
  began=$(date +%s%N)
  NODE_ID=1 HTTP_HOST=127.0.0.1 HTTP_PORT=$((base + 11)) ADVERTISE_ADDR=127.0.0.1:$((base + 11)) RAFT_ADDR=127.0.0.1:$((base + 1)) PEERS=$peers \
    THRIFT_PORT=0 PD_PORT=off DATA_DIR="$dir/node1" "$dir/isotone" serve 2>"$dir/log1" >/dev/null & nodes[0]=$!
  await "http://127.0.0.1:$((base + 11))/ready" || fail "node 1 is not ready again"
  ready_ms=$(( ($(date +%s%N) - began) / 1000000 ))
  find_leader $base
}

for what; do
  case $what in
    cpu | flood | idle) "measure_$what" ;;
    *) fail "there is no measurement $what: want cpu, flood or idle" ;;
  esac
done
