//! A connection that answers calls.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
    time::{Duration, Instant},
};

use crate::{
    Code, Error, Event, Timestamp,
    error::{Class, Fault},
    lane::{Batch, Lane},
    net::{Conn, Stream},
    pause::{Pause, quota_pause, random},
    resp::{self, Answer, Form, Malformed},
    state::{Core, Mutex},
};

/// A connection with at most one request under way. Its task reads the answers, except that of a lone call: that one
/// reads itself, so that no other task has to wake it, and leaves the connection to the task as soon as others wait.
pub(crate) struct Link {
    pub(crate) addr: String,
    io: Mutex<Io>,
    closed: AtomicBool,
    /// Whether it has answered a request.
    answered: AtomicBool,
    /// Refusals in a row.
    refusals: AtomicU32,
}

/// A request under way.
struct Sent {
    batch: Arc<Batch>,
    /// That of the client when it was sent.
    floor: Timestamp,
    at: Instant,
}

type Heard = Result<(Sent, Result<Answer, Error>), Fault>;

struct Io {
    stream: Option<Stream>,
    input: Vec<u8>,
    chunk: Box<[u8]>,
    out: Vec<u8>,
    sent: Option<Sent>,
    retired: bool,
    /// A call reads, not the task.
    alone: bool,
    /// What a call has read that the task has to handle.
    left: Option<Heard>,
    task: Waker,
}

impl Io {
    /// Reads the answer to the request under way. An answer that nothing asked for is a fault.
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Heard> {
        self.flush();
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Err(Fault::Broken("the connection was aborted".into())));
        };
        loop {
            if !self.input.is_empty() {
                let Some(sent) = &self.sent else { return Poll::Ready(Err(Malformed.into())) };
                let (_, count) = sent.batch.size();
                if let Some((answer, used)) = resp::answer(&self.input, sent.batch.kind, count)? {
                    if used < self.input.len() {
                        return Poll::Ready(Err(Malformed.into())); // it would answer the next request
                    }
                    self.input.clear();
                    return Poll::Ready(self.sent.take().ok_or(Malformed.into()).map(|sent| (sent, answer)));
                }
            }
            let n = ready!(stream.poll_read(cx, &mut self.chunk))?;
            self.input.extend_from_slice(&self.chunk[..n]);
        }
    }

    /// Writes what is left of a request. The task is woken when it can go on, and after an error, which ends the stream.
    fn flush(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        if let Poll::Ready(Err(_)) = stream.poll_flush(&mut Context::from_waker(&self.task), &mut self.out) {
            (self.stream, self.alone) = (None, false);
            self.task.wake_by_ref();
        }
    }

    /// Leaves reading to the task, and has the connection wake that.
    fn return_to_task(&mut self) {
        self.alone = false;
        let mut cx = Context::from_waker(&self.task);
        if self.left.is_some() || self.stream.as_ref().is_none_or(|s| s.watch(&mut cx).is_ready()) {
            self.task.wake_by_ref();
        }
    }
}

impl Link {
    pub(crate) fn new(addr: &str, conn: Conn) -> Arc<Self> {
        let io = Io {
            stream: Some(conn.stream),
            input: Vec::new(),
            chunk: vec![0; 16 << 10].into(),
            out: Vec::new(),
            sent: None,
            retired: false,
            alone: false,
            left: None,
            task: Waker::noop().clone(),
        };
        Arc::new(Self {
            addr: addr.into(),
            io: Mutex::new(io),
            closed: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
        })
    }

    /// Sends a request. The connection must have been taken from the free ones.
    pub(crate) fn send(&self, core: &Core, batch: Arc<Batch>, alone: bool) {
        let mut guard = self.io.lock();
        let io = &mut *guard;
        if io.retired {
            drop(guard);
            let lane = core.lane(batch.kind.form);
            lane.requeue(batch);
            return lane.dispatch(core);
        }
        let mut cx = Context::from_waker(&io.task);
        if let Some(stream) = &mut io.stream
            && !stream.is_quiet(&mut cx, &mut io.chunk)
        {
            io.stream = None; // an answer that nothing asked for, or the end
        }
        let floor = core.floor();
        let carries = !(batch.kind.form == Form::Id || self.answered.load(Relaxed) || floor == Timestamp::default());
        resp::request(&mut io.out, batch.kind, batch.size().1, carries.then_some(floor));
        io.sent = Some(Sent { batch, floor, at: Instant::now() });
        io.alone = alone && io.stream.is_some();
        io.flush();
        if io.stream.is_none() {
            io.task.wake_by_ref();
        }
    }

    /// Reads the answer to the request of the only call. Returns whether the call is to go on reading.
    pub(crate) fn read_alone(self: &Arc<Self>, core: &Core, cx: &mut Context<'_>) -> bool {
        let mut io = self.io.lock();
        if !io.alone {
            return false;
        }
        let Poll::Ready(heard) = io.poll_answer(cx) else { return true };
        match heard {
            Ok((sent, Ok(answer))) => {
                io.return_to_task();
                drop(io);
                let lane = core.lane(sent.batch.kind.form);
                if self.settle(core, lane, sent, answer, Some(cx.waker())).is_some() {
                    lane.put(self);
                    lane.dispatch(core);
                }
            }
            heard => {
                io.left = Some(heard);
                io.return_to_task();
            }
        }
        false
    }

    /// Leaves reading to the task of the connection.
    pub(crate) fn hand_over(&self) -> bool {
        let mut io = self.io.lock();
        let was = io.alone;
        if was {
            io.alone = false;
            io.task.wake_by_ref();
        }
        was
    }

