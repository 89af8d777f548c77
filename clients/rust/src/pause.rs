//! How long to wait after failures.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use crate::Error;

/// What a pause is for; each kind has a bound, before jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// A node that refused, or a dial that failed.
    Retry,
    /// All nodes are asked for the leader, in the first second of a search.
    Search,
    /// A node that refuses the client.
    Refused,
    /// A node that is not needed, because others make IDs.
    Spare,
}

impl Pause {
    /// The pause after that many failures in a row; `random` chooses within its bounds.
    pub(crate) fn after(self, failures: u32, random: u64) -> Duration {
        let most = match self {
            Self::Search => 8_000_000,
            Self::Retry => 100_000_000,
            Self::Refused => 1_000_000_000,
            Self::Spare => 2_000_000_000,
        };
        let pause = (1_000_000 << failures.min(16)).min(most);
        Duration::from_nanos(pause / 2 + random % pause)
    }
}

/// The pause after a refusal because of a quota: what the node asks for, with a jitter, so that not all clients come
/// back at once.
pub(crate) fn quota_pause(refusal: &Error, failures: u32, random: u64) -> Duration {
    let asked = refusal.retry_after.min(Duration::from_secs(10));
    if asked.is_zero() {
        return Pause::Refused.after(failures, random);
    }
    let most = u64::try_from(asked.as_nanos() / 8 + 1).unwrap_or(1);
    asked + Duration::from_nanos(random % most)
}

/// A random number: the standard library's hashes have keys from the system.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(())
}

/// The answer timeout, from a smoothed mean and deviation, as TCP has it (RFC 6298).
#[derive(Debug, Default)]
pub(crate) struct Estimate {
    mean: Duration,
    deviation: Duration,
}

const TIMEOUT_MIN: Duration = Duration::from_millis(25);
const TIMEOUT_MAX: Duration = Duration::from_secs(5);
const TIMEOUT_FIRST: Duration = Duration::from_millis(250);

impl Estimate {
    pub(crate) fn add(&mut self, took: Duration) {
        if self.mean.is_zero() {
            (self.mean, self.deviation) = (took, took / 2);
            return;
        }
        self.deviation = (self.deviation * 3 + self.mean.abs_diff(took)) / 4;
        self.mean = (self.mean * 7 + took) / 8;
    }

    /// Doubles the timeout after a connection was given up that may only have been slow.
    pub(crate) fn double(&mut self) {
        let timeout = (2 * self.timeout()).min(TIMEOUT_MAX);
        self.mean = self.mean.max(Duration::from_nanos(1));
        self.deviation = timeout.saturating_sub(self.mean) / 4;
    }

    pub(crate) fn timeout(&self) -> Duration {
        if self.mean.is_zero() {
            return TIMEOUT_FIRST;
        }
        (self.mean + 4 * self.deviation).clamp(TIMEOUT_MIN, TIMEOUT_MAX)
    }
}
