//! Shows and changes a cluster's members: the `tenure cluster` subcommands.

mod change;
pub(crate) mod each;
pub(crate) mod health;
mod invite;
mod keys;
mod limits;
mod member_id;
mod status;

use clap::Subcommand;

use crate::exit::Exit;
use crate::failure::CliError;
use crate::output::OutputFormat;
use crate::print_args::{ListArgs, QuietArgs};

pub(crate) use status::{TIGHT_BYTES, bytes, down, gather, lacking, leader, role_word, spare};

/// What can be done with a cluster.
#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show how the cluster and its members are; exit 1 if something is wrong
    ///
    /// Asks every member, and the leader about the others. A member may be dead (nothing listens at its address), hung
    /// (it accepts connections and does not answer), cut off (it answers, but not the other members), behind, or out
    /// of space. A restored cluster may be quiet: it grants no lock yet. Exit code 0 means that none of this is so.
    ///
    ///   tenure cluster status
    ///   tenure cluster status --output json    healthy, and problems with what to do about each
    ///   tenure cluster status --quiet || alert    nothing but the exit code
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("quiet", |arg| arg.help("Print nothing: the exit code says whether all is well")))]
    Status(QuietArgs),
    /// List the members with their ids and addresses
    ///
    ///   tenure cluster members
    ///   tenure cluster members --quiet    only their names
    #[command(verbatim_doc_comment)]
    Members(ListArgs),
    /// Invite one member: print a token with which it can join
    ///
    /// The token is a secret and is shown only here. It lets the first member join that presents it, and ends
    /// with that or when it expires. Initial members of a new cluster need none.
    ///
    ///   tenure cluster invite --expires 10m > invitation
    ///   tenure serve --name d … --join 10.0.0.11:7451 --invitation-file invitation
    ///   tenure cluster invite --list                    those that have not expired
    ///   tenure cluster invite --cancel 0a1b2c3d4e5f6071
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("quiet", |arg| arg.help("Print only the invitation; ids with --list; nothing with --cancel")))]
    #[command(mut_arg("no_header", |arg| arg.requires("list")))]
    Invite(invite::InviteArgs),
    /// Invite a member and say how to add it; with --wait, give it a vote once it has come
    ///
    /// A member adds itself when it starts with --join and an invitation, and learns without a vote at first.
    ///
    ///   tenure cluster add d               prints what to type on d's machine within an hour
    ///   tenure cluster add d --wait 10m    and promotes d when it has caught up
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("quiet", |arg| arg.help("Print only the command to type")))]
    Add(change::AddArgs),
    /// Give a member that has caught up a vote
    ///
    ///   tenure cluster promote d
    #[command(verbatim_doc_comment)]
    Promote(change::PromoteArgs),
    /// Remove a member for ever; it comes back only with an empty directory and a new id
    ///
    ///   tenure cluster remove c
    #[command(verbatim_doc_comment)]
    Remove(change::RemoveArgs),
    /// Let another member lead
    ///
    ///   tenure cluster transfer b
    ///   tenure cluster transfer         the leader chooses
    #[command(verbatim_doc_comment)]
    Transfer(change::TransferArgs),
    /// Raise the feature level: every member applies newer rules; there is no way back
    ///
    ///   tenure cluster raise-level 4
    ///
    /// A new cluster has the newest feature level. An upgraded one keeps its level until this command, which works
    /// once all members run the new version.
    #[command(verbatim_doc_comment)]
    RaiseLevel(change::RaiseLevelArgs),
    /// Show the limits of the cluster, or set some
    ///
    /// A limit is the same on all members, and a command that exceeds it is refused with a reason that names it.
    ///
    ///   tenure cluster limits
    ///   tenure cluster limits waiters_per_lock=20000 leases=2000000    all or none
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("quiet", |arg| arg.help("Print only the names; nothing if limits are set")))]
    #[command(mut_arg("no_header", |arg| arg.conflicts_with("set")))]
    Limits(limits::LimitsArgs),
    /// List and rotate the keys that sign tickets
    #[command(subcommand)]
    Keys(keys::KeysCommand),
}

impl ClusterCommand {
    pub(crate) fn output(&self) -> OutputFormat {
        match self {
            Self::Status(connection) => connection.output,
            Self::Members(connection) => connection.output,
            Self::Invite(it) => it.connection.output,
            Self::Add(it) => it.connection.output,
            Self::Promote(it) => it.connection.output,
            Self::Remove(it) => it.connection.output,
            Self::Transfer(it) => it.connection.output,
            Self::RaiseLevel(it) => it.connection.output,
            Self::Limits(it) => it.connection.output,
            Self::Keys(it) => it.output(),
        }
    }
}

/// Runs one of these subcommands.
pub(crate) fn run(command: &ClusterCommand) -> Result<Exit, CliError> {
    match command {
        ClusterCommand::Status(connection) => connection.with_any(status::status),
        ClusterCommand::Members(connection) => connection.with_any(status::members),
        ClusterCommand::Invite(flags) => {
            flags.connection.with(async |it| invite::invite(it, flags).await)
        }
        ClusterCommand::Add(flags) => {
            flags.connection.with(async |it| change::add(it, flags).await)
        }
        ClusterCommand::Promote(flags) => {
            flags.connection.with(async |it| change::promote(it, flags).await)
        }
        ClusterCommand::Remove(flags) => {
            flags.connection.with(async |it| change::remove(it, flags).await)
        }
        ClusterCommand::Transfer(flags) => {
            flags.connection.with(async |it| change::transfer(it, flags).await)
        }
        ClusterCommand::RaiseLevel(flags) => {
            flags.connection.with(async |it| change::raise_level(it, flags).await)
        }
        ClusterCommand::Limits(flags) => {
            flags.connection.with_any(async |it| limits::limits(it, flags).await)
        }
        ClusterCommand::Keys(command) => keys::run(command),
    }
}
