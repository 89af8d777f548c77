//! Finds the leader and the members, and keeps connections to them.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

use crate::{
    Code, Error, Event,
    error::Fault,
    link::Link,
    net::{Conn, Said},
    pause::{Pause, random},
    resp::{Form, MEMBERS_MAX, View},
    state::Core,
};

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// To ask for the leader and the members. If the node leads, the connection is used for timestamps.
    Ask,
    /// For timestamps: the leader is known by a redirect.
    Stamps,
    Ids,
}

/// The latest exchange with a node.
#[derive(Clone, Default)]
enum Outcome {
    #[default]
    Unknown,
    Unreachable,
    Ours,
    Foreign(Error),
    Refuses(Error),
}

/// When an address may be tried again.
#[derive(Clone, Copy)]
struct Pace {
    failures: u32,
    after: Instant,
}

impl Pace {
    fn new() -> Self {
        Self { failures: 0, after: Instant::now() }
    }

    fn pause(&mut self, kind: Pause) {
        self.after = Instant::now() + kind.after(self.failures, random());
        self.failures += 1;
    }
}

pub(crate) struct Node {
    outcome: Outcome,
    asking: bool,
    /// Whether there is a task that asks, for each use.
    probing: [bool; 3],
    /// To be asked though all is well.
    pub(crate) refresh: bool,
    pace: [Pace; 3],
    refused: Pace,
}

impl Node {
    fn new() -> Self {
        let pace = Pace::new();
        Self {
            outcome: Outcome::Unknown,
            asking: false,
            probing: [false; 3],
            refresh: false,
            pace: [pace; 3],
            refused: pace,
        }
    }
}

/// How often an active client asks the leader for the members.
pub(crate) const REFRESH: Duration = Duration::from_secs(10);
/// How many nodes in a row may redirect before there is a pause.
const MOVES_MAX: u32 = 3;

/// A node that says of itself that it leads is followed, while the leader is searched for; so is the one to which the
/// leader redirects. What others say about the leader only tells whom else to ask.
pub(crate) struct Router {
    addrs: Vec<String>,
    /// Those that the leader reported last, and what others have added since.
    members: Vec<String>,
    pub(crate) leader: Option<String>,
    /// There is no leader, or it has failed, refused or fallen silent: all nodes are asked.
    pub(crate) suspected: bool,
    /// There was no connection to the leader yet.
    connecting: bool,
    begun: Instant,
    pub(crate) refreshed: Instant,
    moves: u32,
    /// How many requests there were when the watch looked last.
    pub(crate) sent: [u64; 3],
    nodes: HashMap<String, Node>,
}

impl Router {
    pub(crate) fn new(addrs: &[String]) -> Self {
        let now = Instant::now();
        Self {
            addrs: addrs.to_vec(),
            members: Vec::new(),
            leader: None,
            suspected: true,
            connecting: false,
            begun: now,
            refreshed: now,
            moves: 0,
            sent: [0; 3],
            nodes: HashMap::new(),
        }
    }

    /// All addresses that may be those of nodes.
    fn known(&self) -> Vec<String> {
        let mut list: Vec<_> = self.members.iter().chain(&self.addrs).chain(&self.leader).cloned().collect();
        list.sort();
        list.dedup();
        list
    }

    /// The nodes from which an answer is awaited: the leader, or those that have not answered who leads.
    pub(crate) fn unanswered(&self) -> Vec<String> {
        if !self.suspected {
            return self.leader.iter().cloned().collect();
        }
        let has_answered = |addr: &String| {
            self.nodes.get(addr).is_some_and(|n| !matches!(n.outcome, Outcome::Unknown | Outcome::Unreachable))
        };
        self.known().into_iter().filter(|addr| !has_answered(addr)).collect()
    }

    pub(crate) fn members(&self) -> Vec<String> {
        if self.members.is_empty() { self.known() } else { self.members.clone() }
    }

    /// The node for an attempt after that many failures: first the leader, then every member in turn.
    pub(crate) fn candidate(&self, failures: usize) -> String {
        let mut list = self.members();
        list.splice(0..0, self.leader.clone());
        list.swap_remove(failures % list.len())
    }

