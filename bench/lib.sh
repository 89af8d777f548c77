# shellcheck shell=bash
# Functions for the measuring scripts, which source this file in the root of the repository,
# after "set -euo pipefail". What they start listens on 127.0.0.1 and ends with the script.
#
# Environment: ROUNDS is the number of measurements of each kind, SECONDS_EACH the length of
# each, NICE (0) the niceness of all measured processes, and LOAD_NICE (NICE) that of wrk.

script=bench/$(basename "$0")
rounds=${ROUNDS:-${rounds:-3}} seconds=${SECONDS_EACH:-${seconds:-4}} nice=${NICE:-0}
load_nice=${LOAD_NICE:-$nice}

# need TOOL...: fails if any of the tools is missing, and lists those, with the Debian package or
# the command that installs them.
need() {
  local tool missing=
  for tool in "$@"; do
    command -v "$tool" >/dev/null || missing="$missing${missing:+, }$tool ($(package "$tool"))"
  done
  [ -z "$missing" ] || { echo "$script: missing: $missing; see the top of the script" >&2; return 1; }
}
package() { # TOOL
  case $1 in
    go) echo "https://go.dev/dl" ;;
    k6) echo "go install go.k6.io/k6@v1.8.1" ;;
    ab) echo "Debian: apache2-utils" ;;
    h2load) echo "Debian: nghttp2-client" ;;
    nginx) echo "Debian: nginx-light" ;;
    redis-benchmark) echo "Debian: redis-tools" ;;
    *) echo "Debian: $1" ;;
  esac
}

fail() {
  echo "$script: $*" >&2
  exit 1
}

