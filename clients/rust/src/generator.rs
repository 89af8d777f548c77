use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{
    Client, Code, Error, Id, Layout,
    pause::random,
    resp::{self, Malformed, Value},
    snowflake::{Refusal, Source},
    state::Mutex,
};

type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// How a [`Generator`] is made. The default is good.
#[derive(Clone)]
pub struct GeneratorOptions {
    lease: Duration,
    fixed: Option<u32>,
    ahead_max: Duration,
    clock: Clock,
}

impl Default for GeneratorOptions {
    fn default() -> Self {
        let clock = || {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
        };
        Self { lease: Duration::from_secs(30), fixed: None, ahead_max: Duration::from_secs(1), clock: Arc::new(clock) }
    }
}

impl GeneratorOptions {
    /// The length of a lease, 100 ms to 1 h; 30 s by default. A process that is killed blocks its worker for that
    /// long. While no node is reachable, the generator makes IDs for at least two thirds of it.
    #[must_use]
    pub fn lease(mut self, length: Duration) -> Self {
        self.lease = length;
        self
    }

    /// Leases this worker and no other. The lowest quarter of the workers is for nodes only.
    #[must_use]
    pub fn fixed(mut self, worker: u32) -> Self {
        self.fixed = Some(worker);
        self
    }

    /// How far IDs may be ahead of the clock, 1 s by default, 1 h at most.
    #[must_use]
    pub fn ahead_max(mut self, ahead: Duration) -> Self {
        self.ahead_max = ahead;
        self
    }

    /// The clock of the IDs, in unix milliseconds.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }
}

/// Makes IDs in this process, millions a second: the cluster leases it a worker, and it renews the lease. The IDs are
/// unique even if clocks are wrong, because two leases of one worker share no millisecond of IDs.
///
/// ```no_run
/// # async fn example(client: isotone::Client) -> Result<(), isotone::Error> {
/// let ids = client.generator(Default::default()).await?;
/// let id = ids.id().await?;
/// ids.close().await?; // the worker is free again
/// # drop(id); Ok(()) }
/// ```
#[derive(Clone)]
pub struct Generator {
    shared: Arc<Shared>,
    keeper: Arc<Keeper>,
    timeout: Option<Duration>,
}

/// The task that renews the lease. It ends with the last handle.
struct Keeper(Mutex<Option<JoinHandle<()>>>);

struct Shared {
    client: Client,
    options: GeneratorOptions,
    state: Mutex<State>,
    /// The lease has changed, or the generator was closed.
    changed: Notify,
    /// The clock is behind the IDs.
    behind: Notify,
}

struct State {
    source: Source,
    grant: Grant,
    /// That of the next request.
    session: String,
    /// Why the latest attempt to renew has failed.
    why: Option<Error>,
    is_behind: bool,
    closed: bool,
}

/// The answer to a request for a lease.
#[derive(Clone, Debug)]
struct Grant {
    worker: u32,
    start: i64,
    end: i64,
    layout: Layout,
    session: String,
}

impl Grant {
    /// Reads `[worker, start, end, layout, epoch]`.
    fn read(v: &Value) -> Result<Self, Malformed> {
        let [worker, start, end, layout, epoch] = v.items() else { return Err(Malformed) };
        let int = |v: &Value| v.int().ok_or(Malformed);
        let (start, end) = (int(start)?, int(end)?);
        let layout = layout.text().and_then(|text| Layout::parse(text, epoch.int()?).ok()).ok_or(Malformed)?;
        let worker = u32::try_from(int(worker)?).ok().filter(|w| *w < layout.workers()).ok_or(Malformed)?;
        if start < 0 || start >= end {
            return Err(Malformed);
        }
        Ok(Self { worker, start, end, layout, session: String::new() })
    }

    fn source(&self, ahead_max: Duration) -> Source {
        Source::new(self.layout, self.worker, Some((self.start, self.end)), ahead_max)
    }
}

/// A session is never 0, which means none.
fn new_session() -> String {
    format!("{:016x}", random() | 1)
}

