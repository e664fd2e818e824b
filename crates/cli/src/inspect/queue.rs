//! Shows the waiters of a lock in their order.

use clap::Args;
use tenure_wire::json::WaiterShown;
use tenure_wire::v1;
use v1::lock_admin_service_client::LockAdminServiceClient;

use crate::duration;
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::lease;
use crate::listing::Listing;
use crate::output::{self, Side};
use crate::print_args::ListArgs;
use crate::suggest::suggested;
use crate::waiting;

/// Flags of `tenure queue`.
#[derive(Args)]
pub(crate) struct QueueArgs {
    /// Of which lock
    #[arg(value_parser = output::name)]
    lock: String,
    #[command(flatten)]
    pub(crate) connection: ListArgs,
}

/// Shows the queue of a lock.
pub(crate) fn queue(flags: &QueueArgs) -> Result<Exit, CliError> {
    flags.connection.with(async |cluster| {
        let head = [
            ("#", Side::Right),
            ("CLIENT", Side::Left),
            ("WAITING", Side::Left),
            ("GIVES UP", Side::Left),
            ("MODE", Side::Left),
            ("LEASE", Side::Left),
        ];
        let (mut listing, mut after) = (Listing::new(cluster, &head), 0);
        loop {
            let ask = v1::QueueRequest { lock: flags.lock.clone(), limit: 0, after, stale: false };
            let asked =
                async |channel| LockAdminServiceClient::new(channel).queue(ask.clone()).await;
            let page = cluster.client.question(asked).await?;
            for waiter in page.waiters {
                let number = listing.items() + 1;
                let until = |ms| format!("in {}", duration::ms(ms));
                let cells = || {
                    [
                        number.to_string(),
                        waiter.client.clone(),
                        duration::ms(waiter.waiting_ms),
                        waiter.left_ms.map_or("never".to_owned(), until),
                        mode(&waiter),
                        lease::short(waiter.lease),
                    ]
                };
                let id = waiter.lease.to_string();
                let object = || WaiterShown::from(waiter.clone());
                listing.item(&id, |table| table.row(cells()), object);
            }
            after = page.next;
            if after == 0 {
                break;
            }
        }
        let lock = &flags.lock;
        let look = suggested(&format!("tenure explain {}", quoted(lock)));
        listing.print_or(&format!("no client waits for lock `{lock}`; look: {look}"));
        Ok(Exit::Done)
    })
}

/// How the waiter asks for the lock, and whether another one would do.
fn mode(waiter: &v1::WaiterView) -> String {
    let mode = mode_alone(waiter);
    match waiting::choice_words(waiter) {
        Some(words) => format!("{mode}, {words}"),
        None => mode,
    }
}

fn mode_alone(waiter: &v1::WaiterView) -> String {
    match waiter.mode() {
        _ if waiter.election => "election".to_owned(),
        v1::Mode::Exclusive => "exclusive".to_owned(),
        v1::Mode::Shared => "shared".to_owned(),
        v1::Mode::Slot if waiter.take > 1 => format!("slots {} of {}", waiter.take, waiter.slots),
        v1::Mode::Slot => format!("slots {}", waiter.slots),
    }
}
