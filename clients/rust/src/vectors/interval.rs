use serde::Deserialize;

use super::{parse, vectors};
use crate::{
    Timestamp,
    clock::interval::{self, Bounds, Estimate, Moment, Rate, Reading},
};

#[derive(Deserialize)]
struct Interval {
    readings: Vec<ReadingOf>,
    estimates: Vec<EstimateOf>,
    generators: Vec<GeneratorOf>,
    past: Vec<PastOf>,
}

#[derive(Clone, Deserialize, Default)]
#[serde(default)]
struct BoundsOf {
    earliest: String,
    latest: String,
    limit: String,
    term: Option<String>,
}

impl BoundsOf {
    fn bounds(&self) -> Bounds {
        Bounds {
            earliest: parse(&self.earliest),
            latest: parse(&self.latest),
            limit: parse(&self.limit),
            term: self.term.as_deref().map_or(1, parse),
        }
    }
}

#[derive(Deserialize)]
struct ReadingOf {
    hex: String,
    error: Option<String>,
    nonce: Option<String>,
    cluster: Option<String>,
    #[serde(flatten)]
    bounds: BoundsOf,
}

#[derive(Deserialize)]
struct EstimateOf {
    name: String,
    steps: Vec<StepOf>,
}

type MomentOf = (String, String);

fn moment(of: &MomentOf) -> Moment {
    Moment { lo: parse(&of.0), hi: parse(&of.1) }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum StepOf {
    Take {
        take: TakeOf,
        agrees: bool,
        believed: bool,
    },
    Until {
        until: MomentOf,
        time: String,
        ok: bool,
        wait: String,
    },
    Bounds {
        bounds: MomentOf,
        good: bool,
        #[serde(flatten)]
        want: BoundsOf,
    },
}

#[derive(Deserialize)]
struct TakeOf {
    sent: MomentOf,
    received: MomentOf,
    reading: BoundsOf,
}

#[derive(Deserialize)]
struct GeneratorOf {
    last: String,
    bounds: BoundsOf,
    random: String,
    count: String,
    timestamp: String,
}

#[derive(Deserialize)]
struct PastOf {
    timestamp: String,
    bounds: BoundsOf,
    past: bool,
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn readings() {
    for r in vectors::<Interval>("interval").readings {
        let got = Reading::decode(&bytes(&r.hex));
        assert_eq!(got.is_err(), r.error.is_some(), "{}", r.hex);
        let Ok(got) = got else { continue };
        assert_eq!(got.bounds, r.bounds.bounds(), "{}", r.hex);
        assert_eq!((Some(got.nonce.to_string()), Some(format!("{:016x}", got.cluster))), (r.nonce, r.cluster));
    }
}

#[test]
fn estimates() {
    for e in vectors::<Interval>("interval").estimates {
        let (mut estimate, mut rate) = (Estimate::default(), Rate::default());
        for (i, step) in e.steps.iter().enumerate() {
            let at = format!("{} step {}", e.name, i + 1);
            match step {
                StepOf::Take { take, agrees, believed } => {
                    let (received, reading) = (moment(&take.received), take.reading.bounds());
                    let agreed = estimate.take(moment(&take.sent), received, reading);
                    assert_eq!((agreed, rate.take(received, reading.term, agreed)), (*agrees, *believed), "{at}");
                }
                StepOf::Bounds { bounds, good, want } => {
                    let got = estimate.bounds(moment(bounds));
                    assert_eq!((got, got.are_good()), (want.bounds(), *good), "{at}");
                }
                StepOf::Until { until, time, ok, wait } => {
                    let got = estimate.until(moment(until), parse(time));
                    assert_eq!(got, ok.then(|| parse(wait)), "{at}");
                }
            }
        }
    }
}

#[test]
fn timestamps_of_a_clock() {
    let v: Interval = vectors("interval");
    for g in v.generators {
        let last = if g.last.is_empty() { 0 } else { parse::<Timestamp>(&g.last).time };
        let time = g.bounds.bounds().next_time(last, parse(&g.count));
        let got = time.map(|time| Timestamp { time, index: interval::index(parse(&g.random)) }.to_string());
        assert_eq!(got.unwrap_or_default(), g.timestamp, "after {}", g.last);
    }
    for p in v.past {
        assert_eq!(p.bounds.bounds().are_after(parse(&p.timestamp)), p.past, "{}", p.timestamp);
    }
}
