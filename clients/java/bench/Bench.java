import io.isotone.Events;
import io.isotone.IsotoneClient;
import io.isotone.Options;
import io.isotone.ReadMode;
import io.isotone.Timestamp;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;

/**
 * Measures the client against running nodes: callers that each ask for one timestamp at a time, and a lone blocking
 * call beside the same request on a bare socket. A caller is a chain of futures, or a thread with --threads.
 *
 * <p>After "mvn package": java -cp target/classes bench/Bench.java [--threads] CALLERS SECONDS HOST:PORT...
 */
final class Bench {
  private static final int SAMPLES = 1 << 20;

  /** Seconds in which the virtual machine compiles what is measured. */
  private static final double WARM_UP = 2;

  private final IsotoneClient client;
  private final LongAdder count = new LongAdder();
  private final AtomicReference<Throwable> failure = new AtomicReference<>();
  private final long[] took = new long[SAMPLES];
  private int samples;
  private volatile boolean over;

  private Bench(IsotoneClient client) {
    this.client = client;
  }

  public static void main(String[] args) throws Exception {
    boolean threads = args.length > 0 && args[0].equals("--threads");
    String[] rest = Arrays.copyOfRange(args, threads ? 1 : 0, args.length);
    if (rest.length < 3) {
      System.err.println("usage: Bench [--threads] CALLERS SECONDS HOST:PORT...");
      System.exit(2);
    }
    String[] addrs = Arrays.copyOfRange(rest, 2, rest.length);
    AtomicReference<String> leader = new AtomicReference<>();
    Options options = Options.of(addrs).mode(ReadMode.QUORUM).events(new Events() {
      @Override
      public void leader(String addr) {
        leader.set(addr);
      }
    });
    try (IsotoneClient client = IsotoneClient.open(options)) {
      new Bench(client).many(Integer.parseInt(rest[0]), WARM_UP, threads);
      System.out.println(new Bench(client).many(Integer.parseInt(rest[0]), Double.parseDouble(rest[1]), threads));
      new Bench(client).lone(leader.get());
    }
  }

  /** Returns how many answers there were, in all and in a second, and the median and 99th percentile of a call. */
  private String many(int callers, double seconds, boolean threads) throws Exception {
    CountDownLatch ended = new CountDownLatch(callers);
    long begun = System.nanoTime();
    for (int i = 0; i < callers; i++) {
      boolean first = i == 0;
      if (threads) {
        new Thread(() -> loop(first, ended)).start();
      } else {
        next(first, Timestamp.ZERO, ended);
      }
    }
    Thread.sleep((long) (seconds * 1000));
    over = true;
    double elapsed = (System.nanoTime() - begun) / 1e9;
    long answered = count.sum();
    ended.await();
    if (failure.get() != null) {
      throw new IllegalStateException(failure.get());
    }
    Arrays.sort(took, 0, samples);
    return String.format("%d %.0f %.1f %.1f", answered, answered / elapsed, quantile(0.5), quantile(0.99));
  }

  /** A caller that is a chain of futures. The first one measures. */
  private void next(boolean measures, Timestamp last, CountDownLatch ended) {
    long begun = measures ? System.nanoTime() : 0;
    client.timestampAsync().whenComplete((got, why) -> {
      if (accept(last, got, why) && !over) {
        note(measures, begun);
        next(measures, got, ended);
      } else {
        ended.countDown();
      }
    });
  }

  /** A caller that is a thread. */
  private void loop(boolean measures, CountDownLatch ended) {
    Timestamp last = Timestamp.ZERO;
    while (!over && failure.get() == null) {
      long begun = measures ? System.nanoTime() : 0;
      try {
        Timestamp got = client.timestamp();
        accept(last, got, null);
        last = got;
      } catch (RuntimeException e) {
        accept(last, null, e);
      }
      note(measures, begun);
    }
    ended.countDown();
  }

  private boolean accept(Timestamp last, Timestamp got, Throwable why) {
    if (why != null || !last.isBefore(got)) {
      failure.compareAndSet(null, why != null ? why : new IllegalStateException(got + " after " + last));
      return false;
    }
    count.increment();
    return true;
  }

  private void note(boolean measures, long begun) {
    if (measures && samples < SAMPLES) {
      took[samples++] = System.nanoTime() - begun;
    }
  }

  private double quantile(double q) {
    return samples == 0 ? 0 : took[(int) (q * (samples - 1))] / 1e3;
  }

  /** One request at a time: rounds of half a second on a bare socket, and through the client. */
  private void lone(String addr) throws IOException {
    byte[] request = "*3\r\n$2\r\nTS\r\n$1\r\n1\r\n$6\r\nQUORUM\r\n".getBytes(StandardCharsets.US_ASCII);
    double[] bare = new double[7];
    double[] ours = new double[7];
    double[] ratios = new double[7];
    try (Socket socket = dial(addr)) {
      InputStream in = socket.getInputStream();
      OutputStream out = socket.getOutputStream();
      byte[] answer = new byte[256];
      for (int i = 0; i < ratios.length; i++) {
        bare[i] = median(() -> {
          out.write(request);
          if (in.read(answer) < 0 || answer[0] != '$') {
            throw new IOException("no timestamp");
          }
        });
        ours[i] = median(client::timestamp);
        ratios[i] = ours[i] / bare[i];
      }
    }
    for (double[] list : new double[][] {bare, ours, ratios}) {
      Arrays.sort(list);
    }
    System.out.printf("lone call: %.1f us, bare socket: %.1f us, ratio %.2f (medians of 7 rounds)%n",
        ours[3], bare[3], ratios[3]);
  }

  private interface Step {
    void run() throws IOException;
  }

  private double median(Step step) throws IOException {
    samples = 0;
    for (long begun = System.nanoTime(); System.nanoTime() - begun < 500_000_000L; ) {
      long start = System.nanoTime();
      step.run();
      note(true, start);
    }
    Arrays.sort(took, 0, samples);
    return quantile(0.5);
  }

  private static Socket dial(String addr) throws IOException {
    Socket socket = new Socket(addr.substring(0, addr.lastIndexOf(':')),
        Integer.parseInt(addr.substring(addr.lastIndexOf(':') + 1)));
    socket.setTcpNoDelay(true);
    return socket;
  }
}
