//! Restores a cluster from a backup, or from the data directory of its last member.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tenure_server::restore::{
    RestoreError, RestoreOptions, RestoreOrigin, Restored, StoppedFor, restore,
};
use tenure_server::{MemberNames, Preference};
use tenure_types::{Epoch, Token};

use crate::duration;
use crate::exit::Exit;
use crate::failure::{CliError, chain};
use crate::output::{self, OutputFormat};

const SEGMENT_BYTES: u32 = 64 * 1024 * 1024;

/// The examples at the end of `tenure restore --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  Bring a cluster back from a backup, as one member, and start it:
    tenure restore /backups/monday --data /var/lib/tenure --name a
    tenure serve --name a --data /var/lib/tenure

  Every client was stopped ten minutes ago, so that locks are granted ten minutes earlier:
    tenure restore /backups/monday --data /var/lib/tenure --stopped-for 10m

  The cluster wrote to storage after the backup, and the storage has seen token 281474976710999:
    tenure restore /backups/monday --data /var/lib/tenure --above 281474976710999

  Two of three members are lost for ever, the third one's disk is whole, its process stopped:
    tenure restore --from-data /var/lib/tenure --data /var/lib/tenure-new --name a

  The backup is on a medium that cannot be written, so the epoch cannot be noted beside it:
    tenure restore /mnt/cdrom/monday --data /var/lib/tenure --epoch 7
    tenure restore /mnt/cdrom/monday --data /var/lib/tenure --ledger /var/backups/monday.ledger

Then add the others, each with an empty directory: tenure cluster add b prints the command; then promote them.

Exit codes: 0 restored, 1 refused, 2 wrong arguments, 78 a directory or ledger cannot be used.";

/// Flags of `tenure restore`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("source").required(true).args(["file", "from_data"]))]
pub(crate) struct RestoreArgs {
    /// The backup
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Instead of a backup, the data directory of the last member; it is read, never changed
    #[arg(long, value_name = "DIR")]
    from_data: Option<PathBuf>,
    /// Make the new cluster's first member in this directory, which must be empty
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The epoch; without it, the next one that was never used
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=32_767))]
    epoch: Option<u16>,
    /// Have every new token above this one
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    above: Option<Token>,
    /// Where epochs are written down [default: FILE.ledger, or DIR.ledger]
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Refuse what is not of this cluster
    #[arg(long, value_name = "ID")]
    cluster: Option<String>,
    /// How long all clients of the former cluster have been stopped, or cut off from it, on your word: no lock is
    /// granted for that much less. Without it a client that got a lease after the backup may still be at work, so no
    /// lock is granted for the longest ttl and the longest lock-delay that the cluster allowed
    #[arg(long, value_name = "TIME", value_parser = duration::parse, conflicts_with = "waive_quiet")]
    stopped_for: Option<Duration>,
    /// Skip the post-restore wait: no client that held a lock before is still at work
    #[arg(long)]
    waive_quiet: bool,
    /// What people will call the member
    #[arg(long)]
    name: Option<String>,
    /// Where it will listen for clients
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7450")]
    clients: String,
    /// Where it will listen for other members
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7451")]
    members: String,
    /// Output format
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
}

/// Restores a cluster of one member.
pub(crate) fn run(flags: &RestoreArgs) -> Result<Exit, CliError> {
    let restored = restore(&flags.wanted()).map_err(|error| failure(&error))?;
    report(flags, &restored);
    Ok(Exit::Done)
}

impl RestoreArgs {
    fn wanted(&self) -> RestoreOptions {
        let from = match (&self.file, &self.from_data) {
            (Some(file), _) => RestoreOrigin::Backup(file.clone()),
            (None, data) => RestoreOrigin::Data(data.clone().unwrap_or_default()),
        };
        let (members, clients) = (self.members.clone(), self.clients.clone());
        RestoreOptions {
            from,
            data: self.data.clone(),
            cluster: self.cluster.clone(),
            epoch: self.epoch.and_then(Epoch::new),
            above: self.above,
            ledger: self.ledger.clone(),
            stopped: self.stopped(),
            names: self.name.clone().map(|name| MemberNames {
                name,
                members,
                clients,
                preference: Preference::default(),
            }),
            segment_bytes: SEGMENT_BYTES,
        }
    }
}

impl RestoreArgs {
    fn stopped(&self) -> StoppedFor {
        if self.waive_quiet {
            return StoppedFor::ForGood;
        }
        let time = self.stopped_for.unwrap_or_default();
        // Round down to whole milliseconds: these have certainly passed.
        StoppedFor::ForMs(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }
}

fn token(text: &str) -> Result<Token, String> {
    let number: u64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let token = Token::from_u64(number).filter(|token| token.epoch().is_some());
    token.ok_or_else(|| "not a token: those are above 0 and fit 63 bits".to_owned())
}

fn failure(error: &RestoreError) -> CliError {
    let exit = if error.is_setting() { Exit::Config } else { Exit::Refused };
    CliError::new(exit, "RESTORE", format!("{}; try {}", chain(error), error.advice()))
}

fn report(flags: &RestoreArgs, restored: &Restored) {
    let Restored { lineage, before, member, index, unsure, revision, keys, quiet_ms, ledger } =
        restored;
    let (cluster, epoch) = (&lineage.cluster, lineage.epoch.get());
    let incarnation = lineage.incarnation;
    if flags.output == OutputFormat::Json {
        let said = serde_json::json!({
            "data": flags.data, "cluster": cluster, "member": member.to_string(), "epoch": epoch,
            "epoch_before": before.epoch.get(), "incarnation": incarnation.to_string(),
            "incarnation_before": before.incarnation.to_string(), "index": index,
            "entries_not_known_committed": unsure, "revision": revision.to_string(), "keys": keys,
            "quiet_ms": quiet_ms, "ledger": ledger,
        });
        output::object(&said);
        return;
    }
    let mut text = format!(
        "restored cluster {cluster} as one member, {member}, in {}\n  \
         epoch {epoch} (was {}), incarnation {incarnation}\n  \
         {keys} keys, up to entry {index} of the former log; leases and locks are gone\n",
        flags.data.display(),
        before.epoch.get()
    );
    if *unsure > 0 {
        text.push_str(&format!(
            "  its last {unsure} log entries may not be committed; the restored state includes them\n"
        ));
    }
    text.push_str(&match quiet_ms {
        Some(ms) => format!(
            "  no lock is granted for {} s after the start, because clients of the former cluster may still be at \
             work;\n  if all of them have been stopped for a while, restore with --stopped-for TIME\n",
            ms.div_ceil(1000)
        ),
        None => "  locks are granted at once\n".to_owned(),
    });
    text.push_str(&match ledger {
        Some(path) => format!("  epoch written down in {}\n", path.display()),
        None => {
            format!("  epoch {epoch} is written down NOWHERE: never use it for another restore\n")
        }
    });
    let name = flags.name.as_deref().unwrap_or("NAME");
    let (data, clients, members) = (flags.data.display(), &flags.clients, &flags.members);
    text.push_str(&format!(
        "start it:  tenure serve --name {name} --data {data} --clients {clients} --members {members}\n\
         then add others, with empty directories:  tenure cluster add NAME --addr {clients}\n"
    ));
    output::out(&text);
}
