#!/bin/sh
# Before the files of the package are there: its user, whom some of them belong to.
# dpkg calls it with "install" or "upgrade", rpm with 1 or 2.
set -e
case "${1:-}" in
install | upgrade | 1 | 2)
  if ! getent group isotone >/dev/null; then
    groupadd --system isotone
  fi
  if ! getent passwd isotone >/dev/null; then
    nologin=/usr/sbin/nologin
    [ -x "$nologin" ] || nologin=/bin/false
    useradd --system --gid isotone --home-dir /var/lib/isotone --no-create-home --shell "$nologin" --comment Isotone isotone
  fi
  ;;
esac
