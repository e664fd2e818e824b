//! Measures what one event for ten thousand watches does to other clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tenure_server::os;
use tenure_wire::v1;
use tenure_wire::v1::key_service_client::KeyServiceClient;
use tenure_wire::v1::lock_service_client::LockServiceClient;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;

use super::unary::connect;

const WATCHES_PER_STREAM: usize = 250;
const STREAMS: usize = 40;
const CONNECTIONS: usize = 16;
const KEY: &str = "bench/storm";
/// How long to observe commits before the event, and after it.
const OBSERVED: Duration = Duration::from_secs(1);

/// The results.
pub(super) struct Storm {
    pub(super) watches: usize,
    /// The time from the commit of the event until the last watch has received it.
    pub(super) all_heard_us: u64,
    /// The longest time between two commits, without load and during the storm.
    pub(super) quiet_gap_us: u64,
    pub(super) storm_gap_us: u64,
}

pub(super) async fn measure(address: SocketAddr) -> Result<Storm> {
    let channels = connect(address, CONNECTIONS).await?;
    let (started, heard) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut streams = JoinSet::new();
    for at in 0..STREAMS {
        let channel = channels[at % CONNECTIONS].clone();
        streams.spawn(watch(channel, started.clone(), heard.clone()));
    }
    let watches = (WATCHES_PER_STREAM * STREAMS) as u64;
    while started.load(Ordering::Acquire) < watches {
        ensure!(streams.try_join_next().is_none(), "a stream of watches ended");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let gaps = RenewalGaps::default();
    let writer = tokio::spawn(commit(channels[0].clone(), gaps.clone()));
    tokio::time::sleep(OBSERVED).await;
    let quiet_gap_us = gaps.longest_us.swap(0, Ordering::AcqRel);
    let put = v1::PutRequest { key: KEY.into(), value: "x".into(), ..Default::default() };
    KeyServiceClient::new(channels[1].clone()).put(put).await?;
    let agreed_us = os::now_us();
    while heard.load(Ordering::Acquire) < watches {
        ensure!(streams.try_join_next().is_none(), "a stream of watches ended");
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    let all_heard_us = os::now_us() - agreed_us;
    tokio::time::sleep(OBSERVED).await;
    gaps.over.store(true, Ordering::Release);
    writer.await.context("the writer ended")??;
    let storm_gap_us = gaps.longest_us.load(Ordering::Acquire);
    let watches = usize::try_from(heard.load(Ordering::Acquire))?;
    Ok(Storm { watches, all_heard_us, quiet_gap_us, storm_gap_us })
}

async fn watch(
    channel: Channel,
    started: Arc<AtomicU64>,
    heard: Arc<AtomicU64>,
) -> Result<(), anyhow::Error> {
    let (to, requests) = unbounded_channel();
    for watch_id in 1..=WATCHES_PER_STREAM as i64 {
        to.send(v1::WatchRequest { key: KEY.into(), watch_id, ..Default::default() })?;
    }
    let requests = UnboundedReceiverStream::new(requests);
    let mut from = LockServiceClient::new(channel).watch(requests).await?.into_inner();
    while let Some(message) = from.message().await? {
        let fields = message.into_fields();
        if fields.created {
            started.fetch_add(1, Ordering::AcqRel);
        }
        heard.fetch_add(fields.events.len() as u64, Ordering::AcqRel);
    }
    drop(to);
    Ok(())
}

#[derive(Clone, Default)]
struct RenewalGaps {
    longest_us: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

/// Commits one put after the other, and records the longest time between two.
async fn commit(channel: Channel, gaps: RenewalGaps) -> Result<()> {
    let mut keys = KeyServiceClient::new(channel);
    let mut last_us = os::now_us();
    while !gaps.over.load(Ordering::Acquire) {
        let put = v1::PutRequest { key: "bench/other".into(), ..Default::default() };
        keys.put(put).await?;
        let now_us = os::now_us();
        gaps.longest_us.fetch_max(now_us - last_us, Ordering::AcqRel);
        last_us = now_us;
    }
    Ok(())
}
