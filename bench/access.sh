#!/usr/bin/env bash
# Measures what credentials and quotas cost on the fast path: one node in lease mode, and three in
# quorum mode, without users, and with a user whose credentials come with each request and whose
# requests count for a quota, in turns. Prints medians, the CPU time of the nodes per request, and
# ratios to the first.
#
#   bench/access.sh
#
# ROUNDS (5) is the number of measurements of each, SECONDS_EACH (4) their length, CONNECTIONS
# (1 64 256) the numbers of connections, NICE (0) the niceness of all processes. Needs go, wrk and
# curl. Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=5 connections=${CONNECTIONS:-1 64 256}
. bench/lib.sh
need go wrk curl || exit 2
build
secret=0123456789abcdef0123456789abcdef
hash=$(printf %s "$secret" | "$dir/isotone" user hash)
cat >"$dir/acl.json" <<END
{"users": {"bench": {"roles": ["timestamps"], "secrets": ["$hash"],
  "limits": {"requests": 100000000, "timestamps": 100000000}}}}
END
chmod 600 "$dir/acl.json"

# open and users start N nodes: without users, and with them. The script itself asks without
# credentials.
open() { unset ACL_FILE ANONYMOUS; start_nodes "$1" 27200; }
users() { export ACL_FILE=$dir/acl.json ANONYMOUS=all; start_nodes "$1" 27200; }

for n in 1 3; do
  export READ_MODE=lease
  [ "$n" = 1 ] || export READ_MODE=quorum
  header "$n nodes, $READ_MODE, keep-alive, wrk -t1"
  for c in $connections; do
    forget
    for _ in $(seq "$rounds"); do
      open "$n"
      seconds=1 load "http://$leader/timestamp" "$c" >/dev/null # warm
      measured open "${nodes[*]}" load "http://$leader/timestamp" "$c"
      users "$n"
      seconds=1 load "http://$leader/timestamp" "$c" -H "Authorization: Bearer bench~$secret" >/dev/null
      measured users "${nodes[*]}" load "http://$leader/timestamp" "$c" -H "Authorization: Bearer bench~$secret"
    done
    row open "$c" open
    row users "$c" open
  done
done
