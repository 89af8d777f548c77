#!/usr/bin/env bash
# Runs the clients that people have against three nodes: client libraries, load generators and curl.
# Each demands what is right: distinct IDs, ascending timestamps, typed errors. Without arguments all
# of them run; "quick" runs those that take seconds; names run those alone. What is missing is skipped
# by name. Libraries are installed into INTEROP_DIR (~/.cache/isotone-interop); tools are not
# installed, but for h2spec. See docs/clients.md, "Tested with".
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
libraries=${INTEROP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/isotone-interop}

quick=(curl_http1 curl_http10 curl_http2 curl_http3 h2spec nghttp h2load node_http2 httpx ab hey wrk redis_cli redis_benchmark redis_py redis_py_lock redislock redsync ioredis node_redis thriftpy2 grpc_go grpcio grpc_js)
slow=(go_redis vegeta k6 memtier jedis lettuce redis_rs tonic grpc_java)
all=("${quick[@]}" "${slow[@]}")

case ${1-all} in
  all) set -- "${all[@]}" ;;
  quick) set -- "${quick[@]}" ;;
esac
for name; do
  case " ${all[*]} " in
    *" $name "*) ;;
    *) echo "run.sh: no client is called $name; there are: ${all[*]}" >&2; exit 2 ;;
  esac
done

work=$(mktemp -d)
pids=()
finish() {
  local pid
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; done
  rm -rf "$work"
}
trap finish EXIT

# --- the cluster

