#!/usr/bin/env bash
# Builds the client, lints it, checks its types, runs its tests and, if ISOTONE is a binary that has the command
# "conformance", all scenarios of the conformance kit. Tools go into .venv here, never into the system.
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-python3}

step() { printf '\n== %s\n' "$*"; }

if ! [ -x .venv/bin/ruff ]; then
  step "install the tools"
  "$python" -m venv .venv
  .venv/bin/pip install --quiet --disable-pip-version-check build hatchling mypy pytest ruff
fi
bin=$PWD/.venv/bin

step "build"
rm -rf dist
"$bin/python" -m build --no-isolation --outdir dist . >/dev/null
ls dist

step "ruff, mypy"
"$bin/ruff" check .
"$bin/ruff" format --check .
"$bin/mypy"

step "pytest"
DIST=$PWD/dist "$bin/pytest"

if [ -n "${ISOTONE:-}" ] && "$ISOTONE" conformance run --list >/dev/null 2>&1; then
  step "the conformance kit"
  "$ISOTONE" conformance run -- "$bin/python" driver.py
else
  echo "ISOTONE is not set, or has no conformance kit: not run"
fi
