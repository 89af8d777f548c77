#!/usr/bin/env bash
# Runs the examples against the nodes given as HOST:PORT, or against three nodes that it
# starts with "isotone dev" and stops afterwards. Needs Node 20 or newer, and npm.
set -euo pipefail
cd "$(dirname "$0")"
command -v node >/dev/null || { echo "run.sh: node is missing (20 or newer)" >&2; exit 2; }
dir=$(mktemp -d)
pid=
finish() {
  [ -z "$pid" ] || { kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; } || true
  rm -rf "$dir"
}
trap finish EXIT

cp package.json tsconfig.json ./*.ts "$dir"
(cd "$dir" && npm install --silent --no-audit --no-fund && npm run --silent build)
if [ $# = 0 ]; then
  (cd ../.. && go build -o "$dir/isotone" ./cmd/isotone)
  (cd "$dir" && exec ./isotone dev --no-forward --interval-ms 100) >"$dir/log" 2>&1 & pid=$!
  set -- 127.0.0.1:8081 127.0.0.1:8082 127.0.0.1:8083
  for _ in $(seq 100); do
    node -e 'fetch("http://127.0.0.1:8081/ready").then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))' && break
    sleep 0.1
  done
fi
echo "== over_http.ts"
node "$dir/dist/over_http.js" "$@"
echo "== intervals.ts"
node "$dir/dist/intervals.js" "$@"
