//! Keeps the estimate of a clock in sync: asks the node whose readings give the narrowest bounds. When that fails, has no
//! reading or is silent for longer than usual, it asks all nodes at once, and takes what comes first.

use std::{collections::HashMap, future::poll_fn, pin::Pin, sync::Arc, task::Poll, time::Duration};

use tokio::time::{Instant, timeout, timeout_at};

use super::{
    Known, Shared, closed,
    interval::{Estimate, Moment, Rate, Reading},
    steady,
};
use crate::{
    Code, Error,
    error::{Class, Fault},
    net::Conn,
    pause::{self, Pause, quota_pause, random},
    resp::{self, Malformed, Value},
    state::Core,
};

/// The time between two questions, while the length of limits is not known yet.
const PERIOD_FIRST: Duration = Duration::from_millis(25);
const PERIOD_MIN: Duration = Duration::from_millis(5);
/// Within it bounds widen by a quarter of a millisecond.
const PERIOD_MAX: Duration = Duration::from_millis(250);
/// How many questions are asked within the length of a limit.
const PER_LIMIT: u64 = 4;
/// How often another node than the usual one is asked, to find out whether it gives narrower bounds.
const PROBE: Duration = Duration::from_secs(10);
/// How many answers to other questions may come before the one that was asked for.
const STRAYS: usize = 16;

/// A node that is asked for readings.
struct Node {
    /// The connection, while no question is under way on it.
    conn: Option<Conn>,
    is_asked: bool,
    /// When the latest question was asked.
    asked: Instant,
    took: pause::Estimate,
    /// How wide the bounds of its readings are, smoothed, in nanoseconds; 0 if there was none.
    width: u64,
    failures: u32,
    /// No question before it.
    after: Instant,
    /// Of the latest question.
    fault: Option<Fault>,
}

type Question = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// The outcome of a question.
struct Answer {
    addr: String,
    /// `None` if it is unusable.
    conn: Option<Conn>,
    heard: Result<Heard, Fault>,
}

#[derive(Clone, Copy)]
struct Heard {
    sent: Moment,
    received: Moment,
    reading: Reading,
}

pub(super) struct Syncer {
    core: Arc<Core>,
    shared: Arc<Shared>,
    nodes: HashMap<String, Node>,
    /// The node to ask; `None` while all are.
    usual: Option<String>,
    questions: Vec<Question>,
    estimate: Estimate,
    rate: Rate,
    believed: bool,
    period: Duration,
    /// The next question.
    due: Instant,
    /// The next question to another node.
    probe: Instant,
    /// The search for a usual node.
    begun: Instant,
}

impl Drop for Syncer {
    /// The clock ends with its syncer.
    fn drop(&mut self) {
        self.questions.clear();
        self.nodes.clear();
        self.shared.publish(Known { estimate: Estimate::default(), why: Some(closed()) });
    }
}

impl Syncer {
    pub(super) fn new(core: Arc<Core>, shared: Arc<Shared>) -> Self {
        let now = Instant::now();
        Self {
            core,
            shared,
            nodes: HashMap::new(),
            usual: None,
            questions: Vec::new(),
            estimate: Estimate::default(),
            rate: Rate::default(),
            believed: true,
            period: PERIOD_FIRST,
            due: now,
            probe: now + PROBE,
            begun: now,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let next = self.step(Instant::now());
            if let Ok(answer) = timeout_at(next, self.answer()).await {
                self.take(answer);
            }
        }
    }

