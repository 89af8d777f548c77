"""Asks servers by the Thrift library for Python, in every way that it knows.

usage: client.py GENERATED-CODE CERTIFICATE PORT CLOCK-PORT FULL-PORT

The code may be generated with the exceptions of the interface or without.
At CLOCK-PORT the clock is bad, at FULL-PORT there are too many requests. Prints a line
for each way that works, and ends with a traceback at the first that does not.
"""

import sys
import warnings

generated, certificate, port, clock_port, full_port = sys.argv[1:]
sys.path.insert(0, generated)
warnings.simplefilter("ignore")

from thrift.protocol import TBinaryProtocol, TCompactProtocol, TJSONProtocol
from thrift.Thrift import TApplicationException
from thrift.transport import TSocket, TSSLSocket, TTransport

from snowflake import Snowflake

PROTOCOLS = {
    "binary": TBinaryProtocol.TBinaryProtocol,
    "binary-unversioned": lambda t: TBinaryProtocol.TBinaryProtocol(t, strictRead=False, strictWrite=False),
    "binary-accelerated": lambda t: TBinaryProtocol.TBinaryProtocolAccelerated(t, fallback=False),
    "compact": TCompactProtocol.TCompactProtocol,
    "compact-accelerated": lambda t: TCompactProtocol.TCompactProtocolAccelerated(t, fallback=False),
    "json": TJSONProtocol.TJSONProtocol,
}
TRANSPORTS = {
    "buffered": TTransport.TBufferedTransport,
    "framed": TTransport.TFramedTransport,
}
SOCKETS = {
    "plain": lambda port: TSocket.TSocket("127.0.0.1", port),
    "tls": lambda port: TSSLSocket.TSSLSocket("127.0.0.1", port, ca_certs=certificate),
}


class Connection:
    def __init__(self, protocol, transport, socket, port):
        below = SOCKETS[socket](int(port))
        below.setTimeout(30000)
        self.transport = TRANSPORTS[transport](below)
        self.client = Snowflake.Client(PROTOCOLS[protocol](self.transport))

    def __enter__(self):
        self.transport.open()
        return self.client

    def __exit__(self, *_):
        self.transport.close()


def want(got, wanted):
    if got != wanted:
        raise AssertionError("got %r, want %r" % (got, wanted))


def raised(exception, call, *arguments):
    try:
        got = call(*arguments)
    except exception as e:
        return e
    raise AssertionError("%s: got %r" % (exception.__name__, got))


last = 0
for protocol in PROTOCOLS:
    for transport in TRANSPORTS:
        for socket in SOCKETS:
            way = (protocol, transport, socket)
            with Connection(*way, port) as client:
                want(client.get_datacenter_id(), 3)
                want(client.get_worker_id(), 7)
                want(client.get_timestamp(), 1700000000123)
                for _ in range(20):
                    got = client.get_id("python-test")
                    if got <= last:
                        raise AssertionError("id %d after %d" % (got, last))
                    last = got
                for agent in ("", "7", "my_app", "\u00fcber", None, "x" * 4096, 'a"\\\n'):
                    got = client.get_id(agent)
                    if got <= last:
                        raise AssertionError("id %d after %d" % (got, last))
                    last = got
            with Connection(*way, clock_port) as client:
                for call in (lambda: client.get_id("python-test"), client.get_worker_id, client.get_datacenter_id):
                    e = raised(TApplicationException, call)
                    want((e.type, e.message), (TApplicationException.INTERNAL_ERROR, "clock: the clock cannot be trusted"))
            with Connection(*way, full_port) as client:
                e = raised(TApplicationException, client.get_id, "python-test")
                want((e.type, e.message), (TApplicationException.INTERNAL_ERROR, "overloaded: too many requests are waiting"))
            print(*way)
