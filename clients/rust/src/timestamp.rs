use std::{fmt, str::FromStr};

use crate::Error;

/// A timestamp of 16 bytes. Timestamps have the order in which they were issued, as values, as bytes and as text.
///
/// ```
/// use isotone::Timestamp;
///
/// let ts: Timestamp = "18ea3fd0c5c8f67a0000000000000009".parse()?;
/// assert_eq!((ts.time, ts.index), (1_795_317_567_364_593_274, 9));
/// assert!(ts > Timestamp { time: ts.time, index: 8 });
/// assert_eq!(Timestamp::from_bytes(ts.to_bytes()), ts);
/// # Ok::<_, isotone::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Nanoseconds since 1970-01-01 UTC.
    pub time: u64,
    /// Counts the timestamps of one time, from 0.
    pub index: u64,
}

impl Timestamp {
    /// The timestamp whose encoding is `bytes`, big-endian.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_be_bytes(bytes);
        #[allow(clippy::cast_possible_truncation)] // the halves
        Self { time: (both >> 64) as u64, index: both as u64 }
    }

    /// The encoding, big-endian.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.time) << 64 | u128::from(self.index)).to_be_bytes()
    }
}

/// Writes 32 hexadecimal digits in lower case.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.time, self.index)
    }
}

impl FromStr for Timestamp {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self, Error> {
        match u128::from_str_radix(s, 16) {
            Ok(both) if s.len() == 32 && !s.starts_with('+') => Ok(Self::from_bytes(both.to_be_bytes())),
            _ => Err(Error::invalid(format!("timestamp {s:.40?}: want 32 hexadecimal digits"))),
        }
    }
}

const COUNTER_BITS: u32 = 18;
const COUNTER_MASK: u64 = (1 << COUNTER_BITS) - 1;
const NANOS: u64 = 1_000_000;

/// A timestamp of 64 bits: unix milliseconds << 18 | counter, the layout of `TiKV`'s PD. Both forms have one order.
///
/// ```
/// use isotone::{Timestamp, Timestamp64};
///
/// let u = Timestamp64(470_631_728_379_223_939);
/// assert_eq!((u.millis(), u.counter()), (1_795_317_567_364, 155_523));
/// let place = u.timestamp();                       // where it stands among the others
/// assert_eq!(Timestamp64::from(place), u);         // the smallest that is not before
/// # Ok::<_, isotone::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp64(pub u64);

impl Timestamp64 {
    /// Unix milliseconds.
    pub const fn millis(self) -> u64 {
        self.0 >> COUNTER_BITS
    }

    /// The counter within the millisecond.
    pub const fn counter(self) -> u64 {
        self.0 & COUNTER_MASK
    }

    /// The place in the order of all timestamps. After the year 2553 it is the largest time.
    pub const fn timestamp(self) -> Timestamp {
        if self.millis() >= u64::MAX / NANOS {
            return Timestamp { time: u64::MAX, index: 0 };
        }
        let fraction = (self.counter() * NANOS + COUNTER_MASK) >> COUNTER_BITS;
        Timestamp { time: self.millis() * NANOS + fraction, index: 0 }
    }
}

/// The smallest timestamp of 64 bits that is not before.
impl From<Timestamp> for Timestamp64 {
    fn from(t: Timestamp) -> Self {
        if t == Timestamp::default() {
            return Self(0);
        }
        let before = if t.index == 0 { t.time - 1 } else { t.time };
        let (millis, rest) = (before / NANOS, before % NANOS);
        Self((millis << COUNTER_BITS) + (rest << COUNTER_BITS) / NANOS + 1)
    }
}

impl fmt::Display for Timestamp64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Timestamp64 {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self, Error> {
        match s.parse() {
            Ok(u) if !s.starts_with('+') => Ok(Self(u)),
            _ => Err(Error::invalid(format!("timestamp {s:.40?}: want a decimal number of 64 bits"))),
        }
    }
}

/// Consecutive timestamps of one request.
///
/// ```
/// use isotone::{Range, Timestamp};
///
/// let range = Range { first: Timestamp { time: 5, index: 7 }, count: 3 };
/// assert_eq!(range.iter().count(), 3);
/// assert_eq!(range.last(), Timestamp { time: 5, index: 9 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<T> {
    /// The first timestamp.
    pub first: T,
    /// How many there are, at least 1.
    pub count: u64,
}

impl<T: Step> Range<T> {
    /// The last timestamp.
    pub fn last(&self) -> T {
        self.first.plus(self.count - 1)
    }

    /// All timestamps, in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<T> {
        let first = self.first;
        (0..self.count).map(move |i| first.plus(i))
    }
}

/// A timestamp that has followers: of either form.
pub trait Step: Copy + sealed::Sealed {
    /// The `n`-th timestamp after this one.
    #[must_use]
    fn plus(self, n: u64) -> Self;
}

impl Step for Timestamp {
    fn plus(self, n: u64) -> Self {
        Self { time: self.time, index: self.index + n }
    }
}

impl Step for Timestamp64 {
    fn plus(self, n: u64) -> Self {
        Self(self.0 + n)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Timestamp {}
    impl Sealed for super::Timestamp64 {}
}