    fn leads(&self, addr: &str) -> bool {
        self.leader.as_deref() == Some(addr)
    }

    pub(crate) fn node(&mut self, addr: &str) -> &mut Node {
        self.nodes.entry(addr.into()).or_insert_with(Node::new)
    }

    /// Whether a node is to be asked or connected to.
    fn wants(&self, core: &Core, addr: &str, usage: Use) -> bool {
        match usage {
            Use::Ids => {
                core.wants_ids.load(SeqCst)
                    && self.members().iter().any(|m| m == addr)
                    && !core.ids.links().iter().any(|link| link.addr == addr)
            }
            Use::Stamps => {
                let links = core.stamps.links().len();
                self.leads(addr) && (self.connecting || links > 0) && links < core.options.connections
            }
            Use::Ask if self.suspected => self.known().iter().any(|m| m == addr),
            Use::Ask => self.leads(addr) && self.nodes.get(addr).is_some_and(|n| n.refresh),
        }
    }

    /// How long a probe has to wait; `None` ends it. After no wait at all it asks.
    fn due(&mut self, core: &Core, addr: &str, usage: Use) -> Option<Duration> {
        let wanted = self.wants(core, addr, usage);
        let node = self.node(addr);
        if !wanted {
            node.probing[usage as usize] = false;
            return None;
        }
        let after = node.pace[usage as usize].after.max(node.refused.after);
        let wait = after.saturating_duration_since(Instant::now());
        node.asking |= wait.is_zero();
        Some(wait)
    }

    fn suspect(&mut self, core: &Core, addr: &str) {
        if self.leads(addr) && !self.suspected {
            (self.suspected, self.begun) = (true, Instant::now());
            core.suspected.store(true, SeqCst);
        }
    }

    fn follow(&mut self, core: &Core, addr: &str) {
        (self.leader, self.connecting) = (Some(addr.into()), true);
        core.stamps.keep(|a| a == addr);
        core.suspected.store(true, SeqCst);
    }

    /// Takes in the members that a node reports. Those of the leader that serves are all there are.
    fn learn(&mut self, core: &Core, addr: &str, view: &View) {
        let mut list = view.members.clone();
        if !(self.leads(addr) && view.leader == addr && !self.suspected) {
            list.extend_from_slice(&self.members);
        }
        list.sort();
        list.dedup();
        self.members = if list.len() > MEMBERS_MAX { view.members.clone() } else { list };
        let (members, known) = (self.members(), self.known());
        core.ids.keep(|addr| members.iter().any(|m| m == addr));
        self.nodes.retain(|addr, node| node.probing != [false; 3] || known.contains(addr));
    }

    fn report(&mut self, addr: &str, outcome: Outcome) {
        let node = self.node(addr);
        match &outcome {
            Outcome::Refuses(_) => node.refused.pause(Pause::Refused),
            Outcome::Ours => node.refused = Pace::new(),
            _ => {}
        }
        node.outcome = outcome;
    }

    /// The error of calls without an answer, if only nodes of other clusters have answered.
    pub(crate) fn foreign(&self) -> Option<Error> {
        let mut foreign = None;
        for node in self.nodes.values() {
            match &node.outcome {
                Outcome::Ours | Outcome::Refuses(_) => return None,
                Outcome::Foreign(why) => foreign = Some(why.clone()),
                _ => {}
            }
        }
        foreign
    }

    /// Why there can be no connection: the leader refuses this client or, while none is known and for IDs, all nodes
    /// that answer do. The outer `None` stands for not known yet.
    #[allow(clippy::option_option)]
    fn refusal(&self, core: &Core, usage: Use) -> Option<Option<Error>> {
        let (lane, addrs) = match (usage, &self.leader) {
            (Use::Ids, _) => (&core.ids, self.members()),
            (_, None) => (&core.stamps, self.known()),
            (_, Some(leader)) => (&core.stamps, vec![leader.clone()]),
        };
        if !lane.links().is_empty() {
            return Some(None);
        }
        let mut why = None;
        for addr in addrs {
            let node = self.nodes.get(&addr)?;
            match &node.outcome {
                Outcome::Unknown => return None,
                Outcome::Unreachable if node.asking => return None,
                Outcome::Unreachable => {}
                Outcome::Ours | Outcome::Foreign(_) => return Some(None),
                Outcome::Refuses(e) => why = Some(e.clone()),
            }
        }
        Some(why)
    }

