// Pauses between attempts, and when an answer is late. Times are in milliseconds. Nothing here reads a clock.

/** A random number from 0 up to, and without, 1. */
export type Random = () => number;

/** Bounds the pause before jitter, for each kind: conformance/vectors/backoff.json says what they are for. */
export const pauseMax = { retry: 100, search: 8, search_later: 100, refused: 1000, spare: 2000 } as const;

/** Bounds the pause that a node asks for because of a quota. */
const quotaPauseMax = 10_000;

/** Returns the pause after that many failures in a row. */
export function pauseAfter(failures: number, most: number, random: Random = Math.random): number {
  const pause = Math.min(2 ** Math.min(failures, 16), most);
  return pause / 2 + random() * pause;
}

/** Returns the pause after that many refusals in a row because of a quota, the latest of which asked for `retryAfterMs`, or for none: 0. */
export function quotaPause(retryAfterMs: number, failures: number, random: Random = Math.random): number {
  const pause = Math.min(retryAfterMs, quotaPauseMax);
  return pause > 0 ? pause + (random() * pause) / 8 : pauseAfter(failures, pauseMax.refused, random);
}

/** Longer than most pauses of a healthy machine. A false suspicion is harmless. */
const timeoutMin = 25;
const timeoutMax = 5000;
/** Applies before the first answer. */
const timeoutInitial = 250;

/** Derives when an answer is late from a smoothed mean and deviation, as TCP derives its retransmission timeout (RFC 6298). */
export class Estimate {
  private mean = 0;
  private deviation = 0;

  add(took: number): void {
    if (this.mean === 0) {
      this.mean = took;
      this.deviation = took / 2;
      return;
    }
    const difference = this.mean - took;
    this.deviation += (Math.abs(difference) - this.deviation) / 4;
    this.mean -= difference / 8;
  }

  /** Doubles the timeout, which shrinks again with every answer. */
  double(): void {
    const timeout = Math.min(2 * this.timeout(), timeoutMax);
    this.mean = Math.max(this.mean, 1e-6);
    this.deviation = (timeout - this.mean) / 4;
  }

  timeout(): number {
    if (this.mean === 0) return timeoutInitial;
    return Math.min(Math.max(this.mean + 4 * this.deviation, timeoutMin), timeoutMax);
  }
}
