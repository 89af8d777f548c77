//! redis-rs, plain and as a cluster client, in both protocols. Arguments: HOST:PORT of each node,
//! the leader first.

use redis::{cluster::ClusterClient, cmd, pipe, Client, ConnectionLike, RedisResult};
use std::collections::HashSet;

#[derive(Default)]
struct Seen {
    last: Vec<u8>,
    ids: HashSet<i64>,
}

impl Seen {
    /// Demands a timestamp that is larger than all before.
    fn ascending(&mut self, ts: Vec<u8>) {
        assert!(ts.len() == 16 && ts > self.last, "{:?} after {:?}", ts, self.last);
        self.last = ts;
    }

    /// Demands an ID that nobody had before.
    fn distinct(&mut self, id: i64) {
        assert!(id > 1 << 53 && self.ids.insert(id), "the ID {id}");
    }

    /// What a plain and a cluster client have in common.
    fn common(&mut self, c: &mut impl ConnectionLike) -> RedisResult<()> {
        for count in 1..=100 {
            self.ascending(cmd("TS").arg(count).query(c)?);
            let ids: Vec<i64> = cmd("SNOWFLAKE").arg(count).query(c)?;
            ids.into_iter().for_each(|id| self.distinct(id));
        }
        let texts: Vec<String> = cmd("SNOWFLAKE").arg(100).arg("AS").arg("STRING").query(c)?;
        texts.iter().for_each(|id| self.distinct(id.parse().unwrap()));
        Ok(())
    }
}

/// Demands an error whose text contains a word.
fn refused<T>(answer: RedisResult<T>, word: &str) {
    match answer {
        Ok(_) => panic!("no error {word}"),
        Err(e) => assert!(e.to_string().contains(word), "{e}: want {word}"),
    }
}

fn main() -> RedisResult<()> {
    let nodes: Vec<String> = std::env::args().skip(1).collect();
    let mut seen = Seen::default();
    for protocol in ["resp2", "resp3"] {
        let url = |addr: &str| format!("redis://{addr}/?protocol={protocol}");
        let mut leader = Client::open(url(&nodes[0]))?.get_connection()?;
        seen.common(&mut leader)?;
        seen.ascending(cmd("TS").query(&mut leader)?);
        seen.distinct(cmd("SNOWFLAKE").query(&mut leader)?);
        for atomic in [false, true] {
            let mut many = pipe();
            if atomic {
                many.atomic();
            }
            for _ in 0..100 {
                many.cmd("TS").arg(3).cmd("SNOWFLAKE");
            }
            let answers: Vec<redis::Value> = many.query(&mut leader)?;
            assert_eq!(answers.len(), 200);
            for two in answers.chunks(2) {
                seen.ascending(redis::from_redis_value(two[0].clone())?);
                seen.distinct(redis::from_redis_value(two[1].clone())?);
            }
        }
        refused(cmd("TS").arg(0).query::<Vec<u8>>(&mut leader), "count");
        refused(cmd("NOSUCH").query::<Vec<u8>>(&mut leader), "unknown command");

        let mut follower = Client::open(url(&nodes[1]))?.get_connection()?;
        refused(cmd("TS").query::<Vec<u8>>(&mut follower), &nodes[0]);
        seen.distinct(cmd("SNOWFLAKE").query(&mut follower)?);

        let mut cluster = ClusterClient::new(vec![url(&nodes[2])])?.get_connection()?;
        seen.common(&mut cluster)?;
    }
    println!("redis-rs: {} IDs", seen.ids.len());
    Ok(())
}
