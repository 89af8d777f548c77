#!/usr/bin/env bash
# Installs what it needs into node_modules, builds, lints, type-checks and tests the client. If ISOTONE is an isotone that has the command
# conformance, it also plays all scenarios of the kit to it. Needs Node 20 or newer, and npm.
set -euo pipefail
cd "$(dirname "$0")"
command -v node >/dev/null || { echo "check.sh: node is missing (20 or newer)" >&2; exit 2; }
if [ ! -e node_modules/.package-lock.json ] || [ package.json -nt node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
  npm ci --silent --no-audit --no-fund
  touch node_modules/.package-lock.json
fi
rm -rf dist build
npm run --silent build
npm run --silent build:all
npm run --silent lint
node --test build/test/*.test.js
if [ -n "${ISOTONE:-}" ] && "$ISOTONE" conformance run --list >/dev/null 2>&1; then
  "$ISOTONE" conformance run -- node build/driver/main.js
fi
