//! What all parts of a client share.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::Poll,
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    task::{AbortHandle, JoinSet},
    time::timeout,
};

use crate::{Code, Error, Event, Options, Timestamp, lane::Lane, resp::Form, router::Router};

/// A mutex whose holders do not panic.
#[derive(Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The latest failures of nodes, for the errors of calls: of 8 nodes at most.
#[derive(Default)]
pub(crate) struct Troubles(Mutex<Vec<(String, String, u32)>>);

impl Troubles {
    pub(crate) fn note(&self, addr: &str, what: String) {
        let mut list = self.0.lock();
        let times = match list.iter().position(|(a, ..)| a == addr) {
            Some(at) => list.remove(at).2,
            None => 0,
        };
        if list.len() == 8 {
            list.remove(0);
        }
        list.push((addr.into(), what, times + 1));
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// What to append to a message.
    pub(crate) fn text(&self) -> String {
        let one = |(addr, what, times): &(String, String, u32)| match times {
            1 => format!("; {addr}: {what}"),
            n => format!("; {addr}: {what} ({n} times)"),
        };
        self.0.lock().iter().map(one).collect()
    }

    fn has(&self, addr: &str) -> bool {
        self.0.lock().iter().any(|(failed, ..)| failed == addr)
    }
}

/// Locks are taken in this order: router, those of lanes, those of connections.
pub(crate) struct Core {
    pub(crate) options: Options,
    pub(crate) stamps: Lane,
    pub(crate) ids: Lane,
    pub(crate) router: Mutex<Router>,
    pub(crate) floor: Mutex<Timestamp>,
    pin: AtomicU64,
    /// Whether there was a leader, or why there can be none.
    pub(crate) ready: watch::Sender<Option<Result<(), Error>>>,
    /// Wakes tasks that wait for a pause: it may be over.
    pub(crate) changed: Notify,
    /// Wakes the watch over late answers.
    pub(crate) busy: Notify,
    pub(crate) watched: AtomicBool,
    /// Tell the router of the next success.
    pub(crate) suspected: AtomicBool,
    pub(crate) wants_ids: AtomicBool,
    /// Calls that have a request of their own.
    pub(crate) single: AtomicUsize,
    /// Since the latest success.
    pub(crate) troubles: Troubles,
    pub(crate) handle: Handle,
    tasks: Mutex<Option<JoinSet<()>>>,
}

impl Core {
    pub(crate) fn new(options: Options) -> Arc<Self> {
        Arc::new(Self {
            stamps: Lane::new(options.queue_max),
            ids: Lane::new(options.queue_max),
            router: Mutex::new(Router::new(&options.addrs)),
            floor: Mutex::new(options.floor),
            pin: AtomicU64::new(options.cluster.map_or(0, |id| id.0)),
            ready: watch::Sender::new(None),
            changed: Notify::new(),
            busy: Notify::new(),
            watched: AtomicBool::new(false),
            suspected: AtomicBool::new(true),
            wants_ids: AtomicBool::new(false),
            single: AtomicUsize::new(0),
            troubles: Troubles::default(),
            handle: Handle::current(),
            tasks: Mutex::new(Some(JoinSet::new())),
            options,
        })
    }

    pub(crate) fn lane(&self, form: Form) -> &Lane {
        if form == Form::Id { &self.ids } else { &self.stamps }
    }

    pub(crate) fn floor(&self) -> Timestamp {
        *self.floor.lock()
    }

    /// Pins the cluster, if none is, and returns the pinned one; 0 for none.
    pub(crate) fn pin(&self, id: u64) -> u64 {
        self.pin.compare_exchange(0, id, SeqCst, SeqCst).map_or_else(|pinned| pinned, |_| id)
    }

    /// Runs a task until the client is closed; `None` if it is.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Option<AbortHandle> {
        let mut tasks = self.tasks.lock();
        let tasks = tasks.as_mut()?;
        while tasks.try_join_next().is_some() {}
        Some(tasks.spawn_on(task, &self.handle))
    }

    /// Fails all calls, closes all connections, and returns the tasks that end.
    pub(crate) fn close(&self) -> Option<JoinSet<()>> {
        let mut tasks = self.tasks.lock().take();
        if let Some(tasks) = &mut tasks {
            tasks.abort_all();
        }
        self.stamps.close();
        self.ids.close();
        self.ready.send_replace(Some(Err(Error::closed())));
        tasks
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.tasks.lock().is_none()
    }

    /// Runs a call that no lane ends, until the client is closed.
    pub(crate) async fn until_closed<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let mut call = pin!(call);
        let mut ready = self.ready.subscribe();
        let mut closed = pin!(ready.wait_for(|r| matches!(r, Some(Err(e)) if e.code() == Code::Closed)));
        poll_fn(|cx| match closed.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(Err(Error::closed())),
            Poll::Pending => call.as_mut().poll(cx),
        })
        .await
    }

    /// Ends a call at its deadline.
    pub(crate) async fn limit<T>(
        &self,
        limit: Option<Duration>,
        quota: impl FnOnce() -> Option<Error>,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let Some(limit) = limit else { return call.await };
        timeout(limit, call).await.unwrap_or_else(|_| Err(self.overdue(quota())))
    }

    /// Has late answers watched.
    pub(crate) fn watch(&self) {
        if !self.watched.load(Relaxed) && !self.watched.swap(true, SeqCst) {
            self.busy.notify_one();
        }
    }

    pub(crate) fn retried(&self, addr: &str, reason: &str) {
        if !self.is_closed() {
            self.troubles.note(addr, reason.into());
            self.options.emit(&Event::Retried { addr, reason });
        }
    }

    /// The nodes that are silent without having failed, to append to a message.
    fn silent(&self) -> String {
        let unanswered = self.router.lock().unanswered();
        let silent = unanswered.iter().filter(|addr| !self.troubles.has(addr));
        let one = |addr: &String| format!("; {addr}: it has not answered yet");
        silent.map(one).collect()
    }

    /// The error of a call whose deadline has come.
    pub(crate) fn overdue(&self, quota: Option<Error>) -> Error {
        if let Some(quota) = quota {
            return Error::new(quota.code(), format!("no answer in time: {}", quota.message()));
        }
        if let Some(foreign) = self.router.lock().foreign() {
            return Error::new(Code::WrongCluster, format!("no other node answers in time: {}", foreign.message()));
        }
        Error::new(Code::DeadlineExceeded, format!("no answer in time{}{}", self.troubles.text(), self.silent()))
    }
}