    /// The next answer to one of the questions under way.
    async fn answer(&mut self) -> Answer {
        poll_fn(|cx| {
            for (i, question) in self.questions.iter_mut().enumerate() {
                if let Poll::Ready(answer) = question.as_mut().poll(cx) {
                    drop(self.questions.swap_remove(i));
                    return Poll::Ready(answer);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Asks what is due, and returns when to look again.
    fn step(&mut self, now: Instant) -> Instant {
        self.follow(now);
        self.core.refresh();
        if let Some(addr) = self.usual.clone() {
            let node = &self.nodes[&addr];
            if !node.is_asked && now < self.due {
                return self.due;
            } else if !node.is_asked {
                self.ask(&addr, now);
                self.explore(now);
                return now + self.period;
            }
            let late = node.asked + node.took.timeout().max(self.period);
            if now < late {
                return late;
            }
            self.shared.troubles.note(&addr, "silent for longer than usual, when asked for the cluster clock".into());
            self.search();
        }
        let idle: Vec<_> = self.nodes.iter().filter(|(_, n)| !n.is_asked).map(|(a, n)| (a.clone(), n.after)).collect();
        for (addr, _) in idle.iter().filter(|(_, after)| *after <= now) {
            self.ask(addr, now);
        }
        let next = idle.into_iter().map(|(_, after)| after).filter(|after| *after > now).min();
        next.unwrap_or(now + PERIOD_MAX) // there may be new members
    }

    /// Makes the nodes those that the client knows.
    fn follow(&mut self, now: Instant) {
        let members = self.core.router.lock().members();
        for addr in &members {
            self.nodes.entry(addr.clone()).or_insert_with(|| Node {
                conn: None,
                is_asked: false,
                asked: now,
                took: pause::Estimate::default(),
                width: 0,
                failures: 0,
                after: now,
                fault: None,
            });
        }
        self.nodes.retain(|addr, _| members.contains(addr));
        if self.usual.as_ref().is_some_and(|usual| !members.contains(usual)) {
            self.search();
        }
    }

    /// All nodes are asked. The members may have changed, and the leader, too.
    fn search(&mut self) {
        (self.usual, self.begun) = (None, Instant::now());
        let leader = self.core.router.lock().leader.clone();
        if let Some(leader) = leader {
            self.core.suspect(&leader);
        }
    }

    /// Now and then, asks the node that was not asked for the longest time.
    fn explore(&mut self, now: Instant) {
        if now < self.probe {
            return;
        }
        self.probe = now + PROBE;
        let others = self.nodes.iter().filter(|(_, node)| !node.is_asked && node.after <= now);
        if let Some((addr, _)) = others.min_by_key(|(_, node)| node.asked) {
            self.ask(&addr.clone(), now);
        }
    }

    fn ask(&mut self, addr: &str, now: Instant) {
        let Some(node) = self.nodes.get_mut(addr) else { return };
        (node.is_asked, node.asked) = (true, now);
        self.questions.push(Box::pin(ask(self.core.clone(), addr.into(), node.conn.take())));
    }

    fn take(&mut self, answer: Answer) {
        let Some(node) = self.nodes.get_mut(&answer.addr) else { return };
        (node.is_asked, node.conn) = (false, answer.conn);
        match answer.heard {
            Ok(heard) => self.heard(&answer.addr, heard),
            Err(fault) => self.failed(&answer.addr, fault),
        }
    }

    fn heard(&mut self, addr: &str, heard: Heard) {
        let Heard { sent, received, reading } = heard;
        let agrees = self.estimate.take(sent, received, reading.bounds);
        self.believed = self.rate.take(received, reading.bounds.term, agrees);
        let Some(node) = self.nodes.get_mut(addr) else { return };
        let took = (received.hi - sent.lo).unsigned_abs();
        let width = took + reading.bounds.latest - reading.bounds.earliest;
        node.took.add(Duration::from_nanos(took));
        node.width = if node.width == 0 { width } else { node.width - node.width / 8 + width / 8 };
        (node.failures, node.fault) = (0, None);
        let bounds = self.estimate.bounds(received);
        if bounds.are_good() && bounds.term == reading.bounds.term {
            let length = reading.bounds.limit.saturating_sub(reading.bounds.latest);
            self.period = Duration::from_nanos(length / PER_LIMIT).clamp(PERIOD_MIN, PERIOD_MAX);
            self.prefer(addr);
        } else {
            node.after = Instant::now() + PERIOD_MIN; // the reading is of no use: it is too old, or too far away
            if self.usual.as_deref() == Some(addr) {
                self.search();
            }
        }
        self.publish();
    }

    /// Makes a node with a good reading the usual one, unless the present one is about as good.
    fn prefer(&mut self, addr: &str) {
        self.shared.troubles.clear();
        let node = &self.nodes[addr];
        let usual = self.usual.as_ref().map(|usual| self.nodes[usual].width);
        if usual.is_none_or(|width| node.width < width - width / 4) {
            self.usual = Some(addr.into());
        }
        if self.usual.as_deref() == Some(addr) {
            self.due = node.asked + self.period;
        }
        for (_, other) in self.nodes.iter_mut().filter(|(addr, _)| self.usual.as_ref() != Some(addr)) {
            other.conn = None;
        }
    }

    fn failed(&mut self, addr: &str, fault: Fault) {
        self.shared.troubles.note(addr, fault.to_string());
        if self.usual.as_deref() == Some(addr) {
            self.search();
        }
        let kind = if self.begun.elapsed() < Duration::from_secs(1) { Pause::Search } else { Pause::Retry };
        let Some(node) = self.nodes.get_mut(addr) else { return };
        let (failures, random) = (node.failures, random());
        node.failures += 1;
        node.after = Instant::now()
            + match &fault {
                Fault::Refused(e) if e.class() == Class::Quota => quota_pause(e, failures, random),
                fault if refusal(fault).is_some() => Pause::Refused.after(failures, random),
                _ => kind.after(failures, random),
            };
        node.fault = Some(fault);
        self.publish();
    }

    /// Makes what is known visible to all calls.
    fn publish(&self) {
        let text = "the steady clock of this process, or that of the leader, has a wrong rate";
        self.shared.publish(if self.believed {
            Known { estimate: self.estimate, why: self.refused().or_else(|| self.foreign()) }
        } else {
            Known { estimate: Estimate::default(), why: Some(Error::new(Code::Clock, text)) }
        });
    }

    /// The refusal of one of the nodes, if all refuse.
    fn refused(&self) -> Option<Error> {
        let all = self.nodes.values().map(|node| node.fault.as_ref().and_then(refusal));
        all.collect::<Option<Vec<_>>>()?.pop().cloned()
    }

    /// The fault of one of the nodes of other clusters, if no other ones have answered.
    fn foreign(&self) -> Option<Error> {
        let mut foreign = None;
        for node in self.nodes.values() {
            match &node.fault {
                Some(Fault::Refused(e)) if e.code() == Code::WrongCluster => foreign = Some(e.clone()),
                Some(Fault::Broken(_)) => {}
                _ => return None,
            }
        }
        foreign
    }
}

/// A refusal that may not pass soon.
fn refusal(fault: &Fault) -> Option<&Error> {
    match fault {
        Fault::Refused(e) if !e.is_transient() && e.code() != Code::WrongCluster => Some(e),
        _ => None,
    }
}

async fn ask(core: Arc<Core>, addr: String, mut conn: Option<Conn>) -> Answer {
    let limit = core.options.dial_timeout;
    let heard = timeout(limit, sound(&core, &addr, &mut conn)).await;
    let heard = heard.unwrap_or_else(|_| Err(Fault::Broken(format!("no answer in {limit:?}"))));
    Answer { addr, conn, heard }
}

/// Asks on the kept connection or, if there is none or it has ended, on a new one.
async fn sound(core: &Core, addr: &str, conn: &mut Option<Conn>) -> Result<Heard, Fault> {
    if let Some(kept) = conn.take() {
        let heard = exchange(core, addr, kept, conn).await;
        if conn.is_some() {
            return heard;
        }
    }
    let new = Conn::open_idle(core, addr).await?;
    exchange(core, addr, new, conn).await
}

/// Asks for a reading. The connection is kept unless it is unusable, or of no use to this client.
async fn exchange(core: &Core, addr: &str, mut conn: Conn, kept: &mut Option<Conn>) -> Result<Heard, Fault> {
    let heard = question(&mut conn).await.and_then(|heard| check(core, addr, heard));
    let is_usable = match &heard {
        Ok(_) => true,
        Err(Fault::Refused(e)) => !matches!(e.code(), Code::Unauthorized | Code::WrongCluster),
        Err(Fault::Broken(_)) => false,
    };
    if is_usable {
        *kept = Some(conn);
    }
    heard
}

/// Sends a question and reads the answer that has its nonce: others were meant for others, or are late.
async fn question(conn: &mut Conn) -> Result<Heard, Fault> {
    let nonce = random();
    let mut command = Vec::new();
    resp::command(&mut command, &["INTERVAL", &nonce.to_string()]);
    let sent = steady::now();
    conn.write(command).await?;
    for _ in 0..STRAYS {
        let answer = conn.read().await?;
        let received = steady::now();
        let Value::Bulk(Some(bytes)) = answer else { return Err(Malformed.into()) };
        let reading = Reading::decode(&bytes)?;
        if reading.nonce == nonce {
            return Ok(Heard { sent, received, reading });
        }
    }
    Err(Fault::Broken(format!("{STRAYS} answers to other questions")))
}

/// Refuses a reading of another cluster.
fn check(core: &Core, addr: &str, heard: Heard) -> Result<Heard, Fault> {
    let id = heard.reading.cluster;
    let pin = core.pin(id);
    if pin == id {
        return Ok(heard);
    }
    Err(core.reject(addr, format!("{addr} reads the clock of cluster {id:016x}, want {pin:016x}")).into())
}
