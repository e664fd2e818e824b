//! Gives the locks back after `tenure run` was killed and everything that ran under them has ended.

use std::time::Duration;

use tenure_wire::v1;
use v1::request::Command;

use crate::connection_args::{ConnectionArgs, runtime};
use crate::failure::CliError;

use super::environment::LEASE;

/// How long the watchdog tries. Without success the locks are free when the lease ends.
const TRY: Duration = Duration::from_secs(5);

/// The name under which the watchdog ends the lease. The holder did not give the lock back itself, so the history shows
/// this end among the losses, and with it what happened.
const BY: &str = "watchdog: tenure run was killed";

/// Ends the lease of the run. The variables that the command got also tell the watchdog how to reach the cluster.
pub(super) fn give_back(insecure_credentials: bool) -> Result<(), CliError> {
    let lease = std::env::var(LEASE).ok().and_then(|lease| lease.parse().ok());
    let Some(lease) = lease else { return Ok(()) };
    let connection = ConnectionArgs { insecure_credentials, ..ConnectionArgs::default() };
    let mut place = connection.place()?;
    (place.timeout, place.wait_for_server) = (TRY, Some(TRY));
    runtime()?.block_on(async {
        let client = place.connect_to_leader().await?;
        // Everything that ran under the lock has ended, so there is no holder to wait for.
        let (by, by_other, now) = (BY.to_owned(), true, true);
        let revoke = v1::RevokeRequest { lease, by, by_other, now, ..Default::default() };
        match client.ask(Command::Revoke(revoke), None).await {
            Ok(_) | Err(tenure::Error::Refused(tenure::Refusal::LeaseNotFound)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    })
}
