package io.isotone;

/** How a leader makes sure that it still leads before it answers. */
public enum ReadMode {
  /** As the nodes are configured. */
  DEFAULT,
  /** By a round trip to a quorum. */
  QUORUM,
  /** By a lease, which rests on the rates of clocks. */
  LEASE
}
