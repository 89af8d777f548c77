set -eu
server=
# end ends the server of this block.
end() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" || true
    server=
  fi
}
trap end EXIT
# until_ready waits for a command to succeed while the server runs.
until_ready() {
  until "$@" >/dev/null 2>&1; do
    kill -0 "$server"
    sleep 0.05
  done
}
reached() { (: <"/dev/tcp/127.0.0.1/$1"); }
# isotone runs servers beside the rest of the block.
isotone() {
  case "${1-}" in
    dev)
      shift
      end
      command isotone dev --port "$OWN" "$@" &
      server=$!
      until_ready command isotone status "127.0.0.1:$OWN"
      command isotone leader transfer 1 --endpoint "127.0.0.1:$OWN" >/dev/null ;; # as isotone dev does, where the machine has time
    serve)
      end
      HTTP_HOST=127.0.0.1 HTTP_PORT=$OWN RAFT_ADDR=127.0.0.1:$((OWN + 3)) THRIFT_PORT=0 command isotone "$@" &
      server=$!
      until_ready command isotone status "127.0.0.1:$OWN" ;;
    proxy)
      end
      command isotone "$@" &
      server=$!
      until_ready reached $((OWN + 4)) ;;
    bench)
      # Some answers are enough: how many there are in the time that the text gives shows nothing here.
      command isotone "$@" --requests 5000 ;;
    demo)
      command isotone "$@" --every 1s --clients 3 ;; # with as many kills as the text says
    *)
      command isotone "$@" ;;
  esac
}
# curl fails if the server does, and reads a stream, which does not end, for a second. As clients should,
# it tries again after a 503, which a busy machine may cause by an election.
curl() {
  case "$*" in
    */stream*) command curl -fsS --max-time 1 "$@" || test $? = 28 ;;
    *) command curl -fsS --max-time 10 --retry 5 --retry-max-time 10 "$@" ;;
  esac
}
