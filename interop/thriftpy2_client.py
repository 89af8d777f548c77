"""thriftpy2 with the protocols that it shares with Apache Thrift. Arguments: HOST:PORT, snowflake.thrift."""

import sys

import thriftpy2
from thriftpy2.protocol import TBinaryProtocolFactory, TCompactProtocolFactory
from thriftpy2.rpc import make_client
from thriftpy2.transport import TBufferedTransportFactory, TFramedTransportFactory

ids = set()


def demand(client):
    for _ in range(100):
        ids.add(client.get_id("interop"))
    assert client.get_timestamp() > 1 << 40 and client.get_worker_id() >= 0 and client.get_datacenter_id() >= 0
    ids.add(client.get_id("1 is an odd name"))


def main(addr, path):
    host, port = addr.rsplit(":", 1)
    service = thriftpy2.load(path, module_name="snowflake_thrift")
    count = 0
    for protocol in TBinaryProtocolFactory(), TCompactProtocolFactory():
        for transport in TBufferedTransportFactory(), TFramedTransportFactory():
            client = make_client(service.Snowflake, host, int(port), proto_factory=protocol, trans_factory=transport)
            demand(client)
            client.close()
            count += 101
    assert len(ids) == count, (len(ids), count)
    print(f"thriftpy2: {count} IDs")


if __name__ == "__main__":
    main(*sys.argv[1:])
