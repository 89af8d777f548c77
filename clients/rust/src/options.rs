use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use crate::{Client, Error, Timestamp, resp};

/// What a leader must check before it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// The node's setting decides.
    #[default]
    Default,
    /// A quorum has confirmed the leader since the request arrived. This does not depend on clocks.
    Quorum,
    /// The leader has a lease by its own clock. This saves a round trip between nodes.
    Lease,
}

/// The identity of a cluster, in text 16 hexadecimal digits. Timestamps of different clusters have no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterId(pub(crate) u64);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for ClusterId {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self, Error> {
        let id = resp::cluster_id(s).map(Self);
        id.ok_or_else(|| Error::invalid(format!("cluster ID {s:.40?}: want 16 hexadecimal digits, not all 0")))
    }
}

/// A name, and the secret that nodes know it by. It is printed without the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// 1 to 64 letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// 1 to 256 bytes.
    pub secret: String,
}

impl Credentials {
    /// A name and its secret.
    pub fn new(name: impl Into<String>, secret: impl Into<String>) -> Self {
        Self { name: name.into(), secret: secret.into() }
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        let in_name = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        if !(1..=64).contains(&self.name.len()) || !self.name.bytes().all(in_name) {
            return Err(Error::invalid("credentials: want a name of 1 to 64 letters, digits, '.', '_' and '-'"));
        }
        if !(1..=256).contains(&self.secret.len()) {
            return Err(Error::invalid(format!("credentials of {:?}: want a secret of 1 to 256 bytes", self.name)));
        }
        Ok(())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (secret not shown)", self.name)
    }
}

/// What happens in a client, for logs, metrics and traces.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A request was answered, which `calls` calls share.
    Answered {
        /// The node.
        addr: &'a str,
        /// The calls.
        calls: u32,
        /// How many timestamps or IDs they got.
        count: u64,
        /// From sending the request to the answer.
        took: Duration,
    },
    /// A request has to be sent again: the connection ended, or the node refused.
    Retried {
        /// The node.
        addr: &'a str,
        /// Why.
        reason: &'a str,
    },
    /// There is a connection to a new leader. It has answered nothing yet.
    Leader {
        /// The node.
        addr: &'a str,
    },
    /// An answer was not used: the node belongs to another cluster ([`Code::WrongCluster`](crate::Code)), or it issued
    /// a timestamp out of order ([`Code::Internal`](crate::Code)). Alert on the second: the cluster has broken its
    /// guarantees.
    Rejected {
        /// The node.
        addr: &'a str,
        /// Why.
        error: &'a Error,
    },
}

type Source = Arc<dyn Fn() -> Credentials + Send + Sync>;
type Observer = Arc<dyn Fn(&Event<'_>) + Send + Sync>;

/// How a [`Client`] is made. Only the addresses are required.
///
/// ```no_run
/// # async fn example() -> Result<(), isotone::Error> {
/// use isotone::{Event, Options, ReadMode};
/// use std::time::Duration;
///
/// let client = Options::new(["10.0.0.1:8080", "10.0.0.2:8080"])
///     .timeout(Duration::from_millis(500))
///     .mode(ReadMode::Lease)
///     .on_event(|event| if let Event::Rejected { addr, error } = event { eprintln!("{addr}: {error}") })
///     .connect()
///     .await?;
/// # drop(client); Ok(()) }
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) addrs: Vec<String>,
    pub(crate) cluster: Option<ClusterId>,
    pub(crate) floor: Timestamp,
    pub(crate) mode: ReadMode,
    pub(crate) timeout: Option<Duration>,
    pub(crate) connections: usize,
    pub(crate) queue_max: usize,
    pub(crate) dial_timeout: Duration,
    pub(crate) credentials: Option<Source>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::Tls>,
    pub(crate) observer: Option<Observer>,
}

