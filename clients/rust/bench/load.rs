//! Measures the client against running nodes: `cargo bench --bench load -- CALLERS SECONDS ADDR…`.
//!
//! The first line has the latency of a lone call beside that of the same request on a bare `TcpStream` of tokio, in
//! turns; the second one `count rate p50_us p99_us` of CALLERS tasks that each ask for one timestamp after the other.
//! It is a plain program: criterion has no measurement of many tasks at once, and takes a minute to build.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use isotone::{Client, Error, Options, ReadMode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const REQUEST: &[u8] = b"*3\r\n$2\r\nTS\r\n$1\r\n1\r\n$6\r\nQUORUM\r\n";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [callers, seconds, addrs @ ..] = args.as_slice() else { return Err("usage: CALLERS SECONDS ADDR…".into()) };
    let client = Options::new(addrs).mode(ReadMode::Quorum).connect().await?;
    if std::env::var_os("SKIP_LONE").is_none() {
        tokio::spawn(alone(client.clone(), addrs[0].clone())).await??;
    }
    many(client, callers.parse()?, Duration::from_secs_f64(seconds.parse()?)).await
}

/// Compares a lone call with the same request on a bare connection.
async fn alone(client: Client, addr: String) -> Result<(), Failure> {
    let mut bare = dial_leader(&addr).await?;
    let (mut raw, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..25 {
        let (mut took, mut answer) = (Vec::new(), [0; 256]);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(40) {
            let at = Instant::now();
            bare.write_all(REQUEST).await?;
            let n = bare.read(&mut answer).await?;
            assert_eq!(n, 23, "{:?}", String::from_utf8_lossy(&answer[..n]));
            took.push(at.elapsed());
        }
        let a = percentile(&mut took, 50);
        took.clear();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(40) {
            let at = Instant::now();
            client.timestamp().await?;
            took.push(at.elapsed());
        }
        let b = percentile(&mut took, 50);
        raw.push(a);
        ours.push(b);
        ratios.push(b / a);
    }
    ratios.sort_by(f64::total_cmp);
    raw.sort_by(f64::total_cmp);
    ours.sort_by(f64::total_cmp);
    println!("lone call: bare p50 {:.1} us, client p50 {:.1} us, ratio {:.2}", raw[12], ours[12], ratios[12]);
    Ok(())
}

async fn dial_leader(addr: &str) -> Result<TcpStream, Failure> {
    let mut conn = TcpStream::connect(addr).await?;
    let mut answer = [0; 256];
    conn.write_all(REQUEST).await?;
    let n = conn.read(&mut answer).await?;
    if let Some(leader) = str::from_utf8(&answer[..n]).ok().and_then(|text| text.trim().strip_prefix("-MOVED 0 ")) {
        conn = TcpStream::connect(leader).await?;
    }
    conn.set_nodelay(true)?;
    Ok(conn)
}

async fn many(client: Client, callers: usize, length: Duration) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let begin = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (client, stop) = (client.clone(), stop.clone());
            tokio::spawn(async move {
                let (mut count, mut took, mut last) = (0_u64, Vec::new(), None);
                while !stop.load(Relaxed) {
                    let at = (count % 8 == 0).then(Instant::now);
                    let ts = client.timestamp().await?;
                    assert!(Some(ts) > last, "the order is broken");
                    last = Some(ts);
                    count += 1;
                    took.extend(at.map(|at| at.elapsed()));
                }
                Ok::<_, Error>((count, took))
            })
        })
        .collect();
    tokio::time::sleep(length).await;
    stop.store(true, Relaxed);
    let (mut count, mut took) = (0, Vec::new());
    for task in tasks {
        let (n, samples) = task.await??;
        count += n;
        took.extend(samples);
    }
    #[allow(clippy::cast_precision_loss)]
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    println!("{count} {rate:.0} {:.0} {:.0}", percentile(&mut took, 50), percentile(&mut took, 99));
    Ok(())
}

/// In microseconds.
fn percentile(took: &mut [Duration], percent: usize) -> f64 {
    took.sort_unstable();
    took.get(took.len() * percent / 100).map_or(0.0, |d| d.as_secs_f64() * 1e6)
}
