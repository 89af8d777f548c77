package io.isotone;

import io.isotone.IsotoneException.Code;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/** A call for some numbers, as part of a {@link Batch}. */
final class Call<T> extends CompletableFuture<T> {
  /** What a call makes of its part of an answer. */
  interface Form<T> {
    /** Returns the result of a call for count numbers, the first of which is at a place of the answer. */
    T of(Batch batch, long at, long count);
  }

  /** No deadline. */
  static final long NEVER = Long.MAX_VALUE;

  final long count;

  /** When the call fails, by {@link Core#now}; 0 until the router has set it from the timeout. */
  volatile long deadline;

  final long timeout;
  private final Form<T> form;
  private Pool pool;
  private Batch batch;

  Call(long count, long timeout, Form<T> form) {
    this.count = count;
    this.timeout = timeout;
    deadline = timeout == NEVER ? NEVER : 0;
    this.form = form;
  }

  /** Notes where the call waits. */
  void joins(Pool in, Batch shared) {
    pool = in;
    batch = shared;
  }

  void answer(Batch answered, long at) {
    complete(form.of(answered, at, count));
  }

  /** Others that share the request go on. */
  @Override
  public boolean cancel(boolean interrupt) {
    boolean canceled = super.cancel(interrupt);
    left(canceled);
    return canceled;
  }

  /** Fails the call before its answer. */
  void fail(IsotoneException why) {
    left(completeExceptionally(why));
  }

  private void left(boolean left) {
    if (left && pool != null) {
      pool.left(batch);
    }
  }

  /** Waits for the result on the calling thread, which must not be one that completes calls. */
  T await() {
    if (Thread.currentThread() instanceof Core.ClientThread && !isDone()) {
      throw new IllegalStateException("a blocking call within a callback of the client: use the async method");
    }
    return result();
  }

  /** Waits for the result. */
  T result() {
    try {
      return get();
    } catch (InterruptedException e) {
      cancel(true);
      Thread.currentThread().interrupt();
      throw new IsotoneException(Code.CANCELED, "the caller was interrupted");
    } catch (ExecutionException e) {
      throw e.getCause() instanceof IsotoneException why ? why.here() : new IllegalStateException(e.getCause());
    }
  }
}
