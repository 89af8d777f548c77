//! tonic. Arguments: HOST:PORT of each node, the leader first.

use std::collections::HashSet;
use tonic::{transport::Channel, Code, Status};
use tonic_types::StatusExt;

pub mod google {
    pub mod rpc {
        tonic::include_proto!("google.rpc");
    }
}
pub mod isotone {
    pub mod v1 {
        tonic::include_proto!("isotone.v1");
    }
}
use isotone::v1::{
    ids_client::IdsClient, timestamps_client::TimestampsClient, timestamps_get_response::First,
    timestamps_stream_response::Result as Answer, IdsGetRequest, TimestampsGetRequest,
    TimestampsGetResponse, TimestampsStreamRequest,
};

/// Demands a timestamp that is larger than all before.
fn ascending(last: &mut Vec<u8>, answer: TimestampsGetResponse) {
    match answer.first {
        Some(First::Wide(ts)) if ts.len() == 16 && ts > *last => *last = ts,
        other => panic!("{other:?} after {last:?}"),
    }
}

/// Demands an error with that code and reason, and returns the leader that it names.
fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, reason: &str) -> String {
    let status = answer.expect_err("there is no error");
    let info = status.get_details_error_info().expect("there is no ErrorInfo");
    assert_eq!((status.code(), info.reason.as_str(), info.domain.as_str()), (code, reason, "isotone"));
    info.metadata.get("leader").cloned().unwrap_or_default()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addrs: Vec<String> = std::env::args().skip(1).collect();
    let leader = Channel::from_shared(format!("http://{}", addrs[0]))?.connect().await?;
    let follower = Channel::from_shared(format!("http://{}", addrs[1]))?.connect().await?;
    let (mut timestamps, mut last) = (TimestampsClient::new(leader.clone()), Vec::new());
    for count in 1..=100 {
        let request = TimestampsGetRequest { count: Some(count), ..Default::default() };
        ascending(&mut last, timestamps.get(request).await?.into_inner());
    }

    let requests = (0..1000).map(|id| TimestampsStreamRequest { id, get: None });
    let mut answers = timestamps.stream(tokio_stream::iter(requests)).await?.into_inner();
    let mut expected = 0;
    while let Some(a) = answers.message().await? {
        assert_eq!(a.id, expected);
        expected += 1;
        match a.result {
            Some(Answer::Got(got)) => ascending(&mut last, got),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(expected, 1000);

    let mut ids = HashSet::new();
    for node in [leader, follower.clone()] {
        ids.extend(IdsClient::new(node).get(IdsGetRequest { count: Some(1000) }).await?.into_inner().ids);
    }
    assert_eq!(ids.len(), 2000);

    let none = TimestampsGetRequest { count: Some(0), ..Default::default() };
    refused(timestamps.get(none).await, Code::InvalidArgument, "invalid_argument");
    let redirected = TimestampsClient::new(follower).get(TimestampsGetRequest::default()).await;
    assert_eq!(refused(redirected, Code::Unavailable, "not_leader"), addrs[0]);
    println!("tonic: 1,100 timestamps, {} IDs, errors", ids.len());
    Ok(())
}
