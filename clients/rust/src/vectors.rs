//! The rules that decide, held against the vectors of the conformance kit.

#![allow(clippy::struct_field_names, clippy::type_complexity, clippy::unchecked_time_subtraction)]

#[cfg(feature = "clock")]
mod interval;

use std::{fmt::Debug, time::Duration};

use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    Error, Id, Layout, ReadMode, Timestamp, Timestamp64,
    error::Class,
    pause::{Pause, quota_pause},
    resp::{self, Answer, Form, Kind, Malformed},
    snowflake::{Refusal, Source},
    timestamp::{Range, Step},
};

fn vectors<T: DeserializeOwned>(name: &str) -> T {
    // At run time: several clones may share what is built.
    let dir = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let path = format!("{dir}/../../conformance/vectors/{name}.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("the file is there")).expect("its form is known")
}

fn parse<T: std::str::FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e:?}"))
}

#[derive(Deserialize)]
struct Timestamps {
    forms: Vec<FormOf>,
    places: Vec<FormOf>,
    order: Vec<String>,
    ranges: Vec<RangeOf>,
    invalid: Vec<String>,
    invalid64: Vec<String>,
}

#[derive(Deserialize)]
struct FormOf {
    hex: String,
    time: Option<String>,
    index: Option<String>,
    u64: String,
    physical: String,
    logical: u64,
}

#[derive(Deserialize)]
struct RangeOf {
    first: String,
    count: String,
    last: String,
}

#[test]
fn timestamps() {
    let v: Timestamps = vectors("timestamps");
    for f in &v.forms {
        let t: Timestamp = parse(&f.hex);
        assert_eq!((Some(t.time.to_string()), Some(t.index.to_string())), (f.time.clone(), f.index.clone()));
        assert_eq!(t.to_string(), f.hex);
        assert_eq!(Timestamp::from_bytes(t.to_bytes()), t);
        assert_eq!(Timestamp64::from(t).to_string(), f.u64, "{}", f.hex);
    }
    for f in v.forms.iter().chain(&v.places) {
        let u: Timestamp64 = parse(&f.u64);
        assert_eq!((u.millis().to_string(), u.counter()), (f.physical.clone(), f.logical));
    }
    for f in &v.places {
        assert_eq!(parse::<Timestamp64>(&f.u64).timestamp().to_string(), f.hex, "{}", f.u64);
    }
    assert!(v.order.iter().is_sorted_by(|a, b| a < b && parse::<Timestamp>(a) < parse::<Timestamp>(b)));
    for r in &v.ranges {
        let range = Range { first: parse::<Timestamp>(&r.first), count: parse(&r.count) };
        assert_eq!(range.last().to_string(), r.last);
        assert_eq!(range.iter().take(3).last(), Some(range.first.plus(range.count.min(3) - 1)));
    }
    assert!(v.invalid.iter().all(|text| text.parse::<Timestamp>().is_err()));
    assert!(v.invalid64.iter().all(|text| text.parse::<Timestamp64>().is_err()));
}

#[derive(Deserialize)]
struct Ids {
    layouts: Vec<LayoutOf>,
    ids: Vec<IdOf>,
    invalid: Vec<Invalid>,
}

#[derive(Deserialize)]
struct LayoutOf {
    layout: String,
    epoch: i64,
    valid: bool,
}

#[derive(Deserialize)]
struct IdOf {
    decimal: String,
    base62: String,
    hex: String,
    layout: String,
    epoch: i64,
    millis: i64,
    worker: u32,
    datacenter: u32,
    in_datacenter: u32,
    sequence: u64,
}

#[derive(Deserialize)]
struct Invalid {
    form: String,
    text: String,
}

#[test]
fn ids() {
    let v: Ids = vectors("ids");
    for l in &v.layouts {
        assert_eq!(Layout::parse(&l.layout, l.epoch).is_ok(), l.valid, "{} {}", l.layout, l.epoch);
    }
    for i in &v.ids {
        let (id, l): (Id, _) = (parse(&i.decimal), Layout::parse(&i.layout, i.epoch).unwrap());
        assert_eq!((id.to_string(), id.to_base62(), id.to_hex()), (i.decimal.clone(), i.base62.clone(), i.hex.clone()));
        assert_eq!((Id::from_base62(&i.base62), Id::from_hex(&i.hex)), (Ok(id), Ok(id)));
        assert_eq!((l.millis(id), l.worker(id), l.sequence(id)), (i.millis, i.worker, i.sequence), "{}", i.decimal);
        assert_eq!((l.datacenter(id), l.in_datacenter(id)), (i.datacenter, i.in_datacenter));
    }
    for i in &v.invalid {
        let read = match i.form.as_str() {
            "decimal" => i.text.parse(),
            "base62" => Id::from_base62(&i.text),
            _ => Id::from_hex(&i.text),
        };
        assert!(read.is_err(), "{} {}", i.form, i.text);
    }
}

