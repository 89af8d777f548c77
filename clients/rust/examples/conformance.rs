//! The driver of this client for the conformance kit of Isotone; conformance/README.md describes drivers.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    io::{BufRead, Write},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use isotone::{Client, Clock, Code, Credentials, Error, Event, Generator, GeneratorOptions, Options, ReadMode, Tls};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

const FEATURES: &[&str] = &[
    "connections",
    "queue_max",
    "credentials",
    "tls",
    "client_certificate",
    "above",
    "lazy",
    "events",
    "generator",
    "generator_clock",
    "clock",
];

type Shared<T> = Arc<Mutex<HashMap<String, T>>>;
/// A result, or the code and message of an error.
type Outcome = Result<Value, (&'static str, String)>;

#[derive(Clone, Default)]
struct Driver {
    clients: Shared<Client>,
    credentials: Shared<Arc<Mutex<Credentials>>>,
    generators: Shared<(Arc<Generator>, Arc<AtomicI64>)>,
    clocks: Shared<Clock>,
    running: Arc<Mutex<HashMap<i64, Option<AbortHandle>>>>,
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let driver = Driver::default();
    for line in std::io::stdin().lock().lines() {
        let command: Value = serde_json::from_str(&line.expect("text")).expect("an object in JSON");
        runtime.block_on(driver.begin(command));
    }
    std::process::exit(0); // with whatever is still under way
}

fn write(reply: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{reply}").and_then(|()| out.flush()).expect("the kit reads");
}

fn answer(id: i64, outcome: &Outcome) {
    write(&match outcome {
        Ok(ok) => json!({"id": id, "ok": ok}),
        Err((code, message)) => json!({"id": id, "error": code, "message": message}),
    });
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn coded(e: Error) -> (&'static str, String) {
    let code = match e.code() {
        Code::NotLeader | Code::NoQuorum => "internal",
        code => code.as_str(),
    };
    (code, e.to_string())
}

fn text(c: &Value, field: &str) -> String {
    c[field].as_str().unwrap_or_default().into()
}

fn millis(c: &Value, field: &str) -> Option<Duration> {
    c[field].as_u64().map(Duration::from_millis)
}

fn mode(c: &Value) -> Option<ReadMode> {
    match c["mode"].as_str() {
        Some("quorum") => Some(ReadMode::Quorum),
        Some("lease") => Some(ReadMode::Lease),
        _ => None,
    }
}

impl Driver {
    /// Carries out a command: in a task of its own, after its beginning, if it may take long.
    async fn begin(&self, c: Value) {
        let id = c["id"].as_i64().unwrap_or_default();
        let is_long = matches!(
            c["do"].as_str(),
            Some("new" | "call" | "generator" | "next" | "clock" | "interval" | "stamp" | "wait")
        );
        let driver = self.clone();
        let mut work: Pin<Box<dyn Future<Output = Outcome> + Send>> = Box::pin(async move { driver.run(&c).await });
        if !is_long {
            return answer(id, &work.await);
        }
        if let Poll::Ready(outcome) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
            return answer(id, &outcome);
        }
        let mut running = self.running.lock().unwrap();
        let driver = self.clone();
        let task = tokio::spawn(async move {
            let outcome = work.await;
            if driver.running.lock().unwrap().remove(&id).is_some() {
                answer(id, &outcome);
            }
        });
        running.insert(id, Some(task.abort_handle()));
    }

    async fn run(&self, c: &Value) -> Outcome {
        match c["do"].as_str().unwrap_or_default() {
            "hello" => Ok(json!({
                "protocol": 1, "client": "isotone-rust", "version": env!("CARGO_PKG_VERSION"), "features": FEATURES,
            })),
            "sync" => Ok(json!({})),
            "new" => self.open(c).await,
            "call" => call(&self.client(c), c).await.map_err(coded),
            "cancel" => {
                let id = c["call"].as_i64().unwrap_or_default();
                let task = self.running.lock().unwrap().remove(&id);
                if let Some(task) = task.flatten() {
                    task.abort();
                    answer(id, &Err(("canceled", "the call was canceled".into())));
                }
                Ok(json!({}))
            }
            "cluster" => Ok(json!({"cluster": self.client(c).cluster().map_or(String::new(), |id| id.to_string())})),
            "credentials" => {
                let held = self.credentials.lock().unwrap()[&text(c, "client")].clone();
                *held.lock().unwrap() = Credentials::new(text(c, "user"), text(c, "secret"));
                Ok(json!({}))
            }
            "close" => {
                let client = self.clients.lock().unwrap().get(&text(c, "client")).cloned();
                if let Some(client) = client {
                    client.close().await;
                }
                Ok(json!({}))
            }
            "generator" => self.lease(c).await,
            "now" | "next" | "try" | "lease" | "end" => self.generate(c).await.map_err(coded),
            "clock" | "interval" | "stamp" | "past" | "wait" | "stop" => self.tell(c).await.map_err(coded),
            other => Err(("unsupported", format!("the command {other:?}"))),
        }
    }

    fn client(&self, c: &Value) -> Client {
        self.clients.lock().unwrap()[&text(c, "client")].clone()
    }

    async fn open(&self, c: &Value) -> Outcome {
        let options = self.options(c).map_err(coded)?;
        let is_lazy = c["options"]["lazy"] == json!(true);
        let client = if is_lazy { options.lazy() } else { options.connect().await };
        self.clients.lock().unwrap().insert(text(c, "client"), client.map_err(coded)?);
        Ok(json!({}))
    }

    fn options(&self, c: &Value) -> Result<Options, Error> {
        let (o, name) = (&c["options"], text(c, "client"));
        let addrs = o["addrs"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut options = Options::new(addrs).mode(mode(o).unwrap_or_default());
        if let Some(deadline) = millis(c, "deadline_ms") {
            options = options.timeout(deadline);
        }
        if let Some(timeout) = millis(o, "dial_timeout_ms") {
            options = options.dial_timeout(timeout);
        }
        if let Some(id) = o["cluster"].as_str() {
            options = options.cluster(id.parse()?);
        }
        if let Some(floor) = o["floor"].as_str() {
            options = options.floor(floor.parse()?);
        }
        if let Some(number) = o["connections"].as_u64() {
            options = options.connections(usize::try_from(number).unwrap_or_default());
        }
        if let Some(calls) = o["queue_max"].as_u64() {
            options = options.queue_max(usize::try_from(calls).unwrap_or_default());
        }
        if o["user"].is_string() {
            let held = Arc::new(Mutex::new(Credentials::new(text(o, "user"), text(o, "secret"))));
            self.credentials.lock().unwrap().insert(name.clone(), held.clone());
            options = options.credentials(move || held.lock().unwrap().clone());
        }
        if o["tls"].is_object() {
            options = options.tls(tls(&o["tls"])?);
        }
        Ok(options.on_event(move |event| report(&name, event)))
    }

    async fn lease(&self, c: &Value) -> Outcome {
        let clock = Arc::new(AtomicI64::new(c["now_ms"].as_i64().unwrap_or_default()));
        let mut options = GeneratorOptions::default();
        if let Some(length) = millis(c, "lease_ms") {
            options = options.lease(length);
        }
        if let Some(worker) = c["worker"].as_u64() {
            options = options.fixed(u32::try_from(worker).unwrap_or(u32::MAX));
        }
        if let Some(ahead) = millis(c, "ahead_max_ms") {
            options = options.ahead_max(ahead);
        }
        if c["now_ms"].is_i64() {
            let clock = clock.clone();
            options = options.clock(move || clock.load(SeqCst));
        }
        let client = self.client(c).within(millis(c, "deadline_ms").unwrap_or_default());
        let generator = Arc::new(client.generator(options).await.map_err(coded)?);
        let state = lease_of(&generator);
        self.generators.lock().unwrap().insert(text(c, "generator"), (generator, clock));
        Ok(state)
    }

    async fn generate(&self, c: &Value) -> Result<Value, Error> {
        let (generator, clock) = self.generators.lock().unwrap()[&text(c, "generator")].clone();
        let count = usize::try_from(c["count"].as_u64().unwrap_or(1)).unwrap_or(usize::MAX);
        let ids = match c["do"].as_str().unwrap_or_default() {
            "now" => {
                clock.store(c["now_ms"].as_i64().unwrap_or_default(), SeqCst);
                return Ok(json!({}));
            }
            "lease" => return Ok(lease_of(&generator)),
            "end" => return generator.close().await.map(|()| json!({})),
            "try" => generator.try_ids(count)?,
            _ => generator.within(millis(c, "deadline_ms").unwrap_or_default()).ids(count).await?,
        };
        Ok(json!({"ids": ids.iter().map(ToString::to_string).collect::<Vec<_>>()}))
    }
}

impl Driver {
    /// Carries out a command for a clock.
    async fn tell(&self, c: &Value) -> Result<Value, Error> {
        let (action, deadline) = (c["do"].as_str().unwrap_or_default(), millis(c, "deadline_ms").unwrap_or_default());
        if action == "clock" {
            let clock = self.client(c).within(deadline).clock().await?;
            self.clocks.lock().unwrap().insert(text(c, "clock"), clock);
            return Ok(json!({}));
        }
        let clock = self.clocks.lock().unwrap().get(&text(c, "clock")).cloned();
        let Some(clock) = clock.map(|clock| clock.within(deadline)) else { return Ok(json!({})) };
        match action {
            "interval" => {
                let now = clock.now()?;
                let [earliest, latest, term] = [now.earliest, now.latest, now.term].map(|n| n.to_string());
                return Ok(json!({"earliest": earliest, "latest": latest, "term": term}));
            }
            "stamp" => {
                let made = match usize::try_from(c["count"].as_u64().unwrap_or(1)).unwrap_or(usize::MAX) {
                    1 => vec![clock.timestamp().await?],
                    count => clock.timestamps(count).await?,
                };
                return Ok(json!({"timestamps": made.iter().map(ToString::to_string).collect::<Vec<_>>()}));
            }
            "past" => return Ok(json!({"past": clock.is_past(text(c, "timestamp").parse()?)})),
            "wait" => clock.wait(text(c, "timestamp").parse()?).await?,
            _ => clock.close().await,
        }
        Ok(json!({}))
    }
}

fn report(client: &str, event: &Event<'_>) {
    match event {
        Event::Leader { addr } => write(&json!({"event": "leader", "client": client, "addr": addr})),
        Event::Retried { addr, .. } => write(&json!({"event": "retried", "client": client, "addr": addr})),
        Event::Rejected { addr, error } => {
            write(&json!({"event": "rejected", "client": client, "addr": addr, "error": error.code().as_str()}));
        }
        _ => {}
    }
}

fn tls(o: &Value) -> Result<Tls, Error> {
    let (ca, cert, key) = (text(o, "ca"), text(o, "cert"), text(o, "key"));
    let identity = (!cert.is_empty()).then_some((cert.as_bytes(), key.as_bytes()));
    let tls = Tls::from_pem(ca.as_bytes(), identity)?;
    Ok(if o["server_name"].is_string() { tls.server_name(text(o, "server_name")) } else { tls })
}

fn lease_of(generator: &Generator) -> Value {
    let (start, end) = generator.lease();
    json!({"worker": generator.worker(), "start": start, "end": end})
}

async fn call(client: &Client, c: &Value) -> Result<Value, Error> {
    let mut client = client.within(millis(c, "deadline_ms").unwrap_or_default());
    if let Some(mode) = mode(c) {
        client = client.in_mode(mode);
    }
    if let Some(floor) = c["above"].as_str() {
        client = client.above(floor.parse()?);
    }
    let count = c["count"].as_u64().unwrap_or(1);
    let first = match c["method"].as_str().unwrap_or_default() {
        "timestamp" => client.timestamp().await?.to_string(),
        "timestamps" => client.timestamps(count).await?.first.to_string(),
        "timestamp64" => client.timestamp64().await?.to_string(),
        "timestamps64" => client.timestamps64(count).await?.first.to_string(),
        "id" => return Ok(json!({"ids": [client.id().await?.to_string()]})),
        _ => {
            let ids = client.ids(usize::try_from(count).unwrap_or(usize::MAX)).await?;
            return Ok(json!({"ids": ids.iter().map(ToString::to_string).collect::<Vec<_>>()}));
        }
    };
    Ok(json!({"first": first, "count": count}))
}
