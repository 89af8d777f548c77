package io.isotone;

import java.time.Duration;

/**
 * Observes a client, for metrics and traces. Methods are called concurrently, on the client's own threads: they must
 * return quickly and must not call the client.
 */
public interface Events {
  /** Observes nothing. */
  Events NONE = new Events() {};

  /**
   * A request was answered; called before its calls return.
   *
   * @param addr the node
   * @param calls how many calls share the answer
   * @param count how many timestamps or IDs it has
   * @param took the time from sending the request to its answer
   */
  default void answered(String addr, int calls, long count, Duration took) {}

  /**
   * A request has to be sent again: its connection ended, or the node refused.
   *
   * @param addr the node
   * @param why the reason
   */
  default void retried(String addr, Exception why) {}

  /**
   * An answer is not used: the node belongs to another cluster ({@code WRONG_CLUSTER}), or its timestamp is not larger
   * than one that the client had before ({@code INTERNAL}). Alert on the second: the cluster has broken its guarantees.
   *
   * @param addr the node
   * @param why the reason
   */
  default void rejected(String addr, IsotoneException why) {}

  /**
   * A connection to a new leader was made, before that answers anything.
   *
   * @param addr the leader
   */
  default void leader(String addr) {}
}
