//! Calls gather in batches; a batch is one request.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::{
    Code, Error,
    link::Link,
    pause::Estimate,
    resp::{Answer, Kind},
    state::{Core, Mutex},
};

/// A request, and the calls that it answers. Calls join it until it is sent, and each takes the next numbers of the
/// answer. So every call gets numbers that were requested after it began, even if the request is sent again.
pub(crate) struct Batch {
    pub(crate) kind: Kind,
    calls: Mutex<Calls>,
    outcome: OnceLock<Result<Answer, Error>>,
}

#[derive(Default)]
struct Calls {
    number: u32,
    count: u64,
    /// Whether it waits to be sent.
    queued: bool,
    wakers: Vec<Option<Waker>>,
    /// Places of calls that have left: index, first number, count.
    vacant: Vec<(usize, u64, u64)>,
}

impl Batch {
    fn new(kind: Kind) -> Self {
        let calls = Calls { queued: true, ..Calls::default() };
        Self { kind, calls: Mutex::new(calls), outcome: OnceLock::new() }
    }

    /// Takes `count` numbers, if there is room, and returns the index of the call and its first number.
    fn join(&self, count: u64, waker: &Waker) -> Option<(usize, u64)> {
        let mut c = self.calls.lock();
        if let Some((slot, at, n)) = c.vacant.pop() {
            if n == count {
                c.wakers[slot] = Some(waker.clone());
                c.number += 1;
                return Some((slot, at));
            }
            c.vacant.push((slot, at, n));
        }
        if c.count + count > self.kind.count_max() {
            return None;
        }
        let at = c.count;
        c.count += count;
        c.number += 1;
        c.wakers.push(Some(waker.clone()));
        Some((c.wakers.len() - 1, at))
    }

    /// The number of calls and of what they want.
    pub(crate) fn size(&self) -> (u32, u64) {
        let c = self.calls.lock();
        (c.number, c.count)
    }

    /// Has a call woken by another waker than before, unless there is an answer.
    fn wait(&self, slot: usize, waker: &Waker) {
        if self.outcome.get().is_none()
            && let Some(old) = self.calls.lock().wakers.get_mut(slot)
        {
            match old {
                Some(old) => old.clone_from(waker),
                None => *old = Some(waker.clone()),
            }
        }
    }

    pub(crate) fn outcome(&self) -> Option<&Result<Answer, Error>> {
        self.outcome.get()
    }

    /// Answers the calls, and wakes all but the one that runs.
    pub(crate) fn finish(&self, outcome: Result<Answer, Error>, running: Option<&Waker>) {
        if self.outcome.set(outcome).is_err() {
            return;
        }
        let wakers = std::mem::take(&mut self.calls.lock().wakers);
        for waker in wakers.into_iter().flatten() {
            if !running.is_some_and(|w| w.will_wake(&waker)) {
                waker.wake();
            }
        }
    }
}

/// Where calls wait, and the connections that answer them, each with at most one request under way: one lane is for
/// timestamps, one for IDs.
pub(crate) struct Lane {
    state: Mutex<State>,
    queue_max: usize,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arc<Batch>>,
    /// The batches in the queue that calls may join, one for each kind.
    open: [Option<Arc<Batch>>; Kind::COUNT],
    waiting: usize,
    links: Vec<Arc<Link>>,
    free: VecDeque<Arc<Link>>,
    /// The latest connection whose answer a call itself reads.
    lone: Option<Arc<Link>>,
    /// How many quotas forbid to send.
    held: u32,
    quota: Option<Error>,
    refused: Option<Error>,
    closed: bool,
    sent: u64,
    rtt: Estimate,
}

impl State {
    /// Takes a free connection and a batch with calls, or neither.
    fn take(&mut self) -> Option<(Arc<Link>, Arc<Batch>)> {
        if self.held > 0 || self.free.is_empty() {
            return None;
        }
        while let Some(batch) = self.queue.pop_front() {
            let open = &mut self.open[batch.kind.place()];
            if open.as_ref().is_some_and(|b| Arc::ptr_eq(b, &batch)) {
                *open = None;
            }
            let calls = {
                let mut c = batch.calls.lock();
                c.queued = false;
                c.number
            };
            self.waiting -= calls as usize;
            if calls > 0 {
                self.sent += 1;
                return Some((self.free.pop_front()?, batch));
            }
        }
        None
    }

