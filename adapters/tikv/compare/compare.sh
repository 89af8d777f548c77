#!/usr/bin/env bash
# Compares a PD cluster of three nodes with an Isotone cluster of three nodes: starts both and isotone-pd,
# runs adapters/tikv/compare against them, and stops them.
#
#   adapters/tikv/compare/compare.sh [FLAGS]    the flags of the program, such as --callers 1,64,1000,10000,
#                                               --rounds 3, --duration 5s
#
# Needs go and curl. PD_SERVER is the file of pd-server; by default ../pd-server.sh builds it, which takes
# minutes. PD_SERVER=none leaves PD out. NODE_MODE (lease) is the read mode of the nodes' own port for PD, which is
# that of the whole node; a second run with NODE_MODE=quorum has the other one. Everything listens on 127.0.0.1 and ends with the script. Both
# clusters run all the time, so each is measured while the other one is idle.
set -euo pipefail
cd "$(dirname "$0")/../../.."
. bench/lib.sh
script=adapters/tikv/compare/compare.sh
need go curl || exit 2

build
(cd adapters/tikv && go build -o "$dir/isotone-pd" ./cmd/isotone-pd && go build -o "$dir/compare" ./compare)
pd_server=${PD_SERVER:-$dir/pd-server}
[ "$pd_server" = none ] || [ -x "$pd_server" ] || adapters/tikv/compare/pd-server.sh "$pd_server"

start_pd() {
  local id initial=
  for id in 1 2 3; do initial=${initial:+$initial,}pd$id=http://127.0.0.1:$((30800 + id)); done
  for id in 1 2 3; do
    nice -n "$nice" "$pd_server" --name "pd$id" --data-dir "$dir/pd$id" --log-file "$dir/pd$id.log" -L warn \
      --peer-urls "http://127.0.0.1:$((30800 + id))" --client-urls "http://127.0.0.1:$((30810 + id))" \
      --initial-cluster "$initial" >/dev/null 2>&1 & pids+=($!)
  done
  for id in 1 2 3; do
    await "http://127.0.0.1:$((30810 + id))/pd/api/v1/leader" || { tail -n 5 "$dir"/pd?.log; fail "PD has no leader"; }
  done
}

node_mode=${NODE_MODE:-lease}
PD_BASE=30830 READ_MODE=$node_mode start_nodes 3 30700
nodes_at=127.0.0.1:30711,127.0.0.1:30712,127.0.0.1:30713
for mode in lease quorum; do
  case $mode in lease) port=30821 ;; quorum) port=30822 ;; esac
  nice -n "$nice" "$dir/isotone-pd" --listen "127.0.0.1:$port" --endpoint "$nodes_at" --mode "$mode" 2>"$dir/isotone-pd-$mode.log" & pids+=($!)
done
flags=("--node-$node_mode" 127.0.0.1:30831,127.0.0.1:30832,127.0.0.1:30833 --lease 127.0.0.1:30821 --quorum 127.0.0.1:30822 --isotone "$nodes_at")
if [ "$pd_server" != none ]; then
  start_pd
  flags+=(--pd 127.0.0.1:30811,127.0.0.1:30812,127.0.0.1:30813)
fi
nice -n "$load_nice" "$dir/compare" "${flags[@]}" "$@"
