//! Nodes of a cluster, as far as a client sees them, in threads of the test.
#![allow(dead_code, unreachable_pub)] // each test uses a part

use std::{
    collections::HashMap,
    fmt::Write as _,
    io::{BufRead, BufReader, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard},
    thread,
    time::Instant,
};

#[derive(Default)]
struct State {
    addrs: Vec<String>,
    leader: Option<usize>,
    down: Vec<usize>,
    /// Answers to `TS` are held back.
    held: bool,
    last: u64,
    /// The counts of all requests for timestamps.
    counts: Vec<u64>,
    conns: HashMap<usize, Vec<TcpStream>>,
    /// How many connections have asked for the cluster clock, and how many of them have ended.
    clocks: (usize, usize),
}

/// What the cluster clock shows. All nodes read it exactly.
pub fn cluster_clock() -> u64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    1_000_000_000_000_000_000 + u64::try_from(BEGAN.elapsed().as_nanos()).unwrap()
}

#[derive(Clone)]
pub struct Cluster(Arc<(Mutex<State>, Condvar)>);

impl Cluster {
    /// Starts nodes. The first one leads.
    pub fn start(nodes: usize) -> Self {
        let listeners: Vec<_> = (0..nodes).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addrs = listeners.iter().map(|l| l.local_addr().unwrap().to_string()).collect();
        let state = State { addrs, leader: Some(0), last: 1, ..State::default() };
        let cluster = Self(Arc::new((Mutex::new(state), Condvar::new())));
        for (node, listener) in listeners.into_iter().enumerate() {
            let cluster = cluster.clone();
            thread::spawn(move || {
                for conn in listener.incoming().map_while(Result::ok) {
                    cluster.accept(node, conn);
                }
            });
        }
        cluster
    }

    pub fn addrs(&self) -> Vec<String> {
        self.state().addrs.clone()
    }

    /// The counts of all requests for timestamps until now.
    pub fn counts(&self) -> Vec<u64> {
        self.state().counts.clone()
    }

    pub fn lead(&self, node: usize) {
        self.state().leader = Some(node);
    }

    /// No node leads, or knows what the cluster clock shows.
    pub fn lose_the_leader(&self) {
        self.state().leader = None;
    }

    /// Waits until that many connections have asked for the cluster clock, and that many of them have ended.
    pub fn await_clocks(&self, asked: usize, ended: usize) {
        let mut s = self.state();
        while s.clocks.0 < asked || s.clocks.1 < ended {
            s = self.0.1.wait(s).unwrap();
        }
    }

    /// Ends a node and its connections.
    pub fn stop(&self, node: usize) {
        self.state().down.push(node);
        self.cut(node);
    }

    /// Ends the connections of a node.
    pub fn cut(&self, node: usize) {
        let mut s = self.state();
        for conn in s.conns.remove(&node).unwrap_or_default() {
            let _ = conn.shutdown(Shutdown::Both);
        }
    }

    /// Holds answers with timestamps back, or no longer.
    pub fn hold(&self, held: bool) {
        self.state().held = held;
        self.0.1.notify_all();
    }

