// Lease mode: what the axiom ClocksAreRight says follows from what is assumed of clocks (I5).
//
// All times here are real numbers. The leader's clock and a voter's ticks are seen at two moments of the true time: sent, when the leader
// sent the round, and kept, when the voter's ticks have passed. The promise was made in between.

// Code: length in internal/core/replica/lease.go, with its constants leaseSlackTicks and clockRateErrorPercent.
function Length(ticks: real, tick: real): real
{
  (ticks - 3.0) * tick * 0.9 / 1.1
}

// If the voter counts ticks no more than 10 % too fast, and up to three at once, and the leader's clock is no more than 10 %
// too slow, then at kept the lease has ended.
lemma LeaseEndsBeforePromise(ticks: real, tick: real, sent: real, promised: real, kept: real, clockAtSent: real, clockAtKept: real)
  requires tick > 0.0
  requires sent <= promised <= kept
  requires (ticks - 3.0) * tick <= 1.1 * (kept - promised) // the voter's ticks from promised to kept
  requires clockAtKept - clockAtSent >= 0.9 * (kept - sent) // what the leader's clock has gained
  ensures clockAtKept >= clockAtSent + Length(ticks, tick)
{
  var left := (ticks - 3.0) * tick;
  assert left <= 1.1 * (kept - sent);
  assert left * 0.9 / 1.1 <= 0.9 * (kept - sent);
}
