//! TODO
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod client;
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

pub use client::Client;
pub use error::{Code, Error};
pub use generator::{Generator, GeneratorOptions};
pub use options::{ClusterId, Credentials, Event, Options, ReadMode};
pub use snowflake::{Id, Layout};
pub use timestamp::{Range, Step, Timestamp, Timestamp64};
#[cfg(feature = "tls")]
pub use tls::Tls;
