package io.isotone;

/**
 * A timestamp of 64 bits, for stores whose versions are numbers: the unix millisecond, then a counter of 18 bits. Both
 * forms have one order; {@link #place} says where this one stands among the others.
 *
 * @param value all bits, unsigned; before the year 3084 it is a positive {@code BIGINT}
 */
public record Timestamp64(long value) implements Comparable<Timestamp64> {
  private static final int COUNTER_BITS = 18;
  private static final long NANOS = 1_000_000;

  /** Returns the smallest timestamp of 64 bits that is not before one of 16 bytes. */
  public static Timestamp64 from(Timestamp t) {
    if (t.equals(Timestamp.ZERO)) {
      return new Timestamp64(0);
    }
    // The time of u is u * 10^6 / 2^18, rounded up. It is later than before if u * 10^6 / 2^18 is.
    long before = t.index() == 0 ? t.time() - 1 : t.time();
    long rest = Long.remainderUnsigned(before, NANOS);
    return new Timestamp64(
        (Long.divideUnsigned(before, NANOS) << COUNTER_BITS) + (rest << COUNTER_BITS) / NANOS + 1);
  }

  /** Reads a decimal number of 64 bits. All other texts fail with {@code INVALID_ARGUMENT}. */
  public static Timestamp64 parse(String digits) {
    try {
      if (!digits.startsWith("+")) {
        return new Timestamp64(Long.parseUnsignedLong(digits));
      }
    } catch (NumberFormatException e) {
      // Reported below.
    }
    throw IsotoneException.invalid("timestamp \"" + digits + "\": want a decimal number of 64 bits");
  }

  /** {@return its place in the order of all: the earliest nanosecond that is not before it, and index 0} */
  public Timestamp place() {
    if (millis() >= Long.divideUnsigned(-1, NANOS)) {
      return new Timestamp(-1, 0);
    }
    long mask = (1L << COUNTER_BITS) - 1;
    return new Timestamp(millis() * NANOS + (counter() * NANOS + mask >>> COUNTER_BITS), 0);
  }

  /** {@return the unix millisecond} */
  public long millis() {
    return value >>> COUNTER_BITS;
  }

  /** {@return the counter within the millisecond} */
  public int counter() {
    return (int) value & (1 << COUNTER_BITS) - 1;
  }

  @Override
  public int compareTo(Timestamp64 other) {
    return Long.compareUnsigned(value, other.value);
  }

  /** {@return the decimal number, unsigned} */
  @Override
  public String toString() {
    return Long.toUnsignedString(value);
  }

  /**
   * Consecutive timestamps.
   *
   * @param first the smallest one
   * @param count how many there are
   */
  public record Range(Timestamp64 first, long count) {
    /** The largest count of one request. */
    public static final long COUNT_MAX = 1L << COUNTER_BITS;

    /** Returns the timestamp at a place, from 0 on. */
    public Timestamp64 get(long i) {
      return new Timestamp64(first.value + java.util.Objects.checkIndex(i, count));
    }

    /** {@return the largest timestamp} */
    public Timestamp64 last() {
      return get(count - 1);
    }
  }
}
