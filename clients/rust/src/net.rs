//! Connections, up to the end of the check of the cluster.

use std::{
    future::poll_fn,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::timeout,
};

use crate::{
    Code, Error, Event, Options,
    error::{Class, Fault},
    pause::{Pause, quota_pause, random},
    resp::{self, Parsed, Value, View},
    router::Use,
    state::{Core, Mutex},
};

/// A connection, with TLS or without. Without, the socket has a second handle, which bypasses the runtime.
pub(crate) enum Stream {
    Plain(TcpStream, std::net::TcpStream),
    #[cfg(feature = "tls")]
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

impl Stream {
    async fn open(addr: &str, options: &Options) -> Result<Self, Fault> {
        let tcp = TcpStream::connect(addr).await?;
        tcp.set_nodelay(true)?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &options.tls {
            return Ok(Self::Tls(Box::new(tls.connect(addr, tcp).await?)));
        }
        let _ = options;
        let tcp = tcp.into_std()?;
        let same = tcp.try_clone()?;
        Ok(Self::Plain(TcpStream::from_std(tcp)?, same))
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp, _) => tcp,
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Whether a secret may be sent.
    fn is_private(&self) -> bool {
        match self {
            Self::Plain(tcp, _) => tcp.peer_addr().is_ok_and(|addr| addr.ip().to_canonical().is_loopback()),
            #[cfg(feature = "tls")]
            Self::Tls(_) => true,
        }
    }

    /// Has the task of `cx`, and no other, woken when there is something to read.
    pub(crate) fn watch(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.tcp().poll_read_ready(cx).map(drop)
    }

    /// Whether nothing has arrived. The kernel is asked, as the runtime may not have noticed yet. With TLS, the node may
    /// have sent what is no answer, so that only the runtime is asked.
    pub(crate) fn is_quiet(&mut self, cx: &mut Context<'_>, chunk: &mut [u8]) -> bool {
        let _ = &cx;
        match self {
            Self::Plain(_, same) => same.peek(&mut chunk[..1]).is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock),
            #[cfg(feature = "tls")]
            Self::Tls(_) => self.poll_read(cx, chunk).is_pending(),
        }
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, chunk: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(chunk);
        ready!(match self {
            Self::Plain(tcp, _) => Pin::new(tcp).poll_read(cx, &mut buf),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, &mut buf),
        })?;
        let n = buf.filled().len();
        Poll::Ready(if n == 0 { Err(io::Error::other("the connection was closed")) } else { Ok(n) })
    }

    /// Writes and removes what can be written of `out`.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<io::Result<()>> {
        while !out.is_empty() {
            let n = ready!(match self {
                Self::Plain(tcp, _) => Pin::new(tcp).poll_write(cx, out),
                #[cfg(feature = "tls")]
                Self::Tls(tls) => Pin::new(tls).poll_write(cx, out),
            })?;
            out.drain(..n);
        }
        match self {
            Self::Plain(..) => Poll::Ready(Ok(())), // there is no buffer above that of the kernel
            #[cfg(feature = "tls")]
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }
}

/// A connection whose node has answered, and what it reports if it was asked.
pub(crate) type Said = (Conn, Result<Option<View>, Error>);

/// A connection that asks one thing after the other.
pub(crate) struct Conn {
    pub(crate) stream: Stream,
    input: Vec<u8>,
}

impl Conn {
    /// Opens a connection to a node of the right cluster, with the credentials of now. `question` is sent with the
    /// rest, and its answer is not read: it has to be harmless in any cluster.
    pub(crate) async fn open(core: &Core, addr: &str, question: &[&str]) -> Result<Self, Fault> {
        let options = &core.options;
        let mut conn = Self { stream: Stream::open(addr, options).await?, input: Vec::new() };
        let mut out = Vec::new();
        let mut user = None;
        if let Some(source) = &options.credentials {
            if !conn.stream.is_private() {
                let text = format!("the secret would cross the network to {addr} in plaintext: use TLS");
                return Err(Error::new(Code::Unauthorized, text).into());
            }
            let Ok(got) = catch_unwind(AssertUnwindSafe(|| source())) else {
                return Err(Fault::Broken("the function for credentials has panicked".into()));
            };
            got.validate()?;
            user = Some(got.name.clone());
            resp::command(&mut out, &["AUTH", &got.name, &got.secret]);
        }
        resp::command(&mut out, &["INFO", "cluster"]);
        resp::command(&mut out, question);
        conn.write(out).await?;
        if let Some(user) = user {
            conn.authenticated(addr, &user).await?;
        }
        let info = conn.read().await?;
        core.check_cluster(addr, info.text().unwrap_or_default())?;
        Ok(conn)
    }

