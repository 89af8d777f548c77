package io.isotone;

/**
 * How the 63 bits of an ID are split, from high to low: time, datacenter, worker, sequence. The time counts
 * milliseconds from the epoch. Wherever there is one number for a worker, it is datacenter and worker together.
 *
 * @param timeBits at least 1
 * @param datacenterBits with workerBits at most 30
 * @param workerBits with datacenterBits at most 30
 * @param sequenceBits may be 0
 * @param epoch the unix millisecond of IDs with time 0
 */
public record Layout(int timeBits, int datacenterBits, int workerBits, int sequenceBits, long epoch) {
  /** The layout of Twitter's Snowflake, the default of clusters. */
  public static final Layout TWITTER = new Layout(41, 5, 5, 12, 1288834974657L);

  /** Checks the parts. */
  public Layout {
    boolean fits = timeBits + datacenterBits + workerBits + sequenceBits == 63 && timeBits > 0;
    if (!fits || datacenterBits + workerBits > 30 || epoch < 0 || epoch > Long.MAX_VALUE - ((1L << timeBits) - 1)) {
      throw IsotoneException.invalid(
          "layout: want 63 bits with 1 or more of time and at most 30 of workers, and an epoch that fits");
    }
  }

  /**
   * Reads a layout such as {@code 41/5/5/12}, bits of time, datacenter, worker and sequence, or {@code 41/10/12}
   * without datacenters. All other texts fail with {@code INVALID_ARGUMENT}.
   */
  public static Layout parse(String text, long epoch) {
    if (!text.matches("(0|[1-9][0-9]?)(/(0|[1-9][0-9]?)){2,3}")) {
      throw IsotoneException.invalid("layout \"" + text + "\": want bits as in 41/5/5/12 or 41/10/12");
    }
    String[] parts = text.split("/");
    int last = parts.length - 1;
    int datacenter = last == 3 ? Integer.parseInt(parts[1]) : 0;
    int worker = Integer.parseInt(parts[last - 1]);
    return new Layout(Integer.parseInt(parts[0]), datacenter, worker, Integer.parseInt(parts[last]), epoch);
  }

  /** Returns the unix millisecond of an ID. */
  public long millis(long id) {
    return epoch + (id >>> datacenterBits + workerBits + sequenceBits);
  }

  /** Returns the worker of an ID, datacenter and worker together. */
  public int worker(long id) {
    return (int) (id >>> sequenceBits & workers() - 1);
  }

  /** Returns the datacenter of an ID. */
  public int datacenter(long id) {
    return worker(id) >>> workerBits;
  }

  /** Returns the worker of an ID without the datacenter. */
  public int inDatacenter(long id) {
    return worker(id) & (1 << workerBits) - 1;
  }

  /** Returns the number of an ID within its millisecond. */
  public long sequence(long id) {
    return id & (1L << sequenceBits) - 1;
  }

  /** {@return the number of workers of all datacenters together} */
  public int workers() {
    return 1 << datacenterBits + workerBits;
  }

  long timeMax() {
    return (1L << timeBits) - 1;
  }
}
