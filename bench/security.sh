#!/usr/bin/env bash
# Measures what security costs on the fast path: nodes without and with it, in turns. Prints medians,
# the CPU time of all nodes per request, and ratios to the nodes without.
#
#   bench/security.sh [CASE...]      all cases: peers users
#
#   peers  TLS between three nodes, in quorum mode
#   users  credentials that come with each request, and a quota: one node in lease mode, and three
#          in quorum mode
#
# ROUNDS (5) is the number of measurements of each, SECONDS_EACH (4) their length, CONNECTIONS
# (1 8 64) the numbers of connections, NICE (0) the niceness of all processes. Needs go, wrk and
# curl. Everything listens on 127.0.0.1 and ends with the script.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=5 connections=${CONNECTIONS:-1 8 64}
. bench/lib.sh
[ $# -gt 0 ] || set -- peers users
need go wrk curl || exit 2
build
certs=$dir/certs secret=0123456789abcdef0123456789abcdef
"$dir/isotone" cert ca --dir "$certs" >/dev/null
for id in 1 2 3; do "$dir/isotone" cert node "$id" 127.0.0.1 --dir "$certs" >/dev/null; done
hash=$(printf %s "$secret" | "$dir/isotone" user hash)
cat >"$dir/acl.json" <<END
{"users": {"bench": {"roles": ["timestamps"], "secrets": ["$hash"],
  "limits": {"requests": 100000000, "timestamps": 100000000}}}}
END
chmod 600 "$dir/acl.json"

# Each of these runs a command whose nodes have, or have not, what the name says. The script itself
# asks without credentials.
without() { "$@"; }
tls() { PEER_CERTS=$certs "$@"; unset PEER_TLS_CERT PEER_TLS_KEY PEER_TLS_CA; }
users() { ACL_FILE=$dir/acl.json ANONYMOUS=all "$@" -H "Authorization: Bearer bench~$secret"; }

run() { # KIND NODES C [OPTION...]: starts nodes, warms and measures them
  local kind=$1 n=$2 c=$3; shift 3
  start_nodes "$n" 27100
  seconds=1 load "http://$leader/timestamp" "$c" "$@" >/dev/null
  measured "$kind" "${nodes[*]}" load "http://$leader/timestamp" "$c" "$@"
}

compare() { # KIND NODES MODE
  local kind c
  export READ_MODE=$3
  header "$1, $2 nodes, $3, keep-alive, wrk -t1"
  for c in $connections; do
    forget
    for _ in $(seq "$rounds"); do
      for kind in without "$1"; do "$kind" run "$kind" "$2" "$c"; done
    done
    for kind in without "$1"; do row "$kind" "$c" without; done
  done
}

for name in "$@"; do
  case $name in
    peers) compare tls 3 quorum ;;
    users) compare users 1 lease; compare users 3 quorum ;;
    *) fail "no case named $name; want peers or users" ;;
  esac
done
