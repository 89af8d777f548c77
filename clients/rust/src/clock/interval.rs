//! The arithmetic of the cluster clock: what a process may conclude from its own steady clock and from what nodes have
//! told it. Pure functions; docs/intervals.md has the rules and the proof.
//!
//! Times on the cluster clock are unix nanoseconds, those on a steady clock nanoseconds from an origin of its own.

use crate::{Timestamp, resp::Malformed};

/// What a steady clock showed at some instant of the call that read it: a time from `lo` to `hi`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) lo: i64,
    pub(crate) hi: i64,
}

/// Bounds of the cluster clock of a term, at one instant. They may be used while `latest` is not above `limit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) earliest: u64,
    pub(crate) latest: u64,
    pub(crate) limit: u64,
    /// 0 if nothing is known.
    pub(crate) term: u64,
}

impl Bounds {
    pub(crate) fn are_good(&self) -> bool {
        self.term != 0 && self.latest <= self.limit
    }

    /// Whether a timestamp is in the past for everyone: whatever begins now gets a larger one. The bounds need not be
    /// good.
    pub(crate) fn are_after(&self, ts: Timestamp) -> bool {
        self.earliest > ts.time
    }

    /// The first of `count` consecutive times of timestamps, none of them below the latest that the clock can be, and
    /// all above `last`; `None` if they do not all fit below the limit.
    pub(crate) fn next_time(&self, last: u64, count: u64) -> Option<u64> {
        let first = self.latest.max(last.saturating_add(1));
        (first.checked_add(count - 1)? <= self.limit).then_some(first)
    }
}

/// The smallest index of a timestamp that was made from an interval; those of the oracle are below.
const INDEX_MIN: u64 = 1 << 63;

/// The index of all timestamps of a clock: 63 random bits.
pub(crate) fn index(random: u64) -> u64 {
    random | INDEX_MIN
}

/// What a node tells: bounds that were true between its question and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) bounds: Bounds,
    pub(crate) cluster: u64,
    /// That of the question.
    pub(crate) nonce: u64,
}

impl Reading {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (fields, []) = bytes.as_chunks::<8>() else { return Err(Malformed) };
        let fields: Vec<_> = fields.iter().map(|field| u64::from_be_bytes(*field)).collect();
        let [earliest, latest, limit, term, cluster, nonce] = fields[..] else { return Err(Malformed) };
        if term == 0 || earliest > latest || latest.max(limit) > i64::MAX.cast_unsigned() {
            return Err(Malformed);
        }
        Ok(Self { bounds: Bounds { earliest, latest, limit, term }, cluster, nonce })
    }
}

/// The lines move by a thousandth slower and faster than the own clock: more than two steady clocks and the slewing of
/// the cluster clock differ together.
const GROWTH: u64 = 1000;

/// What is known of the cluster clock of one term: a line that it is not below, and one that it is not above. At first
/// nothing is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Estimate {
    /// Where the lines begin.
    known: Bounds,
    /// When the own clock showed these.
    earliest_at: i64,
    latest_at: i64,
    received_at: i64,
}

impl Estimate {
    /// Takes in a reading whose question left after `sent` was read, and whose answer had come when `received` was. One
    /// of an earlier term is ignored, one of a later term replaces all. Returns false if it contradicts what is known:
    /// one of the clocks has a wrong rate. Then all is forgotten.
    #[must_use]
    pub(crate) fn take(&mut self, sent: Moment, received: Moment, reading: Bounds) -> bool {
        if reading.term < self.known.term {
            return true;
        }
        let new = Self { known: reading, earliest_at: received.hi, latest_at: sent.lo, received_at: received.hi };
        if reading.term > self.known.term {
            *self = new;
            return true;
        }
        // Lines say nothing of the time before they begin, so they are compared when all have: an older question may be
        // answered later.
        let at = received.hi.max(self.received_at);
        let (old, now) = (self.lines(Moment { lo: at, hi: at }), new.lines(Moment { lo: at, hi: at }));
        if now.0 > old.0 {
            (self.known.earliest, self.earliest_at) = (reading.earliest, new.earliest_at);
        }
        if now.1 < old.1 {
            (self.known.latest, self.latest_at) = (reading.latest, new.latest_at);
        }
        self.known.limit = self.known.limit.max(reading.limit);
        self.received_at = at;
        let agrees = now.1.min(old.1) >= now.0.max(old.0);
        if !agrees {
            *self = Self::default();
        }
        agrees
    }

    /// Where the lines are now. What is beyond 64 bits is the largest number, which is above every limit.
    fn lines(&self, now: Moment) -> (u64, u64) {
        let (early, late) = (since(self.earliest_at, now.lo), since(self.latest_at, now.hi));
        let earliest = self.known.earliest.saturating_add(early - early.div_ceil(GROWTH));
        (earliest, self.known.latest.saturating_add(late).saturating_add(late / GROWTH + 1))
    }

    /// Bounds of the cluster clock now. The moment must have been read after the estimate was loaded, and after the
    /// operation began that uses them. If they are not good, `earliest` still is a lower bound of this clock and of
    /// those of all later terms.
    pub(crate) fn bounds(&self, now: Moment) -> Bounds {
        if self.known.term == 0 {
            return Bounds::default();
        }
        let (earliest, latest) = self.lines(now);
        let bounds = Bounds { earliest, latest, ..self.known };
        if bounds.are_good() {
            return bounds;
        }
        // The clock of a later term begins above the limit, but perhaps below this line.
        Bounds { earliest: earliest.min(bounds.limit), ..bounds }
    }

    /// In how many nanoseconds of the own clock the earlier bound is above `time`; `None` if that needs another reading.
    pub(crate) fn until(&self, now: Moment, time: u64) -> Option<u64> {
        const MAX: u64 = i64::MAX.cast_unsigned();
        if self.known.term == 0 || time >= self.known.limit {
            return None;
        }
        let Some(need) = (time + 1).checked_sub(self.known.earliest).filter(|need| *need > 0) else { return Some(0) };
        // The line advances by `GROWTH - 1` while the own clock does by `GROWTH`.
        let at = need.saturating_add((need - 1) / (GROWTH - 1) + 1);
        let left = at.saturating_sub(since(self.earliest_at, now.lo));
        match left {
            _ if at > MAX => None,
            0 => Some(0),
            left => Some(left.saturating_add(since(now.lo, self.earliest_at)).min(MAX)),
        }
    }
}

/// The time from one value of the own clock to another, 0 if that is not later.
fn since(from: i64, to: i64) -> u64 {
    if to <= from { 0 } else { to.abs_diff(from) }
}

/// How long readings must agree, after they did not, until the clocks are believed again: 10 s.
const RATE_WINDOW: i64 = 10_000_000_000;

/// Whether the rates of the cluster clock and of the own one are believed. A contradiction has the estimate begin anew,
/// and it would be good for a while although the rate is still wrong: so a whole window without one is asked for.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    term: u64,
    /// When the first reading of the window was received, at most.
    since: i64,
    wrong: bool,
}

impl Rate {
    /// Takes in what [`Estimate::take`] has returned for a reading of a term, and returns whether the clocks are
    /// believed.
    pub(crate) fn take(&mut self, received: Moment, term: u64, agrees: bool) -> bool {
        if !agrees && term >= self.term {
            (self.wrong, self.term, self.since) = (true, term, received.hi);
        } else if term > self.term {
            (self.term, self.since) = (term, received.hi);
        } else if term == self.term && received.lo.saturating_sub(self.since) >= RATE_WINDOW {
            self.wrong = false;
        }
        !self.wrong
    }
}