/// Requests a lease or, in its session, a renewal.
async fn lease(
    client: &Client,
    options: &GeneratorOptions,
    session: &str,
    limit: Option<Duration>,
    renews: bool,
) -> Result<Grant, Error> {
    let (from, length) = ((options.clock)().to_string(), options.lease.as_millis().to_string());
    let worker = options.fixed.map(|w| w.to_string());
    let mut args = vec!["WORKER", "LEASE", session, &from, &length];
    if let Some(worker) = &worker {
        args.extend(["FIXED", worker]);
    }
    let mut command = Vec::new();
    resp::command(&mut command, &args);
    let read = |bytes: &[u8]| match resp::value(bytes)? {
        Some((Ok(v), used)) => Ok(Some((Ok(Grant::read(&v)?), used))),
        Some((Err(e), used)) => Ok(Some((Err(e), used))),
        None => Ok(None),
    };
    let is_final = |e: &Error| match e.code() {
        Code::NoWorker => renews && options.fixed.is_none(),
        Code::WrongCluster => false,
        _ => !e.is_transient(),
    };
    let grant = client.core.ask_leader(limit, client.core.options.dial_timeout, &command, read, is_final).await?;
    Ok(Grant { session: session.into(), ..grant })
}

impl Client {
    /// Leases a worker and returns a generator of its IDs.
    pub async fn generator(&self, options: GeneratorOptions) -> Result<Generator, Error> {
        if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&options.lease) {
            return Err(Error::invalid(format!("a lease of {:?}: want 100 ms to 1 h", options.lease)));
        }
        let session = new_session();
        let grant = lease(self, &options, &session, self.timeout, false).await?;
        let source = grant.source(options.ahead_max);
        let state = State { source, grant, session, why: None, is_behind: false, closed: false };
        let shared = Arc::new(Shared {
            client: self.clone(),
            options,
            state: Mutex::new(state),
            changed: Notify::new(),
            behind: Notify::new(),
        });
        let keeper = self.core.handle.spawn(shared.clone().keep());
        Ok(Generator { shared, keeper: Arc::new(Keeper(Mutex::new(Some(keeper)))), timeout: self.timeout })
    }
}

impl Generator {
    /// This generator with another timeout of [`id`](Self::id) and [`ids`](Self::ids); at first it is the client's.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self.clone() }
    }

    /// The next ID. It waits while the layout allows no more, and while there is no lease that lasts, at most for the
    /// timeout.
    pub async fn id(&self) -> Result<Id, Error> {
        Ok(self.ids(1).await?[0])
    }

    /// Consecutive IDs: the sequence counts up, and on into the next millisecond. It waits as [`id`](Self::id) does.
    pub async fn ids(&self, count: usize) -> Result<Vec<Id>, Error> {
        if let Ok(ids) = self.shared.take(count) {
            return Ok(ids);
        }
        let core = &self.shared.client.core;
        let ids = core.limit(self.timeout, || None, self.shared.wait(count)).await;
        ids.map_err(|e| match &self.shared.state.lock().why {
            Some(why) if e.code() == Code::DeadlineExceeded => {
                Error::new(e.code(), format!("{}; the worker's lease: {why}", e.message()))
            }
            _ => e,
        })
    }

    /// The next ID, without waiting.
    pub fn try_id(&self) -> Result<Id, Error> {
        Ok(self.try_ids(1)?[0])
    }

    /// Consecutive IDs without waiting, or none is used up.
    pub fn try_ids(&self, count: usize) -> Result<Vec<Id>, Error> {
        self.shared.take(count).map_err(|refusal| self.shared.error(refusal))
    }

    /// The current worker. It changes only after a lease was lost or revoked, or the clock went back.
    pub fn worker(&self) -> u32 {
        self.shared.state.lock().grant.worker
    }

    /// The layout of the IDs, which is the cluster's.
    pub fn layout(&self) -> Layout {
        self.shared.state.lock().grant.layout
    }

    /// The unix milliseconds that IDs may have now, from the first up to, and without, the second.
    pub fn lease(&self) -> (i64, i64) {
        self.shared.state.lock().source.lease().unwrap_or_default()
    }

    /// Ends the generator, and returns the rest of its lease to the cluster. If the leader is not reached within a
    /// second, the lease expires later, as it does if the generator is dropped.
    pub async fn close(&self) -> Result<(), Error> {
        let Some(keeper) = self.keeper.0.lock().take() else { return Ok(()) };
        keeper.abort();
        let _ = keeper.await;
        let (grant, next) = {
            let mut s = self.shared.state.lock();
            s.closed = true;
            (s.grant.clone(), s.source.stop())
        };
        self.shared.changed.notify_waiters();
        release(&self.shared.client, &grant, next).await
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(keeper) = self.0.lock().take() {
            keeper.abort();
        }
    }
}

/// Returns the rest of a lease, from a millisecond on.
async fn release(client: &Client, grant: &Grant, next: i64) -> Result<(), Error> {
    let (worker, start, next) = (grant.worker.to_string(), grant.start.to_string(), next.to_string());
    let mut command = Vec::new();
    resp::command(&mut command, &["WORKER", "RELEASE", &grant.session, &worker, &start, &next]);
    let limit = Duration::from_secs(1);
    client.core.ask_leader(Some(limit), limit, &command, resp::value, |e| !e.is_transient()).await.map(drop)
}

