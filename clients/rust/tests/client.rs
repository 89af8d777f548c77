//! What tests of this client alone can show; the conformance kit shows the rest.

mod fake;

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use fake::Cluster;
use isotone::{Client, Code, Credentials, Event, GeneratorOptions, Options};

/// Polls a future once.
async fn begin(call: &mut (impl Future + Unpin)) {
    poll_fn(|cx| {
        assert!(std::pin::Pin::new(&mut *call).poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
}

#[tokio::test]
async fn calls_that_wait_share_the_next_request() {
    let cluster = Cluster::start(1);
    let client = Client::connect(cluster.addrs()).await.unwrap();
    cluster.hold(true);
    let mut first = pin!(client.timestamp());
    begin(&mut first).await;
    let mut others: Vec<_> = (0..10).map(|_| Box::pin(client.timestamps(3))).collect();
    for call in &mut others {
        begin(call).await;
    }
    cluster.hold(false);
    let mut last = first.await.unwrap();
    for call in others {
        let range = call.await.unwrap();
        assert!(range.first > last, "calls get timestamps in the order in which they joined");
        last = range.last();
    }
    assert_eq!(cluster.counts(), [1, 30]);
}

#[tokio::test]
async fn a_call_whose_task_does_not_run_delays_no_other() {
    let cluster = Cluster::start(1);
    let client = Client::connect(cluster.addrs()).await.unwrap();
    let mut stuck = pin!(client.timestamp());
    begin(&mut stuck).await; // it has sent its request, and would read the answer
    let other = client.timestamp().await.unwrap();
    assert!(stuck.await.unwrap() < other);
}

#[tokio::test]
async fn a_call_that_is_dropped_takes_nothing_from_others() {
    let cluster = Cluster::start(1);
    let client = Client::connect(cluster.addrs()).await.unwrap();
    cluster.hold(true);
    {
        let mut canceled = pin!(client.timestamp());
        begin(&mut canceled).await;
    }
    let mut waits = Box::pin(client.timestamp());
    begin(&mut waits).await;
    let mut leaves = Box::pin(client.timestamps(5));
    begin(&mut leaves).await;
    drop(leaves);
    cluster.hold(false);
    let ts = waits.await.unwrap();
    assert!(client.timestamp().await.unwrap() > ts);
}

#[tokio::test]
async fn calls_that_wait_are_bounded_and_those_that_left_do_not_count() {
    let cluster = Cluster::start(1);
    let client = Options::new(cluster.addrs()).queue_max(2).connect().await.unwrap();
    cluster.hold(true);
    let mut first = pin!(client.timestamp());
    begin(&mut first).await;
    for _ in 0..100 {
        let mut left = Box::pin(client.timestamp());
        begin(&mut left).await;
    }
    let mut waiting = [Box::pin(client.timestamp()), Box::pin(client.timestamp())];
    for call in &mut waiting {
        begin(call).await;
    }
    assert_eq!(client.timestamp().await.unwrap_err().code(), Code::Overloaded);
    cluster.hold(false);
    for call in waiting {
        call.await.unwrap();
    }
    assert!(cluster.counts()[1] < 10, "places of calls that left are used again");
}

#[tokio::test]
async fn a_late_call_names_what_was_tried() {
    let cluster = Cluster::start(1);
    let client = Client::connect(cluster.addrs()).await.unwrap();
    cluster.stop(0);
    let late = client.within(Duration::from_millis(100)).timestamp().await.unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert!(late.message().contains(&cluster.addrs()[0]), "{late}");
}

#[tokio::test]
async fn a_late_call_names_a_node_that_is_silent() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let late = Options::new([&addr]).timeout(Duration::from_millis(100)).connect().await.map(drop).unwrap_err();
    assert_eq!(late.message(), format!("no answer in time; {addr}: it has not answered yet"));
}

#[tokio::test]
async fn observers_that_panic_harm_no_call() {
    let cluster = Cluster::start(1);
    let options = Options::new(cluster.addrs()).timeout(Duration::from_secs(20));
    let client = options.on_event(|_| panic!("by the test")).connect().await.unwrap();
    let ts = client.timestamp().await.unwrap();
    cluster.cut(0);
    assert!(client.timestamp().await.unwrap() > ts);
}

#[tokio::test]
async fn a_node_that_requires_tls_for_credentials_says_so() {
    let options = Options::new(Cluster::start(1).addrs()).credentials(|| Credentials::new("in-plaintext", "x"));
    let refused = options.connect().await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::Unauthorized);
    assert!(refused.message().contains("may require TLS"), "{refused}");
}

#[tokio::test]
async fn credentials_that_panic_are_named() {
    let cluster = Cluster::start(1);
    let options = Options::new(cluster.addrs()).timeout(Duration::from_millis(300));
    let late = options.credentials(|| panic!("by the test")).connect().await.map(drop).unwrap_err();
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert!(late.message().contains("the function for credentials has panicked"), "{late}");
}

#[test]
fn a_client_ends_with_its_runtime() {
    let cluster = Cluster::start(1);
    let [its, other] = [(); 2].map(|()| tokio::runtime::Runtime::new().unwrap());
    let client = its.block_on(Client::connect(cluster.addrs())).unwrap();
    cluster.hold(true);
    let waits = {
        let client = client.clone();
        other.spawn(async move { client.timestamp().await })
    };
    cluster.await_requests(1);
    drop(its);
    assert_eq!(other.block_on(waits).unwrap().unwrap_err().code(), Code::Closed);
    assert_eq!(other.block_on(client.id()).unwrap_err().code(), Code::Closed);
}

#[tokio::test]
async fn a_generator_that_was_closed_says_so() {
    let cluster = Cluster::start(1);
    let client = Client::connect(cluster.addrs()).await.unwrap();
    let generator = client.generator(GeneratorOptions::default()).await.unwrap();
    generator.close().await.unwrap();
    for error in [generator.id().await.unwrap_err(), generator.try_id().unwrap_err()] {
        assert_eq!((error.code(), error.message()), (Code::Closed, "the generator is closed"));
    }
}

#[cfg(feature = "tls")]
#[test]
fn pem_without_a_certificate_is_refused() {
    assert_eq!(isotone::Tls::from_pem(b"", None).map(drop).unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn closing_ends_calls() {
    let cluster = Cluster::start(1);
    let client = Client::connect(cluster.addrs()).await.unwrap();
    cluster.hold(true);
    let (mut sent, mut waits) = (Box::pin(client.timestamp()), Box::pin(client.timestamp()));
    begin(&mut sent).await;
    begin(&mut waits).await;
    client.close().await;
    for call in [sent, waits] {
        assert_eq!(call.await.unwrap_err().code(), Code::Closed);
    }
    assert_eq!(client.id().await.unwrap_err().code(), Code::Closed);
    assert_eq!(client.generator(GeneratorOptions::default()).await.map(drop).unwrap_err().code(), Code::Closed);
}

#[tokio::test]
async fn events_tell_of_requests_and_leaders() {
    let cluster = Cluster::start(2);
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = told.clone();
    let client = Options::new(cluster.addrs())
        .on_event(move |event| {
            log.lock().unwrap().push(match event {
                Event::Leader { addr } => format!("leader {addr}"),
                Event::Retried { addr, .. } => format!("retried {addr}"),
                Event::Answered { calls, count, .. } => format!("answered {calls} {count}"),
                other => format!("{other:?}"),
            });
        })
        .connect()
        .await
        .unwrap();
    client.timestamps(7).await.unwrap();
    cluster.lead(1);
    client.timestamp().await.unwrap();
    let [a, b] = cluster.addrs().try_into().unwrap();
    let want = [
        format!("leader {a}"),
        "answered 1 7".into(),
        format!("retried {a}"),
        format!("leader {b}"),
        "answered 1 1".into(),
    ];
    assert_eq!(*told.lock().unwrap(), want);
}

/// No call is lost, none fails, and the order holds, whatever happens to connections and the leader meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_survive_a_leader_that_changes_all_the_time() {
    let cluster = Cluster::start(3);
    let client = Options::new(cluster.addrs()).timeout(Duration::from_secs(60)).connect().await.unwrap();
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let tasks: Vec<_> = (0..16)
        .map(|i| {
            let (client, over) = (client.clone(), over.clone());
            tokio::spawn(async move {
                let mut last = None;
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    if i % 4 == 0 {
                        client.ids(2).await.unwrap();
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        continue;
                    }
                    let mut call = Box::pin(client.timestamps(1 + i % 3));
                    if i % 4 == 1 {
                        let _ = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
                        drop(call); // canceled, unless it is answered already
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        continue;
                    }
                    let range = call.await.unwrap();
                    assert!(Some(range.first) > last, "the order is broken");
                    last = Some(range.last());
                }
            })
        })
        .collect();
    for round in 0..30 {
        let before = cluster.counts().len();
        match round % 3 {
            0 => cluster.lead(round / 3 % 3),
            1 => (0..3).for_each(|node| cluster.cut(node)),
            _ => cluster.cut(round / 3 % 3),
        }
        cluster.await_requests(before + 20);
    }
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn wrong_options_fail_at_once() {
    let code = |o: Options| o.lazy().map(drop).unwrap_err().code();
    assert_eq!(code(Options::new(Vec::<String>::new())), Code::InvalidArgument);
    assert_eq!(code(Options::new(["localhost"])), Code::InvalidArgument);
    assert_eq!(code(Options::new(["localhost:1"]).queue_max(0)), Code::InvalidArgument);
}

#[test]
fn a_secret_is_not_printed() {
    let text = format!("{:?}", Credentials::new("bank", "swordfish"));
    assert!(text.contains("bank") && !text.contains("swordfish"), "{text}");
}

#[cfg(feature = "blocking")]
#[test]
fn threads_without_a_runtime_use_the_blocking_form() {
    let cluster = Cluster::start(1);
    let client = isotone::blocking::Client::connect(cluster.addrs()).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            std::thread::spawn(move || (0..50).map(|_| client.timestamp().unwrap()).is_sorted_by(|a, b| a < b))
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    let ids = client.generator(GeneratorOptions::default()).unwrap();
    assert!(ids.id().unwrap() < ids.id().unwrap());
    ids.close().unwrap();
    client.close();
    assert_eq!(client.timestamp().unwrap_err().code(), Code::Closed);
}