    /// Waits until that many requests for timestamps have come.
    pub fn await_requests(&self, number: usize) {
        let mut s = self.state();
        while s.counts.len() < number {
            s = self.0.1.wait(s).unwrap();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }

    fn accept(&self, node: usize, conn: TcpStream) {
        let mut s = self.state();
        if s.down.contains(&node) {
            return;
        }
        s.conns.entry(node).or_default().push(conn.try_clone().unwrap());
        drop(s);
        let cluster = self.clone();
        thread::spawn(move || {
            let mut input = BufReader::new(conn.try_clone().unwrap());
            let mut conn = conn;
            let mut is_clock = false;
            while let Some(command) = read(&mut input) {
                if command[0] == "INTERVAL" && !std::mem::replace(&mut is_clock, true) {
                    cluster.count_clocks((1, 0));
                }
                let answer = cluster.answer(node, &command);
                if conn.write_all(&answer).is_err() {
                    break;
                }
            }
            cluster.count_clocks((0, usize::from(is_clock)));
        });
    }

    fn count_clocks(&self, more: (usize, usize)) {
        let mut s = self.state();
        s.clocks = (s.clocks.0 + more.0, s.clocks.1 + more.1);
        self.0.1.notify_all();
    }

    fn answer(&self, node: usize, command: &[String]) -> Vec<u8> {
        let mut s = self.state();
        let count = command.get(1).and_then(|n| n.parse().ok());
        let n = count.unwrap_or(1);
        match command[0].as_str() {
            "AUTH" if command[1] == "in-plaintext" => b"-ERR this port requires TLS\r\n".to_vec(),
            "AUTH" => b"+OK\r\n".to_vec(),
            "PING" => b"+PONG\r\n".to_vec(),
            "INFO" => bulk("# Cluster\r\nisotone_cluster_id:5e1f0c3a9b2d4e71\r\n"),
            "CLUSTER" => s.slots(),
            "SNOWFLAKE" => s.ids(count),
            "INTERVAL" => s.interval(count),
            _ if s.leader != Some(node) => s.redirect(),
            "WORKER" if command[1] == "RELEASE" => b"+OK\r\n".to_vec(),
            "WORKER" => {
                let (from, length): (i64, i64) = (command[3].parse().unwrap(), command[4].parse().unwrap());
                format!("*5\r\n:300\r\n:{from}\r\n:{}\r\n$9\r\n41/5/5/12\r\n:1288834974657\r\n", from + length).into()
            }
            _ => {
                s.counts.push(n);
                self.0.1.notify_all();
                while s.held {
                    s = self.0.1.wait(s).unwrap();
                }
                s.stamps(&command[0], n)
            }
        }
    }
}

impl State {
    fn redirect(&self) -> Vec<u8> {
        match self.leader {
            Some(leader) => format!("-MOVED 0 {}\r\n", self.addrs[leader]).into(),
            None => b"-CLUSTERDOWN no leader is known\r\n".to_vec(),
        }
    }

    fn slots(&self) -> Vec<u8> {
        let Some(leader) = self.leader else { return self.redirect() };
        let mut order: Vec<_> = (0..self.addrs.len()).collect();
        order.swap(0, leader);
        let mut out = format!("*1\r\n*{}\r\n:0\r\n:16383\r\n", order.len() + 2);
        for node in order {
            let (host, port) = self.addrs[node].rsplit_once(':').unwrap();
            let _ = write!(out, "*3\r\n${}\r\n{host}\r\n:{port}\r\n$4\r\nnode\r\n", host.len());
        }
        out.into()
    }

    /// A reading of the cluster clock, which is good for ten seconds.
    fn interval(&self, nonce: Option<u64>) -> Vec<u8> {
        if self.leader.is_none() {
            return b"-CLUSTERDOWN no reading of the cluster clock is valid\r\n".to_vec();
        }
        let now = cluster_clock();
        let mut out = b"$48\r\n".to_vec();
        for field in [now, now, now + 10_000_000_000, 1, 0x5e1f_0c3a_9b2d_4e71, nonce.unwrap()] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out
    }

    fn ids(&mut self, count: Option<u64>) -> Vec<u8> {
        let n = count.unwrap_or(1);
        let first = self.last + 1;
        self.last += n;
        let head = count.map_or(String::new(), |n| format!("*{n}\r\n"));
        (first..first + n).fold(head, |out, id| out + &format!(":{id}\r\n")).into()
    }

    fn stamps(&mut self, command: &str, n: u64) -> Vec<u8> {
        self.last += 1_000_000;
        let time = self.last;
        if command == "TS64" {
            return bulk(&(time / 1_000_000 * (1 << 18)).to_string());
        }
        let mut out = b"$16\r\n".to_vec();
        out.extend_from_slice(&time.to_be_bytes());
        out.extend_from_slice(&n.to_be_bytes());
        out.extend_from_slice(b"\r\n");
        out
    }
}

fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into()
}

/// Reads an array of bulk strings.
fn read(input: &mut impl BufRead) -> Option<Vec<String>> {
    let parts = number(input)?;
    (0..parts)
        .map(|_| {
            let mut text = vec![0; number(input)? + 2];
            input.read_exact(&mut text).ok()?;
            text.truncate(text.len() - 2);
            String::from_utf8(text).ok()
        })
        .collect()
}

fn number(input: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    input.read_line(&mut line).ok()?;
    line.get(1..)?.trim_end().parse().ok()
}
