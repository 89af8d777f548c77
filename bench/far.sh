#!/usr/bin/env bash
# Measures the benefit of a proxy near the clients when the nodes are far away: 2,000 HTTP
# clients request timestamps, alternately directly and through isotone proxy. bench/far delays
# every byte to or from a node by half a millisecond, so a round trip takes one. Three nodes,
# quorum mode. Prints medians and the ratio.
#
#   bench/far.sh [CONNECTIONS]      default: 2000
#
# ROUNDS (3) is the number of measurements of each, SECONDS_EACH (4) their length. Needs go, wrk
# and curl. Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
connections=${1:-2000}
. bench/lib.sh
need go wrk curl || exit 2
build far

# Clients know only the delayed addresses of the nodes. Between the nodes there is no delay.
"$dir/far" --delay 500us 127.0.0.1:29211=127.0.0.1:29111 127.0.0.1:29212=127.0.0.1:29112 127.0.0.1:29213=127.0.0.1:29113 & pids+=($!)
ADVERTISE_BASE=29200 start_nodes 3 29100
"$dir/isotone" proxy --listen 127.0.0.1:29300 --node 127.0.0.1:29211 --node 127.0.0.1:29212 --node 127.0.0.1:29213 2>"$dir/proxy" & pids+=($!)
await http://127.0.0.1:29300/timestamp || { tail -n 5 "$dir/proxy" >&2; fail "the proxy does not answer"; }

header "HTTP/1.1 GET /timestamp, wrk -t1, nodes 1 ms away; CPU time of the nodes"
for _ in $(seq "$rounds"); do
  measured directly "${nodes[*]}" load "http://$leader/timestamp" "$connections"
  measured through-the-proxy "${nodes[*]}" load http://127.0.0.1:29300/timestamp "$connections"
done
row directly "$connections" directly
row through-the-proxy "$connections" directly
