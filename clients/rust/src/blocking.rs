//! The client for programs without a runtime: each call blocks its thread. A thread of the client's own does the rest.
//!
//! ```no_run
//! let client = isotone::blocking::Client::connect(["10.0.0.1:8080", "10.0.0.2:8080"])?;
//! let ts = client.timestamp()?;
//! # drop(ts);
//! # Ok::<_, isotone::Error>(())
//! ```
//!
//! Within a runtime of tokio these calls panic: use [`crate::Client`] there.

use std::{sync::Arc, thread, time::Duration};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use crate::{ClusterId, Error, GeneratorOptions, Id, Layout, Options, Range, ReadMode, Timestamp, Timestamp64};

/// The thread that reads and writes. It ends with the last handle.
struct Thread {
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    joined: Option<thread::JoinHandle<()>>,
}

impl Thread {
    fn start() -> Result<Self, Error> {
        let fault = |e: std::io::Error| Error::invalid(format!("no thread for the client: {e}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(fault)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || drop(runtime.block_on(ended));
        let thread = thread::Builder::new().name("isotone".into()).spawn(run).map_err(fault)?;
        Ok(Self { handle, end: Some(end), joined: Some(thread) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.joined.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// A client whose calls block; see [`crate::Client`].
#[derive(Clone)]
pub struct Client {
    inner: crate::Client,
    thread: Arc<Thread>,
}

impl Client {
    /// See [`crate::Client::connect`].
    pub fn connect<A: Into<String>>(addrs: impl IntoIterator<Item = A>) -> Result<Self, Error> {
        Self::with(Options::new(addrs))
    }

    /// A client with options; see [`Options::connect`].
    pub fn with(options: Options) -> Result<Self, Error> {
        let thread = Arc::new(Thread::start()?);
        let inner = thread.handle.block_on(options.connect())?;
        Ok(Self { inner, thread })
    }

    /// A client that connects in the background; see [`Options::lazy`].
    pub fn lazy(options: Options) -> Result<Self, Error> {
        let thread = Arc::new(Thread::start()?);
        let inner = thread.handle.block_on(async { options.lazy() })?;
        Ok(Self { inner, thread })
    }

    fn run<T>(&self, call: impl Future<Output = T>) -> T {
        self.thread.handle.block_on(call)
    }

    /// See [`crate::Client::within`].
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self { inner: self.inner.within(timeout), thread: self.thread.clone() }
    }

    /// See [`crate::Client::in_mode`].
    #[must_use]
    pub fn in_mode(&self, mode: ReadMode) -> Self {
        Self { inner: self.inner.in_mode(mode), thread: self.thread.clone() }
    }

    /// See [`crate::Client::above`].
    #[must_use]
    pub fn above(&self, floor: Timestamp) -> Self {
        Self { inner: self.inner.above(floor), thread: self.thread.clone() }
    }

    /// See [`crate::Client::timestamp`].
    pub fn timestamp(&self) -> Result<Timestamp, Error> {
        self.run(self.inner.timestamp())
    }

    /// See [`crate::Client::timestamps`].
    pub fn timestamps(&self, count: u64) -> Result<Range<Timestamp>, Error> {
        self.run(self.inner.timestamps(count))
    }

    /// See [`crate::Client::timestamp64`].
    pub fn timestamp64(&self) -> Result<Timestamp64, Error> {
        self.run(self.inner.timestamp64())
    }

    /// See [`crate::Client::timestamps64`].
    pub fn timestamps64(&self, count: u64) -> Result<Range<Timestamp64>, Error> {
        self.run(self.inner.timestamps64(count))
    }

    /// See [`crate::Client::id`].
    pub fn id(&self) -> Result<Id, Error> {
        self.run(self.inner.id())
    }

    /// See [`crate::Client::ids`].
    pub fn ids(&self, count: usize) -> Result<Vec<Id>, Error> {
        self.run(self.inner.ids(count))
    }

    /// See [`crate::Client::cluster`].
    pub fn cluster(&self) -> Option<ClusterId> {
        self.inner.cluster()
    }

    /// See [`crate::Client::generator`].
    pub fn generator(&self, options: GeneratorOptions) -> Result<Generator, Error> {
        Ok(Generator { inner: self.run(self.inner.generator(options))?, thread: self.thread.clone() })
    }

    /// See [`crate::Client::clock`].
    #[cfg(feature = "clock")]
    pub fn clock(&self) -> Result<Clock, Error> {
        Ok(Clock { inner: self.run(self.inner.clock())?, thread: self.thread.clone() })
    }

    /// See [`crate::Client::close`].
    pub fn close(&self) {
        self.run(self.inner.close());
    }
}

/// A generator whose calls block; see [`crate::Generator`].
#[derive(Clone)]
pub struct Generator {
    inner: crate::Generator,
    thread: Arc<Thread>,
}

impl Generator {
    /// See [`crate::Generator::id`].
    pub fn id(&self) -> Result<Id, Error> {
        Ok(self.ids(1)?[0])
    }

    /// See [`crate::Generator::ids`].
    pub fn ids(&self, count: usize) -> Result<Vec<Id>, Error> {
        self.inner.try_ids(count).or_else(|_| self.thread.handle.block_on(self.inner.ids(count)))
    }

    /// See [`crate::Generator::layout`].
    pub fn layout(&self) -> Layout {
        self.inner.layout()
    }

    /// See [`crate::Generator::close`].
    pub fn close(&self) -> Result<(), Error> {
        self.thread.handle.block_on(self.inner.close())
    }
}

/// A clock whose calls block; see [`crate::Clock`].
#[cfg(feature = "clock")]
#[derive(Clone)]
pub struct Clock {
    inner: crate::Clock,
    thread: Arc<Thread>,
}

#[cfg(feature = "clock")]
impl Clock {
    /// See [`crate::Clock::within`].
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self { inner: self.inner.within(timeout), thread: self.thread.clone() }
    }

    /// See [`crate::Clock::now`].
    pub fn now(&self) -> Result<crate::Interval, Error> {
        self.inner.now()
    }

    /// See [`crate::Clock::timestamp`].
    pub fn timestamp(&self) -> Result<Timestamp, Error> {
        self.thread.handle.block_on(self.inner.timestamp())
    }

    /// See [`crate::Clock::timestamps`].
    pub fn timestamps(&self, count: usize) -> Result<Vec<Timestamp>, Error> {
        self.thread.handle.block_on(self.inner.timestamps(count))
    }

    /// See [`crate::Clock::is_past`].
    pub fn is_past(&self, ts: Timestamp) -> bool {
        self.inner.is_past(ts)
    }

    /// See [`crate::Clock::wait`].
    pub fn wait(&self, ts: Timestamp) -> Result<(), Error> {
        self.thread.handle.block_on(self.inner.wait(ts))
    }

    /// See [`crate::Clock::close`].
    pub fn close(&self) {
        self.thread.handle.block_on(self.inner.close());
    }
}
