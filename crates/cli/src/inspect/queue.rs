//! Shows the waiters of a lock in their order.

use clap::Args;
use tenure_wire::json::WaiterShown;
use tenure_wire::v1;
use v1::lock_admin_service_client::LockAdminServiceClient;

use crate::connection_args::ConnectionArgs;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::lease;
use crate::output::{self, OutputFormat, Side, Table};

/// Flags of `tenure queue`.
#[derive(Args)]
pub(crate) struct QueueArgs {
    /// Of which lock
    #[arg(value_parser = output::name)]
    lock: String,
    #[command(flatten)]
    pub(crate) reach: ConnectionArgs,
}

/// Shows the queue of a lock.
pub(crate) fn queue(flags: &QueueArgs) -> Result<Exit, CliError> {
    flags.reach.with(async |cluster| {
        let mut table = Table::new(&[
            ("#", Side::Right),
            ("CLIENT", Side::Left),
            ("WAITING", Side::Left),
            ("GIVES UP", Side::Left),
            ("MODE", Side::Left),
            ("LEASE", Side::Left),
        ]);
        let (mut after, mut any) = (0, 0_u64);
        loop {
            let ask = v1::QueueRequest { lock: flags.lock.clone(), limit: 0, after, stale: false };
            let asked =
                async |channel| LockAdminServiceClient::new(channel).queue(ask.clone()).await;
            let page = cluster.client.question(asked).await?;
            for waiter in page.waiters {
                any += 1;
                if cluster.output == OutputFormat::Json {
                    output::object(&WaiterShown::from(waiter));
                    continue;
                }
                table.row([
                    any.to_string(),
                    waiter.client.clone(),
                    duration::ms(waiter.waiting_ms),
                    waiter
                        .left_ms
                        .map_or("never".to_owned(), |ms| format!("in {}", duration::ms(ms))),
                    mode(&waiter),
                    lease::short(waiter.lease),
                ]);
            }
            after = page.next;
            if after == 0 {
                break;
            }
        }
        match (cluster.output, any) {
            (OutputFormat::Text, 0) => {
                let lock = &flags.lock;
                let look = quoted(lock);
                output::tell(&format!(
                    "no client waits for lock `{lock}`; look: tenure explain {look}\n"
                ));
            }
            (OutputFormat::Text, _) => output::out(&table.text()),
            (OutputFormat::Json, _) => {}
        }
        Ok(Exit::Done)
    })
}

fn mode(waiter: &v1::WaiterView) -> String {
    match waiter.mode() {
        _ if waiter.election => "election".to_owned(),
        v1::Mode::Exclusive => "exclusive".to_owned(),
        v1::Mode::Shared => "shared".to_owned(),
        v1::Mode::Slot => format!("slots {}", waiter.slots),
    }
}