impl Options {
    /// Options of a client of the nodes at `addrs`, `host:port`: 1 to 64, of which one that is reachable is enough.
    pub fn new<A: Into<String>>(addrs: impl IntoIterator<Item = A>) -> Self {
        Self {
            addrs: addrs.into_iter().map(Into::into).collect(),
            cluster: None,
            floor: Timestamp::default(),
            mode: ReadMode::Default,
            timeout: None,
            connections: 1,
            queue_max: 1 << 16,
            dial_timeout: Duration::from_secs(1),
            credentials: None,
            #[cfg(feature = "tls")]
            tls: None,
            observer: None,
        }
    }

    /// The only cluster whose answers are used. By default it is that of the first node that reports one.
    #[must_use]
    pub fn cluster(mut self, id: ClusterId) -> Self {
        self.cluster = Some(id);
        self
    }

    /// The largest timestamp that the program knows, for instance from its store: all later ones are larger.
    #[must_use]
    pub fn floor(mut self, floor: Timestamp) -> Self {
        self.floor = floor;
        self
    }

    /// The read mode of calls.
    #[must_use]
    pub fn mode(mut self, mode: ReadMode) -> Self {
        self.mode = mode;
        self
    }

    /// How long [`connect`](Self::connect) and each call may take; without it, for ever.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How many connections to the leader there are, and so requests for timestamps under way at once: 1 by default,
    /// 64 at most. Fewer requests with more calls each cost less.
    #[must_use]
    pub fn connections(mut self, number: usize) -> Self {
        self.connections = number;
        self
    }

    /// How many calls may wait to be sent, 65,536 by default: for timestamps, and for IDs.
    #[must_use]
    pub fn queue_max(mut self, calls: usize) -> Self {
        self.queue_max = calls;
        self
    }

    /// How long opening a connection may take, 1 s by default.
    #[must_use]
    pub fn dial_timeout(mut self, timeout: Duration) -> Self {
        self.dial_timeout = timeout;
        self
    }

    /// Proves who the client is. `source` is asked for each new connection, so the secret can change while the client
    /// runs. Without TLS, a secret is sent to loopback addresses only.
    #[must_use]
    pub fn credentials(mut self, source: impl Fn() -> Credentials + Send + Sync + 'static) -> Self {
        self.credentials = Some(Arc::new(source));
        self
    }

    /// Speaks TLS, and nothing else.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: crate::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Calls `observer` on each event. It must return quickly, and not call the client. If it panics, the client goes on.
    #[must_use]
    pub fn on_event(mut self, observer: impl Fn(&Event<'_>) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Makes the client, and waits until a leader is connected or the nodes refuse the client.
    ///
    /// # Panics
    ///
    /// Outside a runtime of tokio. The client lives in the one in which it is made.
    pub async fn connect(self) -> Result<Client, Error> {
        let client = self.lazy()?;
        client.ready().await?;
        Ok(client)
    }

    /// Makes the client without waiting. It connects in the background.
    ///
    /// # Panics
    ///
    /// Outside a runtime of tokio, as [`connect`](Self::connect).
    pub fn lazy(self) -> Result<Client, Error> {
        self.validate()?;
        Ok(Client::begin(self))
    }

    fn validate(&self) -> Result<(), Error> {
        if !(1..=resp::MEMBERS_MAX).contains(&self.addrs.len()) {
            return Err(Error::invalid("want 1 to 64 addresses"));
        }
        if let Some(addr) = self.addrs.iter().find(|addr| !resp::valid_addr(addr)) {
            return Err(Error::invalid(format!("address {addr:.100?}: want host:port")));
        }
        if !(1..=64).contains(&self.connections) {
            return Err(Error::invalid(format!("{} connections: want 1 to 64", self.connections)));
        }
        if !(1..=1 << 22).contains(&self.queue_max) || self.dial_timeout.is_zero() {
            return Err(Error::invalid("want a queue of 1 to 4194304 calls, and time to dial"));
        }
        Ok(())
    }

    pub(crate) fn emit(&self, event: &Event<'_>) {
        if let Some(observer) = &self.observer {
            let _ = catch_unwind(AssertUnwindSafe(|| observer(event))); // it would end a task that all calls need
        }
    }
}
