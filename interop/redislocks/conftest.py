# Fixtures for redis-py's test_lock.py on a node with REDIS_LOCKS=1, in place of redis-py's own: those need FLUSHDB, and take the node for a cluster of Redis.
import pytest
import redis


def pytest_addoption(parser):
    parser.addoption("--node", help="host:port of the leader")


def _get_client(cls, request, **options):
    host, _, port = request.config.getoption("--node").rpartition(":")
    client = cls(host=host, port=int(port), single_connection_client=True, **options)

    def free():
        client.delete("foo")
        client.close()

    request.addfinalizer(free)
    return client


@pytest.fixture()
def r(request):
    return _get_client(redis.Redis, request)
