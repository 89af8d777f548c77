//! The Redis protocol, as far as a client of Isotone needs it: pure functions on bytes.

use crate::{Error, ReadMode, Timestamp, Timestamp64, timestamp::Step};

/// Bytes that are not an answer to the request. The connection is unusable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// What was read and its length; `None` if more is needed.
pub(crate) type Parsed<T> = Result<Option<(T, usize)>, Malformed>;

const LINE_MAX: usize = 8 << 10;
const TEXT_MAX: usize = 4 << 10;
const ITEMS_MAX: usize = 4 << 10;
const DEPTH_MAX: usize = 5;
pub(crate) const MEMBERS_MAX: usize = 64;

/// The form of the numbers that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Stamp,
    Stamp64,
    Id,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) form: Form,
    pub(crate) mode: ReadMode,
}

impl Kind {
    pub(crate) const COUNT: usize = 9;

    pub(crate) fn place(self) -> usize {
        self.form as usize * 3 + self.mode as usize
    }

    /// The most numbers of one request.
    pub(crate) fn count_max(self) -> u64 {
        match self.form {
            Form::Stamp => 1 << 32,
            Form::Stamp64 => 1 << 18,
            Form::Id => 1 << 12,
        }
    }
}

/// The numbers of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Stamp(Timestamp),
    Stamp64(Timestamp64),
    Ids(Vec<u64>),
}

impl Answer {
    /// The place of the `i`-th timestamp in the order of all.
    pub(crate) fn place(&self, i: u64) -> Timestamp {
        match self {
            Self::Stamp(t) => t.plus(i),
            Self::Stamp64(u) => u.plus(i).timestamp(),
            Self::Ids(_) => Timestamp::default(),
        }
    }

    /// The part of a call: `count` numbers from the one `at`.
    pub(crate) fn share(&self, at: u64, count: u64) -> Self {
        match self {
            Self::Stamp(t) => Self::Stamp(t.plus(at)),
            Self::Stamp64(u) => Self::Stamp64(u.plus(at)),
            #[allow(clippy::cast_possible_truncation)] // an answer has 4,096 at most
            Self::Ids(ids) => Self::Ids(ids[at as usize..(at + count) as usize].to_vec()),
        }
    }

    pub(crate) fn stamp(self) -> Timestamp {
        if let Self::Stamp(t) = self { t } else { unreachable!("an answer of another form") }
    }

    pub(crate) fn stamp64(self) -> Timestamp64 {
        if let Self::Stamp64(u) = self { u } else { unreachable!("an answer of another form") }
    }

    pub(crate) fn ids(self) -> Vec<u64> {
        if let Self::Ids(ids) = self { ids } else { unreachable!("an answer of another form") }
    }
}

/// Any answer but an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Simple(String),
    Int(i64),
    Bulk(Option<Vec<u8>>),
    Array(Vec<Value>),
}

impl Value {
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Simple(text) => Some(text),
            Self::Bulk(Some(text)) => str::from_utf8(text).ok(),
            _ => None,
        }
    }

    pub(crate) fn int(&self) -> Option<i64> {
        if let Self::Int(n) = self { Some(*n) } else { None }
    }

    pub(crate) fn items(&self) -> &[Self] {
        if let Self::Array(items) = self { items } else { &[] }
    }
}

/// Appends a command: an array of bulk strings.
pub(crate) fn command(out: &mut Vec<u8>, args: &[&str]) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        out.extend_from_slice(format!("${}\r\n{arg}\r\n", arg.len()).as_bytes());
    }
}

/// Appends a request for numbers.
pub(crate) fn request(out: &mut Vec<u8>, kind: Kind, count: u64, floor: Option<Timestamp>) {
    let (number, floor) = (count.to_string(), floor.map(|f| f.to_string()));
    let mut args = vec![match kind.form {
        Form::Stamp => "TS",
        Form::Stamp64 => "TS64",
        Form::Id => "SNOWFLAKE",
    }];
    if kind.form != Form::Id || count > 1 {
        args.push(&number);
    }
    match kind.mode {
        ReadMode::Default => {}
        ReadMode::Quorum => args.push("QUORUM"),
        ReadMode::Lease => args.push("LEASE"),
    }
    if let Some(floor) = &floor {
        args.extend(["FLOOR", floor]);
    }
    command(out, &args);
}

