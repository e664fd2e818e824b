//! Tests that the SDK's guards keep their promise while members and clients are killed and stopped.

#[path = "../common/authority.rs"]
mod authority;
#[path = "../common/mod.rs"]
mod common;
mod examples;
mod failover;
mod holder;
mod losses;
mod outside;
mod scripts;
mod secured;

use std::time::Duration;

use common::Cluster;
use tenure::Client;

fn addresses(cluster: &Cluster) -> String {
    let one = |at| match &cluster.client_proxies {
        Some(client_proxies) => format!("127.0.0.1:{}", client_proxies.port(at)),
        None => cluster.address(at).to_string(),
    };
    (0..cluster.members.len()).map(one).collect::<Vec<_>>().join(",")
}

async fn client(addresses: &str, name: &str) -> Client {
    let builder = Client::builder().addresses(addresses).name(name);
    builder.timeout(Duration::from_secs(30)).connect().await.unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
