package io.isotone;

import io.isotone.IsotoneException.Code;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.ProtocolException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The Redis protocol, RESP2, as a client speaks it. A refusal of a node is an {@link IsotoneException}; after any other
 * exception the connection is unusable. Memory grows with what has arrived, never with an announced length.
 */
final class Resp {
  private static final int LINE_MAX = 8 << 10;
  private static final int BYTES_MAX = 4 << 10;
  private static final int ITEMS_MAX = 4 << 10;
  private static final int DEPTH_MAX = 5;
  private static final int NODES_MAX = 64;
  private static final String CLUSTER_FIELD = "isotone_cluster_id:";
  private static final Map<String, Code> CODES = Map.ofEntries(
      Map.entry("MOVED", Code.NOT_LEADER), Map.entry("CLUSTERDOWN", Code.NO_LEADER),
      Map.entry("TRYAGAIN", Code.OVERLOADED), Map.entry("LOADING", Code.OVERLOADED),
      Map.entry("BUSY", Code.OVERLOADED), Map.entry("MASTERDOWN", Code.OVERLOADED),
      Map.entry("NOAUTH", Code.UNAUTHORIZED), Map.entry("WRONGPASS", Code.UNAUTHORIZED),
      Map.entry("NOPERM", Code.FORBIDDEN), Map.entry("REGRESSED", Code.REGRESSED),
      Map.entry("WRONGCLUSTER", Code.WRONG_CLUSTER), Map.entry("WRONGTYPE", Code.INVALID_ARGUMENT),
      Map.entry("ERR", Code.INVALID_ARGUMENT));

  private final InputStream in;
  private final byte[] buffer = new byte[LINE_MAX];
  private int at;
  private int end;

  Resp(InputStream in) {
    this.in = in;
  }

