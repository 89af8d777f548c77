//! The cluster clock in the process; docs/intervals.md describes it.

pub(crate) mod interval;
mod steady;
mod sync;
mod waits;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{sync::watch, task::AbortHandle, time::timeout};

use self::{
    interval::{Bounds, Estimate, Moment},
    sync::Syncer,
    waits::Waits,
};
use crate::{Client, Code, Error, Timestamp, pause::random, state::Troubles};

/// What a process knows of the cluster clock at one instant: it was not before `earliest`, nor after `latest`. Both are
/// unix nanoseconds, as [`Timestamp::time`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The earliest that the clock can have shown.
    pub earliest: u64,
    /// The latest.
    pub latest: u64,
    /// The term of the leader whose clock it is.
    pub term: u64,
}

impl Interval {
    /// How uncertain it is.
    pub const fn width(&self) -> Duration {
        Duration::from_nanos(self.latest.saturating_sub(self.earliest))
    }
}

/// Reads the cluster clock in this process, and makes timestamps of it without requests. They are unique in the cluster,
/// and in one order with all others. It needs a cluster that runs with `INTERVAL_MS`, and asks its nodes for the time,
/// several times within that length, over a connection of its own.
///
/// ```no_run
/// # async fn example(client: isotone::Client) -> Result<(), isotone::Error> {
/// let clock = client.clock().await?;
/// let ts = clock.timestamp().await?;  // without a request
/// // … do the work of the operation, and before its end is reported:
/// clock.wait(ts).await?;              // about as long as the interval is wide
/// # Ok(()) }
/// ```
///
/// A timestamp is in real-time order with all others, of whatever client, once [`wait`](Self::wait) has returned for it
/// (a commit wait): whatever begins after that, anywhere, gets a larger one.
///
/// All of this rests on the rates of the steady clocks of the processes that take part: each is to be right to 200
/// millionths. On systems other than Linux, time in which the machine sleeps is not counted, so do not use a `Clock`
/// there on machines that sleep.
///
/// Clones share the clock. It ends with the last one.
#[derive(Clone)]
pub struct Clock {
    shared: Arc<Shared>,
    syncer: Arc<Task>,
    /// Not closed before the clock.
    _client: Client,
    timeout: Option<Duration>,
}

/// The task that asks nodes. It ends with the last handle.
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Shared {
    known: watch::Sender<Known>,
    waits: Waits,
    /// Why nodes did not tell the time, since the latest good reading.
    troubles: Troubles,
    index: u64,
    /// The time of the latest timestamp.
    last: AtomicU64,
}

/// What is known of the cluster clock.
#[derive(Default)]
struct Known {
    estimate: Estimate,
    /// Why the estimate is not good, or will not be for long: a clock has a wrong rate, all nodes refuse the client or
    /// are of other clusters, or the clock is closed.
    why: Option<Error>,
}

impl Shared {
    /// The estimate, and the time of the steady clock after it was loaded: a pause in between only makes it older.
    fn look(&self) -> (Estimate, Moment) {
        (self.known.borrow().estimate, steady::now())
    }

    fn bounds(&self) -> Bounds {
        let (estimate, now) = self.look();
        estimate.bounds(now)
    }

    fn why(&self) -> Option<Error> {
        self.known.borrow().why.clone()
    }

    fn is_closed(&self) -> bool {
        self.why().is_some_and(|e| e.code() == Code::Closed)
    }

    fn publish(&self, known: Known) {
        self.known.send_replace(known);
        self.waits.look();
    }

    /// Takes the first of `count` consecutive times.
    fn take(&self, bounds: Bounds, count: u64) -> Option<u64> {
        let next = |last| bounds.next_time(last, count).filter(|_| bounds.are_good());
        let former = self.last.fetch_update(SeqCst, SeqCst, |last| Some(next(last)? + count - 1));
        former.ok().and_then(next)
    }
}

impl Client {
    /// A clock of the cluster. Returns when there is a valid reading; fails when all nodes refuse, as those of a cluster
    /// without `INTERVAL_MS` do.
    pub async fn clock(&self) -> Result<Clock, Error> {
        let shared = Arc::new(Shared {
            known: watch::Sender::default(),
            waits: Waits::default(),
            troubles: Troubles::default(),
            index: interval::index(random()),
            last: AtomicU64::new(0),
        });
        let syncer = Syncer::new(self.core.clone(), shared.clone());
        let syncer = Task(self.core.spawn(syncer.run()).ok_or_else(Error::closed)?);
        shared.start_waits()?;
        let clock = Clock { _client: self.clone(), shared, syncer: Arc::new(syncer), timeout: self.timeout };
        clock.limit(clock.when(Some)).await?;
        Ok(clock)
    }
}