#[derive(Deserialize)]
struct Errors {
    lines: Vec<Line>,
    malformed: Vec<String>,
}

#[derive(Deserialize)]
struct Line {
    line: String,
    code: String,
    class: String,
    leader: Option<String>,
    retry_after_ms: Option<u64>,
}

#[test]
fn errors() {
    let v: Errors = vectors("errors");
    for l in v.lines {
        let e = Error::decode(&l.line).unwrap();
        let class = match e.class() {
            Class::Redirect => "redirect",
            Class::Retry => "retry",
            Class::Quota => "quota",
            Class::Unauthorized => "unauthorized",
            Class::Final => "final",
        };
        assert_eq!((e.code().as_str(), class), (l.code.as_str(), l.class.as_str()), "{}", l.line);
        assert_eq!(e.retry_after, Duration::from_millis(l.retry_after_ms.unwrap_or(0)), "{}", l.line);
        assert_eq!(e.leader, l.leader, "{}", l.line);
    }
    for line in v.malformed {
        assert_eq!(Error::decode(&line), Err(Malformed), "{line}");
    }
}

#[derive(Deserialize)]
struct Backoff {
    pauses: Vec<PauseOf>,
    quota: Vec<PauseOf>,
}

#[derive(Deserialize)]
struct PauseOf {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    retry_after_ms: u64,
    failures: u32,
    min: u64,
    max: u64,
}

impl PauseOf {
    /// Checks that random numbers lead to pauses from the least on to nearly the most.
    fn check(&self, pause: impl Fn(u64) -> Duration) {
        let (min, max) = (Duration::from_micros(self.min), Duration::from_micros(self.max));
        assert_eq!(pause(0), min, "{} {}", self.kind, self.failures);
        let pauses = (1..1000_u64).map(|i| pause(i.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        assert!(pauses.clone().all(|p| min <= p && p < max), "{} {}", self.kind, self.failures);
        assert!(pauses.max().unwrap() > min + (max - min) * 9 / 10, "{} {}", self.kind, self.failures);
    }
}

#[test]
fn backoff() {
    let v: Backoff = vectors("backoff");
    for p in v.pauses {
        let kind = match p.kind.as_str() {
            "retry" | "search_later" => Pause::Retry,
            "search" => Pause::Search,
            "refused" => Pause::Refused,
            _ => Pause::Spare,
        };
        p.check(|random| kind.after(p.failures, random));
    }
    for p in v.quota {
        let refusal = Error::decode(&format!("TRYAGAIN quota_exceeded: retry after {} ms", p.retry_after_ms)).unwrap();
        p.check(|random| quota_pause(&refusal, p.failures, random));
    }
}

#[derive(Deserialize)]
struct Generators {
    generators: Vec<Generator>,
}

#[derive(Deserialize)]
struct Generator {
    about: String,
    layout: String,
    epoch: i64,
    worker: u32,
    lease: Option<(i64, i64)>,
    ahead_max_ms: u64,
    steps: Vec<Step_>,
}

#[derive(Deserialize)]
struct Step_ {
    now: Option<i64>,
    take: Option<u64>,
    first: Option<String>,
    last: Option<String>,
    refused: Option<String>,
    extend: Option<i64>,
    stop: Option<i64>,
}

#[test]
fn generators() {
    let v: Generators = vectors("generator");
    for g in v.generators {
        let layout = Layout::parse(&g.layout, g.epoch).unwrap();
        let mut source = Source::new(layout, g.worker, g.lease, Duration::from_millis(g.ahead_max_ms));
        for (i, step) in g.steps.iter().enumerate() {
            let at = format!("{} step {i}", g.about);
            if let Some(end) = step.extend {
                source.extend(end);
            } else if let Some(next) = step.stop {
                assert_eq!(source.stop(), next, "{at}");
            } else {
                let got = source.take(step.now.unwrap(), step.take.unwrap());
                let ends = got.as_ref().ok().map(|ids| (ids[0].to_string(), ids[ids.len() - 1].to_string()));
                assert_eq!(ends, step.first.clone().zip(step.last.clone()), "{at}");
                assert_eq!(got.err().map(name), step.refused.as_deref(), "{at}");
            }
        }
    }
}

fn name(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Exhausted => "exhausted",
        Refusal::LeaseEnded => "lease_ended",
        Refusal::LeaseNotBegun => "lease_not_begun",
        Refusal::Batch => "batch",
        Refusal::ClockBehind => "clock_behind",
        Refusal::ClockBeforeLayout => "clock_before_layout",
        Refusal::ClockAfterLayout => "clock_after_layout",
    }
}

#[derive(Deserialize)]
struct Resp {
    requests: Vec<Wire>,
    answers: Vec<Wire>,
    slots: Vec<Wire>,
    clusters: Vec<Wire>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Wire {
    about: String,
    method: String,
    count: String,
    mode: String,
    floor: Option<String>,
    wire: String,
    first: Option<String>,
    ids: Option<Vec<String>>,
    error: Option<String>,
    malformed: bool,
    incomplete: bool,
    asked: String,
    leader: String,
    members: Vec<String>,
    cluster: Option<String>,
}

impl Wire {
    fn bytes(&self) -> Vec<u8> {
        self.wire.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
    }

