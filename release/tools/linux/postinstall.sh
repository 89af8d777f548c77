#!/bin/sh
# After the files are there. A node that runs is restarted, in the way that loses no request: it
# transfers its leadership first. One that does not run is not started: without settings it would
# form a cluster of its own.
# dpkg calls it with "configure" and the old version, if there was one; rpm with 1 or 2.
set -e
case "${1:-}${2:-}" in
configure | 1) # the first installation
  start="systemctl enable --now isotone"
  if ! [ -d /run/systemd/system ]; then
    start="su -s /bin/sh isotone -c 'set -a; . /etc/isotone/isotone.env; DATA_DIR=/var/lib/isotone exec isotone serve'"
  fi
  cat <<EOF
isotone is installed, and not started. Next:
  editor /etc/isotone/isotone.env             # NODE_ID, PEERS, ...
  isotone init --data-dir /var/lib/isotone    # once, if this node helps to form a new cluster
  $start
EOF
  ;;
esac
case "${1:-}" in
configure | 1 | 2)
  if [ -d /run/systemd/system ] && command -v systemctl >/dev/null; then
    systemctl daemon-reload || true
    # A node that cannot start again does not make the package half installed.
    systemctl try-restart isotone.service ||
      echo "isotone: the service was not restarted: see systemctl status isotone" >&2
  fi
  ;;
esac
