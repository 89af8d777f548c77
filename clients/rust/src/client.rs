use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::{
    ClusterId, Code, Error, Id, Options, Range, ReadMode, Timestamp, Timestamp64,
    lane::Call,
    resp::{self, Answer, Form, Kind},
    state::Core,
};

/// A client of a cluster. Clones share the connection; one for each process is enough.
///
/// A call returns when it is answered, when its timeout is over, or at once with an error that a repetition cannot
/// change; see [`Code`](crate::Code). To cancel a call, drop its future.
///
/// The methods [`within`](Self::within), [`in_mode`](Self::in_mode) and [`above`](Self::above) return a handle of the
/// same client with another setting:
///
/// ```no_run
/// # async fn example(client: isotone::Client) -> Result<(), isotone::Error> {
/// use isotone::ReadMode;
/// use std::time::Duration;
///
/// let ts = client.in_mode(ReadMode::Lease).within(Duration::from_millis(100)).timestamp().await?;
/// # drop(ts); Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    pub(crate) core: Arc<Core>,
    _handles: Arc<Handles>,
    mode: ReadMode,
    pub(crate) timeout: Option<Duration>,
    above: Option<Timestamp>,
}

/// Closes the client when the last handle is dropped.
struct Handles(Arc<Core>);

impl Drop for Handles {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Client {
    /// Connects to the cluster of the nodes at `addrs`, `host:port`, with [`Options`] as they are by default.
    pub async fn connect<A: Into<String>>(addrs: impl IntoIterator<Item = A>) -> Result<Self, Error> {
        Options::new(addrs).connect().await
    }

    pub(crate) fn begin(options: Options) -> Self {
        let (mode, timeout) = (options.mode, options.timeout);
        let core = Core::new(options);
        let ends = Handles(core.clone()); // the client ends with its runtime
        core.spawn(async move { ends.0.clone().watch_answers().await });
        core.step();
        Self { _handles: Arc::new(Handles(core.clone())), core, mode, timeout, above: None }
    }

    pub(crate) async fn ready(&self) -> Result<(), Error> {
        let mut ready = self.core.ready.subscribe();
        let outcome = async {
            match ready.wait_for(Option::is_some).await {
                Ok(outcome) => outcome.clone().unwrap_or(Ok(())),
                Err(_) => Err(Error::closed()),
            }
        };
        self.core.limit(self.timeout, || None, outcome).await
    }

    /// This client with another timeout of calls. It counts from the beginning of each call, over all attempts.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self.clone() }
    }

    /// This client with another read mode.
    #[must_use]
    pub fn in_mode(&self, mode: ReadMode) -> Self {
        Self { mode, ..self.clone() }
    }

    /// This client with timestamps that are larger than `floor`, which another process may have received. Each call is
    /// a request of its own, and fails with [`Code::Regressed`](crate::Code) if the cluster would undercut the floor.
    #[must_use]
    pub fn above(&self, floor: Timestamp) -> Self {
        Self { above: Some(floor), ..self.clone() }
    }

    /// A timestamp that is larger than all that any client had received when the call began.
    pub async fn timestamp(&self) -> Result<Timestamp, Error> {
        Ok(self.call(Form::Stamp, 1).await?.stamp())
    }

    /// Consecutive timestamps, 1 to 2³².
    pub async fn timestamps(&self, count: u64) -> Result<Range<Timestamp>, Error> {
        Ok(Range { first: self.call(Form::Stamp, count).await?.stamp(), count })
    }

    /// A timestamp of 64 bits.
    pub async fn timestamp64(&self) -> Result<Timestamp64, Error> {
        Ok(self.call(Form::Stamp64, 1).await?.stamp64())
    }

    /// Consecutive timestamps of 64 bits, 1 to 262,144.
    pub async fn timestamps64(&self, count: u64) -> Result<Range<Timestamp64>, Error> {
        Ok(Range { first: self.call(Form::Stamp64, count).await?.stamp64(), count })
    }

    /// An ID from any member.
    pub async fn id(&self) -> Result<Id, Error> {
        Ok(Id(self.call(Form::Id, 1).await?.ids()[0]))
    }