    fn kind(&self) -> Kind {
        let form = match self.method.as_str() {
            "timestamps" => Form::Stamp,
            "timestamps64" => Form::Stamp64,
            _ => Form::Id,
        };
        let mode = match self.mode.as_str() {
            "quorum" => ReadMode::Quorum,
            "lease" => ReadMode::Lease,
            _ => ReadMode::Default,
        };
        Kind { form, mode }
    }

    /// Checks what was read against the vector, and returns what there is to compare further.
    fn judge<T: Debug>(&self, read: Result<Option<(Result<T, Error>, usize)>, Malformed>) -> Option<T> {
        assert_eq!((read.is_err(), matches!(read, Ok(None))), (self.malformed, self.incomplete), "{}", self.about);
        let (answer, used) = read.ok()??;
        assert_eq!(used, self.bytes().len(), "{}", self.about);
        let error = self.error.as_deref().map(|line| Error::decode(line).unwrap());
        assert_eq!(answer.as_ref().err(), error.as_ref(), "{}", self.about);
        answer.ok()
    }
}

#[test]
fn wire() {
    let v: Resp = vectors("resp");
    for r in &v.requests {
        let mut out = Vec::new();
        resp::request(&mut out, r.kind(), parse(&r.count), r.floor.as_deref().map(parse));
        assert_eq!(out, r.bytes(), "{}", r.wire);
    }
    for a in &v.answers {
        let (bytes, count) = (a.bytes(), parse(&a.count));
        let (mut first, mut ids) = (None, None);
        match a.judge(resp::answer(&bytes, a.kind(), count)) {
            Some(Answer::Stamp(t)) => first = Some(t.to_string()),
            Some(Answer::Stamp64(u)) => first = Some(u.to_string()),
            Some(Answer::Ids(list)) => ids = Some(list.iter().map(u64::to_string).collect()),
            None => {}
        }
        assert_eq!((&first, &ids), (&a.first, &a.ids), "{}", a.about);
        if !a.malformed && !a.incomplete {
            let cut = (0..bytes.len()).find(|n| resp::answer(&bytes[..*n], a.kind(), count) != Ok(None));
            assert_eq!(cut, None, "{}: a part is an answer", a.about);
        }
    }
    for s in &v.slots {
        let read = match resp::value(&s.bytes()) {
            Ok(Some((Ok(v), used))) => resp::view(&v, &s.asked).map(|view| Some((Ok(view), used))),
            Ok(Some((Err(e), used))) => Ok(Some((Err(e), used))),
            Ok(None) => Ok(None),
            Err(e) => Err(e),
        };
        if let Some(view) = s.judge(read) {
            assert_eq!((&view.leader, &view.members), (&s.leader, &s.members), "{}", s.about);
        }
    }
    for c in &v.clusters {
        let (info, _) = resp::value(&c.bytes()).unwrap().unwrap();
        let text = |id: u64| if id == 0 { String::new() } else { format!("{id:016x}") };
        let got = resp::cluster(info.unwrap().text().unwrap());
        assert_eq!(got.is_err(), c.malformed, "{}", c.about);
        if let Ok(id) = got {
            assert_eq!(id.map(text), c.cluster, "{}", c.about);
        }
    }
}
