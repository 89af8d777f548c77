//! Runs the blocks of README.md: each stands here word for word, in a function that a test calls.

mod fake;

use std::time::Duration;

use fake::Cluster;
use isotone::{Client, ClusterId, Code, Error, Event, GeneratorOptions, Options, ReadMode, Timestamp};

type Outcome = Result<(), Error>;

#[test]
fn all_blocks_are_here() {
    let lines =
        |text: &'static str| text.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("\n");
    let (readme, here) = (include_str!("../README.md"), lines(include_str!("readme.rs")));
    let blocks: Vec<_> = readme.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), readme.matches("```").count() / 2, "a block of another language is not run");
    for block in blocks {
        assert!(here.contains(&lines(block)), "not in tests/readme.rs:\n{block}");
    }
}

#[tokio::test]
async fn timestamps_and_ids() -> Outcome {
    let addrs = Cluster::start(1).addrs();
    let client = Client::connect(addrs).await?;
    let ts = client.timestamp().await?; // larger than all that anybody had received
    let range = client.timestamps(1000).await?; // a thousand, consecutive
    assert!(ts < range.first && range.iter().count() == 1000);

    let u = client.timestamp64().await?; // 64 bits, in one order with the others
    assert!(range.last() < u.timestamp());

    let id = client.id().await?; // a Snowflake ID, from any member
    let ids = client.ids(100).await?;
    println!("{ts} {u} {id} {}", ids.len());
    Ok(())
}

#[cfg(feature = "blocking")]
#[test]
fn blocking() -> Outcome {
    let addrs = Cluster::start(1).addrs();
    let client = isotone::blocking::Client::connect(addrs)?;
    let ts = client.timestamp()?;
    let id = client.id()?;
    println!("{ts} {id}");
    Ok(())
}

#[tokio::test]
async fn timeouts() -> Outcome {
    let addrs = Cluster::start(1).addrs();
    let client = Options::new(addrs).timeout(Duration::from_millis(500)).connect().await?;
    match client.timestamp().await {
        Ok(ts) => println!("{ts}"),
        Err(e) if e.code() == Code::DeadlineExceeded => eprintln!("no answer in time: {e}"), // names what was tried
        Err(e) => return Err(e),
    }
    let ts = client.within(Duration::from_millis(50)).timestamp().await?; // another timeout for this call
    println!("{ts}");
    Ok(())
}

#[tokio::test]
async fn order() -> Outcome {
    let addrs = Cluster::start(1).addrs();
    let (cluster, stored): (ClusterId, _) = ("5e1f0c3a9b2d4e71".parse()?, Timestamp { time: 1, index: 5 });
    let client = Options::new(addrs).cluster(cluster).floor(stored).connect().await?;
    assert!(client.timestamp().await? > stored);

    let theirs = client.timestamp().await?; // perhaps received by another process
    assert!(client.above(theirs).timestamp().await? > theirs);
    let fast = client.in_mode(ReadMode::Lease).timestamp().await?; // without a round trip between nodes
    println!("{fast}");
    Ok(())
}

#[tokio::test]
async fn generators() -> Outcome {
    let client = Client::connect(Cluster::start(1).addrs()).await?;
    let generator = client.generator(GeneratorOptions::default()).await?;
    let id = generator.id().await?; // waits only without a lease, or when a millisecond is used up
    let ids = generator.try_ids(256)?; // never waits
    println!("{id} {} at {}", ids.len(), generator.layout().millis(id));
    generator.close().await?; // the worker is free again
    Ok(())
}

#[cfg(feature = "clock")]
#[tokio::test]
async fn clock() -> Outcome {
    let client = Client::connect(Cluster::start(1).addrs()).await?;
    let write = async |ts| println!("{ts}");
    let clock = client.clock().await?; // asks the nearest node several times within INTERVAL_MS
    let ts = clock.timestamp().await?; // waits only while no reading is valid
    write(ts).await;
    clock.wait(ts).await?; // about as long as the interval is wide: now everything that begins gets a larger one
    assert!(clock.is_past(ts) && clock.timestamp().await? > ts);
    println!("{:?}", clock.now()?.width());
    Ok(())
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn secured() -> Outcome {
    use isotone::{Credentials, Tls};
    let (addrs, ca) = (["localhost:1"], include_bytes!("../../python/tests/ca.pem"));
    let tls = Tls::from_pem(ca, None)?; // or with a certificate of the client
    let options = Options::new(addrs).tls(tls).credentials(|| Credentials::new("bank", "a secret"));
    let client = options.lazy()?; // connects in the background
    println!("{:?}", client.cluster());
    Ok(())
}

#[tokio::test]
async fn failover() -> Outcome {
    let cluster = Cluster::start(3);
    let addrs = cluster.addrs();
    let leader_ends = || {
        cluster.lead(2);
        cluster.stop(0);
    };
    let client = Options::new(addrs)
        .timeout(Duration::from_secs(10))
        .on_event(|event| match event {
            Event::Leader { addr } => println!("the leader is {addr}"),
            Event::Retried { addr, reason } => println!("{addr}: {reason}"),
            Event::Rejected { addr, error } => eprintln!("{addr}: {error}"), // alert on Code::Internal
            _ => {} // Answered: the calls and the duration of each request
        })
        .connect()
        .await?;
    let before = client.timestamp().await?;
    leader_ends(); // kill -9, for instance
    assert!(client.timestamp().await? > before);
    Ok(())
}
