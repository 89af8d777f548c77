//! What tests of this client alone can show of its cluster clock; the conformance kit shows the rest.
#![cfg(feature = "clock")]

mod fake;

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use fake::{Cluster, cluster_clock};
use isotone::{Client, Clock, Code, Timestamp};

async fn start() -> (Cluster, Client, Clock) {
    let cluster = Cluster::start(1);
    let client = Client::connect(cluster.addrs()).await.unwrap();
    let clock = client.clock().await.unwrap();
    (cluster, client, clock)
}

fn at(time: u64) -> Timestamp {
    Timestamp { time, index: 0 }
}

#[tokio::test]
async fn an_interval_holds_what_the_cluster_clock_shows() {
    let (_cluster, _client, clock) = start().await;
    for _ in 0..1000 {
        let before = cluster_clock();
        let now = clock.now().unwrap();
        assert!(now.earliest <= cluster_clock() && before <= now.latest, "{now:?}: {before}");
        assert_eq!(now.width(), Duration::from_nanos(now.latest - now.earliest));
        let ts = at(cluster_clock());
        assert!(!clock.is_past(ts) || cluster_clock() > ts.time);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn timestamps_of_all_tasks_are_different_and_grow() {
    let (_cluster, client, clock) = start().await;
    let tasks: Vec<_> = (0..8)
        .map(|i| {
            let clock = clock.clone();
            tokio::spawn(async move {
                let mut made = Vec::new();
                for n in 0..500 {
                    match (i + n) % 2 {
                        0 => made.push(clock.timestamp().await.unwrap()),
                        _ => made.extend(clock.timestamps(3).await.unwrap()),
                    }
                }
                assert!(made.is_sorted_by(|a, b| a < b));
                made
            })
        })
        .collect();
    let mut all = HashSet::new();
    for task in tasks {
        assert!(task.await.unwrap().into_iter().all(|ts| ts.index >> 63 == 1 && all.insert(ts)));
    }
    let (first, other) = (clock.timestamp().await.unwrap(), client.clock().await.unwrap().timestamp().await.unwrap());
    assert_ne!(first.index, other.index);
}

/// A timer of the runtime would make it a millisecond.
#[tokio::test]
async fn a_wait_lasts_as_long_as_the_bounds_say() {
    let (_cluster, _client, clock) = start().await;
    let mut best = Duration::MAX; // a busy machine makes some late
    for _ in 0..50 {
        let (began, ts) = (Instant::now(), at(clock.now().unwrap().earliest + 200_000));
        clock.wait(ts).await.unwrap();
        assert!(clock.is_past(ts) && cluster_clock() > ts.time);
        best = best.min(began.elapsed());
    }
    assert!(best < Duration::from_micros(900), "{best:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waits_end_when_their_timestamps_are_past() {
    let (_cluster, _client, clock) = start().await;
    let mut waits = tokio::task::JoinSet::new();
    for i in 0..100 {
        let clock = clock.clone();
        waits.spawn(async move {
            let ts = at(cluster_clock() + i * 7919 % 100 * 200_000);
            if i % 5 == 0 {
                drop(tokio::time::timeout(Duration::from_millis(1), clock.wait(ts)).await); // it may leave
                return;
            }
            clock.wait(ts).await.unwrap();
            assert!(clock.is_past(ts) && cluster_clock() > ts.time);
        });
    }
    waits.join_all().await;
}

#[tokio::test]
async fn the_error_of_a_late_call_says_why() {
    let (cluster, client, clock) = start().await;
    let soon = clock.within(Duration::from_millis(10));
    let late = soon.wait(at(cluster_clock() + 500_000_000)).await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert!(late.message().contains("has not come far enough"), "{late}");
    cluster.lose_the_leader();
    let late = client.within(Duration::from_secs(1)).clock().await.map(drop).unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert!(late.message().contains(&format!("; {}: no_leader", cluster.addrs()[0])), "{late}");
    assert_eq!(clock.timestamps(0).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_ends_with_its_last_handle() {
    let (cluster, client, clock) = start().await;
    let other = clock.clone();
    drop((client, clock)); // the client lives as long as its clock
    cluster.cut(0);
    cluster.await_clocks(2, 1);
    drop(other);
    cluster.await_clocks(2, 2);
}

#[test]
fn a_clock_ends_with_its_runtime() {
    let [its, other] = [(); 2].map(|()| tokio::runtime::Runtime::new().unwrap());
    let (cluster, _client, clock) = its.block_on(start());
    let waits = {
        let (clock, never) = (clock.clone(), at(u64::MAX));
        other.spawn(async move { clock.wait(never).await })
    };
    drop(its);
    cluster.await_clocks(1, 1);
    assert_eq!(other.block_on(waits).unwrap().unwrap_err().code(), Code::Closed);
    assert_eq!(clock.now().unwrap_err().code(), Code::Closed);
    assert_eq!(other.block_on(clock.timestamp()).unwrap_err().code(), Code::Closed);
    other.block_on(clock.close());
}

#[cfg(feature = "blocking")]
#[test]
fn threads_without_a_runtime_use_the_blocking_form() {
    let cluster = Cluster::start(1);
    let client = isotone::blocking::Client::connect(cluster.addrs()).unwrap();
    let clock = client.clock().unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let clock = clock.within(Duration::from_secs(60));
            std::thread::spawn(move || {
                let made = clock.timestamps(10).unwrap();
                clock.wait(made[9]).unwrap();
                assert!(clock.is_past(made[9]) && clock.timestamp().unwrap() > made[9]);
                assert!(clock.now().unwrap().earliest > made[9].time);
            })
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    clock.close();
    assert_eq!(clock.timestamp().unwrap_err().code(), Code::Closed);
}
