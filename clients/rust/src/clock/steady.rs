//! A steady clock: it never jumps, nobody slews it, and it goes on while the machine sleeps. The cluster clock rests on
//! its rate being right within 200 millionths.
//!
//! On Linux it is `CLOCK_MONOTONIC_RAW`, which stands still in suspend, plus what suspends have lasted:
//! `CLOCK_BOOTTIME` - `CLOCK_MONOTONIC`. On other systems it is that of the standard library, which may be slewed, and
//! may stand still while the machine sleeps.

use super::interval::Moment;

/// The clocks that are read, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Has a steady rate.
    Raw,
    /// Runs as `Mono` does, and in suspend.
    Boot,
    /// Runs at 7/8 to 9/8 of the rate of `Raw`.
    Mono,
}

/// Reads the clocks in an order that makes a suspend in between harmless. Boot less mono is what all suspends before the
/// reading of boot have lasted, less the running time between the two. So the sum is at most what the clock showed at
/// the end. It is less than at the beginning only if mono was slewed: by an eighth of the running time at most.
fn read(mut source: impl FnMut(Source) -> i64) -> Moment {
    let begin = source(Source::Raw);
    let boot = source(Source::Boot);
    let mono = source(Source::Mono);
    let end = source(Source::Raw);
    let lo = boot - mono + end;
    Moment { lo, hi: lo + (end - begin) / 8 + 1 }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn now() -> Moment {
    use rustix::time::{ClockId, clock_gettime};
    read(|source| {
        let shown = clock_gettime(match source {
            Source::Raw => ClockId::MonotonicRaw,
            Source::Boot => ClockId::Boottime,
            Source::Mono => ClockId::Monotonic,
        });
        shown.tv_sec * 1_000_000_000 + shown.tv_nsec
    })
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn now() -> Moment {
    use std::{sync::LazyLock, time::Instant};
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    read(|source| match source {
        Source::Raw => i64::try_from(ORIGIN.elapsed().as_nanos()).unwrap_or(i64::MAX),
        Source::Boot | Source::Mono => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All clocks of a machine.
    #[derive(Clone, Copy)]
    struct Machine {
        running: i64,
        asleep: i64,
        mono: i64,
        /// What mono gains in 8 units of running time.
        slew: i64,
    }

    impl Machine {
        fn run(&mut self, time: i64) {
            self.running += time;
            self.mono += time + time / 8 * self.slew;
        }

        fn truth(&self) -> i64 {
            self.running + self.asleep
        }

        fn show(&self, source: Source) -> i64 {
            match source {
                Source::Raw => self.running,
                Source::Boot => self.mono + self.asleep,
                Source::Mono => self.mono,
            }
        }
    }

    #[test]
    fn a_reading_holds_whatever_happens_in_between() {
        const PAUSES: [(i64, i64); 3] = [(80, 0), (8_000_000, 0), (80, 5_000_000_000)]; // running, asleep
        for slew in [-1, 0, 1] {
            for choice in 0..PAUSES.len().pow(5) {
                let mut m = Machine { running: 7, asleep: 1_000_000, mono: 31, slew };
                let before = m.truth();
                let mut place = 1;
                let mut pass = |m: &mut Machine| {
                    let (running, asleep) = PAUSES[choice / place % PAUSES.len()];
                    place *= PAUSES.len();
                    m.run(running);
                    m.asleep += asleep;
                };
                let got = read(|source| {
                    pass(&mut m);
                    m.show(source)
                });
                assert!(before <= got.hi && got.lo <= m.truth(), "{got:?}: {before} to {}", m.truth());
                assert!(got.lo <= got.hi && got.hi - got.lo <= 1 + m.running / 8, "{got:?}");
            }
        }
    }

    #[test]
    fn it_runs_as_the_clock_of_the_standard_library() {
        let (at, first) = (std::time::Instant::now(), now());
        std::thread::sleep(std::time::Duration::from_millis(5));
        let last = now();
        let most = i64::try_from(at.elapsed().as_nanos()).unwrap();
        assert!(last.lo - first.hi >= 5_000_000 * 7 / 8 && last.lo - first.hi <= most * 9 / 8, "{first:?} {last:?}");
    }
}
