#!/usr/bin/env bash
# Measures the Go client: starts three nodes on this machine, runs bench/client against
# them, and stops them.
#
#   bench/client.sh [FLAGS]      the flags of bench/client, such as --json, --mode lease,
#                                --goroutines 1,64,1000,10000, --duration 3s
#
# Needs go and curl. Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/lib.sh
need go curl || exit 2
build client
start_nodes 3 30700
"$dir/client" "$@" 127.0.0.1:30711 127.0.0.1:30712 127.0.0.1:30713
