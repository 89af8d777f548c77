package io.isotone;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/**
 * One request, and the calls that it answers. Calls join it until it is sent; so each gets numbers that were requested
 * after it began, even if the request is sent again. The lock of its pool guards it until then.
 */
final class Batch {
  final Kind kind;

  /** The floor that its only call has named, or zero. */
  final Timestamp above;

  /** The words of a request for a worker, and the refusal that is final for it, too. */
  String[] words;

  IsotoneException.Code last;

  final List<Call<?>> calls = new ArrayList<>();
  long count;
  boolean sent;

  /** The client's floor when the request was sent. */
  Timestamp floor = Timestamp.ZERO;

  Timestamp first;
  long[] ids;
  Resp.Grant grant;

  Batch(Kind kind, Timestamp above) {
    this.kind = kind;
    this.above = above;
  }

  void add(Call<?> call) {
    calls.add(call);
    count += call.count;
  }

  /** Removes calls that no longer wait. */
  void trim() {
    calls.removeIf(Call::isDone);
    count = 0;
    for (Call<?> call : calls) {
      count += call.count;
    }
  }

  /** Returns the request, with a floor unless that is zero. */
  byte[] request(Timestamp carried) {
    return words == null ? Resp.request(kind, count, carried) : Resp.command(words);
  }

  /** Reads the answer, or returns the refusal. */
  IsotoneException read(Resp in) throws IOException {
    try {
      if (kind == Kind.IDS) {
        ids = in.ids(count);
      } else if (kind == Kind.WORKER) {
        grant = Resp.Grant.of(in.value());
      } else {
        first = in.stamps(kind, count);
      }
      return null;
    } catch (IsotoneException e) {
      return e;
    }
  }

  /** Returns the place of a timestamp of the answer in the order of all. */
  Timestamp place(long at) {
    return kind.isTs64()
        ? new Timestamp64(Timestamp64.from(first).value() + at).place()
        : new Timestamp(first.time(), first.index() + at);
  }

  void answer() {
    long at = 0;
    for (Call<?> call : calls) {
      call.answer(this, at);
      at += call.count;
    }
  }

  void fail(IsotoneException why) {
    calls.forEach(call -> call.completeExceptionally(why));
  }
}
