#!/bin/sh
# Before the files go. An upgrade does not stop the node.
# dpkg calls it with "remove", or "upgrade"; rpm with 0 at the removal, or 1 at an upgrade.
set -e
case "${1:-}" in
remove | 0)
  if [ -d /run/systemd/system ] && command -v systemctl >/dev/null; then
    systemctl disable --now isotone.service || true
  fi
  ;;
esac
