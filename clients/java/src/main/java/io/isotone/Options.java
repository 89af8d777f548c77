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
   * Begins with addresses of nodes. One that is reachable is enough: the client learns the others.
   *
   * @param addrs 1 to 64 of {@code host:port}
   * @return options
   */
  public static Options of(String... addrs) {
    return new Options(List.of(addrs));
  }

  /**
   * Pins the cluster: no node of another one is used. Default: the first that a node reports.
   *
   * @param id 16 hexadecimal digits
   * @return this
   */
  public Options cluster(String id) {
    cluster = id;
    return this;
  }

  /**
   * Sets the largest timestamp that is known from before, for instance stored by an earlier process.
   *
   * @param last all timestamps will be larger
   * @return this
   */
  public Options floor(Timestamp last) {
    floor = last;
    return this;
  }

  /**
   * Sets the read mode of calls that name none.
   *
   * @param mode the read mode
   * @return this
   */
  public Options mode(ReadMode mode) {
    this.mode = mode;
    return this;
  }

  /**
   * Sets how many requests for timestamps may be under way at once.
   *
   * @param count connections to the leader, 1 to 64, by default 1, beside one for single blocking calls
   * @return this
   */
  public Options connections(int count) {
    connections = count;
    return this;
  }

  /**
   * Bounds the calls that wait to be sent; further ones fail with {@code OVERLOADED}.
   *
   * @param calls 1 to 4194304, by default 65536
   * @return this
   */
  public Options queueMax(int calls) {
    queueMax = calls;
    return this;
  }

  /**
   * Sets the time in which calls that name none must be answered, and a leader must be found at the start.
   *
   * @param timeout the time, by default 10 s
   * @return this
   */
  public Options timeout(Duration timeout) {
    this.timeout = timeout;
    return this;
  }

  /**
   * Bounds opening a connection, and each question about the cluster.
   *
   * @param timeout the time, by default 1 s
   * @return this
   */
  public Options dialTimeout(Duration timeout) {
    dialTimeout = timeout;
    return this;
  }

  /**
   * Has the client speak TLS, and never anything else. Certificates of nodes must be of the host of their address.
   *
   * @param context the authorities to trust, and perhaps the client's certificate; see {@link Tls}
   * @return this
   */
  public Options tls(SSLContext context) {
    tls = context;
    return this;
  }

  /**
   * Sets the name that certificates of nodes must have in place of the host of their address.
   *
   * @param name the name
   * @return this
   */
  public Options serverName(String name) {
    serverName = name;
    return this;
  }

  /**
   * Sets what the client proves its name with. Without TLS, it is sent to this machine only.
   *
   * @param source asked for each new connection, so that a secret can change while the client runs
   * @return this
   */
  public Options credentials(Supplier<Credentials> source) {
    credentials = source;
    return this;
  }

  /**
   * Sets an observer.
   *
   * @param events the observer
   * @return this
   */
  public Options events(Events events) {
    this.events = events;
    return this;
  }

  /**
   * Has {@link IsotoneClient#open} return without waiting for a leader.
   *
   * @return this
   */
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
    check(faults, !dialTimeout.isNegative() && !dialTimeout.isZero(), "dialTimeout: want more than 0");
    check(faults, !timeout.isNegative() && !timeout.isZero(), "timeout: want more than 0");
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
