use std::{fmt, time::Duration};

use crate::resp::{Malformed, join_addr, valid_addr};

/// What went wrong. Codes have the same names in all protocols and clients of Isotone.
///
/// A call fails at once with the codes that say so. All else is tried again until the deadline of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// At once: an option or argument is wrong; the message says which.
    InvalidArgument,
    /// The node does not lead. Calls follow the leader instead of failing so.
    NotLeader,
    /// No leader is known. Calls wait for one instead of failing so.
    NoLeader,
    /// At once: more calls wait than [`Options::queue_max`](crate::Options::queue_max); or a generator has no ID now.
    Overloaded,
    /// No worker is free for a lease.
    NoWorker,
    /// Too few voters are reachable.
    NoQuorum,
    /// The quota was used up until the deadline.
    QuotaExceeded,
    /// At once: the nodes do not accept the credentials or the certificate.
    Unauthorized,
    /// At once: the user has no right to this.
    Forbidden,
    /// At once: the cluster is further behind what the client has received than it may raise itself.
    Regressed,
    /// No answer in time, and the nodes that answered belong to another cluster.
    WrongCluster,
    /// At once: the node has a defect, or has issued a timestamp out of order.
    Internal,
    /// At once: the clock of a generator is behind its IDs, or outside the layout.
    Clock,
    /// No answer in time. The message names the nodes that were tried, with the latest failure of each.
    DeadlineExceeded,
    /// At once: the client or the generator was closed.
    Closed,
}

impl Code {
    /// The name, as the protocols have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::NotLeader => "not_leader",
            Self::NoLeader => "no_leader",
            Self::Overloaded => "overloaded",
            Self::NoWorker => "no_worker",
            Self::NoQuorum => "no_quorum",
            Self::QuotaExceeded => "quota_exceeded",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Regressed => "regressed",
            Self::WrongCluster => "wrong_cluster",
            Self::Internal => "internal",
            Self::Clock => "clock",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Closed => "closed",
        }
    }
}

/// The error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: Code,
    message: String,
    pub(crate) leader: Option<String>,
    pub(crate) retry_after: Duration,
}

impl Error {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), leader: None, retry_after: Duration::ZERO }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(crate) fn closed() -> Self {
        Self::new(Code::Closed, "the client is closed")
    }

    /// What went wrong.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The text without the code.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn class(&self) -> Class {
        match self.code {
            Code::NotLeader => Class::Redirect,
            Code::NoLeader | Code::Overloaded | Code::NoWorker | Code::NoQuorum => Class::Retry,
            Code::QuotaExceeded => Class::Quota,
            Code::Unauthorized => Class::Unauthorized,
            _ => Class::Final,
        }
    }

    /// Whether the same cluster may answer the request later.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.class(), Class::Redirect | Class::Retry | Class::Quota)
    }

    /// Decodes an error line without its `-`. A redirect without a valid address is no answer.
    pub(crate) fn decode(line: &str) -> Result<Self, Malformed> {
        let (word, text) = line.split_once(' ').unwrap_or((line, ""));
        if let Some((code, rest)) = refine(word, text) {
            let retry_after = if code == Code::QuotaExceeded { retry_after(rest) } else { Duration::ZERO };
            return Ok(Self { retry_after, ..Self::new(code, rest) });
        }
        let code = match word {
            "MOVED" => return Self::moved(text),
            "CLUSTERDOWN" => Code::NoLeader,
            "TRYAGAIN" | "LOADING" | "BUSY" | "MASTERDOWN" => Code::Overloaded,
            "NOAUTH" | "WRONGPASS" => Code::Unauthorized,
            "NOPERM" => Code::Forbidden,
            "REGRESSED" => Code::Regressed,
            "WRONGCLUSTER" => Code::WrongCluster,
            "ERR" | "WRONGTYPE" => Code::InvalidArgument,
            _ => return Ok(Self::new(Code::Internal, line)),
        };
        Ok(Self::new(code, text))
    }

    fn moved(text: &str) -> Result<Self, Malformed> {
        let (_, addr) = text.split_once(' ').ok_or(Malformed)?;
        let (host, port) = addr.rsplit_once(':').ok_or(Malformed)?;
        let leader = join_addr(host, port);
        if !valid_addr(&leader) {
            return Err(Malformed);
        }
        Ok(Self { leader: Some(leader.clone()), ..Self::new(Code::NotLeader, format!("the leader is {leader}")) })
    }
}

/// The code that follows a word more exactly, as `code: text`, and the text.
fn refine<'a>(word: &str, text: &'a str) -> Option<(Code, &'a str)> {
    let (name, rest) = text.split_once(": ")?;
    let code = match (word, name) {
        ("ERR", "internal") => Code::Internal,
        ("TRYAGAIN", "no_worker") => Code::NoWorker,
        ("TRYAGAIN", "no_quorum") => Code::NoQuorum,
        ("TRYAGAIN", "quota_exceeded") => Code::QuotaExceeded,
        _ => return None,
    };
    Some((code, rest))
}

/// The pause that a text ends with, as in "retry after 20 ms", an hour at most.
fn retry_after(text: &str) -> Duration {
    let pause = || {
        let (_, rest) = text.rsplit_once("retry after ")?;
        let number = rest.strip_suffix(" ms").filter(|n| n.bytes().all(|b| b.is_ascii_digit()))?;
        number.parse::<u32>().ok()
    };
    Duration::from_millis(pause().unwrap_or(0).into()).min(Duration::from_secs(3600))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.message)
    }
}

impl std::error::Error for Error {}

/// What a client does after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Redirect,
    Retry,
    Quota,
    Unauthorized,
    Final,
}

/// Why an exchange with a node has failed.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The node has answered with an error.
    Refused(Error),
    /// The connection is unusable.
    Broken(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(e) => e.fmt(f),
            Self::Broken(text) => f.write_str(text),
        }
    }
}

impl From<Error> for Fault {
    fn from(e: Error) -> Self {
        Self::Refused(e)
    }
}

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Self {
        Self::Broken("malformed answer".into())
    }
}

impl From<std::io::Error> for Fault {
    fn from(e: std::io::Error) -> Self {
        match certificate_fault(&e) {
            Some(refusal) => Self::Refused(refusal),
            None => Self::Broken(e.to_string()),
        }
    }
}

/// The alerts of TLS by which a node refuses the certificate of the client. With TLS 1.3 the handshake of the client
/// is over by then, so that it is the first read that fails.
#[cfg(feature = "tls")]
fn certificate_fault(e: &std::io::Error) -> Option<Error> {
    use tokio_rustls::rustls::{AlertDescription as A, Error as Tls};
    let Tls::AlertReceived(alert) = e.get_ref()?.downcast_ref::<Tls>()? else { return None };
    let refused = matches!(
        alert,
        A::HandshakeFailure
            | A::BadCertificate
            | A::UnsupportedCertificate
            | A::CertificateRevoked
            | A::CertificateExpired
            | A::CertificateUnknown
            | A::UnknownCA
            | A::AccessDenied
            | A::CertificateRequired
    );
    refused.then(|| Error::new(Code::Unauthorized, format!("the node wants another client certificate: {alert:?}")))
}

#[cfg(not(feature = "tls"))]
fn certificate_fault(_: &std::io::Error) -> Option<Error> {
    None
}