    /// The batch that a call joins, its index there and its first number.
    fn join(&mut self, kind: Kind, count: u64, waker: &Waker) -> (Arc<Batch>, usize, u64) {
        self.waiting += 1;
        if let Some(batch) = &self.open[kind.place()]
            && let Some((slot, at)) = batch.join(count, waker)
        {
            return (batch.clone(), slot, at);
        }
        let batch = Arc::new(Batch::new(kind));
        let (slot, at) = batch.join(count, waker).unwrap_or_default(); // counts are checked before
        self.open[kind.place()] = Some(batch.clone());
        self.queue.push_back(batch.clone());
        (batch, slot, at)
    }

    /// Takes all batches that wait.
    fn drain(&mut self) -> VecDeque<Arc<Batch>> {
        self.open = Default::default();
        self.waiting = 0;
        let queue = std::mem::take(&mut self.queue);
        for batch in &queue {
            batch.calls.lock().queued = false;
        }
        queue
    }
}

fn fail(batches: impl IntoIterator<Item = Arc<Batch>>, why: &Error) {
    batches.into_iter().for_each(|b| b.finish(Err(why.clone()), None));
}

impl Lane {
    pub(crate) fn new(queue_max: usize) -> Self {
        Self { state: Mutex::default(), queue_max }
    }

    /// Has a call take part in a batch, which is sent at once if a connection is free: then the call reads the answer
    /// itself. If others wait for the connection, the task of that reads it.
    fn join(&self, core: &Core, kind: Kind, count: u64, waker: &Waker) -> Result<Joined, Error> {
        let mut s = self.state.lock();
        match &s.refused {
            _ if s.closed => return Err(Error::closed()),
            Some(why) if s.links.is_empty() => return Err(why.clone()),
            _ if s.waiting >= self.queue_max => {
                return Err(Error::new(
                    Code::Overloaded,
                    format!("too many calls are waiting{}", core.troubles.text()),
                ));
            }
            _ => {}
        }
        let (batch, slot, at) = s.join(kind, count, waker);
        let taken = s.take();
        let busy = if let Some((link, _)) = &taken {
            s.lone = Some(link.clone());
            None
        } else {
            s.lone.take()
        };
        drop(s);
        if let Some(link) = busy {
            link.hand_over();
        }
        let lone = taken.map(|(link, batch)| {
            link.send(core, batch, true);
            link
        });
        core.watch();
        Ok(Joined { batch, slot, at, lone })
    }

    /// Sends what waits, on the connections that are free.
    pub(crate) fn dispatch(&self, core: &Core) {
        loop {
            let taken = self.state.lock().take();
            let Some((link, batch)) = taken else { return };
            link.send(core, batch, false);
        }
    }

    /// Queues a batch again that got no answer. That is safe: no call has seen what it may have got.
    pub(crate) fn requeue(&self, batch: Arc<Batch>) {
        let mut s = self.state.lock();
        if s.closed {
            drop(s);
            return fail([batch], &Error::closed());
        }
        let calls = {
            let mut c = batch.calls.lock();
            c.queued = true;
            c.number
        };
        s.waiting += calls as usize;
        s.queue.push_front(batch);
    }

    fn leave(&self, joined: &Joined, count: u64) {
        let mut s = self.state.lock();
        let mut c = joined.batch.calls.lock();
        if joined.batch.outcome().is_some() {
            return;
        }
        c.number -= 1;
        if let Some(waker) = c.wakers.get_mut(joined.slot) {
            *waker = None;
        }
        if !c.queued {
            return;
        }
        s.waiting -= 1;
        let is_open = s.open[joined.batch.kind.place()].as_ref().is_some_and(|b| Arc::ptr_eq(b, &joined.batch));
        if is_open && c.number == 0 {
            *c = Calls { queued: true, ..Calls::default() };
        } else if is_open {
            c.vacant.push((joined.slot, joined.at, count));
        }
    }

    /// Adds a connection. It is free once its task puts it there.
    pub(crate) fn attach(&self, link: Arc<Link>) {
        let mut s = self.state.lock();
        if !s.closed {
            s.links.push(link);
        }
    }

    /// Says that a connection is free.
    pub(crate) fn put(&self, link: &Arc<Link>) {
        let mut s = self.state.lock();
        if s.links.iter().any(|l| Arc::ptr_eq(l, link)) && !link.is_closed() {
            s.free.push_back(link.clone());
        }
    }