  static byte[] utf8(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  /** Returns the request for count numbers, with a floor unless that is zero. */
  static byte[] request(Kind kind, long count, Timestamp floor) {
    if (kind == Kind.IDS) {
      return count == 1 ? command(kind.command) : command(kind.command, Long.toString(count));
    }
    List<String> words = new ArrayList<>(List.of(kind.command, Long.toString(count)));
    if (!kind.mode.isEmpty()) {
      words.add(kind.mode);
    }
    if (!floor.equals(Timestamp.ZERO)) {
      words.addAll(List.of("FLOOR", floor.toString()));
    }
    return command(words.toArray(String[]::new));
  }

  static byte[] command(String... words) {
    StringBuilder line = new StringBuilder().append('*').append(words.length).append("\r\n");
    for (String word : words) {
      byte[] bytes = utf8(word);
      line.append('$').append(bytes.length).append("\r\n");
      line.append(new String(bytes, StandardCharsets.ISO_8859_1)).append("\r\n");
    }
    return line.toString().getBytes(StandardCharsets.ISO_8859_1);
  }

  /** Waits until there is something to read, or throws if the connection has ended. */
  void await() throws IOException {
    if (at == end) {
      fill();
    }
  }

  /** Reports whether something was received that was not read. */
  boolean hasMore() {
    return at < end;
  }

  private void fill() throws IOException {
    System.arraycopy(buffer, at, buffer, 0, end - at);
    end -= at;
    at = 0;
    if (end == buffer.length) {
      throw new ProtocolException("malformed answer: a line of more than 8 KiB");
    }
    int n = in.read(buffer, end, buffer.length - end);
    if (n < 0) {
      throw new EOFException("the connection was closed");
    }
    end += n;
  }

  /** Reads a line, and returns it without its end. */
  private String line() throws IOException {
    for (int i = 0; ; i++) {
      while (at + i == end) {
        fill();
      }
      if (buffer[at + i] == '\n') {
        String line = new String(buffer, at, Math.max(i - 1, 0), StandardCharsets.ISO_8859_1);
        boolean isLine = i > 1 && buffer[at + i - 1] == '\r';
        at += i + 1;
        if (!isLine) {
          throw malformed(line);
        }
        return refused(line);
      }
    }
  }

  /** Returns a line that is no refusal. */
  private static String refused(String line) throws ProtocolException {
    if (line.charAt(0) == '-') {
      throw refusal(line.substring(1));
    }
    return line;
  }

  private static ProtocolException malformed(String line) {
    return new ProtocolException("malformed answer: " + line.substring(0, Math.min(line.length(), 40)));
  }

  /** Reads a number of digits only, after the first character of a line. */
  private static long number(String line, char type, long most) throws ProtocolException {
    try {
      if (line.charAt(0) == type && Character.isDigit(line.charAt(1))) {
        long n = Long.parseLong(line, 1, line.length(), 10);
        if (n <= most) {
          return n;
        }
      }
    } catch (NumberFormatException e) {
      // Reported below.
    }
    throw malformed(line);
  }

  private byte[] bulk(String line, long most) throws IOException {
    int n = (int) number(line, '$', most);
    while (end - at < n + 2) {
      fill();
    }
    if (buffer[at + n] != '\r' || buffer[at + n + 1] != '\n') {
      throw new ProtocolException("malformed answer: a string of more than " + n + " bytes");
    }
    at += n + 2;
    return Arrays.copyOfRange(buffer, at - n - 2, at - 2);
  }

  /** Reads the answer to a request: the place of the first of count timestamps. */
  Timestamp stamps(Kind kind, long count) throws IOException {
    String line = line();
    if (kind.isTs64()) {
      return stamps64(bulk(line, 20), count);
    }
    byte[] bytes = bulk(line, Timestamp.BYTES);
    if (bytes.length != Timestamp.BYTES) {
      throw malformed(line);
    }
    Timestamp first = Timestamp.of(bytes);
    if (Long.compareUnsigned(count - 1, -1 - first.index()) > 0) {
      throw new ProtocolException("malformed answer: " + count + " timestamps from " + first + " on");
    }
    return first;
  }

  private static Timestamp stamps64(byte[] bytes, long count) throws ProtocolException {
    String digits = new String(bytes, StandardCharsets.ISO_8859_1);
    try {
      Timestamp64 first = Timestamp64.parse(digits);
      Timestamp64 last = new Timestamp64(first.value() + count - 1);
      if (last.compareTo(first) >= 0 && Timestamp64.from(last.place()).equals(last)) {
        return first.place();
      }
    } catch (IsotoneException e) {
      // Reported below.
    }
    throw malformed(digits);
  }

  /** Reads the answer to a request for count IDs. */
  long[] ids(long count) throws IOException {
    String line = line();
    if (count == 1 && line.charAt(0) == ':') {
      return new long[] {number(line, ':', Long.MAX_VALUE)};
    }
    if (number(line, '*', count) != count) {
      throw malformed(line);
    }
    long[] ids = new long[(int) count];
    for (int i = 0; i < ids.length; i++) {
      try {
        ids[i] = number(line(), ':', Long.MAX_VALUE);
      } catch (IsotoneException e) {
        throw malformed("an error within an array");
      }
    }
    return ids;
  }

  /** Reads any answer: a String, a byte[], null for the null string, a Long, or a List. */
  Object value() throws IOException {
    return value(line(), new int[] {ITEMS_MAX}, 0);
  }

  private Object value(String line, int[] items, int depth) throws IOException {
    switch (line.charAt(0)) {
      case '+':
        return line.substring(1);
      case ':':
        return integer(line);
      case '$':
        return line.equals("$-1") ? null : bulk(line, BYTES_MAX);
      case '*':
        long n = number(line, '*', items[0]);
        if (depth == DEPTH_MAX) {
          throw malformed(line);
        }
        items[0] -= (int) n;
        List<Object> list = new ArrayList<>();
        for (int i = 0; i < n; i++) {
          try {
            list.add(value(line(), items, depth + 1));
          } catch (IsotoneException e) {
            throw malformed("an error within an array");
          }
        }
        return list;
      default:
        throw malformed(line);
    }
  }

  private static long integer(String line) throws ProtocolException {
    try {
      return Long.parseLong(line, 1, line.length(), 10);
    } catch (NumberFormatException e) {
      throw malformed(line);
    }
  }

  static String text(Object value) throws ProtocolException {
    if (value instanceof byte[] bytes) {
      return new String(bytes, StandardCharsets.ISO_8859_1);
    } else if (value instanceof String text) {
      return text;
    }
    throw malformed("no text");
  }

  /** Returns what an error line without its '-' means. A redirect without an address is malformed. */
  static IsotoneException refusal(String line) throws ProtocolException {
    String[] words = line.split(" ", 2);
    String text = words.length > 1 ? words[1] : "";
    Code code = CODES.get(words[0]);
    if (code == null) {
      return new IsotoneException(Code.INTERNAL, line);
    } else if (code == Code.NOT_LEADER) {
      String leader = joined(text.contains(" ") ? text.split(" ", 2)[1] : "", null, line);
      return new IsotoneException(code, "the leader is " + leader, leader, 0);
    }
    int colon = text.indexOf(": ");
    String refined = colon < 0 ? "" : text.substring(0, colon);
    if (words[0].equals("ERR") && refined.equals("internal")) {
      code = Code.INTERNAL;
    } else if (words[0].equals("TRYAGAIN") && List.of("no_worker", "no_quorum", "quota_exceeded").contains(refined)) {
      code = Code.valueOf(refined.toUpperCase(java.util.Locale.ROOT));
    } else {
      return new IsotoneException(code, text);
    }
    text = text.substring(colon + 2);
    return new IsotoneException(code, text, "", code == Code.QUOTA_EXCEEDED ? retryAfter(text) : 0);
  }

  /** Returns the pause in milliseconds that a text ends with, as in "retry after 20 ms", at most an hour, or 0. */
  private static long retryAfter(String text) {
    String number = text.replaceFirst("^.*retry after (\\d{1,10}) ms$", "$1");
    return number.equals(text) ? 0 : Math.min(Long.parseLong(number), 3_600_000);
  }

  /** Returns host:port for an address whose IPv6 host may lack brackets. */
  private static String joined(String addr, Long port, String line) throws ProtocolException {
    int colon = port == null ? addr.lastIndexOf(':') : addr.length();
    String host = addr.substring(0, Math.max(colon, 0)).replaceAll("^\\[|\\]$", "");
    String end = port == null ? addr.substring(colon + 1) : port.toString();
    String joined = (host.contains(":") ? "[" + host + "]:" : host + ":") + end;
    if (colon < 0 || !isAddr(joined)) {
      throw malformed(line);
    }
    return joined;
  }

  /** Reports whether a text is host:port. */
  static boolean isAddr(String addr) {
    if (!addr.matches("([^\\s/:\\[\\]]+|\\[[^\\s/\\[\\]]+\\]):\\d{1,5}")) {
      return false;
    }
    int port = Integer.parseInt(addr.substring(addr.lastIndexOf(':') + 1));
    return port > 0 && port < 1 << 16;
  }

  /** What a node reports: the leader and all members. */
  record View(String leader, Set<String> members) {}

  /** Returns what the answer to CLUSTER SLOTS of a node says. */
  static View view(Object value, String asked) throws ProtocolException {
    String leader = null;
    Set<String> members = new LinkedHashSet<>();
    for (List<?> range : lists(value)) {
      if (range.size() < 3) {
        throw malformed("slots without a node");
      }
      for (List<?> node : lists(range.subList(2, range.size()))) {
        if (node.size() < 2 || !(node.get(1) instanceof Long port) || members.size() == NODES_MAX) {
          throw malformed("a node without a port, or too many nodes");
        }
        String host = node.get(0) == null ? "" : text(node.get(0));
        if (host.isEmpty() || host.equals("?")) {
          host = asked.substring(0, asked.lastIndexOf(':'));
        }
        members.add(joined(host, port, "a node at " + host));
        leader = leader == null ? members.iterator().next() : leader;
      }
    }
    if (leader == null) {
      throw malformed("no node has slots");
    }
    return new View(leader, members);
  }

  private static List<List<?>> lists(Object value) throws ProtocolException {
    List<List<?>> lists = new ArrayList<>();
    for (Object item : value instanceof List<?> list ? list : List.of("none")) {
      if (!(item instanceof List<?> list)) {
        throw malformed("no list");
      }
      lists.add(list);
    }
    return lists;
  }

  /** Returns the cluster's ID in the answer to INFO: "" while the node does not know it, null if it reports none. */
  static String cluster(Object info) throws ProtocolException {
    for (String line : text(info).split("\r\n")) {
      if (line.startsWith(CLUSTER_FIELD)) {
        String id = line.substring(CLUSTER_FIELD.length());
        if (!id.isEmpty() && !isCluster(id)) {
          throw malformed(line);
        }
        return id;
      }
    }
    return null;
  }

  static boolean isCluster(String id) {
    return id.matches("[0-9a-f]{16}") && !id.equals("0".repeat(16));
  }

  /** The answer to WORKER LEASE. */
  record Grant(Layout layout, int worker, long start, long end) {
    /** Reads an answer; that to WORKER RELEASE is no grant. */
    static Grant of(Object value) throws ProtocolException {
      if ("OK".equals(value)) {
        return null;
      }
      if (value instanceof List<?> list && list.size() == 5 && list.get(0) instanceof Long worker
          && list.get(1) instanceof Long start && list.get(2) instanceof Long end
          && list.get(4) instanceof Long epoch) {
        try {
          Layout layout = Layout.parse(text(list.get(3)), epoch);
          if (worker >= 0 && worker < layout.workers() && start >= 0 && start < end
              && start <= layout.epoch() + layout.timeMax()) {
            return new Grant(layout, worker.intValue(), start, end);
          }
        } catch (IsotoneException e) {
          // Reported below.
        }
      }
      throw malformed("no lease: " + value);
    }
  }
}
