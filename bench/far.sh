#!/usr/bin/env bash
# Measures what a proxy near the clients is worth when the nodes are far: 2,000 HTTP clients
# ask for timestamps, in turns directly and through isotone proxy, and every byte to or from
# a node takes half a millisecond (bench/far), so that a round trip takes one. Three nodes,
# quorum mode. Prints medians and the ratio.
#
#   bench/far.sh [CONNECTIONS]      default: 2000
#
# ROUNDS (3) and SECONDS_EACH (4) set how often and how long. Needs go, wrk and curl. Everything
# listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
connections=${1:-2000}
. bench/lib.sh
need go wrk curl || exit 2
build far

# Clients know the nodes by the far addresses only. The nodes are near each other.
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