    /// Reads the answer to AUTH. No part of it is shown: a node that echoes has the secret in it.
    async fn authenticated(&mut self, addr: &str, user: &str) -> Result<(), Fault> {
        let fault = |code, what: String| Err(Error::new(code, format!("{addr} does not {what}")).into());
        match self.read().await {
            Ok(v) if v.text() == Some("OK") => Ok(()),
            Ok(_) => fault(Code::Unauthorized, "answer AUTH with OK".into()),
            Err(Fault::Refused(e)) if e.code() == Code::InvalidArgument => {
                let text = format!("{addr} takes no credentials on this connection; it may require TLS");
                Err(Error::new(Code::Unauthorized, text).into())
            }
            Err(Fault::Refused(e)) => fault(e.code(), format!("accept the credentials of {user}")),
            Err(broken) => Err(broken),
        }
    }

    /// Opens a connection on which the node has answered everything.
    pub(crate) async fn open_idle(core: &Core, addr: &str) -> Result<Self, Fault> {
        let mut conn = Self::open(core, addr, &["PING"]).await?;
        conn.read().await.map(|_| conn)
    }

    pub(crate) async fn write(&mut self, mut out: Vec<u8>) -> io::Result<()> {
        poll_fn(|cx| self.stream.poll_flush(cx, &mut out)).await
    }

    pub(crate) async fn read(&mut self) -> Result<Value, Fault> {
        self.receive(resp::value).await
    }

    /// Reads an answer.
    async fn receive<T>(&mut self, parse: impl Fn(&[u8]) -> Parsed<Result<T, Error>>) -> Result<T, Fault> {
        let mut chunk = vec![0; 4096];
        loop {
            if let Some((answer, used)) = parse(&self.input)? {
                self.input.drain(..used);
                return answer.map_err(Fault::from);
            }
            let n = poll_fn(|cx| self.stream.poll_read(cx, &mut chunk)).await?;
            self.input.extend_from_slice(&chunk[..n]);
        }
    }

    async fn ask<T>(
        &mut self,
        command: Vec<u8>,
        parse: impl Fn(&[u8]) -> Parsed<Result<T, Error>>,
    ) -> Result<T, Fault> {
        self.write(command).await?;
        self.receive(parse).await
    }
}

impl Core {
    /// Asks a node for the leader and the members, or only connects to it, on the connection that is kept from the last
    /// time if there is one. The connection is as good as before if the node has answered, even with a refusal that may
    /// pass.
    pub(crate) async fn inquire(&self, addr: &str, usage: Use, kept: Option<Conn>) -> Result<Said, Fault> {
        let question: &[&str] = if usage == Use::Ask { &["CLUSTER", "SLOTS"] } else { &["PING"] };
        if let Some(mut conn) = kept {
            let mut out = Vec::new();
            resp::command(&mut out, question);
            let v = conn.ask(out, resp::value).await;
            if let Ok(heard) = Self::judge(conn, addr, usage, v) {
                return Ok(heard);
            }
        }
        let mut conn = Conn::open(self, addr, question).await?;
        let v = conn.read().await;
        Self::judge(conn, addr, usage, v)
    }

    fn judge(conn: Conn, addr: &str, usage: Use, v: Result<Value, Fault>) -> Result<Said, Fault> {
        let said = match v {
            Ok(v) if usage == Use::Ask => Ok(Some(resp::view(&v, addr)?)),
            Ok(v) if v.text() == Some("PONG") => Ok(None),
            Ok(_) => return Err(resp::Malformed.into()),
            Err(Fault::Refused(e)) if e.is_transient() => Err(e),
            Err(fault) => return Err(fault),
        };
        if conn.input.is_empty() { Ok((conn, said)) } else { Err(resp::Malformed.into()) }
    }

