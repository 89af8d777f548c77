package io.isotone;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import javax.net.ssl.SSLContext;

/** The options of a client. Only the addresses are required. Methods return the same object, for chains. */
public final class Options {
  private static final int ADDRS_MAX = 64;
  private static final int CONNECTIONS_MAX = 64;
  private static final int QUEUE_MAX = 1 << 22;

  final List<String> addrs;
  String cluster = "";
  Timestamp floor = Timestamp.ZERO;
  ReadMode mode = ReadMode.DEFAULT;
  int connections = 1;
  int queueMax = 1 << 16;
  Duration timeout = Duration.ofSeconds(10);
  Duration dialTimeout = Duration.ofSeconds(1);
  SSLContext tls;
  String serverName = "";
  Supplier<Credentials> credentials;
  Events events = Events.NONE;
  boolean lazy;

  private Options(List<String> addrs) {
    this.addrs = List.copyOf(addrs);
  }

  /**
   * Begins with 1 to 64 addresses of nodes, {@code host:port}. One that is reachable is enough: the client learns the
   * others.
   */
  public static Options of(String... addrs) {
    return new Options(List.of(addrs));
  }

  /** Pins the cluster, by an ID of 16 hexadecimal digits. Default: the first that a node reports. */
  public Options cluster(String id) {
    cluster = id;
    return this;
  }

  /**
   * Sets the largest timestamp that is known from before, for instance stored by an earlier process: all will be
   * larger.
   */
  public Options floor(Timestamp last) {
    floor = last;
    return this;
  }

  /** Sets the read mode of calls that name none. */
  public Options mode(ReadMode mode) {
    this.mode = mode;
    return this;
  }

  /**
   * Sets how many connections to the leader there are, 1 to 64, beside one for single blocking calls. Default: 1. Each
   * has one request under way, which calls share.
   */
  public Options connections(int count) {
    connections = count;
    return this;
  }

  /** Bounds the calls that wait to be sent, 1 to 4194304; further ones fail with {@code OVERLOADED}. Default: 65536. */
  public Options queueMax(int calls) {
    queueMax = calls;
    return this;
  }

  /**
   * Sets the time in which calls that name none must be answered, and a leader be found at the start. Default: 10 s.
   */
  public Options timeout(Duration timeout) {
    this.timeout = timeout;
    return this;
  }

  /** Bounds opening a connection, and each question about the cluster. Default: 1 s. */
  public Options dialTimeout(Duration timeout) {
    dialTimeout = timeout;
    return this;
  }

  /**
   * Has the client speak TLS, and never anything else, with the authorities and perhaps the certificate of a context;
   * see {@link Tls}. Certificates of nodes must be of the host of their address.
   */
  public Options tls(SSLContext context) {
    tls = context;
    return this;
  }

  /** Sets the name that certificates of nodes must have in place of the host of their address. */
  public Options serverName(String name) {
    serverName = name;
    return this;
  }

  /**
   * Sets what the client proves its name with, asked for each new connection, so that a secret can change while the
   * client runs. Without TLS, it is sent to this machine only.
   */
  public Options credentials(Supplier<Credentials> source) {
    credentials = source;
    return this;
  }

  /** Sets an observer. */
  public Options events(Events events) {
    this.events = events;
    return this;
  }

  /** Has {@link IsotoneClient#open} return without waiting for a leader. */
  public Options lazy() {
    lazy = true;
    return this;
  }

  /** Throws an exception with {@code INVALID_ARGUMENT} that lists everything that is wrong. */
  void validate() {
    List<String> faults = new ArrayList<>();
    check(faults, !addrs.isEmpty() && addrs.size() <= ADDRS_MAX, "want 1 to 64 addresses");
    addrs.forEach(addr -> check(faults, Resp.isAddr(addr), "address \"" + addr + "\": want host:port"));
    check(faults, cluster.isEmpty() || Resp.isCluster(cluster), "cluster: want 16 hexadecimal digits");
    check(faults, connections > 0 && connections <= CONNECTIONS_MAX, "connections: want 1 to 64");
    check(faults, queueMax > 0 && queueMax <= QUEUE_MAX, "queueMax: want 1 to 4194304");
    for (Duration d : List.of(timeout, dialTimeout)) {
      check(faults, d.compareTo(Duration.ZERO) > 0 && d.toDays() <= 365, "timeouts: want more than 0, at most a year");
    }
    if (!faults.isEmpty()) {
      throw IsotoneException.invalid("options: " + String.join("; ", faults));
    }
  }

  private static void check(List<String> faults, boolean ok, String fault) {
    if (!ok) {
      faults.add(fault);
    }
  }
}