    pub(crate) fn remove(&self, link: &Arc<Link>) {
        let mut s = self.state.lock();
        s.links.retain(|l| !Arc::ptr_eq(l, link));
        s.free.retain(|l| !Arc::ptr_eq(l, link));
        s.lone.take_if(|l| Arc::ptr_eq(l, link));
    }

    /// Closes the connections to addresses that are not wanted.
    pub(crate) fn keep(&self, wanted: impl Fn(&str) -> bool) {
        for link in self.links() {
            if !wanted(&link.addr) {
                self.state.lock().free.retain(|l| !Arc::ptr_eq(l, &link));
                link.close();
            }
        }
    }

    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        self.state.lock().links.iter().filter(|l| !l.is_closed()).cloned().collect()
    }

    /// Fails the calls that wait, and later ones until there is a connection, or the reason is `None`.
    pub(crate) fn refuse(&self, why: Option<Error>) {
        let mut s = self.state.lock();
        s.refused.clone_from(&why);
        let failed = if why.is_some() { s.drain() } else { VecDeque::new() };
        drop(s);
        if let Some(why) = why {
            fail(failed, &why);
        }
    }

    /// Notes a refusal because of a quota, and sends nothing until it is released.
    pub(crate) fn hold(&self, quota: Error) {
        let mut s = self.state.lock();
        s.held += 1;
        s.quota = Some(quota);
    }

    pub(crate) fn release(&self) {
        self.state.lock().held -= 1;
    }

    pub(crate) fn succeeded(&self, took: Duration) {
        let mut s = self.state.lock();
        s.quota = None;
        s.rtt.add(took);
    }

    pub(crate) fn quota(&self) -> Option<Error> {
        self.state.lock().quota.clone()
    }

    /// How many requests were sent so far, and the answer timeout.
    pub(crate) fn activity(&self) -> (u64, Duration) {
        let s = self.state.lock();
        (s.sent, s.rtt.timeout())
    }

    /// Closes a silent connection, which may only have been slow.
    pub(crate) fn give_up(&self, link: &Link) {
        self.state.lock().rtt.double();
        link.close();
    }

    pub(crate) fn close(&self) {
        let mut s = self.state.lock();
        s.closed = true;
        let failed = s.drain();
        let links = std::mem::take(&mut s.links);
        s.free.clear();
        s.lone = None;
        drop(s);
        fail(failed, &Error::closed());
        for link in links {
            link.close();
            fail(link.retire(), &Error::closed());
        }
    }
}

struct Joined {
    batch: Arc<Batch>,
    slot: usize,
    at: u64,
    /// The connection whose answer the call reads itself.
    lone: Option<Arc<Link>>,
}

/// A call for numbers: resolves to the batch and the first of them.
pub(crate) struct Call<'a> {
    core: &'a Core,
    lane: &'a Lane,
    kind: Kind,
    count: u64,
    joined: Option<Joined>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(core: &'a Core, lane: &'a Lane, kind: Kind, count: u64) -> Self {
        Self { core, lane, kind, count, joined: None }
    }
}

impl Future for Call<'_> {
    type Output = Result<(Arc<Batch>, u64), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let is_new = this.joined.is_none();
        if is_new {
            this.joined = Some(this.lane.join(this.core, this.kind, this.count, cx.waker())?);
        }
        let Some(joined) = &mut this.joined else { return Poll::Pending };
        if let Some(link) = &joined.lone
            && !link.read_alone(this.core, cx)
        {
            joined.lone = None;
        }
        if !is_new {
            joined.batch.wait(joined.slot, cx.waker());
        }
        match joined.batch.outcome() {
            None => return Poll::Pending,
            Some(Err(e)) => {
                let e = e.clone();
                this.joined = None;
                return Poll::Ready(Err(e));
            }
            Some(Ok(_)) => {}
        }
        Poll::Ready(this.joined.take().map(|joined| (joined.batch, joined.at)).ok_or_else(Error::closed))
    }
}

/// A call whose caller no longer waits: others that share its request go on.
impl Drop for Call<'_> {
    fn drop(&mut self) {
        if let Some(joined) = self.joined.take() {
            self.lane.leave(&joined, self.count);
            if let Some(link) = joined.lone {
                link.hand_over();
            }
        }
    }
}