impl Clock {
    /// This clock with another timeout of calls; at first it is the client's.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self.clone() }
    }

    /// What the cluster clock may show: at an instant of the call it was within the interval. It never waits. It fails
    /// with [`Code::NoLeader`] while no reading is valid, and with [`Code::Clock`] while a clock has a wrong rate.
    pub fn now(&self) -> Result<Interval, Error> {
        let bounds = self.shared.bounds();
        if bounds.are_good() {
            return Ok(Interval { earliest: bounds.earliest, latest: bounds.latest, term: bounds.term });
        }
        let text = "no reading of the cluster clock is valid: its limit has passed, or there was none yet";
        let why = self.shared.why().filter(|e| e.code() != Code::WrongCluster);
        Err(why.unwrap_or_else(|| Error::new(Code::NoLeader, text)))
    }

    /// A timestamp that is larger than all that this clock has made. It waits only while no reading is valid.
    pub async fn timestamp(&self) -> Result<Timestamp, Error> {
        Ok(Timestamp { time: self.times(1).await?, index: self.shared.index })
    }

    /// Timestamps, 1 to 1,000,000, of consecutive nanoseconds. A clock that makes more than one each nanosecond gets
    /// ahead of the cluster's, so that it takes longer until the last one is past.
    pub async fn timestamps(&self, count: usize) -> Result<Vec<Timestamp>, Error> {
        if !(1..=1_000_000).contains(&count) {
            return Err(Error::invalid(format!("{count} timestamps of the cluster clock: want 1 to 1000000")));
        }
        let (first, index) = (self.times(count as u64).await?, self.shared.index);
        Ok((first..first + count as u64).map(|time| Timestamp { time, index }).collect())
    }

    /// The first of consecutive times.
    async fn times(&self, count: u64) -> Result<u64, Error> {
        match self.shared.take(self.shared.bounds(), count) {
            Some(first) => Ok(first),
            None => self.limit(self.when(|bounds| self.shared.take(bounds, count))).await,
        }
    }

    /// Whether a timestamp is surely in the past: whatever begins now, anywhere, gets a larger one. It never waits.
    /// While no reading is valid it goes by the last one that was.
    pub fn is_past(&self, ts: Timestamp) -> bool {
        self.shared.bounds().are_after(ts)
    }

    /// Waits until a timestamp is surely in the past. For one that was just made that takes about as long as the
    /// interval is wide, so run it beside other work of the operation.
    pub async fn wait(&self, ts: Timestamp) -> Result<(), Error> {
        if self.is_past(ts) {
            return Ok(());
        }
        let past = async {
            let mut wait = self.shared.waits.add(ts);
            if self.shared.is_closed() {
                return Err(closed()); // the thread may have ended
            }
            (&mut wait.past).await.map_err(|_| closed())
        };
        self.limit(past).await
    }

    /// Ends the clock: calls fail with [`Code::Closed`], waiting and later ones, and its connections are closed. The same
    /// happens when the last handle is dropped, and when the client is closed.
    pub async fn close(&self) {
        self.syncer.0.abort();
        let is_closed = |known: &Known| known.why.as_ref().is_some_and(|e| e.code() == Code::Closed);
        let _ = self.shared.known.subscribe().wait_for(is_closed).await;
    }

    /// Waits until good bounds allow for something, unless nodes refuse the client.
    async fn when<T>(&self, of: impl Fn(Bounds) -> Option<T>) -> Result<T, Error> {
        let mut news = self.shared.known.subscribe();
        loop {
            let why = news.borrow_and_update().why.clone();
            let bounds = self.shared.bounds();
            if bounds.are_good()
                && let Some(got) = of(bounds)
            {
                return Ok(got);
            }
            match why {
                Some(why) if !matches!(why.code(), Code::Clock | Code::WrongCluster) => return Err(why),
                _ => news.changed().await.map_err(|_| closed())?,
            }
        }
    }

    /// Ends a call at its deadline.
    async fn limit<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let Some(limit) = self.timeout else { return call.await };
        timeout(limit, call).await.unwrap_or_else(|_| Err(self.overdue()))
    }

    /// The error of a call whose deadline has come.
    fn overdue(&self) -> Error {
        let bounds = self.shared.bounds();
        let text = match self.shared.why() {
            Some(why) => return Error::new(why.code(), format!("not in time: {}", why.message())),
            None if bounds.are_good() => format!("the cluster clock has not come far enough in time: {bounds:?}"),
            None => format!("no valid reading of the cluster clock in time{}", self.shared.troubles.text()),
        };
        Error::new(Code::DeadlineExceeded, text)
    }
}

fn closed() -> Error {
    Error::new(Code::Closed, "the clock is closed")
}
