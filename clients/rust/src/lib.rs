//! The client of [Isotone](https://github.com/isotone/isotone), a highly available timestamp oracle and ID service.
//!
//! ```no_run
//! # async fn example() -> Result<(), isotone::Error> {
//! use isotone::Client;
//!
//! let client = Client::connect(["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"]).await?;
//! let ts = client.timestamp().await?;             // larger than all that anybody had received
//! let range = client.timestamps(1000).await?;     // a thousand, consecutive
//! let id = client.id().await?;                    // a Snowflake ID from any member
//! # drop((ts, range, id)); Ok(()) }
//! ```
//!
//! - **Batching.** Calls that arrive while a request is under way share the next one. A call never joins a request that
//!   was sent before it began. A lone call writes and reads by itself, without another task.
//! - **Failures.** The client follows the leader, searches for it when it fails or falls silent, and repeats requests
//!   until they are answered or the timeout is over. That is safe: a timestamp that nobody has seen orders nothing.
//! - **One cluster, one order.** It uses answers of one cluster only, and none that is not larger than all that it had
//!   received when it sent the request. Its first request on each connection tells the node that largest timestamp.
//! - **Generators** make IDs in the process, under a lease: [`Client::generator`].
//! - **A cluster clock** in the process makes timestamps without requests: `Client::clock`, with the feature `clock`.
//!
//! It keeps the rules of clients (`docs/client-protocol.md` in the repository), and has of what is optional there: TLS,
//! credentials, floors of calls, generators, events and a cluster clock; no trace contexts.
//!
//! # Features
//!
//! | feature | |
//! |---|---|
//! | `tls` | [`Options::tls`], by rustls |
//! | `blocking` | [`blocking`], for programs without a runtime |
//! | `clock` | [`Client::clock`]; on Linux it needs the crate `rustix`, to read the clocks of the system |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
#[cfg(feature = "clock")]
mod clock;
mod error;
mod generator;
mod lane;
mod link;
mod net;
mod options;
mod pause;
mod resp;
mod router;
mod snowflake;
mod state;
mod timestamp;
#[cfg(feature = "tls")]
mod tls;
#[cfg(test)]
mod vectors;
mod watch;

pub use client::Client;
#[cfg(feature = "clock")]
pub use clock::{Clock, Interval};
pub use error::{Code, Error};
pub use generator::{Generator, GeneratorOptions};
pub use options::{ClusterId, Credentials, Event, Options, ReadMode};
pub use snowflake::{Id, Layout};
pub use timestamp::{Range, Step, Timestamp, Timestamp64};
#[cfg(feature = "tls")]
pub use tls::Tls;