/// Reads the answer to a request for numbers.
pub(crate) fn answer(bytes: &[u8], kind: Kind, count: u64) -> Parsed<Result<Answer, Error>> {
    if bytes.first() == Some(&b'-') {
        return error_line(bytes);
    }
    let read = match kind.form {
        Form::Stamp => stamp(bytes, count)?,
        Form::Stamp64 => stamp64(bytes, count)?,
        Form::Id => ids(bytes, count)?,
    };
    Ok(read.map(|(answer, used)| (Ok(answer), used)))
}

fn error_line<T>(bytes: &[u8]) -> Parsed<Result<T, Error>> {
    let Some((text, used)) = line(bytes)? else { return Ok(None) };
    Ok(Some((Err(Error::decode(&String::from_utf8_lossy(&text[1..]))?), used)))
}

fn stamp(bytes: &[u8], count: u64) -> Parsed<Answer> {
    const HEAD: &[u8] = b"$16\r\n";
    const END: usize = HEAD.len() + 16;
    let head = bytes.len().min(HEAD.len());
    if bytes[..head] != HEAD[..head] {
        return Err(Malformed);
    }
    let Some(text) = bytes.get(HEAD.len()..END + 2) else { return Ok(None) };
    let (text, end) = text.split_first_chunk::<16>().ok_or(Malformed)?;
    let first = Timestamp::from_bytes(*text);
    if end != b"\r\n" || first.index.checked_add(count - 1).is_none() {
        return Err(Malformed);
    }
    Ok(Some((Answer::Stamp(first), END + 2)))
}

fn stamp64(bytes: &[u8], count: u64) -> Parsed<Answer> {
    let Some((head, used)) = line(bytes)? else { return Ok(None) };
    let len = size(head, b'$', 20)?;
    let Some((digits, more)) = line(&bytes[used..])? else { return Ok(None) };
    if digits.len() != len || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Malformed);
    }
    let first: u64 = parse(digits)?;
    let last = Timestamp64(first.checked_add(count - 1).ok_or(Malformed)?);
    if Timestamp64::from(last.timestamp()) != last {
        return Err(Malformed); // after the year 2553
    }
    Ok(Some((Answer::Stamp64(Timestamp64(first)), used + more)))
}

fn ids(bytes: &[u8], count: u64) -> Parsed<Answer> {
    let Some((head, mut used)) = line(bytes)? else { return Ok(None) };
    if count == 1 && head[0] == b':' {
        return Ok(Some((Answer::Ids(vec![id(head)?]), used)));
    }
    if size(head, b'*', ITEMS_MAX)? as u64 != count {
        return Err(Malformed);
    }
    let mut ids = Vec::new();
    for _ in 0..count {
        let Some((text, more)) = line(&bytes[used..])? else { return Ok(None) };
        ids.push(id(text)?);
        used += more;
    }
    Ok(Some((Answer::Ids(ids), used)))
}

fn id(line: &[u8]) -> Result<u64, Malformed> {
    match line {
        [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => {
            parse::<i64>(digits).map(i64::cast_unsigned) // 63 bits
        }
        _ => Err(Malformed),
    }
}

fn parse<T: std::str::FromStr>(digits: &[u8]) -> Result<T, Malformed> {
    str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or(Malformed)
}

/// The length that a line such as `$16` announces, at most `max`.
fn size(line: &[u8], sigil: u8, max: usize) -> Result<usize, Malformed> {
    let [first, digits @ ..] = line else { return Err(Malformed) };
    if *first != sigil || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Malformed);
    }
    parse(digits).ok().filter(|n| *n <= max).ok_or(Malformed)
}

/// One line without its CRLF: at least the byte that names its kind.
fn line(bytes: &[u8]) -> Parsed<&[u8]> {
    match bytes.iter().take(LINE_MAX).position(|b| *b == b'\n') {
        Some(end) if end >= 2 && bytes[end - 1] == b'\r' => Ok(Some((&bytes[..end - 1], end + 1))),
        None if bytes.len() < LINE_MAX => Ok(None),
        _ => Err(Malformed),
    }
}

