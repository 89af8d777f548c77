#!/usr/bin/env python3
"""A driver for "isotone verify", and a system to try it with: a counter in the memory of one process, over HTTP."""
import concurrent.futures, http.client, http.server, itertools, json, os, sys, threading, time, traceback


def serve(host, port):  # the system: its only node
    numbers = itertools.count(1)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            body = b"%d" % next(numbers)
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    http.server.ThreadingHTTPServer((host, int(port)), Handler).serve_forever()


def plan(where):  # how each node is started, and where it is found
    me = [sys.executable, os.path.abspath(__file__)]
    return [{"command": [*me, n["host"], str(n["ports"][0])], "address": f"{n['host']}:{n['ports'][0]}"} for n in where["nodes"]]


def fetch(r):  # one number; each client has its own connections, and uses one at a time
    key = r.get("client", 0), r["node"]
    connection = connections.pop(key, None) or http.client.HTTPConnection(addresses[r["node"]], timeout=r["timeout_ms"] / 1000)
    connection.request("GET", "/")
    number = int(connection.getresponse().read())
    connections[key] = connection  # not after an error
    return str(number)


def ask(r):
    calls = []
    for _ in range(r["times"]):
        began = time.monotonic_ns()
        try:
            first = fetch(r)
        except ValueError as e:
            return {"calls": calls, "failed": {"error": "malformed", "message": str(e)}}
        except (OSError, http.client.HTTPException) as e:
            return {"calls": calls, "failed": {"error": "unavailable", "message": str(e)}}
        calls.append({"first": first, "count": 1, "began": began, "ended": time.monotonic_ns()})
    return {"calls": calls}


def answer(r):
    ok, error = {}, {}
    try:
        if r["do"] == "hello":
            ok = {"protocol": 1, "system": "counter", "version": "1", "promises": "real-time", "times_max": 64}
        elif r["do"] == "plan":
            ok = {"nodes": plan(r["plan"])}
        elif r["do"] == "connect":
            addresses[:] = r["addresses"]
        elif r["do"] == "ready":
            fetch(r)
        elif r["do"] == "ask":
            ok = ask(r)
    except (OSError, http.client.HTTPException) as e:  # of ready
        error = {"error": "unavailable", "message": str(e)}
    except Exception:  # a bug: it would be lost in the pool
        traceback.print_exc()
        os._exit(1)
    with writing:
        print(json.dumps({"id": r["id"], **(error or {"ok": ok})}), flush=True)


addresses, connections, writing = [], {}, threading.Lock()
if len(sys.argv) > 1:
    serve(*sys.argv[1:])
with concurrent.futures.ThreadPoolExecutor(256) as pool:
    for line in sys.stdin:
        pool.submit(answer, json.loads(line))
