#!/usr/bin/env bash
# Builds the website of the documentation into a directory, _site by default. A link to a file, a page or a
# heading that does not exist is an error. REPOSITORY and BRANCH say where links to code lead, SITE_URL where the
# site is published: previews of links need that, and the page for missing addresses if it is no root of a host.
#
# MkDocs and the script of the diagrams go into SITE_CACHE (~/.cache/isotone-site), once for each version.
# Needs Python 3.10 with venv, and git; without npm, diagrams remain text. Exit code 3: Python is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-_site}")
cache=${SITE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/isotone-site}

mermaid=11.12.0
mermaid_sum=66e755c7bdc1c2b3097c2166492253f38cbabb96eb12857c0ce22d747a2634bcf7dae06336b7a59bb9a0f795fb83e0ba528407fd6ea604b183103bfbdc977106

missing() {
  echo "the site needs $1: skipped" >&2
  exit 3
}

python() {
  command -v python3 >/dev/null || missing "python3"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || missing "Python 3.10 or newer"
  python3 -c 'import venv, ensurepip' 2>/dev/null || missing "Python's venv (Debian: python3-venv)"
  venv=$cache/python-$(sha256sum site/requirements.txt | cut -c1-12)
  [ -e "$venv/complete" ] && return
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement site/requirements.txt
  touch "$venv/complete"
}

# diagrams fetches the script that draws them, checks its sum, and puts it where the pages load it from.
diagrams() {
  local script=$cache/mermaid-$mermaid.min.js
  if [ ! -e "$script" ] && command -v npm >/dev/null; then
    local dir
    dir=$(mktemp -d)
    (cd "$dir" && npm pack --silent "mermaid@$mermaid" >/dev/null && echo "$mermaid_sum  mermaid-$mermaid.tgz" | sha512sum --check --quiet &&
      tar -xzf "mermaid-$mermaid.tgz" package/dist/mermaid.min.js) || { rm -rf "$dir"; echo "mermaid $mermaid cannot be fetched" >&2; exit 1; }
    mkdir -p "$cache"
    mv "$dir/package/dist/mermaid.min.js" "$script"
    rm -rf "$dir"
  fi
  if [ -e "$script" ]; then
    export MERMAID=$script
  else
    echo "npm is missing: diagrams remain text" >&2
  fi
}

python
diagrams
export NO_MKDOCS_2_WARNING=1 # it is about the next version, and requirements.txt pins this one
# Not --quiet: MkDocs would not count the warnings, and --strict would find none.
"$venv/bin/mkdocs" build --strict --clean --config-file site/mkdocs.yml --site-dir "$out" 2>&1 | (grep -vE '^(INFO|$)' || true)
echo "the site is in $out; to read it: python3 -m http.server --directory $out"