    /// IDs, 1 to 65,536, perhaps from several members.
    pub async fn ids(&self, count: usize) -> Result<Vec<Id>, Error> {
        if !(1..=1 << 16).contains(&count) {
            return Err(Error::invalid(format!("{count} IDs: want 1 to 65536")));
        }
        let began = Instant::now();
        let mut ids = Vec::new();
        while ids.len() < count {
            let left = self.timeout.map(|limit| limit.saturating_sub(began.elapsed()));
            let part = (count - ids.len()).min(1 << 12) as u64;
            let more = Self { timeout: left, ..self.clone() }.call(Form::Id, part).await?.ids();
            ids.extend(more.into_iter().map(Id));
        }
        Ok(ids)
    }

    async fn call(&self, form: Form, count: u64) -> Result<Answer, Error> {
        let mode = if form == Form::Id { ReadMode::Default } else { self.mode };
        let kind = Kind { form, mode };
        if !(1..=kind.count_max()).contains(&count) {
            return Err(Error::invalid(format!("{count} timestamps: want 1 to {}", kind.count_max())));
        }
        match self.above {
            Some(floor) if form != Form::Id && floor != Timestamp::default() => {
                // In a box, as futures of all calls would have its size.
                return Box::pin(self.call_above(kind, count, floor)).await;
            }
            _ => {}
        }
        let core = &*self.core;
        if form == Form::Id && !core.wants_ids.swap(true, SeqCst) {
            self.core.step();
        }
        let lane = core.lane(form);
        let (batch, at) = core.limit(self.timeout, || lane.quota(), Call::new(core, lane, kind, count)).await?;
        match batch.outcome() {
            Some(Ok(answer)) => Ok(answer.share(at, count)),
            _ => Err(Error::closed()),
        }
    }

    /// A request that no other call shares, on a connection of its own: the leader may hold it for 10 s, until its clock
    /// has passed the floor.
    async fn call_above(&self, kind: Kind, count: u64, above: Timestamp) -> Result<Answer, Error> {
        let core = &*self.core;
        let _place = Place::take(core)?;
        let floor = core.floor();
        let mut command = Vec::new();
        resp::request(&mut command, kind, count, Some(floor.max(above)));
        let read = |bytes: &[u8]| resp::answer(bytes, kind, count);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + Duration::from_millis(100);
        let is_ahead = u128::from(above.time) > now.as_nanos().max(u128::from(floor.time));
        let patience = core.options.dial_timeout + Duration::from_secs(if is_ahead { 10 } else { 0 });
        let answer = core.ask_leader(self.timeout, patience, &command, read, |e| !e.is_transient()).await?;
        core.raise("the leader", floor, answer.place(0), answer.place(count - 1))?;
        if answer.place(0) > above {
            return Ok(answer);
        }
        let text = format!("the leader issued timestamp {}, not above the floor {above}", answer.place(0));
        Err(Error::new(Code::Regressed, text))
    }

    /// The cluster that the client is pinned to: that of the options, or of the first node that reported one.
    pub fn cluster(&self) -> Option<ClusterId> {
        Some(ClusterId(self.core.pin(0))).filter(|id| id.0 != 0)
    }

    /// Ends the client: calls fail with [`Code::Closed`](crate::Code), waiting and later ones, and all connections are
    /// closed. The same happens when the last handle is dropped.
    pub async fn close(&self) {
        if let Some(mut tasks) = self.core.close() {
            while tasks.join_next().await.is_some() {}
        }
    }
}

/// A place among the calls that have requests of their own; more would wait for long.
struct Place<'a>(&'a Core);

impl<'a> Place<'a> {
    fn take(core: &'a Core) -> Result<Self, Error> {
        let place = Self(core);
        if core.single.fetch_add(1, SeqCst) < core.options.queue_max.min(1024) {
            return Ok(place);
        }
        Err(Error::new(Code::Overloaded, format!("too many calls with floors are waiting{}", core.troubles.text())))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.single.fetch_sub(1, SeqCst);
    }
}
