"""grpcio, plain and asyncio, with health, reflection and rich errors.

Arguments: HOST:PORT of each node, the leader first. Prints what was seen, or fails. The modules that grpc_tools.protoc makes of
proto/isotone/v1/isotone.proto are on PYTHONPATH.
"""

import asyncio
import sys

import grpc
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status
from isotone.v1 import isotone_pb2 as pb
from isotone.v1 import isotone_pb2_grpc as rpc

last = bytes(16)


def ascending(answer):
    """Demands a timestamp that is larger than all before."""
    global last
    assert len(answer.wide) == 16 and answer.wide > last, (answer.wide.hex(), last.hex())
    last = answer.wide


def refused(call, code, reason):
    """Demands an error, and returns the metadata of its ErrorInfo."""
    try:
        call()
    except grpc.RpcError as e:
        assert e.code() == code, e
        for detail in rpc_status.from_call(e).details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info):
                assert (info.reason, info.domain) == (reason, "isotone"), info
                return info.metadata
    raise AssertionError(f"no error {reason}")


def plain(leader, follower):
    timestamps = rpc.TimestampsStub(leader)
    for i in range(100):
        ascending(timestamps.Get(pb.TimestampsGetRequest(count=i + 1)))
    small = timestamps.Get(pb.TimestampsGetRequest(form=pb.FORM_U64, wide_floor=last))
    assert small.u64 >> 18 > 1 << 40, small
    for i, a in enumerate(timestamps.Stream(pb.TimestampsStreamRequest(id=i) for i in range(1000))):
        assert a.id == i, a
        ascending(a.got)
    assert i == 999
    ids = {id for c in (leader, follower) for id in rpc.IdsStub(c).Get(pb.IdsGetRequest(count=1000)).ids}
    assert len(ids) == 2000, len(ids)
    refused(lambda: timestamps.Get(pb.TimestampsGetRequest(count=0)), grpc.StatusCode.INVALID_ARGUMENT, "invalid_argument")
    refused(lambda: rpc.IntervalStub(leader).Get(pb.IntervalGetRequest()), grpc.StatusCode.UNIMPLEMENTED, "not_found")
    call = rpc.TimestampsStub(follower).Get
    return refused(lambda: call(pb.TimestampsGetRequest()), grpc.StatusCode.UNAVAILABLE, "not_leader")["leader"]


def services(channel):
    health = health_pb2_grpc.HealthStub(channel)
    for service in "", "isotone.v1.Timestamps", "isotone.v1.Ids":
        assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == health_pb2.HealthCheckResponse.SERVING
    watch = health.Watch(health_pb2.HealthCheckRequest())
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()
    described = ProtoReflectionDescriptorDatabase(channel)
    assert {"isotone.v1.Timestamps", "isotone.v1.Ids", "isotone.v1.Interval"} <= set(described.get_services())
    assert described.FindFileContainingSymbol("isotone.v1.Timestamps").name == "isotone/v1/isotone.proto"


async def in_asyncio(addr):
    """A thousand callers share a stream: answers are told apart by their ids."""
    async with grpc.aio.insecure_channel(addr) as channel:
        stream = rpc.TimestampsStub(channel).Stream()
        writing = asyncio.Lock()  # grpcio writes one message at a time
        waiting = {i: asyncio.get_running_loop().create_future() for i in range(1000)}

        async def receive():
            for _ in waiting:
                a = await stream.read()
                waiting[a.id].set_result(a.got)

        async def caller(i):
            async with writing:
                await stream.write(pb.TimestampsStreamRequest(id=i))
            return (await waiting[i]).wide

        receiving = asyncio.create_task(receive())
        got = await asyncio.gather(*(caller(i) for i in waiting))
        await receiving
        assert len(set(got)) == 1000 and min(got) > last
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF


def main(addrs):
    with grpc.insecure_channel(addrs[0]) as leader, grpc.insecure_channel(addrs[1]) as follower:
        named = plain(leader, follower)
        assert named == addrs[0], named
        services(leader)
    asyncio.run(in_asyncio(addrs[0]))
    print(f"grpcio {grpc.__version__}: 2,100 timestamps, 2,000 IDs, errors, health, reflection")


if __name__ == "__main__":
    main(sys.argv[1:])
