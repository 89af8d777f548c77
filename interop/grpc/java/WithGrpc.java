import com.google.protobuf.Any;
import com.google.rpc.ErrorInfo;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.StreamObserver;
import io.isotone.v1.IdsGetRequest;
import io.isotone.v1.IdsGrpc;
import io.isotone.v1.TimestampsGetRequest;
import io.isotone.v1.TimestampsGetResponse;
import io.isotone.v1.TimestampsGrpc;
import io.isotone.v1.TimestampsStreamRequest;
import io.isotone.v1.TimestampsStreamResponse;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** grpc-java over Netty. Arguments: HOST:PORT of each node, the leader first. */
final class WithGrpc {
  private static byte[] last = new byte[16];

  public static void main(String[] addrs) throws Exception {
    ManagedChannel leader = NettyChannelBuilder.forTarget(addrs[0]).usePlaintext().build();
    ManagedChannel follower = NettyChannelBuilder.forTarget(addrs[1]).usePlaintext().build();
    TimestampsGrpc.TimestampsBlockingStub timestamps = TimestampsGrpc.newBlockingStub(leader);
    for (int i = 1; i <= 100; i++) ascending(timestamps.get(request(i)));
    streamed(TimestampsGrpc.newStub(leader));
    Set<Long> ids = new HashSet<>();
    for (ManagedChannel node : new ManagedChannel[] {leader, follower}) {
      ids.addAll(IdsGrpc.newBlockingStub(node).get(IdsGetRequest.newBuilder().setCount(1000).build()).getIdsList());
    }
    demand(ids.size() == 2000, ids.size() + " distinct IDs");
    refused(() -> timestamps.get(request(0)), Status.Code.INVALID_ARGUMENT, "invalid_argument");
    ErrorInfo info = refused(() -> TimestampsGrpc.newBlockingStub(follower).get(request(1)), Status.Code.UNAVAILABLE, "not_leader");
    demand(addrs[0].equals(info.getMetadataMap().get("leader")), info.toString());
    leader.shutdownNow().awaitTermination(10, TimeUnit.SECONDS);
    follower.shutdownNow().awaitTermination(10, TimeUnit.SECONDS);
    System.out.println("grpc-java: 1,100 timestamps, " + ids.size() + " IDs, errors");
  }

  private static TimestampsGetRequest request(long count) {
    return TimestampsGetRequest.newBuilder().setCount(count).build();
  }

  /** Demands a timestamp that is larger than all before. */
  private static void ascending(TimestampsGetResponse answer) {
    byte[] ts = answer.getWide().toByteArray();
    demand(ts.length == 16 && Arrays.compareUnsigned(last, ts) < 0, Arrays.toString(ts) + " after " + Arrays.toString(last));
    last = ts;
  }

  private static void streamed(TimestampsGrpc.TimestampsStub stub) throws Exception {
    CompletableFuture<Long> end = new CompletableFuture<>();
    StreamObserver<TimestampsStreamRequest> requests = stub.stream(new StreamObserver<TimestampsStreamResponse>() {
      private long expected;

      @Override
      public void onNext(TimestampsStreamResponse answer) {
        demand(answer.getId() == expected++ && answer.hasGot(), answer.toString());
        ascending(answer.getGot());
      }

      @Override
      public void onError(Throwable error) {
        end.completeExceptionally(error);
      }

      @Override
      public void onCompleted() {
        end.complete(expected);
      }
    });
    for (int i = 0; i < 1000; i++) requests.onNext(TimestampsStreamRequest.newBuilder().setId(i).build());
    requests.onCompleted();
    demand(end.get(1, TimeUnit.MINUTES) == 1000, "answers are missing");
  }

  /** Demands an error with that code and reason, and returns its details. */
  private static ErrorInfo refused(Runnable call, Status.Code code, String reason) throws Exception {
    try {
      call.run();
    } catch (StatusRuntimeException e) {
      for (Any detail : StatusProto.fromThrowable(e).getDetailsList()) {
        if (detail.is(ErrorInfo.class)) {
          ErrorInfo info = detail.unpack(ErrorInfo.class);
          demand(e.getStatus().getCode() == code && info.getReason().equals(reason) && info.getDomain().equals("isotone"), e + " " + info);
          return info;
        }
      }
      throw e;
    }
    throw new AssertionError("no error " + reason);
  }

  private static void demand(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }
}
