//! Shows the state of the member that serves the request, over HTTP.

use axum::extract::State;
use serde::Serialize;
use tenure_node::PrincipalAction;
use tenure_wire::json::cluster::Role;
use tenure_wire::json::error::Leader;
use tenure_wire::json::{Decimal, Header};
use utoipa::ToSchema;

use super::Http;
use super::answer::{HttpResult, json};
use super::call::HttpCall;
use super::limits::NoParameters;
use crate::api::grpc;
use crate::metrics::certificate_expiry;

/// How one member is: its part in the agreement, its state, its disk. Its own view, without asking other members.
#[derive(Serialize, ToSchema)]
pub(super) struct Own {
    /// Its id.
    member_id: Decimal,
    /// Its name; absent until it knows it from the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Its part.
    role: Role,
    /// Its leader priority, from 0 (last resort) to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    preference: Option<u8>,
    /// The leader, as far as it knows; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<Leader>,
    /// Whether it leads and takes commands.
    serving: bool,
    /// The term.
    term: u64,
    /// The last entry it has.
    last: u64,
    /// The last entry that is agreed on.
    committed: u64,
    /// The last entry that is in its state.
    applied: u64,
    /// The last entry that its log does not have any more: a snapshot stands for it.
    base: u64,
    /// The machine's clock.
    clock_ms: u64,
    /// Hash over everything applied and answered: equal on all members that applied the same entries.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    hash: String,
    /// The feature level in force.
    level: u16,
    /// The highest feature level that its software knows.
    level_known: u16,
    /// The cluster's id.
    cluster: String,
    /// The epoch, which leads every token and revision.
    epoch: u16,
    /// Drawn anew when the cluster is restored from a backup.
    incarnation: Decimal,
    /// The state in memory, without indexes.
    state_bytes: u64,
    /// Its log, its snapshots and its reserve.
    data_bytes: u64,
    /// Its log alone.
    log_bytes: u64,
    /// Room on its disk.
    disk_free_bytes: u64,
    /// Whether that is so little that the state may not grow.
    disk_short: bool,
    /// When the first of its certificates expires, in milliseconds since 1970; absent without certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_expires_ms: Option<u64>,
    /// How often the log was made durable.
    syncs: u64,
    /// How long that took the last time, in microseconds.
    fsync_last_us: u64,
    /// The same at the 99th of 100 of the newest.
    fsync_p99_us: u64,
    /// The member that answered, and when.
    header: Header,
}

/// Shows how the member that is asked is. No quorum is needed for it.
#[utoipa::path(
    get, path = "/v1/member", tag = "cluster", operation_id = "show_member",
    responses((status = 200, description = "How the member is.", body = Own)),
)]
pub(super) async fn show(State(http): State<Http>, call: HttpCall) -> HttpResult {
    call.query::<NoParameters>()?;
    http.dispatch.may(&http.who(), PrincipalAction::Enter)?;
    let member = http.dispatch.member();
    let (metrics, lineage) = (member.metrics(), member.lineage());
    let inspected = http.dispatch.inspect_node(|node| {
        let machine = node.machine();
        let stats = machine.stats();
        let levels = (machine.level(), machine.level_known());
        let state_bytes = stats.record_bytes + stats.history_bytes;
        let (hash, clock_ms) = (machine.rolling_hash(), machine.clock_ms());
        let own = (machine.revision(), hash, clock_ms, levels, state_bytes);
        (crate::dispatch::ClusterView::of(node), own)
    });
    let (mut cluster, (revision, hash, clock_ms, (level, level_known), state_bytes)) =
        inspected.await?;
    let names = cluster.directory.remove(&member.id());
    let leader = cluster.status.leader.map(|id| {
        let names = cluster.directory.get(&id).or(names.as_ref().filter(|_| id == member.id()));
        let (name, address) =
            names.map(|names| (names.name.clone(), names.clients.clone())).unwrap_or_default();
        Leader { member_id: Decimal(id.get()), name, address }
    });
    let status = &cluster.status;
    json(&Own {
        member_id: Decimal(member.id().get()),
        preference: names.as_ref().map(|names| names.preference.get()),
        name: names.map(|names| names.name),
        role: grpc::cluster::role(&cluster, member.id()).into(),
        leader,
        serving: status.serving,
        term: status.term.0,
        last: status.last.index,
        committed: status.committed,
        applied: status.applied.index,
        base: status.base.index,
        clock_ms,
        hash: format!("{hash:032x}"),
        level,
        level_known,
        cluster: lineage.cluster.clone(),
        epoch: lineage.epoch.get(),
        incarnation: Decimal(lineage.incarnation.0),
        state_bytes,
        data_bytes: metrics.data_bytes,
        log_bytes: metrics.log_bytes,
        disk_free_bytes: metrics.disk_free_bytes,
        disk_short: metrics.disk_short,
        certificate_expires_ms: certificate_expires_ms(&http).await,
        syncs: metrics.syncs,
        fsync_last_us: metrics.sync_last_us,
        fsync_p99_us: metrics.sync_p99_us,
        header: http.header(revision),
    })
}

/// When the first of the member's certificates expires. The files may have been replaced, so they are read.
async fn certificate_expires_ms(http: &Http) -> Option<u64> {
    let tls = http.dispatch.member().meters().certificates()?;
    let paths: Vec<_> = tls.certificate_files().map(|(_, path)| path.to_owned()).collect();
    let read = move || paths.iter().filter_map(|path| certificate_expiry(path)).min();
    let expires_s = http.dispatch.runtime().spawn_blocking(read).await.ok()??;
    Some(expires_s.saturating_mul(1_000))
}
