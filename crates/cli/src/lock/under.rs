//! Acquires a lock under an existing lease.

use std::time::Duration;

use serde_json::json;
use tenure_wire::convert;
use tenure_wire::v1;
use v1::answer::Result as Answer;
use v1::lock_admin_service_client::LockAdminServiceClient;
use v1::request::Command;

use super::wait::WaitDisplay;
use super::{AcquireArgs, millis, wait};
use crate::connection_args::{ConnectedCluster, request_id};
use crate::exit::Exit;
use crate::failure::CliError;
use crate::lease;
use crate::output::{self, OutputFormat};
use crate::signals;
use crate::suggest::suggested;

/// The metadata key that makes a call safe to repeat.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// An answer that arrives sooner than this means that the client did not have to wait.
const SILENT: Duration = Duration::from_millis(200);

/// Acquires the lock and leaves it with the lease.
pub(super) async fn acquire(
    cluster: &ConnectedCluster,
    lock: &str,
    wait: Option<Duration>,
    args: &AcquireArgs,
    lease: &str,
) -> Result<Exit, CliError> {
    let lease = lease::find(cluster, lease).await?;
    let mode = match (args.shared, args.slots) {
        (true, _) => tenure_types::Mode::Shared,
        (_, Some(of)) => tenure_types::Mode::Slot { of, take: args.take },
        _ => tenure_types::Mode::Exclusive,
    };
    let take = convert::take(mode);
    let (mode, slots) = convert::mode(mode);
    let ask = v1::AcquireRequest {
        lock: lock.to_owned(),
        lease,
        mode: mode.into(),
        slots,
        take,
        wait_ms: wait.map(millis),
        metadata: args.metadata.clone().into(),
        lock_delay_ms: millis(args.lock_delay),
        min_hold_ms: millis(args.min_hold),
        supersede: args.supersede.clone().unwrap_or_default(),
        priority: args.priority.into(),
        progress_within_ms: millis(args.progress_within.unwrap_or_default()),
        max_hold_ms: args.max_hold.map(millis),
        upgrade: args.upgrade,
        ..Default::default()
    };
    let id = request_id(args.request_id.as_ref());
    let mut request = tonic::Request::new(ask);
    let key = id.to_string().parse();
    let key = key.map_err(|_| CliError::arguments("--request-id has characters that no id has"))?;
    request.metadata_mut().insert(IDEMPOTENCY_KEY, key);
    let asked = async |channel| LockAdminServiceClient::new(channel).acquire(request).await;
    let known = convert::lease_from(lease).ok_or_else(wait::strange)?;
    let waiting = WaitDisplay::new(cluster, lock, known);
    let mut ended = signals::listen()?;
    let grant = tokio::select! {
        grant = cluster.client.order(&id, None, asked) => grant,
        () = waiting.show_after(SILENT) => unreachable!("it is shown until something else happens"),
        never = lease::keep(cluster, lease, SILENT) => match never {},
        signal = ended.signal() => {
            waiting.clear();
            let keep = if args.upgrade { OldHold::Kept } else { OldHold::None };
            leave(cluster, lock, lease, keep).await?;
            super::left(cluster, lock, waiting.ahead());
            return Ok(Exit::Signal(signal));
        }
    };
    waiting.clear();
    let grant = match grant {
        Ok(grant) => grant,
        Err(error) => return Err(wait::explained(cluster, lock, wait, error.into()).await),
    };
    let grants = match &grant.locks[..] {
        [] => vec![(grant.token, grant.slot)],
        several => several.iter().map(|it| (it.token, it.slot)).collect(),
    };
    match cluster.output {
        OutputFormat::Json => {
            for (token, slot) in grants {
                let mut said = json!({
                    "event": "acquired", "lock": lock, "token": token.to_string(),
                    "lease": lease.to_string(),
                });
                if let Some(slot) = slot {
                    said["slot"] = json!(slot);
                }
                output::object(&said);
            }
        }
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => {
            let tokens: Vec<String> = grants.iter().map(|(token, _)| token.to_string()).collect();
            output::out(&format!("{}\n", tokens.join("\n")));
            if output::watched() {
                let (token, lease) = (tokens.join(", "), lease::short(lease));
                let renew = suggested(&format!("tenure lease renew {lease}"));
                output::tell(&format!(
                    "tenure: lock `{lock}` acquired under lease {lease}, token {token}; keep it: {renew}\n"
                ));
            }
        }
    }
    Ok(Exit::Done)
}

/// Whether the lease held the lock before it asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OldHold {
    None,
    /// An upgrade that is given up costs nothing that was held before.
    Kept,
}

/// Gives up the place in the queue and a grant that arrived meanwhile. A place that is already gone is fine.
async fn leave(
    cluster: &ConnectedCluster,
    lock: &str,
    lease: i64,
    hold: OldHold,
) -> Result<(), CliError> {
    let command =
        Command::Leave(v1::LeaveRequest { lock: lock.to_owned(), lease, ..Default::default() });
    let left = match cluster.client.ask(command, Some(&request_id(None))).await {
        Ok((Answer::Left(left), _)) => left,
        Ok(_) => return Err(wait::strange()),
        Err(tenure::Error::Refused(tenure::Refusal::NotWaiting { .. })) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if hold == OldHold::Kept {
        return Ok(());
    }
    for v1::LockGrant { lock, token, .. } in left.held {
        let command =
            Command::Release(v1::ReleaseRequest { lock, lease, token, ..Default::default() });
        cluster.client.ask(command, Some(&request_id(None))).await?;
    }
    Ok(())
}