    fn refuse(&self, core: &Core) {
        if let Some(why) = self.refusal(core, Use::Ids) {
            core.ids.refuse(why);
        }
        if let Some(why) = self.refusal(core, Use::Stamps) {
            if let Some(why) = &why {
                core.ready.send_replace(Some(Err(why.clone())));
            }
            core.stamps.refuse(why);
        }
    }

    fn pace(&mut self, core: &Core, addr: &str, usage: Use) {
        let kind = match usage {
            Use::Ids if !core.ids.links().is_empty() => Pause::Spare,
            Use::Ask | Use::Stamps if self.begun.elapsed() < Duration::from_secs(1) => Pause::Search,
            _ => Pause::Retry,
        };
        self.node(addr).pace[usage as usize].pause(kind);
    }
}

impl Core {
    /// Starts the tasks that ask and connect where none does, and has others look again.
    pub(crate) fn step(self: &Arc<Self>) {
        let mut r = self.router.lock();
        for addr in r.known() {
            for usage in [Use::Ask, Use::Stamps, Use::Ids] {
                if r.wants(self, &addr, usage) && !r.node(&addr).probing[usage as usize] {
                    r.node(&addr).probing[usage as usize] = true;
                    self.spawn(self.clone().probe(addr.clone(), usage));
                }
            }
        }
        drop(r);
        self.changed.notify_waiters();
    }

    /// Asks one node for the leader and the members, or connects to it, as long as that is wanted. One that hangs
    /// delays no other.
    async fn probe(self: Arc<Self>, addr: String, usage: Use) {
        let mut kept = None;
        loop {
            let changed = self.changed.notified();
            let Some(wait) = self.router.lock().due(&self, &addr, usage) else { return };
            if !wait.is_zero() {
                let _ = tokio::time::timeout(wait, changed).await;
                continue;
            }
            let limit = self.options.dial_timeout;
            let heard = tokio::time::timeout(limit, self.inquire(&addr, usage, kept.take())).await;
            kept = self.heard(
                &addr,
                usage,
                heard.unwrap_or_else(|_| Err(Fault::Broken(format!("no answer in {limit:?}")))),
            );
        }
    }

    /// Handles what a node has said, and returns the connection if it is to be used for the next question.
    fn heard(self: &Arc<Self>, addr: &str, usage: Use, heard: Result<Said, Fault>) -> Option<Conn> {
        let mut r = self.router.lock();
        let outcome = match &heard {
            Ok((_, Ok(_))) => Outcome::Ours,
            Ok((_, Err(e))) => {
                self.troubles.note(addr, e.to_string());
                Outcome::Ours
            }
            Err(fault) => {
                self.troubles.note(addr, fault.to_string());
                outcome_of(fault)
            }
        };
        r.node(addr).asking = false;
        let refreshed = usage == Use::Ask && std::mem::take(&mut r.node(addr).refresh);
        r.report(addr, outcome);
        let kept = match heard {
            Ok((conn, said)) => self.welcome(&mut r, addr, usage, conn, said.ok().flatten().as_ref()),
            Err(_) if usage != Use::Ids && r.leads(addr) && self.stamps.links().is_empty() => {
                r.suspect(self, addr);
                None
            }
            Err(_) => None,
        };
        if !refreshed {
            r.pace(self, addr, usage);
        }
        r.refuse(self);
        drop(r);
        self.step();
        kept
    }