dir=$(mktemp -d)
chmod 755 "$dir"   # for nginx, whose worker runs as another user
pids=() nodes=()   # processes that end with the script
end() { # SIGNAL PID...
  local signal=$1; shift
  [ $# = 0 ] || kill "-$signal" "$@" 2>/dev/null || true
  [ $# = 0 ] || wait "$@" 2>/dev/null || true
}
end_nodes() {
  end KILL ${nodes[@]+"${nodes[@]}"}
  pkill -KILL -f "^$dir/isotone serve" || true # nodes below a tracer that has been killed
  nodes=()
  rm -rf "$dir"/node?
}
finish() {
  end_nodes
  end TERM ${pids[@]+"${pids[@]}"} # not KILL: nginx must stop its worker
  rm -rf "$dir"
}
trap finish EXIT
ulimit -n 65536 2>/dev/null || ulimit -n "$(ulimit -Hn)" 2>/dev/null || true

# build [PACKAGE...]: builds isotone, and programs of this directory, into $dir.
build() {
  local package
  go build -o "$dir/isotone" ./cmd/isotone
  for package in "$@"; do go build -o "$dir/$package" "./bench/$package"; done
}

# start_nodes N BASE [COMMAND...]: stops the running nodes and starts nodes 1 to N, run by
# COMMAND if there is one. Node I listens at BASE+I for peers and BASE+10+I for clients. BASE
# is below 32768, where the kernel begins to use ports for outgoing connections. If
# ADVERTISE_BASE is set, nodes advertise its ports to clients instead. If PD_BASE is set, node I has PD_PORT at PD_BASE+I. If PEER_CERTS is set, nodes
# use TLS between them, with the certificates in that directory. All nodes get the rest of the
# environment.
start_nodes() {
  local n=$1 base=$2 id pd=off peers=; shift 2
  end_nodes
  for id in $(seq "$n"); do peers=${peers:+$peers,}$id=127.0.0.1:$((base + id)); done
  for id in $(seq "$n"); do
    [ -z "${PD_BASE:-}" ] || pd=$((PD_BASE + id))
    [ -z "${PEER_CERTS:-}" ] || export PEER_TLS_CERT=$PEER_CERTS/node$id.pem PEER_TLS_KEY=$PEER_CERTS/node$id-key.pem PEER_TLS_CA=$PEER_CERTS/ca.pem
    NODE_ID=$id HTTP_HOST=127.0.0.1 HTTP_PORT=$((base + 10 + id)) ADVERTISE_ADDR=127.0.0.1:$((${ADVERTISE_BASE:-$base} + 10 + id)) \
      RAFT_ADDR=127.0.0.1:$((base + id)) PEERS=$peers THRIFT_PORT=0 PD_PORT=$pd DATA_DIR="$dir/node$id" \
      nice -n "$nice" "$@" "$dir/isotone" serve 2>"$dir/log$id" & nodes+=($!)
  done
  await "http://127.0.0.1:$((base + 11))/ready" || { tail -n 5 "$dir"/log?; fail "no leader"; }
  find_leader "$base"
  await "http://$leader/timestamp" || { tail -n 5 "$dir"/log?; fail "no timestamps from $leader"; }
  kill -0 "${nodes[@]}" || { tail -n 5 "$dir"/log?; fail "a node has exited"; }
}

# find_leader BASE: sets leader to the address for clients of the node that leads at the moment, as
# node 1 says.
find_leader() {
  leader=$(curl -s --max-time 10 "http://127.0.0.1:$(($1 + 11))/members" | sed -n 's/.*"leader":{"nodeID":[0-9]*,"addr":"\([^"]*\)".*/\1/p')
}

# await URL: returns when the URL answers with status 200, or fails after ten seconds.
await() {
  local _
  for _ in $(seq 200); do
    [ "$(curl -sk -o /dev/null -w '%{http_code}' "$1")" = 200 ] && return
    sleep 0.05
  done
  return 1
}

# certificate: makes $dir/cert.pem and $dir/key.pem.
certificate() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost \
    -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
}

# start_nginx LISTEN...: starts nginx with one worker, which serves $dir; index.html has 16
# bytes, and so has /answer, which is no file. Each argument is that of a listen directive. Sets nginx and worker, the PIDs of the
# master process and of the worker.
start_nginx() {
  local listen lines=
  printf xxxxxxxxxxxxxxxx >"$dir/index.html"
  for listen in "$@"; do lines="$lines listen $listen backlog=16384;"; done
  [ ! -f "$dir/cert.pem" ] || lines="$lines ssl_certificate $dir/cert.pem; ssl_certificate_key $dir/key.pem; ssl_protocols TLSv1.2 TLSv1.3;"
  cat >"$dir/nginx.conf" <<CONF
worker_processes 1; daemon off; pid $dir/nginx.pid; error_log $dir/nginx.log;
events { worker_connections 20000; }
http { access_log off; keepalive_requests 100000000; open_file_cache max=10; sendfile on; tcp_nodelay on;
  client_body_temp_path $dir/1; proxy_temp_path $dir/2; fastcgi_temp_path $dir/3; uwsgi_temp_path $dir/4; scgi_temp_path $dir/5;
  server { root $dir; $lines location = /answer { return 200 xxxxxxxxxxxxxxxx; } } }
CONF
  nice -n "$nice" nginx -c "$dir/nginx.conf" & nginx=$!
  pids+=("$nginx")
  sleep 0.3
  worker=$(pgrep -P "$nginx" | head -1) || { cat "$dir/nginx.log" >&2; fail "nginx does not start"; }
}

# ticks PID...: prints the CPU time used so far, user and system, in ticks of 1/100 s
ticks() { local p; for p in "$@"; do cat "/proc/$p/stat"; done | awk '{ sub(/.*\) /, ""); s += $12 + $13 } END { print s + 0 }'; }

# load URL C [OPTION...]: prints "COUNT RATE P50us P99us"
load() {
  local url=$1 c=$2; shift 2
  timeout $((seconds + 20)) nice -n "$load_nice" wrk -t1 -c"$c" -d"${seconds}s" --timeout 10s --latency "$@" "$url" | awk '
    function us(v) { if (v ~ /us$/) return v+0; if (v ~ /ms$/) return (v+0)*1000; return (v+0)*1000000 }
    $1 == "50%" { p50 = us($2) } $1 == "99%" { p99 = us($2) } /requests in/ { n = $1 } /Requests\/sec/ { r = $2 } /Non-2xx/ { bad = $NF }
    END { if (bad) { print "bad answers:", bad > "/dev/stderr"; exit 1 } print n, r, p50, p99 }'
}

# redis CONNECTIONS PORT PIPELINE COMMAND...: prints "COUNT RATE P50us P99us"
redis() {
  local c=$1 port=$2 pipeline=$3 requests; shift 3
  requests=$((seconds * (pipeline > 1 ? 2000000 : c > 1 ? 80000 : 15000)))
  timeout $((seconds + 30)) redis-benchmark -h 127.0.0.1 -p "$port" -c "$c" -n "$requests" -P "$pipeline" --csv "$@" | tail -1 | tr -d '"' |
    awk -F, -v n="$requests" '{ print n, $2, $5 * 1000, $7 * 1000 }'
}

# measured NAME PIDS COMMAND...: runs the command, which prints "COUNT RATE P50us P99us", and
# appends "RATE P50us P99us CPUus" to the results of NAME; CPUus is the CPU time that the
# processes used per request
measured() {
  local name=$1 who=$2 before after line; shift 2
  # shellcheck disable=SC2086
  before=$(ticks $who)
  line=$("$@")
  # shellcheck disable=SC2086
  after=$(ticks $who)
  echo "$line $((after - before))" | awk '{ print $2, $3, $4, ($1 > 0) ? $5 * 10000 / $1 : 0 }' >>"$dir/out.${name// /_}"
}

forget() { rm -f "$dir"/out.*; } # deletes all results
median() { sort -g | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }
# column NAME N: prints the median of column N (from 1) of the results of NAME
column() { cut -d' ' -f"$2" "$dir/out.${1// /_}" | median; }
# ratio NAME REFERENCE [COLUMN]: prints the ratio of the medians, by default of the rates
ratio() { awk -v a="$(column "$1" "${3:-1}")" -v b="$(column "$2" "${3:-1}")" 'BEGIN { printf "%.2f", (b > 0) ? a / b : 0 }'; }

header() { printf '\n%s\n%-20s %6s %10s %8s %8s %10s %7s\n' "$1" server c "req/s" p50_us p99_us "cpu_us/req" ratio; }
# row NAME C REFERENCE: prints one line of the table, with the ratio of the rates
row() {
  printf '%-20s %6s %10.0f %8.0f %8.0f %10.2f %7s\n' "$1" "$2" "$(column "$1" 1)" "$(column "$1" 2)" "$(column "$1" 3)" "$(column "$1" 4)" "$(ratio "$1" "$3")"
}
