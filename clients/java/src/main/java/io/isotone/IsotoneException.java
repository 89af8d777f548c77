package io.isotone;

import java.util.Locale;

/** Why a call has failed. */
public final class IsotoneException extends RuntimeException {
  private static final long serialVersionUID = 1;

  /** The codes of errors, the same as those of other clients and protocols. */
  public enum Code {
    /** An argument or option is wrong. */
    INVALID_ARGUMENT,
    /** A node does not lead; calls never fail with it. */
    NOT_LEADER,
    /** No leader is known. */
    NO_LEADER,
    /** Too many calls wait. */
    OVERLOADED,
    /** No answer in time. The message names the nodes that were tried. */
    DEADLINE_EXCEEDED,
    /** The nodes do not accept the credentials or the certificate, or want some. */
    UNAUTHORIZED,
    /** The client has no right to this. */
    FORBIDDEN,
    /** The quota was used up until the deadline. */
    QUOTA_EXCEEDED,
    /** No worker is free. */
    NO_WORKER,
    /** No quorum is reachable. */
    NO_QUORUM,
    /** The clock is too far behind the IDs, or outside their layout. */
    CLOCK,
    /** Only nodes of another cluster have answered. */
    WRONG_CLUSTER,
    /** The cluster is behind the floor, and may not raise itself to it. */
    REGRESSED,
    /** A node failed, or has broken the order of timestamps. */
    INTERNAL,
    /** The caller was interrupted. */
    CANCELED,
    /** The client is closed. */
    CLOSED;

    /** {@return the code as nodes write it, such as {@code no_leader}} */
    public String text() {
      return name().toLowerCase(Locale.ROOT);
    }
  }

  /** The code. */
  private final Code code;

  /** For {@code NOT_LEADER} the address of the leader, or "". */
  final String leader;

  /** For {@code QUOTA_EXCEEDED} the pause that the node asks for, in milliseconds. */
  final long retryAfter;

  IsotoneException(Code code, String message) {
    this(code, message, "", 0);
  }

  IsotoneException(Code code, String message, String leader, long retryAfter) {
    super(code.text() + ": " + message);
    this.code = code;
    this.leader = leader;
    this.retryAfter = retryAfter;
  }

  private IsotoneException(IsotoneException cause) {
    super(cause.getMessage(), cause);
    code = cause.code;
    leader = cause.leader;
    retryAfter = cause.retryAfter;
  }

  static IsotoneException invalid(String message) {
    return new IsotoneException(Code.INVALID_ARGUMENT, message);
  }

  /** Returns the same with the stack of the calling thread. */
  IsotoneException here() {
    return new IsotoneException(this);
  }

  /** {@return the code} */
  public Code code() {
    return code;
  }

  /** Reports whether the same cluster may answer the request later. */
  boolean passes() {
    return switch (code) {
      case NOT_LEADER, NO_LEADER, OVERLOADED, NO_WORKER, NO_QUORUM, QUOTA_EXCEEDED -> true;
      default -> false;
    };
  }

  /** Reports whether a node refuses this client, whatever it asks. */
  boolean refusesClient() {
    return code == Code.UNAUTHORIZED || code == Code.FORBIDDEN || code == Code.INVALID_ARGUMENT;
  }
}
