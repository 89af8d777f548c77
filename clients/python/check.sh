#!/usr/bin/env bash
# Builds the client, lints it, checks its types, runs its tests and, if ISOTONE is a binary that has the command
# "conformance", all scenarios of the conformance kit. Tools go into a virtual environment in
# the user's cache, once for each version.
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-python3}

step() { printf '\n== %s\n' "$*"; }

tools="build==1.6.1 hatchling==1.33.0 mypy==2.4.1 pytest==9.2.0 ruff==0.17.6"
venv=${XDG_CACHE_HOME:-$HOME/.cache}/isotone-python/$("$python" --version | tr ' ' -)-$(sha256sum <<<"$tools" | cut -c1-12)
if [ ! -e "$venv/complete" ]; then
  step "install the tools"
  "$python" -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check $tools
  touch "$venv/complete"
fi
bin=$venv/bin

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
