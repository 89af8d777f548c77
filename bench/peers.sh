#!/usr/bin/env bash
# Measures what TLS between the nodes costs: three nodes in quorum mode on this machine, with TLS
# between them and in clear, in turns. Prints medians, the CPU time of all nodes per request, and
# ratios to clear.
#
#   bench/peers.sh
#
# ROUNDS (5) is the number of measurements of each, SECONDS_EACH (4) their length, CONNECTIONS
# (1 8 64) the numbers of connections, NICE (0) the niceness of all processes. Needs go, wrk and
# curl. Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=5 connections=${CONNECTIONS:-1 8 64}
. bench/lib.sh
need go wrk curl || exit 2
build
certs=$dir/certs
"$dir/isotone" cert ca --dir "$certs" >/dev/null
for id in 1 2 3; do "$dir/isotone" cert node "$id" 127.0.0.1 --dir "$certs" >/dev/null; done

# clear and tls start a cluster.
clear() { unset PEER_CERTS PEER_TLS_CERT PEER_TLS_KEY PEER_TLS_CA; start_nodes 3 27100; }
tls() { PEER_CERTS=$certs; start_nodes 3 27100; }

header "three nodes, quorum, keep-alive, wrk -t1"
for c in $connections; do
  forget
  for _ in $(seq "$rounds"); do
    for kind in clear tls; do
      "$kind"
      seconds=1 load "http://$leader/timestamp" "$c" >/dev/null # warm
      measured "$kind" "${nodes[*]}" load "http://$leader/timestamp" "$c"
    done
  done
  for kind in clear tls; do row "$kind" "$c" clear; done
done
