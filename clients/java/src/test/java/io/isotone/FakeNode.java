package io.isotone;

import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;

/** A node, and all of its cluster, that answers what a client asks. */
final class FakeNode implements AutoCloseable {
  static final String CLUSTER = "5e1f0c3a9b2d4e71";
  static final long EPOCH = Layout.TWITTER.epoch();

  /** What it answers in place of the proper answer: by the name of the command. */
  final Map<String, String> instead = new ConcurrentHashMap<>();

  /** The requests for timestamps, IDs and workers, as they come. */
  final BlockingQueue<String> requests = new LinkedBlockingQueue<>();

  private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getByName("127.0.0.1"));
  private final List<Socket> connections = new ArrayList<>();
  private long last = System.currentTimeMillis() << 18;

  FakeNode() throws IOException {
    start(this::accept);
  }

  String addr() {
    return "127.0.0.1:" + listener.getLocalPort();
  }

  private static void start(Runnable run) {
    Thread thread = new Thread(run);
    thread.setDaemon(true);
    thread.start();
  }

  private void accept() {
    try {
      while (true) {
        Socket socket = listener.accept();
        synchronized (this) {
          connections.add(socket);
        }
        start(() -> serve(socket));
      }
    } catch (IOException e) {
      // It was closed.
    }
  }

  private void serve(Socket socket) {
    try (socket) {
      DataInputStream in = new DataInputStream(socket.getInputStream());
      OutputStream out = socket.getOutputStream();
      while (true) {
        List<String> words = new ArrayList<>();
        int count = Integer.parseInt(line(in).substring(1));
        for (int i = 0; i < count; i++) {
          byte[] word = in.readNBytes(Integer.parseInt(line(in).substring(1)));
          in.skipNBytes(2);
          words.add(new String(word, StandardCharsets.UTF_8));
        }
        out.write(answer(words).getBytes(StandardCharsets.ISO_8859_1));
      }
    } catch (IOException | NumberFormatException e) {
      // The client has ended.
    }
  }

  private static String line(DataInputStream in) throws IOException {
    ByteArrayOutputStream line = new ByteArrayOutputStream();
    for (int c = in.readUnsignedByte(); c != '\n'; c = in.readUnsignedByte()) {
      line.write(c);
    }
    return line.toString(StandardCharsets.ISO_8859_1).strip();
  }

  private synchronized String answer(List<String> words) {
    String name = words.get(0);
    if (List.of("TS", "TS64", "SNOWFLAKE", "WORKER").contains(name)) {
      requests.add(String.join(" ", words));
    }
    if (instead.containsKey(name)) {
      return instead.get(name);
    }
    long count = words.size() > 1 && !name.equals("WORKER") && !name.equals("INFO") && !name.equals("CLUSTER")
        && !name.equals("AUTH") ? Long.parseLong(words.get(1)) : 1;
    switch (name) {
      case "AUTH":
        return "+OK\r\n";
      case "PING":
        return "+PONG\r\n";
      case "INFO":
        return bulk("# Cluster\r\nisotone_cluster_id:" + CLUSTER + "\r\n");
      case "CLUSTER":
        return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:" + listener.getLocalPort() + "\r\n";
      case "TS":
        Timestamp first = new Timestamp(new Timestamp64(++last).place().time(), 0);
        return bulk(new String(first.toBytes(), StandardCharsets.ISO_8859_1));
      case "TS64":
        last += count;
        return bulk(Long.toString(last - count + 1));
      case "SNOWFLAKE":
        StringBuilder list = new StringBuilder(words.size() > 1 ? "*" + count + "\r\n" : "");
        for (int i = 0; i < count; i++) {
          list.append(':').append(++last).append("\r\n");
        }
        return list.toString();
      default:
        return worker(words);
    }
  }

  private static String worker(List<String> words) {
    if (words.get(1).equals("RELEASE")) {
      return "+OK\r\n";
    }
    long from = Long.parseLong(words.get(3));
    long end = from + Long.parseLong(words.get(4));
    return "*5\r\n:300\r\n:" + from + "\r\n:" + end + "\r\n$9\r\n41/5/5/12\r\n:" + EPOCH + "\r\n";
  }

  private static String bulk(String text) {
    return "$" + text.length() + "\r\n" + text + "\r\n";
  }

  /** Ends all connections. */
  synchronized void cut() throws IOException {
    for (Socket socket : connections) {
      socket.close();
    }
    connections.clear();
  }

  @Override
  public void close() throws IOException {
    listener.close();
    cut();
  }
}
