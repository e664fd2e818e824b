//! Shows and changes a cluster's members: the `tenure cluster` subcommands.

mod change;
pub(crate) mod each;
mod keys;
mod status;

use clap::{Args, Subcommand};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::reach::Reach;

pub(crate) use status::{
    BEHIND, TIGHT_BYTES, bytes, down, gather, lacking, leader, quiet, role_word, spare,
};

/// What can be done with a cluster.
#[derive(Subcommand)]
pub(crate) enum Cluster {
    /// Show how the cluster and its members are
    ///
    ///   tenure cluster status
    #[command(verbatim_doc_comment)]
    Status(Look),
    /// List the members with their ids and addresses
    ///
    ///   tenure cluster members
    #[command(verbatim_doc_comment)]
    Members(Look),
    /// Say how to add a member; with --wait, give it a vote once it has come
    ///
    /// A member adds itself when it starts with --join, and learns without a vote at first.
    ///
    ///   tenure cluster add d               prints what to type on d's machine
    ///   tenure cluster add d --wait 10m    and promotes d when it has caught up
    #[command(verbatim_doc_comment)]
    Add(change::Add),
    /// Give a member that has caught up a vote
    ///
    ///   tenure cluster promote d
    #[command(verbatim_doc_comment)]
    Promote(change::Change),
    /// Remove a member for ever; it comes back only with an empty directory and a new id
    ///
    ///   tenure cluster remove c
    #[command(verbatim_doc_comment)]
    Remove(change::Remove),
    /// Let another member lead
    ///
    ///   tenure cluster transfer b
    ///   tenure cluster transfer         the leader chooses
    #[command(verbatim_doc_comment)]
    Transfer(change::Transfer),
    /// List and rotate the keys that sign tickets
    #[command(subcommand)]
    Keys(keys::Keys),
}

/// Flags of commands that only look.
#[derive(Args)]
pub(crate) struct Look {
    #[command(flatten)]
    pub(crate) reach: Reach,
}

impl Cluster {
    pub(crate) fn output(&self) -> Output {
        match self {
            Self::Status(it) | Self::Members(it) => it.reach.output,
            Self::Add(it) => it.reach.output,
            Self::Promote(it) => it.reach.output,
            Self::Remove(it) => it.reach.output,
            Self::Transfer(it) => it.reach.output,
            Self::Keys(it) => it.output(),
        }
    }
}

/// Runs one of these subcommands.
pub(crate) fn run(command: &Cluster) -> Result<Exit, Failure> {
    match command {
        Cluster::Status(flags) => flags.reach.with(status::status),
        Cluster::Members(flags) => flags.reach.with(status::members),
        Cluster::Add(flags) => flags.reach.with(async |it| change::add(it, flags).await),
        Cluster::Promote(flags) => flags.reach.with(async |it| change::promote(it, flags).await),
        Cluster::Remove(flags) => flags.reach.with(async |it| change::remove(it, flags).await),
        Cluster::Transfer(flags) => flags.reach.with(async |it| change::transfer(it, flags).await),
        Cluster::Keys(command) => keys::run(command),
    }
}
