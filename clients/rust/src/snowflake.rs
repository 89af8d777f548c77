use std::{fmt, str::FromStr, time::Duration};

use crate::{Code, Error};

/// A Snowflake ID: 63 bits, unique, roughly ordered by time. What its bits mean tells a [`Layout`].
///
/// ```
/// use isotone::{Id, Layout};
///
/// let id: Id = "1541815603606036480".parse()?;
/// assert_eq!(id.to_base62(), "1ptWyK4WgZU");
/// assert_eq!(Layout::TWITTER.millis(id), 1_656_432_460_105);
/// # Ok::<_, isotone::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub u64);

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

impl Id {
    /// The shortest text: 1 to 11 of `0-9A-Za-z`.
    pub fn to_base62(self) -> String {
        let (mut rest, mut text) = (self.0, Vec::new());
        loop {
            #[allow(clippy::cast_possible_truncation)] // a digit
            text.push(char::from(BASE62[(rest % 62) as usize]));
            rest /= 62;
            if rest == 0 {
                return text.iter().rev().collect();
            }
        }
    }

    /// 16 hexadecimal digits, whose order is that of the IDs.
    pub fn to_hex(self) -> String {
        format!("{:016x}", self.0)
    }

    /// Reads what [`to_base62`](Self::to_base62) writes, and nothing else.
    pub fn from_base62(text: &str) -> Result<Self, Error> {
        let digit = |b| BASE62.iter().position(|d| *d == b).map(|d| d as u64);
        let id = text.bytes().try_fold(0_u64, |id, b| id.checked_mul(62)?.checked_add(digit(b)?));
        id.and_then(|id| Self::checked(id, text, Self::to_base62)).ok_or_else(|| invalid(text))
    }

    /// Reads what [`to_hex`](Self::to_hex) writes, and nothing else.
    pub fn from_hex(text: &str) -> Result<Self, Error> {
        let id = u64::from_str_radix(text, 16).ok();
        id.and_then(|id| Self::checked(id, text, Self::to_hex)).ok_or_else(|| invalid(text))
    }

    /// An ID of 63 bits whose text is this one: each ID has one.
    fn checked(id: u64, text: &str, write: fn(Self) -> String) -> Option<Self> {
        (id >> 63 == 0 && write(Self(id)) == text).then_some(Self(id))
    }
}

fn invalid(text: &str) -> Error {
    Error::invalid(format!("ID {text:.40?}: not one in this form"))
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads decimal digits, without a sign or leading zeros.
impl FromStr for Id {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let id = text.parse().ok();
        id.and_then(|id| Self::checked(id, text, |id| id.to_string())).ok_or_else(|| invalid(text))
    }
}

/// How the bits of IDs are split, from the top: time, datacenter, worker, sequence. Wherever there is one number for a
/// worker, it is datacenter and worker together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    time_bits: u32,
    datacenter_bits: u32,
    worker_bits: u32,
    sequence_bits: u32,
    epoch: i64,
}

impl Layout {
    /// The layout of Twitter, `41/5/5/12` from 2010-11-04.
    pub const TWITTER: Self =
        Self { time_bits: 41, datacenter_bits: 5, worker_bits: 5, sequence_bits: 12, epoch: 1_288_834_974_657 };

    /// Reads a layout such as `41/5/5/12`, or `41/10/12` without a datacenter. The epoch is in unix milliseconds.
    pub fn parse(text: &str, epoch: i64) -> Result<Self, Error> {
        let fault = || Error::invalid(format!("layout {text:.40?} with epoch {epoch}: not one of 63 bits"));
        let bits: Option<Vec<u32>> =
            text.split('/').map(|part| part.parse().ok().filter(|n: &u32| *n < 64 && n.to_string() == part)).collect();
        let (time_bits, datacenter_bits, worker_bits, sequence_bits) = match bits.as_deref() {
            Some([t, w, s]) => (*t, 0, *w, *s),
            Some([t, d, w, s]) => (*t, *d, *w, *s),
            _ => return Err(fault()),
        };
        let layout = Self { time_bits, datacenter_bits, worker_bits, sequence_bits, epoch };
        let sums = time_bits + datacenter_bits + worker_bits + sequence_bits == 63
            && time_bits > 0
            && datacenter_bits + worker_bits <= 30;
        if !sums || epoch < 0 || layout.time_max().checked_add_signed(epoch).is_none_or(|last| last >> 63 != 0) {
            return Err(fault());
        }
        Ok(layout)
    }

    fn time_max(&self) -> u64 {
        (1 << self.time_bits) - 1
    }

    /// How many workers there are.
    pub const fn workers(&self) -> u32 {
        1 << (self.datacenter_bits + self.worker_bits)
    }

    /// The unix millisecond of an ID.
    pub const fn millis(&self, id: Id) -> i64 {
        self.epoch + (id.0 >> (63 - self.time_bits)).cast_signed()
    }

    /// The worker of an ID, with its datacenter.
    #[allow(clippy::cast_possible_truncation)] // 30 bits
    pub const fn worker(&self, id: Id) -> u32 {
        (id.0 >> self.sequence_bits) as u32 & (self.workers() - 1)
    }

    /// The datacenter of an ID.
    pub const fn datacenter(&self, id: Id) -> u32 {
        self.worker(id) >> self.worker_bits
    }

    /// The worker of an ID within its datacenter.
    pub const fn in_datacenter(&self, id: Id) -> u32 {
        self.worker(id) & ((1 << self.worker_bits) - 1)
    }

