package io.isotone;

/** What a request asks for: timestamps of either form in a read mode, IDs, or a worker. */
enum Kind {
  TS("TS", ""),
  TS_QUORUM("TS", "QUORUM"),
  TS_LEASE("TS", "LEASE"),
  TS64("TS64", ""),
  TS64_QUORUM("TS64", "QUORUM"),
  TS64_LEASE("TS64", "LEASE"),
  IDS("SNOWFLAKE", ""),
  WORKER("WORKER", "");

  final String command;
  final String mode;

  /** The most that one request asks for: as many IDs as a worker of the usual layout has in a millisecond. */
  final long countMax;

  Kind(String command, String mode) {
    this.command = command;
    this.mode = mode;
    countMax = command.equals("TS") ? 1L << 32 : command.equals("TS64") ? 1L << 18 : 4096;
  }

  static Kind of(boolean wide, ReadMode mode) {
    return values()[(wide ? TS64.ordinal() : 0) + mode.ordinal()];
  }

  boolean isStamps() {
    return ordinal() < IDS.ordinal();
  }

  boolean isTs64() {
    return command.equals("TS64");
  }
}
