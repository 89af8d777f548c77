package io.isotone;

import java.nio.ByteBuffer;
import java.util.HexFormat;

/**
 * One point in the order that the oracle keeps. Timestamps compare by time, then by index, both as unsigned numbers;
 * their bytes and digits compare the same way.
 *
 * <p>The time is close to the wall clock but does not measure it: only the order is meaningful.
 *
 * @param time the epoch, in nanoseconds since 1970
 * @param index counts the timestamps of one epoch, from 0
 */
public record Timestamp(long time, long index) implements Comparable<Timestamp> {
  /** Smaller than every timestamp ever issued. */
  public static final Timestamp ZERO = new Timestamp(0, 0);

  /** The length of an encoded timestamp in bytes. */
  public static final int BYTES = 16;

  /** Reads 32 hexadecimal digits. All other texts fail with {@code INVALID_ARGUMENT}. */
  public static Timestamp parse(String digits) {
    try {
      if (digits.length() == 2 * BYTES) {
        return new Timestamp(
            HexFormat.fromHexDigitsToLong(digits, 0, BYTES), HexFormat.fromHexDigitsToLong(digits, BYTES, 2 * BYTES));
      }
    } catch (IllegalArgumentException e) {
      // Reported below.
    }
    throw IsotoneException.invalid("timestamp \"" + digits + "\": want 32 hexadecimal digits");
  }

  /** Reads 16 bytes, big-endian. Any other number of them fails with {@code INVALID_ARGUMENT}. */
  public static Timestamp of(byte[] bytes) {
    if (bytes.length != BYTES) {
      throw IsotoneException.invalid("a timestamp has 16 bytes, got " + bytes.length);
    }
    ByteBuffer b = ByteBuffer.wrap(bytes);
    return new Timestamp(b.getLong(), b.getLong());
  }

  /** {@return 16 bytes, big-endian} */
  public byte[] toBytes() {
    return ByteBuffer.allocate(BYTES).putLong(time).putLong(index).array();
  }

  @Override
  public int compareTo(Timestamp other) {
    int order = Long.compareUnsigned(time, other.time);
    return order != 0 ? order : Long.compareUnsigned(index, other.index);
  }

  /** Reports whether this timestamp is smaller than another one. */
  public boolean isBefore(Timestamp other) {
    return compareTo(other) < 0;
  }

  /** {@return 32 hexadecimal digits} */
  @Override
  public String toString() {
    HexFormat hex = HexFormat.of();
    return hex.toHexDigits(time) + hex.toHexDigits(index);
  }

  /**
   * Consecutive timestamps: one time, and indexes from that of the first on.
   *
   * @param first the smallest one
   * @param count how many there are
   */
  public record Range(Timestamp first, long count) {
    /** The largest count of one request. */
    public static final long COUNT_MAX = 1L << 32;

    /** Returns the timestamp at a place, from 0 on. */
    public Timestamp get(long i) {
      return new Timestamp(first.time, first.index + java.util.Objects.checkIndex(i, count));
    }

    /** {@return the largest timestamp} */
    public Timestamp last() {
      return get(count - 1);
    }
  }
}