/// Reads any answer.
pub(crate) fn value(bytes: &[u8]) -> Parsed<Result<Value, Error>> {
    if bytes.first() == Some(&b'-') {
        return error_line(bytes);
    }
    let mut items = ITEMS_MAX;
    Ok(item(bytes, &mut items, DEPTH_MAX)?.map(|(v, used)| (Ok(v), used)))
}

fn item(bytes: &[u8], items: &mut usize, depth: usize) -> Parsed<Value> {
    let Some((head, mut used)) = line(bytes)? else { return Ok(None) };
    match head[0] {
        b'+' => Ok(Some((Value::Simple(String::from_utf8_lossy(&head[1..]).into()), used))),
        b':' => Ok(Some((Value::Int(parse(&head[1..])?), used))),
        b'$' if head == b"$-1" => Ok(Some((Value::Bulk(None), used))),
        b'$' => {
            let len = size(head, b'$', TEXT_MAX)?;
            let Some(text) = bytes.get(used..used + len + 2) else { return Ok(None) };
            let text = text.strip_suffix(b"\r\n").ok_or(Malformed)?;
            Ok(Some((Value::Bulk(Some(text.to_vec())), used + len + 2)))
        }
        b'*' if depth > 0 => {
            let count = size(head, b'*', *items)?;
            *items -= count;
            let mut list = Vec::new();
            for _ in 0..count {
                let Some((v, more)) = item(&bytes[used..], items, depth - 1)? else { return Ok(None) };
                list.push(v);
                used += more;
            }
            Ok(Some((Value::Array(list), used)))
        }
        _ => Err(Malformed),
    }
}

/// What a node reports about the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) leader: String,
    pub(crate) members: Vec<String>,
}

/// Reads the answer of the node at `asked` to `CLUSTER SLOTS`: ranges of slots and their nodes, the leader first. The
/// first range names the leader. A node without a host is the one that was asked.
pub(crate) fn view(v: &Value, asked: &str) -> Result<View, Malformed> {
    let asked = asked.rsplit_once(':').map_or(asked, |(host, _)| host);
    let mut members = Vec::new();
    for range in v.items() {
        let nodes = range.items().get(2..).filter(|nodes| !nodes.is_empty()).ok_or(Malformed)?;
        for node in nodes {
            let [host, port, ..] = node.items() else { return Err(Malformed) };
            let host = host.text().filter(|h| !matches!(*h, "" | "?")).unwrap_or(asked);
            let addr = join_addr(host, &port.int().ok_or(Malformed)?.to_string());
            if !valid_addr(&addr) || members.len() == MEMBERS_MAX {
                return Err(Malformed);
            }
            members.push(addr);
        }
    }
    let leader = members.first().ok_or(Malformed)?.clone();
    Ok(View { leader, members })
}

/// Reads the answer to `INFO cluster`: `None` if the node reports no ID, 0 if it does not know it yet.
pub(crate) fn cluster(info: &str) -> Result<Option<u64>, Malformed> {
    let Some(text) = info.split("\r\n").find_map(|line| line.strip_prefix("isotone_cluster_id:")) else {
        return Ok(None);
    };
    if text.is_empty() { Ok(Some(0)) } else { cluster_id(text).map(Some).ok_or(Malformed) }
}

/// Reads a cluster's ID: 16 hexadecimal digits, not all 0.
pub(crate) fn cluster_id(text: &str) -> Option<u64> {
    let id = u64::from_str_radix(text, 16).ok()?;
    (text.len() == 16 && !text.starts_with('+') && id != 0).then_some(id)
}

/// Returns `host:port`, with brackets around an IPv6 address.
pub(crate) fn join_addr(host: &str, port: &str) -> String {
    let host = host.trim_matches(['[', ']']);
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Whether `addr` is `host:port` with a port from 1 to 65535.
pub(crate) fn valid_addr(addr: &str) -> bool {
    let Some((host, port)) = addr.rsplit_once(':') else { return false };
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    !host.is_empty()
        && bare != Some("")
        && (bare.is_some() || !host.contains([':', '[', ']']))
        && !host.contains([' ', '\r', '\n', '\t', '/'])
        && !port.starts_with('+')
        && port.parse::<u16>().is_ok_and(|p| p != 0)
}