impl Shared {
    fn take(&self, count: usize) -> Result<Vec<Id>, Refusal> {
        let mut s = self.state.lock();
        let got = match count {
            0 => Ok(Vec::new()),
            n => s.source.take((self.options.clock)(), n as u64),
        };
        if got.as_ref().is_err_and(|r| self.is_behind(*r)) {
            s.is_behind = true;
            self.behind.notify_one();
        }
        got
    }

    /// Whether the clock is behind the IDs of the lease, or behind its beginning. That may last for long, so another
    /// worker is leased. A fixed worker waits for its clock.
    fn is_behind(&self, refusal: Refusal) -> bool {
        self.options.fixed.is_none() && matches!(refusal, Refusal::ClockBehind | Refusal::LeaseNotBegun)
    }

    fn error(&self, refusal: Refusal) -> Error {
        if self.state.lock().closed { Error::new(Code::Closed, "the generator is closed") } else { refusal.into() }
    }

    async fn wait(&self, count: usize) -> Result<Vec<Id>, Error> {
        loop {
            let changed = self.changed.notified();
            let refusal = match self.take(count) {
                Ok(ids) => return Ok(ids),
                Err(refusal) => refusal,
            };
            if self.state.lock().closed {
                return Err(self.error(refusal));
            } else if self.client.core.is_closed() {
                return Err(Error::closed());
            }
            let pause = match refusal {
                Refusal::LeaseEnded => Duration::from_millis(100), // or until it is renewed
                _ if self.is_behind(refusal) => Duration::from_millis(10),
                Refusal::Exhausted | Refusal::LeaseNotBegun => {
                    let delay = self.state.lock().source.delay((self.options.clock)(), count as u64);
                    sleep(delay).await;
                    continue;
                }
                _ => return Err(refusal.into()),
            };
            let _ = timeout(pause, changed).await;
        }
    }

    /// Renews the lease after each third of its length, or soon after a failure. If the clock went back it requests
    /// another one in another session: in its own it would get the same.
    async fn keep(self: Arc<Self>) {
        let third = self.options.lease / 3;
        let mut next = Instant::now() + third;
        let mut gave_up: Option<Instant> = None;
        loop {
            if timeout_at(next, self.behind.notified()).await.is_ok() {
                let mut s = self.state.lock();
                let is_new = s.session != s.grant.session; // it is being requested
                let recent = gave_up.is_some_and(|at| at.elapsed() < third.min(Duration::from_secs(1)));
                if !std::mem::take(&mut s.is_behind) || is_new || recent {
                    continue;
                }
                s.session = new_session();
                gave_up = Some(Instant::now());
            }
            let outcome = self.renew(third).await;
            next = Instant::now()
                + match &outcome {
                    Ok(()) => third,
                    Err(e) if e.code() == Code::Closed => return,
                    Err(e) if e.is_transient() || e.code() == Code::DeadlineExceeded => {
                        third.min(Duration::from_millis(100))
                    }
                    Err(_) => third.min(Duration::from_secs(1)),
                };
            self.state.lock().why = outcome.err();
        }
    }

    async fn renew(self: &Arc<Self>, limit: Duration) -> Result<(), Error> {
        let session = self.state.lock().session.clone();
        match lease(&self.client, &self.options, &session, Some(limit), true).await {
            Ok(grant) => self.follow(grant),
            Err(e) => {
                if e.code() == Code::NoWorker && self.options.fixed.is_none() {
                    // The lease was revoked, or has ended and no worker is free: the session gets nothing else.
                    self.state.lock().session = new_session();
                }
                return Err(e);
            }
        }
        Ok(())
    }

    /// Switches to a grant. One of the same worker that begins no later than the known one ends extends that: had
    /// there been another holder in between, it would begin later. What is left of a former lease is returned.
    fn follow(self: &Arc<Self>, grant: Grant) {
        let mut s = self.state.lock();
        if s.grant.worker == grant.worker && s.grant.layout == grant.layout && grant.start <= s.grant.end {
            s.source.extend(grant.end);
            s.grant = grant;
        } else {
            let next = s.source.stop();
            s.source = grant.source(self.options.ahead_max);
            let former = std::mem::replace(&mut s.grant, grant);
            if former.session != s.grant.session {
                let shared = self.clone();
                self.client.core.spawn(async move { drop(release(&shared.client, &former, next).await) });
            }
        }
        s.is_behind = false;
        drop(s);
        self.changed.notify_waiters();
    }
}