    /// Has the leader answer a request that may be repeated, each time on a connection of its own, until `is_final`
    /// says that a refusal is. `patience` is how long an answer may take.
    pub(crate) async fn ask_leader<T>(
        &self,
        limit: Option<Duration>,
        patience: Duration,
        command: &[u8],
        parse: impl Fn(&[u8]) -> Parsed<Result<T, Error>>,
        is_final: impl Fn(&Error) -> bool,
    ) -> Result<T, Error> {
        let quota = Mutex::default();
        let call = self.until_closed(self.to_leader(patience, command, parse, is_final, &quota));
        self.limit(limit, || quota.lock().take(), call).await
    }

    /// Notes the latest refusal because of a quota.
    async fn to_leader<T>(
        &self,
        patience: Duration,
        command: &[u8],
        parse: impl Fn(&[u8]) -> Parsed<Result<T, Error>>,
        is_final: impl Fn(&Error) -> bool,
        quota: &Mutex<Option<Error>>,
    ) -> Result<T, Error> {
        let (mut leader, mut moves) = (None::<String>, 0);
        for failures in 0.. {
            let addr = leader.take().unwrap_or_else(|| self.router.lock().candidate(failures as usize));
            let fault = match self.attempt(&addr, command, &parse, patience).await {
                Ok(Ok(v)) => return Ok(v),
                Ok(Err(e)) if is_final(&e) => return Err(e),
                Ok(Err(e)) => Fault::Refused(e),
                Err(Fault::Refused(e)) if !e.is_transient() && e.code() != Code::WrongCluster => return Err(e),
                Err(fault) => fault,
            };
            self.troubles.note(&addr, fault.to_string());
            let mut wait = Pause::Retry.after(failures, random());
            let mut refused = None;
            if let Fault::Refused(e) = fault {
                moves += 1;
                if e.leader.is_some() && moves <= 3 {
                    leader = e.leader;
                    continue;
                }
                if e.class() == Class::Quota {
                    wait = quota_pause(&e, failures, random());
                    refused = Some(e);
                }
            }
            moves = 0;
            *quota.lock() = refused;
            tokio::time::sleep(wait).await;
        }
        Err(Error::closed())
    }

    /// The outer error is that of the connection, the inner one the answer of the node.
    async fn attempt<T>(
        &self,
        addr: &str,
        command: &[u8],
        parse: impl Fn(&[u8]) -> Parsed<Result<T, Error>>,
        patience: Duration,
    ) -> Result<Result<T, Error>, Fault> {
        let late = |_| Fault::Broken("no answer in time".into());
        let mut conn = timeout(self.options.dial_timeout, Conn::open_idle(self, addr)).await.map_err(late)??;
        match timeout(patience, conn.ask(command.to_vec(), parse)).await.map_err(late)? {
            Err(Fault::Refused(e)) => Ok(Err(e)),
            answer => answer.map(Ok),
        }
    }

    /// Checks that the INFO of a node names the right cluster. The first that is named is the right one, unless the
    /// options name one.
    pub(crate) fn check_cluster(&self, addr: &str, info: &str) -> Result<(), Fault> {
        let refusal = match (resp::cluster(info)?, self.options.cluster) {
            (None, None) => return Ok(()),
            (None, Some(want)) => format!("{addr} does not report its cluster, want {want}"),
            (Some(0), _) => return Err(Error::new(Code::NoLeader, "the node does not know its cluster yet").into()),
            (Some(id), _) => match self.pin(id) {
                pin if pin == id => return Ok(()),
                pin => format!("{addr} belongs to cluster {id:016x}, want {pin:016x}"),
            },
        };
        Err(self.reject(addr, refusal).into())
    }

    /// The error of an answer of another cluster.
    pub(crate) fn reject(&self, addr: &str, refusal: String) -> Error {
        let error = Error::new(Code::WrongCluster, refusal);
        self.options.emit(&Event::Rejected { addr, error: &error });
        error
    }
}
