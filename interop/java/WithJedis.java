import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisMovedDataException;

/** Jedis, plain and as a cluster client. Arguments: HOST:PORT of each node, the leader first. */
public final class WithJedis {
  private static final ProtocolCommand TS = () -> "TS".getBytes(StandardCharsets.US_ASCII);
  private static final ProtocolCommand SNOWFLAKE = () -> "SNOWFLAKE".getBytes(StandardCharsets.US_ASCII);

  public static void main(String[] args) {
    Check check = new Check();
    List<HostAndPort> nodes = Stream.of(args).map(HostAndPort::from).toList();
    plain(check, nodes.get(0));
    try (Jedis follower = new Jedis(nodes.get(1))) {
      check.distinct(follower.sendCommand(SNOWFLAKE, "5"));
      try {
        follower.sendCommand(TS);
        throw new AssertionError("a follower answers");
      } catch (JedisMovedDataException e) {
        check.demand(e.getTargetNode().getPort() == nodes.get(0).getPort(), e.toString());
      }
    }
    cluster(check, nodes.stream().skip(2).collect(Collectors.toSet()));
    check.done("Jedis");
  }

  private static void plain(Check check, HostAndPort leader) {
    try (Jedis r = new Jedis(leader)) {
      for (int i = 0; i < 100; i++) check.ascending(r.sendCommand(TS));
      check.distinct(r.sendCommand(SNOWFLAKE));
      check.distinct(r.sendCommand(SNOWFLAKE, "1000"));
      var pipeline = r.pipelined();
      for (int i = 0; i < 200; i++) pipeline.sendCommand(i % 2 == 0 ? TS : SNOWFLAKE, "3");
      mixed(check, pipeline.syncAndReturnAll());
      var block = r.multi();
      for (int i = 0; i < 200; i++) block.sendCommand(i % 2 == 0 ? TS : SNOWFLAKE, "3");
      mixed(check, block.exec());
      r.watch("a");
      r.unwatch();
      check.refused(() -> r.sendCommand(TS, "0"), "ERR count");
      check.refused(() -> r.get("a"), "ERR unknown command");
    }
  }

  /** The answers to timestamps and IDs in turns. */
  private static void mixed(Check check, List<Object> answers) {
    check.demand(answers.size() == 200, "answers: " + answers.size());
    for (int i = 0; i < answers.size(); i++) {
      if (i % 2 == 0) check.ascending(answers.get(i));
      else check.distinct(answers.get(i));
    }
  }

  private static void cluster(Check check, Set<HostAndPort> start) {
    try (JedisCluster r = new JedisCluster(start)) {
      for (int i = 0; i < 100; i++) {
        check.ascending(r.sendCommand("1", TS, "" + (i + 1)));
        check.distinct(r.sendCommand("1", SNOWFLAKE, "3"));
      }
    }
  }
}
