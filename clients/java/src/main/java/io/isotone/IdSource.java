package io.isotone;

import io.isotone.IsotoneException.Code;

/**
 * Makes the IDs of one worker: each step has the reading of the clock as an argument. An ID is the worker and a
 * number: milliseconds since the epoch, then the sequence. The only state is the next number, which only grows.
 */
final class IdSource {
  /** Why no IDs are made; nothing is used up then. */
  enum Refusal {
    EXHAUSTED(Code.OVERLOADED),
    LEASE_ENDED(Code.OVERLOADED),
    LEASE_NOT_BEGUN(Code.OVERLOADED),
    BATCH(Code.INVALID_ARGUMENT),
    CLOCK_BEHIND(Code.CLOCK),
    CLOCK_BEFORE_LAYOUT(Code.CLOCK),
    CLOCK_AFTER_LAYOUT(Code.CLOCK);

    final Code code;

    Refusal(Code code) {
      this.code = code;
    }
  }

  final Layout layout;
  final int worker;
  final long start;
  private final long aheadMax;
  private final long first;
  private long end;
  private long limit;
  private long next;
  private long stopped = -1;

  /** The lease is [start, end) in unix milliseconds; aheadMax is in milliseconds. */
  IdSource(Layout layout, int worker, long start, long end, long aheadMax) {
    this.layout = layout;
    this.worker = worker;
    this.start = start;
    this.aheadMax = aheadMax;
    first = Math.max(start - layout.epoch(), 0) << layout.sequenceBits();
    next = first;
    extend(end);
  }

  /** Fills ids with consecutive numbers at that reading of the clock, or returns why not. */
  synchronized Refusal take(long now, long[] ids) {
    long ms = now - layout.epoch();
    long n = ids.length;
    if (n > batchMax()) {
      return Refusal.BATCH;
    } else if (stopped >= 0) {
      return Refusal.LEASE_ENDED;
    } else if (now < layout.epoch()) {
      return Refusal.CLOCK_BEFORE_LAYOUT;
    } else if (ms > layout.timeMax()) {
      return Refusal.CLOCK_AFTER_LAYOUT;
    }
    long ahead = numberOf(Math.min(ms + aheadMax, layout.timeMax()) + 1);
    if (next == first && Long.compareUnsigned(next, ahead) >= 0) {
      return Refusal.LEASE_NOT_BEGUN;
    } else if (Long.compareUnsigned(next, ahead) > 0) {
      return Refusal.CLOCK_BEHIND;
    }
    long at = Math.max(next, numberOf(ms));
    if (Long.compareUnsigned(at, limit) >= 0 || Long.compareUnsigned(n, limit - at) > 0) {
      boolean last = Long.compareUnsigned(limit, numberOf(layout.timeMax())) > 0;
      return last ? Refusal.CLOCK_AFTER_LAYOUT : Refusal.LEASE_ENDED;
    } else if (Long.compareUnsigned(n, ahead - at) > 0) {
      return Refusal.EXHAUSTED;
    }
    next = at + n;
    for (int i = 0; i < ids.length; i++) {
      ids[i] = id(at + i);
    }
    return null;
  }

  private long id(long number) {
    long sequence = layout.sequence(number);
    int gap = layout.datacenterBits() + layout.workerBits();
    return number - sequence << gap | (long) worker << layout.sequenceBits() | sequence;
  }

  private long numberOf(long ms) {
    return ms << layout.sequenceBits();
  }

  long batchMax() {
    long ms = Math.min(aheadMax, layout.timeMax()) + 1;
    return ms > Integer.MAX_VALUE >> Math.min(layout.sequenceBits(), 31) ? Integer.MAX_VALUE : numberOf(ms);
  }

  /** Moves the end of the lease, unless it is later already. */
  synchronized void extend(long to) {
    if (to > end) {
      end = to;
      limit = to <= layout.epoch() ? 0 : numberOf(Math.min(to - layout.epoch(), layout.timeMax() + 1));
    }
  }

  /** Ends the source, and returns the first millisecond from which on no ID was made. */
  synchronized long stop() {
    if (stopped < 0) {
      stopped = next == first ? start : layout.epoch() + (next - 1 >>> layout.sequenceBits()) + 1;
    }
    return stopped;
  }

  synchronized long end() {
    return end;
  }
}
