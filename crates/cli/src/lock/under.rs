//! How is a lock taken under a lease that somebody else keeps?

use std::time::Duration;

use serde_json::json;
use tenure_wire::convert;
use tenure_wire::v1;
use v1::lock_admin_service_client::LockAdminServiceClient;

use super::{How, millis, wait};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::lease;
use crate::output::{self, Output};
use crate::reach::{Cluster, request_id};

/// Metadata that makes a call safe to repeat.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Acquires, and leaves the lock with the lease.
pub(super) async fn acquire(
    cluster: &Cluster,
    lock: &str,
    wait: Option<Duration>,
    how: &How,
    lease: &str,
) -> Result<Exit, Failure> {
    let lease = lease::find(cluster, lease).await?;
    let mode = match (how.shared, how.slots) {
        (true, _) => tenure::Mode::Shared,
        (_, Some(of)) => tenure::Mode::Slot { of },
        _ => tenure::Mode::Exclusive,
    };
    let (mode, slots) = convert::mode(mode);
    let ask = v1::AcquireRequest {
        lock: lock.to_owned(),
        lease,
        mode: mode.into(),
        slots,
        wait_ms: wait.map(millis),
        metadata: how.metadata.clone().into(),
        lock_delay_ms: millis(how.lock_delay),
        max_hold_ms: how.max_hold.map(millis),
        ..Default::default()
    };
    let id = request_id(how.request_id.as_ref());
    let mut request = tonic::Request::new(ask);
    let key = id.to_string().parse();
    let key = key.map_err(|_| Failure::arguments("--request-id has characters that no id has"))?;
    request.metadata_mut().insert(IDEMPOTENCY_KEY, key);
    let asked = async |channel| LockAdminServiceClient::new(channel).acquire(request).await;
    let grant = match cluster.client.order(&id, None, asked).await {
        Ok(grant) => grant,
        Err(error) => return Err(wait::explained(cluster, lock, error.into()).await),
    };
    match cluster.output {
        Output::Json => {
            let mut said = json!({
                "event": "acquired", "lock": lock, "token": grant.token.to_string(),
                "lease": lease.to_string(),
            });
            if let Some(slot) = grant.slot {
                said["slot"] = json!(slot);
            }
            output::object(&said);
        }
        Output::Text => {
            output::out(&format!("{}\n", grant.token));
            if output::watched() {
                let (token, lease) = (grant.token, lease::short(lease));
                output::tell(&format!(
                    "tenure: lock `{lock}` acquired under lease {lease}, token {token}\n"
                ));
            }
        }
    }
    Ok(Exit::Done)
}
