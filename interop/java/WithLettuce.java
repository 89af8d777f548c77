import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.ArrayOutput;
import io.lettuce.core.output.ByteArrayOutput;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.stream.Stream;

/** Lettuce, plain and as a cluster client. Arguments: HOST:PORT of each node, the leader first. */
public final class WithLettuce {
  private static final ByteArrayCodec BYTES = ByteArrayCodec.INSTANCE;

  private record Keyword(String name) implements ProtocolKeyword {
    @Override
    public byte[] getBytes() {
      return name.getBytes(StandardCharsets.US_ASCII);
    }
  }

  /** Sends a command without waiting. The cluster client routes by the count, as by a key. */
  private static <T> AsyncCommand<byte[], byte[], T> send(
      StatefulConnection<byte[], byte[]> c, String name, CommandOutput<byte[], byte[], T> output, int count) {
    var args = new CommandArgs<>(BYTES).addKey(("" + count).getBytes(StandardCharsets.US_ASCII));
    var command = new AsyncCommand<>(new Command<>(new Keyword(name), output, args));
    c.dispatch(command);
    return command;
  }

  private static byte[] timestamp(StatefulConnection<byte[], byte[]> c, int count) {
    return send(c, "TS", new ByteArrayOutput<>(BYTES), count).toCompletableFuture().join();
  }

  private static List<Object> ids(StatefulConnection<byte[], byte[]> c, int count) {
    return send(c, "SNOWFLAKE", new ArrayOutput<>(BYTES), count).toCompletableFuture().join();
  }

  private static void common(Check check, StatefulConnection<byte[], byte[]> c) {
    List<AsyncCommand<byte[], byte[], byte[]>> pipeline = new ArrayList<>();
    for (int i = 0; i < 100; i++) {
      check.ascending(timestamp(c, i + 1));
      check.distinct(ids(c, i + 1));
    }
    for (int i = 0; i < 1000; i++) pipeline.add(send(c, "TS", new ByteArrayOutput<>(BYTES), 3));
    for (var one : pipeline) check.ascending(one.toCompletableFuture().join());
  }

  /** Demands that a call fails with an error of the server. */
  private static void refused(Check check, Runnable call, String word) {
    check.refused(
        () -> {
          try {
            call.run();
          } catch (CompletionException e) {
            throw (RuntimeException) e.getCause();
          }
        },
        word);
  }

  public static void main(String[] args) {
    Check check = new Check();
    List<RedisURI> nodes = Stream.of(args).map(a -> RedisURI.create("redis://" + a)).toList();
    RedisClient plain = RedisClient.create();
    try (var leader = plain.connect(BYTES, nodes.get(0));
        var follower = plain.connect(BYTES, nodes.get(1))) {
      common(check, leader);
      check.distinct(leader.sync().dispatch(new Keyword("SNOWFLAKE"), new IntegerOutput<>(BYTES)));
      leader.sync().multi();
      leader.async().dispatch(new Keyword("TS"), new ByteArrayOutput<>(BYTES));
      leader.async().dispatch(new Keyword("SNOWFLAKE"), new IntegerOutput<>(BYTES));
      var result = leader.sync().exec();
      check.ascending(result.get(0));
      check.distinct(result.get(1));
      refused(check, () -> timestamp(leader, 0), "ERR count");
      refused(check, () -> timestamp(follower, 1), "MOVED");
      check.distinct(ids(follower, 100));
    }
    plain.shutdown();
    RedisClusterClient cluster = RedisClusterClient.create(nodes.get(2));
    try (var c = cluster.connect(BYTES)) {
      common(check, c);
    }
    cluster.shutdown();
    check.done("Lettuce");
  }
}