# free succeeds if nothing listens on any of the ports.
free() {
  local port
  for port; do (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null && return 1; done
  return 0
}

start() {
  command -v curl >/dev/null || { echo "run.sh: curl is missing" >&2; exit 2; }
  (cd "$root" && go build -o "$work/isotone" ./cmd/isotone) || exit 1
  local base=
  until [ -n "$base" ] && free "$base" $((base + 1)) $((base + 2)) $((base + 3)) $((base + 4)) $((base + 5)); do
    base=$((20000 + RANDOM % 10000))
  done
  (cd "$work" && exec ./isotone dev --no-forward --port "$base") >"$work/dev.log" 2>&1 & pids+=($!)
  # Thrift and locks of Redis libraries are on a node of its own: "isotone dev" does not serve them.
  (cd "$work" && REDIS_LOCKS=1 HTTP_PORT=$((base + 3)) RAFT_ADDR=127.0.0.1:$((base + 4)) THRIFT_PORT=$((base + 5)) DATA_DIR="$work/one" \
    exec ./isotone serve) >"$work/one.log" 2>&1 & pids+=($!)
  nodes=(127.0.0.1:"$base" 127.0.0.1:$((base + 1)) 127.0.0.1:$((base + 2)))
  redis_locks=127.0.0.1:$((base + 3)) thrift=127.0.0.1:$((base + 5))
  local node
  for node in "${nodes[@]}" 127.0.0.1:$((base + 3)); do
    for _ in $(seq 300); do
      curl -sf -o /dev/null "http://$node/ready" && curl -sf -o /dev/null "http://$node/api/snowflake" && continue 2
      sleep 0.1
    done
    echo "run.sh: $node is not ready after 30 s" >&2
    cat "$work/dev.log" "$work/one.log" >&2
    exit 1
  done
}

# members prints /members of the first node that names a leader. It waits up to 30 s for one.
members() {
  local node said try
  for try in $(seq 100); do
    for node in "${nodes[@]}"; do
      said=$(curl -sS --max-time 5 "http://$node/members" 2>&1)
      grep '"leader":{[^}]*"addr":"[^"]' <<<"$said" && return 0
      [ "$try" != 1 ] || echo "$node names no leader: $said" >&2
    done
    sleep 0.3
  done
  echo "run.sh: no node names a leader for 30 s; the last one said: $said" >&2
  return 1
}

# by_leader sets addrs: the nodes, the leader first; and term, which changes with the leader.
by_leader() {
  local node said
  said=$(members) || exit 1
  term=$(grep -o '"leader":{[^}]*}\|"term":[0-9]*' <<<"$said")
  leader=$(sed -n 's/.*"leader":{[^}]*"addr":"\([^"]*\)".*/\1/p' <<<"$said")
  addrs=("$leader")
  for node in "${nodes[@]}"; do [ "$node" = "$leader" ] || addrs+=("$node"); done
}

# served waits until a node serves this address again, whose limit of refused requests h2spec has used up. It recovers within 8 s (docs/security.md).
served() {
  for _ in $(seq 300); do
    curl -sf -o /dev/null "http://$1/members" && return 0
    sleep 0.1
  done
  echo "$1 still refuses this address: $(curl -s "http://$1/members")"
  return 1
}

# --- what is there

# need skips unless a command is there: need COMMAND HOW-TO-GET-IT.
need() { command -v "$1" >/dev/null || { echo "$1 is not installed: $2"; return 77; }; }

# python_with prints a Python that has these packages.
python_with() {
  need python3 "install Python 3" || return 77
  [ -x "$libraries/venv/bin/python" ] || python3 -m venv "$libraries/venv" >/dev/null || { echo "python3 has no venv"; return 77; }
  local package
  for package; do
    "$libraries/venv/bin/python" -c "import importlib.metadata as m; m.version('$package')" 2>/dev/null || "$libraries/venv/bin/pip" install -q "$package" >/dev/null 2>&1 ||
      { echo "pip cannot install $package"; return 77; }
  done
}

with_node() {
  need node "install Node 20 or newer" || return 77
  need npm "install npm" || return 77
  mkdir -p "$libraries/node" && cp "$here"/node/* "$here"/grpc/client.mjs "$libraries/node" || return 1
  # The lock file says what is installed already.
  cmp -s "$here/node/package.json" "$libraries/node/installed" || (cd "$libraries/node" &&
    npm install --silent --no-audit --no-fund >/dev/null 2>&1 && cp package.json installed) ||
    { echo "npm cannot install the libraries of interop/node"; return 77; }
}

with_java() {
  need javac "install a JDK, 17 or newer" || return 77
  need mvn "install Maven, which fetches the libraries" || return 77
  mkdir -p "$libraries/java" && cp "$here"/java/* "$libraries/java" || return 1
  (cd "$libraries/java" && mvn -q -B dependency:build-classpath -Dmdep.outputFile=classpath >maven.log 2>&1) ||
    { echo "Maven cannot fetch the libraries"; return 77; }
  (cd "$libraries/java" && javac -nowarn -d classes -cp "$(cat classpath)" ./*.java 2>&1 | grep -v '^Note:'; exit "${PIPESTATUS[0]}")
}

# --- the clients. Each prints its version and what it saw; it returns 77 to be skipped.

# over_curl demands of curl with some options what any HTTP client must get. base is a URL.
over_curl() {
  local base=$1 code; shift
  curl -sS -k "$@" "$base/timestamp?x=[1-100]" | od -An -v -tx1 -w16 | tr -d ' ' >"$work/timestamps" || return 1
  LC_ALL=C sort -cu "$work/timestamps" && [ "$(wc -l <"$work/timestamps")" = 100 ] || { echo "100 timestamps do not ascend"; return 1; }
  curl -sS -k "$@" -w '\n' "$base/api/snowflake?n=1000&x=[1-3]" | grep . | sort -u >"$work/ids" || return 1
  [ "$(wc -l <"$work/ids")" = 3000 ] || { echo "$(wc -l <"$work/ids") distinct IDs, want 3000"; return 1; }
  code=$(curl -sS -k "$@" -o "$work/body" -w '%{http_code}' "$base/timestamp?n=0") || return 1
  [ "$code" = 400 ] && grep -q '"code":"invalid_argument"' "$work/body" || { echo "n=0: $code $(cat "$work/body")"; return 1; }
}

# version_of_curl demands that curl used a version of HTTP: version_of_curl URL WANT OPTION ...
version_of_curl() {
  local url=$1 want=$2 got; shift 2
  got=$(curl -sS -k "$@" -o /dev/null -w '%{http_version}' "$url/up") && [ "$got" = "$want" ] || { echo "HTTP/$got, want $want"; return 1; }
  curl -V | head -1 | cut -d' ' -f1,2 | tr -d '\n'
  echo ", HTTP/$want: 100 timestamps, 3000 IDs over $(cut -d: -f1 <<<"$url")"
}

check_curl_http1() {
  over_curl "http://$leader" --http1.1 && version_of_curl "http://$leader" 1.1 --http1.1 &&
    over_curl "https://$leader" --http1.1 && version_of_curl "https://$leader" 1.1 --http1.1
}

check_curl_http10() {
  local opened
  over_curl "http://$leader" -0 && version_of_curl "http://$leader" 1 -0 || return 1
  opened=$(curl -sS -0 -H 'Connection: keep-alive' -o /dev/null -w '%{num_connects}' "http://$leader/timestamp?x=[1-10]")
  [ "$opened" = 1000000000 ] || { echo "connections for each of 10 requests with keep-alive: $opened"; return 1; }
}

check_curl_http2() {
  curl -V | grep -q HTTP2 || { echo "this curl has no HTTP/2"; return 77; }
  # Without TLS one request only: curl 7.88 cannot use such a connection twice, whatever the server.
  version_of_curl "http://$leader" 2 --http2-prior-knowledge >/dev/null && over_curl "https://$leader" --http2 && version_of_curl "https://$leader" 2 --http2 || return 1
  local url="https://$leader" got
  got=$(curl -sS -k --http2 -o /dev/null -w '%{num_connects}' "$url/timestamp?x=[1-10]")
  [ "$got" = 1000000000 ] || { echo "connections for each of 10 requests: $got"; return 1; }
  got=$(curl -sS -k --http2 -I -o /dev/null -w '%{http_version} %{http_code} %{size_download}' "$url/members")
  [ "$got" = "2 200 0" ] || { echo "HEAD: $got"; return 1; }
  head -c 300000 /dev/zero >"$work/zeros"
  got=$(curl -sS -k --http2 -o /dev/null -w '%{http_version} %{http_code}' --data-binary "@$work/zeros" "$url/timestamp")
  [ "$got" = "2 405" ] || { echo "POST: $got"; return 1; }
  # Four streams of one connection, each slower than its windows.
  curl -sS -k --http2 -Z --no-progress-meter --limit-rate 1M -o "$work/ids#1" "$url/api/snowflake?n=65536&x=[1-4]" || return 1
  got=$(awk 1 "$work"/ids[1-4] | sort -u | wc -l)
  [ "$got" = 262144 ] || { echo "$got distinct IDs at a limited rate, want 262144"; return 1; }
}

check_curl_http3() {
  curl -V | grep -q HTTP3 || { echo "this curl has no HTTP/3"; return 77; }
  over_curl "https://$leader" --http3-only && version_of_curl "https://$leader" 3 --http3-only
}

# h2spec_at runs tests of h2spec, also the strict ones, and demands that all pass but those that fail for a reason, with
# the titles of the latter as a pattern: h2spec_at NODE PATH FAILING OPTION ...
h2spec_at() {
  local node=$1 path=$2 failing=$3 said; shift 3
  said=$("$libraries/bin/h2spec" -h "${node%:*}" -p "${node##*:}" -P "$path" -S -o 10 "$@" 2>&1 | tr '\r' '\n')
  tests=$((tests + $(sed -n 's/^\([0-9]*\) tests, .*/\1/p' <<<"$said" | grep . || echo 0)))
  grep -q '^[1-9][0-9]* tests, .* 0 skipped' <<<"$said" && [ "$(grep -a "× [0-9]*:" <<<"$said" | grep -cv "$failing")" = 0 ] ||
    { echo "$node$path $*:"; sed -n '/^Failures/,$p' <<<"$said" | grep . || tail -5 <<<"$said"; return 1; }
}

check_h2spec() {
  need go "install Go" || return
  # The latest version that is a Go module.
  [ -x "$libraries/bin/h2spec" ] || GOBIN="$libraries/bin" go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible >"$work/h2spec" 2>&1 ||
    { echo "go cannot install h2spec"; return 77; }
  # 5.1.2 is last on a node: its 257 streams, and the end of their connection, use up what an address may have refused or
  # take back (docs/security.md), and some tests take requests back.
  local rest=(generic hpack http2/3 http2/4 http2/5.1/{1..13} http2/5.1.1 http2/5.3 http2/5.4 http2/5.5 http2/6 http2/7 http2/8) tests=0
  # Without TLS the port has several protocols: what does not begin as HTTP/2 is not closed but answered as HTTP/1.1.
  local preface='Sends invalid connection preface'
  # Answers of the loop and of a handler. Some tests want answers of five bytes.
  h2spec_at "${addrs[0]}" /api/snowflake none -t -k "${rest[@]}" && h2spec_at "${addrs[0]}" /api/snowflake none -t -k http2/5.1.2 &&
    [ $tests = 146 ] || { echo "$tests tests over TLS, want 146"; return 1; }
  h2spec_at "${addrs[1]}" /members none -t -k "${rest[@]}" && h2spec_at "${addrs[1]}" /members none -t -k http2/5.1.2 &&
    h2spec_at "${addrs[2]}" /api/snowflake "$preface" "${rest[@]}" && h2spec_at "${addrs[2]}" /api/snowflake none http2/5.1.2 &&
    served "${addrs[0]}" && served "${addrs[1]}" && served "${addrs[2]}" &&
    echo "2.2.1: all 146 tests over TLS, in the loop and through a handler; without TLS all but '$preface'"
}

check_nghttp() {
  need nghttp "the package nghttp2-client" || return 77
  local base option
  for base in "http://$leader" "https://$leader"; do
    for option in "" "-p 200" "--continuation" "-w 1 -W 1" "--header-table-size=0" "--header-table-size=65536"; do
      # shellcheck disable=SC2086 # options or none
      nghttp $option -m 100 "$base/api/snowflake" 2>/dev/null | grep -o . | wc -l >"$work/length" && [ "$(cat "$work/length")" -ge 1600 ] ||
        { echo "$option $base: $(cat "$work/length") digits of 100 IDs"; return 1; }
    done
    head -c 300000 /dev/zero >"$work/zeros"
    nghttp -nv -d "$work/zeros" -H 'Expect: 100-continue' "$base/timestamp" 2>/dev/null | grep -aq ':status: 405' || { echo "$base: POST is not answered by 405"; return 1; }
    nghttp -nv -H ':method: HEAD' "$base/members" 2>/dev/null | grep -aq ':status: 200' || { echo "$base: HEAD is not answered by 200"; return 1; }
  done
  echo "$(nghttp --version | cut -d' ' -f2): 100 streams at a time, padding, CONTINUATION, windows of 1 byte, tables, POST and HEAD"
}

check_h2load() {
  need h2load "the package nghttp2-client" || return 77
  local url
  for url in "http://$leader/timestamp" "https://$leader/timestamp" "https://$leader/api/snowflake?n=100" "http://$leader/members"; do
    h2load -c 8 -m 100 -n 20000 "$url" >"$work/h2load" 2>&1 && grep -q '20000 succeeded, 0 failed' "$work/h2load" && grep -q '20000 2xx' "$work/h2load" ||
      { cat "$work/h2load"; return 1; }
  done
  echo "$(h2load --version | cut -d' ' -f2): 80000 requests on 8 connections with 100 streams each, none failed"
}

check_node_http2() {
  need node "install Node 20 or newer" || return 77
  node -p 'process.version + ","' && node --no-warnings "$here/node/http2.mjs" "${addrs[@]}"
}

check_httpx() {
  python_with httpx h2 || return
  "$libraries/venv/bin/python" -c 'import httpx, h2; print(httpx.__version__, "with h2", h2.__version__, end=", ")' &&
    "$libraries/venv/bin/python" "$here/httpx_client.py" "${addrs[@]}"
}

check_ab() {
  need ab "the package apache2-utils" || return 77
  local path
  for path in timestamp api/snowflake up; do
    ab -q -k -c 8 -n 2000 "http://$leader/$path" >"$work/ab" 2>&1 || { cat "$work/ab"; return 1; }
    grep -q 'Failed requests: *0$' "$work/ab" && grep -q 'Keep-Alive requests: *2000$' "$work/ab" && ! grep -q Non-2xx "$work/ab" ||
      { cat "$work/ab"; return 1; }
  done
  echo "$(ab -V | grep -o 'Version [0-9.]*'): 6000 requests with -k, none failed"
}

check_hey() {
  need hey "the package hey" || return 77
  local url
  for url in "http://$leader/timestamp" "https://$leader/timestamp" "-h2 https://$leader/api/snowflake"; do
    # shellcheck disable=SC2086 # options and a URL
    hey -n 2000 -c 8 $url >"$work/hey" 2>&1 && grep -q '\[200\][[:space:]]*2000 responses' "$work/hey" || { cat "$work/hey"; return 1; }
  done
  echo "HTTP/1.1, TLS and HTTP/2: 6000 requests, none failed"
}

check_wrk() {
  need wrk "the package wrk" || return 77
  wrk -t1 -c8 -d1s "http://$leader/timestamp" >"$work/wrk" 2>&1 && grep -q 'Requests/sec' "$work/wrk" && ! grep -q 'Non-2xx\|Socket errors' "$work/wrk" ||
    { cat "$work/wrk"; return 1; }
  echo "$(wrk -v 2>&1 | grep -o '^wrk [^ ]*'), $(grep -o '[0-9]* requests in' "$work/wrk") 1 s, none failed"
}

check_redis_cli() {
  need redis-cli "the package redis-tools" || return 77
  local port=${leader##*:} got
  for form in STRING INTEGER; do redis-cli -p "$port" --raw SNOWFLAKE 1000 AS $form; done | sort -u >"$work/ids"
  [ "$(wc -l <"$work/ids")" = 2000 ] || { echo "$(wc -l <"$work/ids") distinct IDs, want 2000"; return 1; }
  got=$(redis-cli -p "${addrs[1]##*:}" -c --no-raw TS 1)
  [[ $got == '"'* ]] || { echo "redirected: $got"; return 1; }
  got=$(printf 'MULTI\nSNOWFLAKE\nPING\nEXEC\n' | redis-cli -p "$port" | tail -1)
  [ "$got" = PONG ] || { echo "EXEC: $got"; return 1; }
  got=$(redis-cli -p "$port" TS 0)
  [[ $got == 'ERR count'* ]] || { echo "TS 0: $got"; return 1; }
  echo "$(redis-cli -v): 2000 IDs"
}

check_redis_benchmark() {
  need redis-benchmark "the package redis-tools" || return 77
  local command
  for command in "TS" "TS 100 LEASE" "SNOWFLAKE" "SNOWFLAKE 10 AS STRING"; do
    # shellcheck disable=SC2086 # the words of a command
    redis-benchmark -p "${leader##*:}" -c 16 -n 20000 -P 16 -q $command >"$work/benchmark" 2>&1
    grep -q 'requests per second' "$work/benchmark" && ! grep -qi error "$work/benchmark" || { cat "$work/benchmark"; return 1; }
  done
  echo "$(redis-benchmark -v): 80000 commands, no error"
}

check_redis_py() {
  python_with redis || return
  "$libraries/venv/bin/python" -c 'import redis; print(redis.__version__, end=", ")' && "$libraries/venv/bin/python" "$here/redis_py.py" "${addrs[@]}"
}

# tests_of builds the tests of a Go module, in a copy of its sources: tests_of DIRECTORY MODULE [SED-SCRIPT FILE].
tests_of() {
  need go "install Go" || return
  local dir
  dir=$(cd "$work" && go mod download -json "$2" 2>/dev/null | sed -n 's/.*"Dir": "\(.*\)".*/\1/p') && [ -n "$dir" ] || { echo "the Go module $2 cannot be fetched"; return 77; }
  mkdir -p "$1" && cp -r "$dir/." "$1" && chmod -R u+w "$1" && { [ -z "${3-}" ] || sed -i "$3" "$1/$4"; } && (cd "$1" && go test -c -o tests . >build.log 2>&1) || { tail -3 "$1/build.log"; return 77; }
}

# with_locks runs the tests of a Go package of locks, with what stands in for redis-server (see redislocks): with_locks DIRECTORY FIRST-PORT OPTION ...
with_locks() {
  local dir=$1 first=$2; shift 2
  try_thrice with_locks_once "$dir" "$first" "$@" && echo "$(grep -c '^--- PASS' "$work/tests") of its own tests pass"
}
with_locks_once() {
  local dir=$1 first=$2; shift 2
  # Some tests leave locks behind: another try gets other databases.
  (cd "$dir" && NODE=$redis_locks FIRST_PORT=$first FIRST_DATABASE=$((tries * 64)) PATH=$work/bin:$PATH ./tests -test.timeout 5m -test.v "$@" >"$work/tests" 2>&1)
}

# try_thrice runs what writes into tests: those of these libraries count on milliseconds, and fail on a busy machine, with Redis, too.
try_thrice() {
  for tries in 0 1 2; do
    "$@" && return
    grep -v '^=== ' "$work/tests" | grep -v -- '--- PASS' | tail -20
    sleep 1 # what stands in for redis-server ends
  done
  return 1
}

with_relay() { mkdir -p "$work/bin" && (cd "$root" && go build -o "$work/bin/redis-server" ./interop/redislocks); }

# All tests of redislock, which want port 6379.
check_redislock() {
  free 6379 || { echo "its tests want port 6379, which is taken"; return 77; }
  tests_of "$work/redislock" github.com/bsm/redislock@v0.9.4 && with_relay || return
  NODE=$redis_locks FIRST_PORT=6379 "$work/bin/redis-server" - <<<"port 6379" >"$work/relay" 2>&1 & pid=$!
  local status
  echo -n "0.9.4: "
  until grep -q Ready "$work/relay" || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
  with_locks "$work/redislock" 6379; status=$?
  kill $pid
  return $status
}

# All tests of redsync but those through rueidis: that is a cluster client, and finds one cluster behind the eight servers that they want for one lock.
# Through the other clients, each server is a database of the node. Its tests want the ports from 51200 on, which any connection may have: they get others.
check_redsync() {
  local first=$((20000 + RANDOM % 10000))
  until free $(seq $first $((first + 47))); do first=$((20000 + RANDOM % 10000)); done
  tests_of "$work/redsync" github.com/go-redsync/redsync/v4@v4.18.1 "s/51200/$first/" redsync_test.go && with_relay && echo -n "4.18.1, without rueidis: " &&
    with_locks "$work/redsync" $first -test.skip /rueidis
}

# All tests of redis-py's locks, with our fixtures: its own need FLUSHDB.
check_redis_py_lock() {
  need python3 "install Python 3" || return 77
  local venv=$libraries/redis-5.2.1
  [ -x "$venv/bin/pytest" ] || { python3 -m venv "$venv" && "$venv/bin/pip" install -q redis==5.2.1 pytest; } >/dev/null 2>&1 || { echo "pip cannot install redis-py and pytest"; return 77; }
  [ -f "$venv/redis-5.2.1.tar.gz" ] || "$venv/bin/pip" download -q --no-deps --no-binary :all: -d "$venv" redis==5.2.1 >/dev/null 2>&1 || { echo "pip cannot fetch the sources of redis-py"; return 77; }
  mkdir -p "$work/redis_py/tests" && tar xzf "$venv/redis-5.2.1.tar.gz" -C "$work/redis_py" --strip-components=1 redis-5.2.1/tests/__init__.py redis-5.2.1/tests/test_lock.py &&
    cp "$here/redislocks/conftest.py" "$work/redis_py/tests" || return 1
  try_thrice test_redis_py "$venv/bin/python" && echo "5.2.1: $(tail -1 "$work/tests"), its own tests of locks"
}

test_redis_py() { (cd "$work/redis_py" && "$1" -m pytest -q -p no:cacheprovider --node "$redis_locks" tests >"$work/tests" 2>&1); }

check_ioredis() { with_node && check_module ioredis ioredis; }
check_node_redis() { with_node && check_module redis node_redis; }
check_module() {
  (cd "$libraries/node" && node -p "require('./node_modules/$1/package.json').version + ', node ' + process.version + ','" && node "$2.mjs" "${addrs[@]}")
}

check_thriftpy2() {
  python_with thriftpy2 || return
  "$libraries/venv/bin/python" -c 'import thriftpy2; print(thriftpy2.__version__, end=", ")' &&
    "$libraries/venv/bin/python" "$here/thriftpy2_client.py" "$thrift" "$root/internal/front/thriftrpc/snowflake.thrift"
}

check_grpc_go() {
  need go "install Go" || return 77
  (cd "$here/grpc" && { go mod download >/dev/null 2>&1 || { echo "the Go modules of interop/grpc cannot be fetched"; exit 77; }; } && go run . "${addrs[@]}")
}

check_grpcio() {
  python_with grpcio grpcio-tools grpcio-status grpcio-health-checking grpcio-reflection || return
  mkdir -p "$work/stubs" && "$libraries/venv/bin/python" -m grpc_tools.protoc -I "$root/proto" --python_out="$work/stubs" --grpc_python_out="$work/stubs" \
    isotone/v1/isotone.proto || return 1
  PYTHONPATH=$work/stubs "$libraries/venv/bin/python" "$here/grpc/client.py" "${addrs[@]}"
}

check_grpc_js() {
  with_node || return
  (cd "$libraries/node" && node -p "require('./node_modules/@grpc/grpc-js/package.json').version + ', node ' + process.version + ','" &&
    node client.mjs "$root/proto" "${addrs[@]}")
}

check_go_redis() {
  # go-redis reports on its standard error that COMMAND has no description of NOSUCH.
  (cd "$root" && go list -m -f '{{.Version}},' github.com/redis/go-redis/v9 && go run ./interop/goredis "${addrs[@]}" 2>"$work/goredis" || { cat "$work/goredis"; exit 1; })
}

check_vegeta() {
  need vegeta "go install github.com/tsenart/vegeta/v12@latest" || return 77
  local flags
  for flags in "" "-h2c"; do
    # shellcheck disable=SC2086 # a flag or none
    echo "GET http://$leader/timestamp" | vegeta attack $flags -rate 500 -duration 2s | vegeta report -type json >"$work/vegeta" &&
      grep -q '"success":1[,}]' "$work/vegeta" || { cat "$work/vegeta"; return 1; }
  done
  echo "HTTP/1.1 and h2c: 2000 requests, none failed"
}

check_k6() {
  need k6 "go install go.k6.io/k6@v1.8.1" || return 77
  TARGET=$leader K6_NO_USAGE_REPORT=true k6 run --quiet "$here/k6.js" >"$work/k6" 2>&1 || { cat "$work/k6"; return 1; }
  echo "$(k6 version | cut -d' ' -f1,2): 4000 requests, all checks passed"
}

check_memtier() {
  need memtier_benchmark "build it from its sources" || return 77
  memtier_benchmark -s 127.0.0.1 -p "${leader##*:}" --command TS -t 1 -c 8 -n 1000 --hide-histogram >"$work/memtier" 2>&1 && ! grep -qi error "$work/memtier" ||
    { cat "$work/memtier"; return 1; }
  echo "8000 commands, no error"
}

check_jedis() { with_java && check_class WithJedis jedis; }
check_lettuce() { with_java && check_class WithLettuce lettuce-core; }
check_class() {
  tr : '\n' <"$libraries/java/classpath" | sed -n "s|.*/$2-\(.*\)\.jar|\1,|p"
  java -cp "$libraries/java/classes:$(cat "$libraries/java/classpath")" "$1" "${addrs[@]}" 2>&1
}

check_redis_rs() {
  need cargo "install Rust" || return 77
  mkdir -p "$libraries/rust" && cp -r "$here"/rust/* "$libraries/rust" || return 1
  (cd "$libraries/rust" && { cargo build -q --release >cargo.log 2>&1 || { tail -20 cargo.log; grep -q 'error\[' cargo.log && exit 1; exit 77; }; } &&
    sed -n '/^name = "redis"$/{n;s/version = "\(.*\)"/\1,/p}' Cargo.lock | tr '\n' ' ' && ./target/release/interop "${addrs[@]}")
}

check_tonic() {
  need cargo "install Rust" || return 77
  mkdir -p "$libraries/tonic" && cp -r "$here"/grpc/rust/* "$libraries/tonic" || return 1
  (cd "$libraries/tonic" && { SCHEMA=$root/proto cargo build -q --release >cargo.log 2>&1 || { tail -20 cargo.log; grep -q 'error\[' cargo.log && exit 1; exit 77; }; } &&
    sed -n '/^name = "tonic"$/{n;s/version = "\(.*\)"/\1,/p}' Cargo.lock | tr '\n' ' ' && ./target/release/interop-grpc "${addrs[@]}")
}

check_grpc_java() {
  need javac "install a JDK, 17 or newer" || return 77
  need mvn "install Maven, which fetches the libraries" || return 77
  mkdir -p "$libraries/grpc-java" && cp "$here"/grpc/java/* "$libraries/grpc-java" || return 1
  (cd "$libraries/grpc-java" && mvn -q -B -Dschema="$root/proto" compile dependency:build-classpath -Dmdep.outputFile=classpath >maven.log 2>&1) ||
    { grep -q COMPILATION "$libraries/grpc-java/maven.log" && { tail -20 "$libraries/grpc-java/maven.log"; return 1; }; echo "Maven cannot fetch the libraries"; return 77; }
  tr : '\n' <"$libraries/grpc-java/classpath" | sed -n "s|.*/grpc-stub-\(.*\)\.jar|\1,|p"
  java -cp "$libraries/grpc-java/target/classes:$(cat "$libraries/grpc-java/classpath")" WithGrpc "${addrs[@]}" 2>&1
}

# --- all of them

start
mkdir -p "$libraries"
passed=0 failed=0 skipped=0
for name; do
  for try in 1 2 3; do
    by_leader
    before=$term
    said=$("check_$name" 2>&1)
    status=$?
    [ $status != 0 ] && [ $status != 77 ] || break
    by_leader
    # An election in the middle is no fault of the client, which was told who leads.
    [ "$term" != "$before" ] || break
    echo "$name: the leader changed meanwhile, try $try"
  done
  said=$(paste -sd' ' <<<"$said")
  case $status in
    0) passed=$((passed + 1)); echo "ok       $name: $said" ;;
    77) skipped=$((skipped + 1)); echo "skipped  $name: $said" ;;
    *) failed=$((failed + 1)); echo "FAILED   $name: $said" ;;
  esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
