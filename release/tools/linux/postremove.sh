#!/bin/sh
# After the files are gone. The data stays, and the user whom it belongs to, also when the package
# is purged: what a node has promised must not be lost by a wrong command. docs/release.md says
# how to remove both.
# dpkg calls it with "remove", then "purge"; rpm with 0.
set -e
case "${1:-}" in
remove | purge | 0)
  if [ -d /run/systemd/system ] && command -v systemctl >/dev/null; then
    systemctl daemon-reload || true
  fi
  ;;
esac
