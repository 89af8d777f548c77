//! The calls that wait until a timestamp is past. Timers of the runtime may be late by more than a millisecond, which is
//! longer than most waits: so a thread sleeps for them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot::{self, Receiver, Sender};

use super::Shared;
use crate::{Error, Timestamp, state::Mutex};

/// By timestamp and number: at most as many as there are calls that wait.
type Calls = BTreeMap<(Timestamp, u64), Sender<()>>;

#[derive(Default)]
pub(super) struct Waits {
    calls: Mutex<(u64, Calls)>,
    changed: Condvar,
}

/// A call that waits. It leaves when it is dropped.
pub(super) struct Wait<'a> {
    waits: &'a Waits,
    key: (Timestamp, u64),
    pub(super) past: Receiver<()>,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.waits.calls.lock().1.remove(&self.key);
    }
}

impl Waits {
    pub(super) fn add(&self, ts: Timestamp) -> Wait<'_> {
        let (sender, past) = oneshot::channel();
        let mut calls = self.calls.lock();
        calls.0 += 1;
        let key = (ts, calls.0);
        calls.1.insert(key, sender);
        self.changed.notify_one();
        Wait { waits: self, key, past }
    }

    /// Has the thread look again: there is a new estimate, or it is to end.
    pub(super) fn look(&self) {
        drop(self.calls.lock());
        self.changed.notify_one();
    }
}

impl Shared {
    /// Starts the thread. It ends with the clock.
    pub(super) fn start_waits(self: &Arc<Self>) -> Result<(), Error> {
        let shared = self.clone();
        let thread = std::thread::Builder::new().name("isotone-clock".into());
        let fault = |e| Error::invalid(format!("no thread for the clock: {e}"));
        thread.spawn(move || shared.wake()).map(drop).map_err(fault)
    }

    /// Wakes the calls whose timestamp is past, in the order of timestamps.
    fn wake(&self) {
        let mut calls = self.waits.calls.lock();
        while !self.is_closed() {
            let (estimate, now) = self.look();
            let bounds = estimate.bounds(now);
            while let Some(first) = calls.1.first_entry() {
                if !bounds.are_after(first.key().0) {
                    break;
                }
                let _ = first.remove().send(()); // unless the call has just left
            }
            let wait = calls.1.keys().next().and_then(|(ts, _)| estimate.until(now, ts.time));
            let changed = &self.waits.changed;
            calls = match wait {
                None => changed.wait(calls).unwrap_or_else(PoisonError::into_inner),
                Some(wait) => {
                    let woken = changed.wait_timeout(calls, Duration::from_nanos(wait));
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        calls.1.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_leave_take_no_room() {
        let (waits, ts) = (Waits::default(), Timestamp { time: 5, index: 7 });
        let stays = waits.add(ts);
        drop(waits.add(ts));
        assert!(waits.calls.lock().1.keys().eq([&stays.key]));
    }
}
