#!/usr/bin/env bash
# Runs the examples against the nodes given as HOST:PORT, or against three nodes that it
# starts with "isotone dev" and stops afterwards.
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-python3}
dir=$(mktemp -d)
pid=
finish() {
  [ -z "$pid" ] || { kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; } || true
  rm -rf "$dir"
}
trap finish EXIT

if [ $# = 0 ]; then
  (cd ../.. && go build -o "$dir/isotone" ./cmd/isotone)
  (cd "$dir" && exec ./isotone dev --no-forward --interval-ms 100) >"$dir/log" 2>&1 & pid=$!
  set -- 127.0.0.1:8081 127.0.0.1:8082 127.0.0.1:8083
  for _ in $(seq 100); do
    "$python" -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8081/ready')" 2>/dev/null && break
    sleep 0.1
  done
fi

echo "== over_http.py"
"$python" over_http.py "$@"
echo "== intervals.py"
"$python" intervals.py "$@"
