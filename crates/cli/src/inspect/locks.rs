//! Lists the locks that are held or awaited.

use clap::Args;
use tenure_wire::json::LockShown;
use tenure_wire::v1;
use v1::lock_admin_service_client::LockAdminServiceClient;

use crate::connection_args::ConnectedCluster;
use crate::duration;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::listing::Listing;
use crate::output::{self, Side};
use crate::print_args::ListArgs;

/// Flags of `tenure locks`.
#[derive(Args)]
pub(crate) struct LocksArgs {
    /// Only names that begin with this text
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    pub(crate) connection: ListArgs,
}

pub(crate) fn locks(flags: &LocksArgs) -> Result<Exit, CliError> {
    flags.connection.with(async |cluster| {
        let head = [
            ("LOCK", Side::Left),
            ("MODE", Side::Left),
            ("HELD BY", Side::Left),
            ("FOR", Side::Left),
            ("TOKEN", Side::Right),
            ("WAITING", Side::Right),
        ];
        let mut listing = Listing::new(cluster, &head);
        let mut after = String::new();
        loop {
            let page = page(cluster, &flags.prefix, &after, 0).await?;
            for lock in page.locks {
                let token = |it: &v1::HolderView| it.token.to_string();
                let cells = || {
                    [
                        lock.lock.clone(),
                        mode_words(&lock),
                        holder_cell(&lock),
                        held_for(&lock),
                        lock.holders.first().map_or("-".to_owned(), token),
                        lock.waiting.to_string(),
                    ]
                };
                let object = || LockShown::from(lock.clone());
                listing.item(&lock.lock, |table| table.row(cells()), object);
            }
            after = page.next;
            if after.is_empty() {
                break;
            }
        }
        let about = match flags.prefix.as_str() {
            "" => String::new(),
            prefix => format!(" whose name begins with `{prefix}`"),
        };
        listing.print_or(&format!("no lock{about} is held or awaited"));
        Ok(Exit::Done)
    })
}

/// A page of locks, ordered by name.
pub(crate) async fn page(
    cluster: &ConnectedCluster,
    prefix: &str,
    after: &str,
    limit: u32,
) -> Result<v1::ListLocksResponse, CliError> {
    let ask = v1::ListLocksRequest {
        prefix: prefix.to_owned(),
        after: after.to_owned(),
        limit,
        stale: false,
    };
    let asked = async |channel| LockAdminServiceClient::new(channel).list(ask.clone()).await;
    Ok(cluster.client.question(asked).await?)
}

/// How the lock is held, in a few words.
pub(crate) fn mode_words(lock: &v1::LockView) -> String {
    let Some(holder) = lock.holders.first() else {
        return lock.slots.map_or("free".to_owned(), |slots| format!("slots 0/{slots}"));
    };
    let held = lock.holders.iter().filter(|it| it.state() == v1::HolderState::Held).count();
    match (holder.state(), lock.slots) {
        (v1::HolderState::Cooling, None) => "revoking".to_owned(),
        (v1::HolderState::Delayed, None) => "delayed".to_owned(),
        (v1::HolderState::Resting, None) => "resting".to_owned(),
        (_, Some(slots)) => format!("slots {held}/{slots}"),
        (v1::HolderState::Held, None) if holder.election => "election".to_owned(),
        (v1::HolderState::Held, None) if holder.mode() == v1::Mode::Shared => "shared".to_owned(),
        (v1::HolderState::Held, None) => "exclusive".to_owned(),
    }
}

/// The first holder, and the number of further ones.
pub(crate) fn holder_cell(lock: &v1::LockView) -> String {
    let held = |it: &&v1::HolderView| it.state() == v1::HolderState::Held;
    let Some(first) = lock.holders.iter().find(held) else { return "-".to_owned() };
    match lock.holders.iter().filter(held).count() - 1 {
        0 => output::clean(&first.client),
        more => format!("{} +{more}", output::clean(&first.client)),
    }
}

/// How long the lock has been held, or how much longer it keeps others out.
pub(crate) fn held_for(lock: &v1::LockView) -> String {
    match lock.holders.first() {
        None => "-".to_owned(),
        Some(first) if first.state() == v1::HolderState::Held => duration::ms(first.held_ms),
        Some(first) => format!("{} left", duration::ms(first.left_ms)),
    }
}