    fn poll_task(&self, cx: &mut Context<'_>) -> Poll<Heard> {
        let mut io = self.io.lock();
        if !io.task.will_wake(cx.waker()) {
            io.task.clone_from(cx.waker());
        }
        match io.left.take() {
            Some(heard) => Poll::Ready(heard),
            None if io.alone => {
                io.flush();
                Poll::Pending
            }
            None => io.poll_answer(cx),
        }
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
        let mut io = self.io.lock();
        (io.stream, io.alone) = (None, false);
        io.task.wake_by_ref();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Takes the batch of the request under way. No further one is sent.
    pub(crate) fn retire(&self) -> Option<Arc<Batch>> {
        let mut io = self.io.lock();
        io.retired = true;
        let left = io.left.take().and_then(Result::ok).map(|(sent, _)| sent);
        io.sent.take().or(left).map(|sent| sent.batch)
    }

    /// How long the request under way has been waiting for an answer.
    pub(crate) fn silent(&self) -> Option<Duration> {
        self.io.lock().sent.as_ref().map(|sent| sent.at.elapsed())
    }

    pub(crate) fn has_answered(&self) -> bool {
        self.answered.load(Relaxed)
    }

    /// Answers the calls of a request, and returns their number; `None` if the answer is out of order.
    fn settle(&self, core: &Core, lane: &Lane, sent: Sent, answer: Answer, running: Option<&Waker>) -> Option<u32> {
        let Sent { batch, floor, at } = sent;
        let (calls, count) = batch.size();
        if batch.kind.form != Form::Id
            && let Err(error) = core.raise(&self.addr, floor, answer.place(0), answer.place(count - 1))
        {
            self.close();
            batch.finish(Err(error), running);
            return None;
        }
        let took = at.elapsed();
        self.refusals.store(0, Relaxed);
        self.answered.store(true, Relaxed);
        lane.succeeded(took);
        core.recovered(&self.addr, batch.kind.form);
        core.options.emit(&Event::Answered { addr: &self.addr, calls, count, took });
        batch.finish(Ok(answer), running);
        Some(calls)
    }

    /// The task of a connection: reads answers until the connection ends.
    pub(crate) async fn run(self: Arc<Self>, core: Arc<Core>, form: Form) {
        let lane = core.lane(form);
        poll_fn(|cx| {
            self.io.lock().task.clone_from(cx.waker());
            Poll::Ready(())
        })
        .await;
        lane.put(&self);
        lane.dispatch(&core);
        let fault = loop {
            let (sent, answer) = match poll_fn(|cx| self.poll_task(cx)).await {
                Ok(heard) => heard,
                Err(fault) => break fault,
            };
            match answer {
                Ok(answer) => {
                    if self.settle(&core, lane, sent, answer, None) > Some(1) {
                        tokio::task::yield_now().await; // the calls that were answered may call again
                    }
                }
                Err(refusal) => {
                    if let Err(fault) = self.refused(&core, lane, sent, refusal).await {
                        break fault;
                    }
                }
            }
            lane.put(&self);
            lane.dispatch(&core);
        };
        self.end(&core, lane, form, &fault);
    }

    fn end(self: &Arc<Self>, core: &Arc<Core>, lane: &Lane, form: Form, fault: &Fault) {
        self.close();
        lane.remove(self);
        if let Some(batch) = self.retire() {
            lane.requeue(batch);
            core.retried(&self.addr, &fault.to_string());
        }
        core.ended(self, form);
        lane.dispatch(core);
    }

    /// Handles a refusal. A fault says that the connection is of no use any more.
    async fn refused(&self, core: &Arc<Core>, lane: &Lane, sent: Sent, refusal: Error) -> Result<(), Fault> {
        let batch = sent.batch;
        let form = batch.kind.form;
        let class = refusal.class();
        if class == Class::Final || class == Class::Unauthorized && !self.has_answered() {
            batch.finish(Err(refusal), None);
            return Ok(());
        }
        let failures = self.refusals.fetch_add(1, Relaxed);
        lane.requeue(batch);
        core.retried(&self.addr, &refusal.to_string());
        match (class, &refusal.leader) {
            // The node has forgotten who the client is. A new connection has the credentials of now.
            (Class::Unauthorized, _) => return Err(refusal.into()),
            (Class::Redirect, Some(leader)) if form != Form::Id && *leader != self.addr => {
                core.moved(&self.addr, leader);
                return Err(refusal.into());
            }
            (Class::Quota, _) => {
                lane.hold(refusal.clone());
                tokio::time::sleep(quota_pause(&refusal, failures, random())).await;
                lane.release();
            }
            _ => {
                if form != Form::Id {
                    core.suspect(&self.addr);
                }
                lane.dispatch(core);
                tokio::time::sleep(Pause::Retry.after(failures, random())).await;
            }
        }
        Ok(())
    }
}

impl Core {
    /// Raises the floor to the end of an answer, unless it begins at or below the floor of its request.
    pub(crate) fn raise(&self, addr: &str, floor: Timestamp, first: Timestamp, last: Timestamp) -> Result<(), Error> {
        if first > floor {
            let mut known = self.floor.lock();
            *known = last.max(*known);
            return Ok(());
        }
        let text =
            format!("{addr} issued timestamp {first} for a request that was sent after {floor} had been received");
        let error = Error::new(Code::Internal, text + ": the order is broken");
        self.options.emit(&Event::Rejected { addr, error: &error });
        Err(error)
    }
}
