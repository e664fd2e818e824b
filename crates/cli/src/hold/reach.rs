//! How does `tenure run` reach the cluster?

use std::time::Duration;

use clap::Args;
use tenure::{Builder, Client};

use super::times;

/// Where the cluster is looked for if nobody says.
const LOOPBACK: &str = "127.0.0.1:7450";

/// Flags about the way to the cluster.
#[derive(Args)]
pub(super) struct Reach {
    /// Members of the cluster, separated by commas [default: TENURE_ADDR, else 127.0.0.1:7450]
    #[arg(long, value_name = "ADDRS")]
    addr: Option<String>,
    /// What others see as the holder [default: host/pid]
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// How long to look for a member that answers
    #[arg(long, value_name = "TIME", value_parser = times::parse, default_value = "10s")]
    connect_timeout: Duration,
}

impl Reach {
    /// The addresses of members.
    pub(super) fn addresses(&self) -> String {
        let said = self.addr.clone().or_else(|| std::env::var("TENURE_ADDR").ok());
        said.filter(|said| !said.trim().is_empty()).unwrap_or_else(|| LOOPBACK.to_owned())
    }

    /// A client that is not connected yet.
    pub(super) fn builder(&self) -> Builder {
        let builder = Client::builder().addresses(&self.addresses()).timeout(self.connect_timeout);
        match &self.client {
            Some(name) => builder.name(name),
            None => builder,
        }
    }
}