    /// The sequence of an ID.
    pub const fn sequence(&self, id: Id) -> u64 {
        id.0 & ((1 << self.sequence_bits) - 1)
    }
}

/// Why a generator makes no IDs now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Exhausted,
    LeaseEnded,
    LeaseNotBegun,
    Batch,
    ClockBehind,
    ClockBeforeLayout,
    ClockAfterLayout,
}

impl From<Refusal> for Error {
    fn from(r: Refusal) -> Self {
        let (code, text) = match r {
            Refusal::Exhausted => (Code::Overloaded, "the IDs of this worker are used up for now"),
            Refusal::LeaseEnded => (Code::Overloaded, "the lease of this worker has ended"),
            Refusal::LeaseNotBegun => (Code::Overloaded, "the lease of this worker has not begun"),
            Refusal::Batch => (Code::InvalidArgument, "more IDs at once than fit between clock and limit"),
            Refusal::ClockBehind => (Code::Clock, "the clock is too far behind the last ID"),
            Refusal::ClockBeforeLayout => (Code::Clock, "the clock is before the first millisecond of the layout"),
            Refusal::ClockAfterLayout => (Code::Clock, "the clock is after the last millisecond of the layout"),
        };
        Self::new(code, text)
    }
}

/// Makes the IDs of one worker. It reads no clock: each step is given one. The only state is the next number, of
/// milliseconds since the epoch and then the sequence, which only grows.
#[derive(Debug)]
pub(crate) struct Source {
    layout: Layout,
    worker: u32,
    /// The milliseconds that IDs may have, `[start, end)`.
    lease: Option<(i64, i64)>,
    ahead: u64,
    first: u64,
    next: u64,
    stopped: bool,
}

impl Source {
    pub(crate) fn new(layout: Layout, worker: u32, lease: Option<(i64, i64)>, ahead_max: Duration) -> Self {
        let mut source = Self { layout, worker, lease, ahead: 0, first: 0, next: 0, stopped: false };
        source.ahead = u64::try_from(ahead_max.as_millis()).unwrap_or(u64::MAX).min(3_600_000);
        source.first = lease.map_or(0, |(start, _)| source.number(start));
        source.next = source.first;
        source
    }

    /// The first number of a millisecond, or the end of the layout.
    fn number(&self, millis: i64) -> u64 {
        let since = u64::try_from(millis - self.layout.epoch).unwrap_or(0);
        since.min(self.layout.time_max() + 1) << self.layout.sequence_bits
    }

    fn millis(&self, number: u64) -> i64 {
        self.layout.epoch + (number >> self.layout.sequence_bits).cast_signed()
    }

    /// Makes `count` consecutive IDs at a reading of the clock, or uses up none.
    pub(crate) fn take(&mut self, now: i64, count: u64) -> Result<Vec<Id>, Refusal> {
        if self.stopped {
            return Err(Refusal::LeaseEnded);
        }
        let at = self.admit(now, count)?;
        self.next = at + count;
        Ok((at..self.next).map(|number| self.id(number)).collect())
    }

    /// Puts the worker between the time and the sequence of a number.
    fn id(&self, number: u64) -> Id {
        let (l, sequence) = (&self.layout, number & ((1 << self.layout.sequence_bits) - 1));
        Id((number - sequence) << (l.datacenter_bits + l.worker_bits)
            | u64::from(self.worker) << l.sequence_bits
            | sequence)
    }

    /// The first of the numbers to take. If several reasons speak against it, that of the first check counts.
    fn admit(&self, now: i64, count: u64) -> Result<u64, Refusal> {
        let (time_max, bits) = (self.layout.time_max(), self.layout.sequence_bits);
        let ahead_of = |ms: u64| (ms.saturating_add(self.ahead).min(time_max) + 1) << bits;
        if count > ahead_of(0) {
            return Err(Refusal::Batch);
        }
        let Ok(ms) = u64::try_from(now - self.layout.epoch) else { return Err(Refusal::ClockBeforeLayout) };
        if ms > time_max {
            return Err(Refusal::ClockAfterLayout);
        }
        let ahead = ahead_of(ms);
        if self.next == self.first && self.next >= ahead {
            return Err(Refusal::LeaseNotBegun);
        }
        if self.next > ahead {
            return Err(Refusal::ClockBehind);
        }
        let at = self.next.max(ms << bits);
        let limit = self.lease.map_or((time_max + 1) << bits, |(_, end)| self.number(end));
        if at >= limit || count > limit - at {
            return Err(if limit > time_max << bits { Refusal::ClockAfterLayout } else { Refusal::LeaseEnded });
        }
        if count > ahead - at { Err(Refusal::Exhausted) } else { Ok(at) }
    }

    /// Moves the end of the lease, if that is later.
    pub(crate) fn extend(&mut self, until: i64) {
        if let Some((_, end)) = &mut self.lease {
            *end = until.max(*end);
        }
    }

    /// Ends the generator, and returns the first millisecond from which on no ID was made.
    pub(crate) fn stop(&mut self) -> i64 {
        self.stopped = true;
        match self.lease {
            _ if self.next != self.first => self.millis(self.next - 1) + 1,
            Some((start, _)) => start,
            None => self.layout.epoch,
        }
    }

    /// How long it takes, 10 ms at most, until the next IDs are no longer too far ahead of the clock.
    pub(crate) fn delay(&self, now: i64, count: u64) -> Duration {
        let last = self.millis(self.next + count - 1) - self.ahead.cast_signed();
        Duration::from_millis((last - now).clamp(1, 10).unsigned_abs())
    }

    pub(crate) fn lease(&self) -> Option<(i64, i64)> {
        self.lease
    }
}
