package io.isotone;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.LongStream;

/**
 * Calls for timestamps and IDs, with a read mode, a floor and a timeout. Each waits until it is answered or its timeout
 * is over, across all failures of the cluster, and fails with an {@link IsotoneException}. A blocking call ends with
 * {@code CANCELED} when its thread is interrupted; a future can be canceled.
 *
 * <p>Futures are completed on threads of the client. What depends on them must be quick and must not block, or be added
 * with a method such as {@code thenApplyAsync}.
 */
public class Calls {
  private static final int IDS_MAX = 1 << 16;
  private static final Call.Form<Timestamp> STAMP = (batch, at, n) -> batch.place(at);
  private static final Call.Form<Timestamp64> STAMP64 = (batch, at, n) -> Timestamp64.from(batch.place(at));
  private static final Call.Form<Timestamp.Range> RANGE = (b, at, n) -> new Timestamp.Range(b.place(at), n);
  private static final Call.Form<Timestamp64.Range> RANGE64 =
      (b, at, n) -> new Timestamp64.Range(Timestamp64.from(b.place(at)), n);
  private static final Call.Form<long[]> IDS = (b, at, n) -> Arrays.copyOfRange(b.ids, (int) at, (int) (at + n));
  private static final Call.Form<Long> ID = (batch, at, n) -> batch.ids[(int) at];

  final Core core;
  private final ReadMode mode;
  private final Timestamp above;
  private final long timeout;

  Calls(Core core, ReadMode mode, Timestamp above, Duration timeout) {
    this.core = core;
    this.mode = mode;
    this.above = above;
    this.timeout = nanos(timeout);
  }

  /** Returns a timeout in nanoseconds: at least one, and {@code NEVER} for more than a year. */
  static long nanos(Duration timeout) {
    return timeout.compareTo(Duration.ofDays(365)) > 0 ? Call.NEVER : Math.max(timeout.toNanos(), 1);
  }

  /** Returns calls in a read mode. */
  public Calls in(ReadMode other) {
    return new Calls(core, other, above, Duration.ofNanos(timeout));
  }

  /**
   * Returns calls for timestamps above a floor that the client has not received itself but, for instance, on behalf of
   * another one. Each is a request of its own. It fails with {@code REGRESSED} if the cluster may not raise itself so
   * far.
   */
  public Calls above(Timestamp floor) {
    return new Calls(core, mode, floor, Duration.ofNanos(timeout));
  }

  /** Returns calls that fail with {@code DEADLINE_EXCEEDED} after a time. */
  public Calls within(Duration other) {
    return new Calls(core, mode, above, other);
  }

  /** {@return a timestamp that is larger than all that any client had received when the call began} */
  public Timestamp timestamp() {
    return one(false, STAMP);
  }

  /** {@return the same as {@link #timestamp}, later} */
  public CompletableFuture<Timestamp> timestampAsync() {
    return stamps(false, 1, STAMP);
  }

  /** Returns consecutive timestamps, 1 to 2^32. */
  public Timestamp.Range timestamps(long count) {
    return stamps(false, count, RANGE).await();
  }

  /** Returns consecutive timestamps, later. */
  public CompletableFuture<Timestamp.Range> timestampsAsync(long count) {
    return stamps(false, count, RANGE);
  }

  /** {@return a timestamp of 64 bits} */
  public Timestamp64 timestamp64() {
    return one(true, STAMP64);
  }

  /** {@return a timestamp of 64 bits, later} */
  public CompletableFuture<Timestamp64> timestamp64Async() {
    return stamps(true, 1, STAMP64);
  }

  /** Returns consecutive timestamps of 64 bits, 1 to 2^18. */
  public Timestamp64.Range timestamps64(long count) {
    return stamps(true, count, RANGE64).await();
  }

  /** Returns consecutive timestamps of 64 bits, later. */
  public CompletableFuture<Timestamp64.Range> timestamps64Async(long count) {
    return stamps(true, count, RANGE64);
  }

  /** {@return a Snowflake ID, from any member} */
  public long id() {
    return ids(1, ID).await();
  }

  /** {@return a Snowflake ID, later} */
  public CompletableFuture<Long> idAsync() {
    return ids(1, ID);
  }

  /** Returns IDs, 1 to 65536, possibly from several members. */
  public long[] ids(int count) {
    LongStream all = LongStream.empty();
    for (Call<long[]> part : parts(count)) {
      all = LongStream.concat(all, Arrays.stream(part.await()));
    }
    return all.toArray();
  }

  /** Returns IDs, later. */
  public CompletableFuture<long[]> idsAsync(int count) {
    List<Call<long[]>> parts = parts(count);
    CompletableFuture<long[]> all = parts.get(0);
    for (Call<long[]> part : parts.subList(1, parts.size())) {
      all = all.thenCombine(part, (a, b) -> LongStream.concat(Arrays.stream(a), Arrays.stream(b)).toArray());
    }
    return all;
  }

  /**
   * Leases a worker, with which IDs are made in this process. Close the generator before the client. Its calls have the
   * timeout of these.
   */
  public Generator generator(Generator.Options options) {
    return Generator.open(core, options, Duration.ofNanos(timeout));
  }

  private List<Call<long[]>> parts(int count) {
    check(count, IDS_MAX);
    List<Call<long[]>> parts = new ArrayList<>();
    for (int left = count; left > 0; left -= (int) Kind.IDS.countMax) {
      parts.add(ids((int) Math.min(left, Kind.IDS.countMax), IDS));
    }
    return parts;
  }

  private <T> Call<T> ids(int count, Call.Form<T> form) {
    if (core.wantsIds.compareAndSet(false, true)) {
      core.wake();
    }
    return core.ids.join(new Call<>(count, timeout, form), Kind.IDS, Timestamp.ZERO);
  }

  private static void check(long count, long most) {
    if (count < 1 || count > most) {
      throw IsotoneException.invalid("a count of " + count + ": want 1 to " + most);
    }
  }

  private <T> Call<T> stamps(boolean wide, long count, Call.Form<T> form) {
    Kind kind = Kind.of(wide, mode);
    check(count, kind.countMax);
    Pool pool = above.equals(Timestamp.ZERO) ? core.stamps : core.aside();
    return pool.join(new Call<>(count, timeout, form), kind, above);
  }

  /** Makes a call for one on the calling thread, if there seem to be no others: that saves two switches of threads. */
  private <T> T one(boolean wide, Call.Form<T> form) {
    Kind kind = Kind.of(wide, mode);
    if (above.equals(Timestamp.ZERO) && core.stamps.isQuiet() && !Thread.currentThread().isInterrupted()) {
      Call<T> call = new Call<>(1, timeout, form);
      Batch batch = new Batch(kind, above);
      batch.add(call);
      Connection cn = core.direct.takeFree(batch);
      if (cn != null) {
        core.watch(call);
        if (cn.ask(batch)) {
          return form.of(batch, 0, 1);
        } else if (call.isDone()) {
          return call.await();
        }
        long left = timeout == Call.NEVER ? timeout : Math.max(timeout - (core.now() - cn.since), 1);
        return core.stamps.join(new Call<>(1, left, form), kind, above).await();
      }
    }
    return stamps(wide, 1, form).await();
  }
}