    fn welcome(
        self: &Arc<Self>,
        r: &mut Router,
        addr: &str,
        usage: Use,
        conn: Conn,
        view: Option<&View>,
    ) -> Option<Conn> {
        if let Some(view) = view {
            r.learn(self, addr, view);
        }
        if usage == Use::Ids {
            if r.wants(self, addr, Use::Ids) {
                self.attach(addr, conn, Form::Id);
                let failures = &mut r.node(addr).pace[Use::Ids as usize].failures;
                *failures = failures.saturating_sub(2); // one that falls silent again and again is tried less often
            }
            return None;
        }
        let says = view.is_some_and(|v| v.leader == addr);
        if says && r.suspected && !r.leads(addr) {
            r.follow(self, addr);
        }
        if !r.leads(addr) || !says && usage == Use::Ask {
            return r.suspected.then_some(conn);
        }
        self.drop_silent();
        r.suspected = false;
        let links = self.stamps.links().len();
        if links == 0 || usage == Use::Stamps && links < self.options.connections {
            if std::mem::take(&mut r.connecting) {
                self.options.emit(&Event::Leader { addr });
            }
            self.attach(addr, conn, Form::Stamp);
            self.ready.send_replace(Some(Ok(())));
        }
        match view {
            Some(view) => r.learn(self, addr, view),
            None => r.node(addr).refresh |= links == 0, // it may have other members than the leader before it
        }
        None
    }

    /// Closes the connections that are silent though the leader answers on another one.
    fn drop_silent(&self) {
        let limit = (10 * self.stamps.activity().1).max(Duration::from_secs(1));
        for link in self.stamps.links() {
            if link.silent().is_some_and(|silent| silent > limit) {
                self.stamps.give_up(&link);
            }
        }
    }

    fn attach(self: &Arc<Self>, addr: &str, conn: Conn, form: Form) {
        let link = Link::new(addr, conn);
        self.lane(form).attach(link.clone());
        self.spawn(link.run(self.clone(), form));
    }

    /// The node at `from` redirects to the leader. Only the word of the present leader counts.
    pub(crate) fn moved(self: &Arc<Self>, from: &str, leader: &str) {
        let mut r = self.router.lock();
        if r.leads(from) {
            r.moves += 1;
            let moves = r.moves;
            let pace = &mut r.node(leader).pace[Use::Stamps as usize];
            *pace = Pace::new();
            if moves > MOVES_MAX {
                pace.after += Pause::Retry.after(moves - MOVES_MAX, random());
            }
            r.follow(self, leader);
        }
        drop(r);
        self.step();
    }

    pub(crate) fn suspect(self: &Arc<Self>, addr: &str) {
        self.router.lock().suspect(self, addr);
        self.step();
    }

    /// A request was answered. After a suspicion that ends the search.
    pub(crate) fn recovered(&self, addr: &str, form: Form) {
        if form == Form::Id || !self.suspected.load(SeqCst) {
            return;
        }
        let mut r = self.router.lock();
        if !r.leads(addr) {
            return;
        }
        self.suspected.store(false, SeqCst);
        (r.suspected, r.moves) = (false, 0);
        for node in r.nodes.values_mut() {
            (node.pace[Use::Ask as usize].failures, node.pace[Use::Stamps as usize].failures) = (0, 0);
        }
        self.troubles.clear();
    }

    /// A connection has ended. One that never answered counts as a failed attempt.
    pub(crate) fn ended(self: &Arc<Self>, link: &Link, form: Form) {
        let mut r = self.router.lock();
        let uses: &[Use] = if form == Form::Id { &[Use::Ids] } else { &[Use::Ask, Use::Stamps] };
        for usage in uses.iter().filter(|_| !link.has_answered()) {
            r.pace(self, &link.addr, *usage);
        }
        if form != Form::Id {
            r.suspect(self, &link.addr);
        } else if self.ids.links().is_empty() {
            for node in r.nodes.values_mut() {
                let pace = &mut node.pace[Use::Ids as usize]; // now every member is needed
                pace.failures = pace.failures.min(1);
                pace.after = pace.after.min(Instant::now() + Pause::Retry.after(pace.failures, random()));
            }
        }
        drop(r);
        self.step();
    }
}

fn outcome_of(fault: &Fault) -> Outcome {
    match fault {
        Fault::Broken(_) => Outcome::Unreachable,
        Fault::Refused(e) => match e.code() {
            Code::WrongCluster => Outcome::Foreign(e.clone()),
            Code::Unauthorized | Code::Forbidden | Code::InvalidArgument => Outcome::Refuses(e.clone()),
            _ => Outcome::Ours,
        },
    }
}
