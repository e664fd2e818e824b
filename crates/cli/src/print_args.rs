//! Flags that say how much a command prints: `--quiet` and `--no-header`.
//!
//! Only commands for which they mean something have them. Every other command refuses them as unknown.

use std::ops::Deref;

use clap::{ArgMatches, Args};

use crate::connection_args::{ConnectedCluster, ConnectionArgs};
use crate::failure::CliError;
use crate::output::OutputFormat;

/// Flags of commands that can succeed without printing anything: changes, and questions that the exit code answers.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster and output")]
pub(crate) struct QuietArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Print nothing on success
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Flags of commands that list what a cluster has.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster and output")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Print only names or ids, one per line
    #[arg(long, short, conflicts_with = "no_header")]
    pub(crate) quiet: bool,
    /// Leave out the line with the names of the columns
    #[arg(long)]
    pub(crate) no_header: bool,
}

/// A cluster to connect to, and how much to print of what it answers.
#[derive(Clone, Copy)]
pub(crate) struct ConnectionOptions<'a> {
    pub(crate) connection: &'a ConnectionArgs,
    quiet: bool,
    header: bool,
}

/// Lets a group of flags stand for its connection, and connect as they ask. The methods are inherent: those of
/// [`ConnectionArgs`], which know nothing of the flags, must never be called by mistake.
macro_rules! connects {
    ($($flags:ty),+) => {$(
        impl Deref for $flags {
            type Target = ConnectionArgs;

            fn deref(&self) -> &ConnectionArgs {
                &self.connection
            }
        }

        impl $flags {
            /// Connects to a cluster that has a leader and runs `work` with it.
            pub(crate) fn with<T>(
                &self,
                work: impl AsyncFnOnce(&ConnectedCluster) -> Result<T, CliError>,
            ) -> Result<T, CliError> {
                ConnectionOptions::from(self).with(work)
            }

            /// Connects to any member and runs `work`, which needs no leader.
            pub(crate) fn with_any<T>(
                &self,
                work: impl AsyncFnOnce(&ConnectedCluster) -> Result<T, CliError>,
            ) -> Result<T, CliError> {
                ConnectionOptions::from(self).with_any(work)
            }
        }
    )+};
}

connects!(QuietArgs, ListArgs);

impl<'a> From<&'a ConnectionArgs> for ConnectionOptions<'a> {
    fn from(connection: &'a ConnectionArgs) -> Self {
        Self { connection, quiet: false, header: true }
    }
}

impl<'a> From<&'a QuietArgs> for ConnectionOptions<'a> {
    fn from(flags: &'a QuietArgs) -> Self {
        Self { connection: &flags.connection, quiet: flags.quiet, header: true }
    }
}

impl<'a> From<&'a ListArgs> for ConnectionOptions<'a> {
    fn from(flags: &'a ListArgs) -> Self {
        Self { connection: &flags.connection, quiet: flags.quiet, header: !flags.no_header }
    }
}

impl ConnectionOptions<'_> {
    /// Connects to a cluster that has a leader and runs `work` with it.
    pub(crate) fn with<T>(
        self,
        work: impl AsyncFnOnce(&ConnectedCluster) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        self.connection.with(async |cluster| work(&self.apply(cluster)).await)
    }

    /// Connects to any member and runs `work`, which needs no leader.
    pub(crate) fn with_any<T>(
        self,
        work: impl AsyncFnOnce(&ConnectedCluster) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        self.connection.with_any(async |cluster| work(&self.apply(cluster)).await)
    }

    fn apply(self, cluster: &ConnectedCluster) -> ConnectedCluster {
        ConnectedCluster { quiet: self.quiet, header: self.header, ..cluster.clone() }
    }
}

/// Refuses flags that leave each other without a meaning: an object has no header, and no name to print alone.
pub(crate) fn check(matches: &ArgMatches) -> Result<(), CliError> {
    if let Some((_, below)) = matches.subcommand() {
        return check(below);
    }
    let is_set = |id: &str| matches!(matches.try_get_one::<bool>(id), Ok(Some(true)));
    let output = matches.try_get_one::<OutputFormat>("output").ok().flatten();
    if output != Some(&OutputFormat::Json) {
        return Ok(());
    }
    let (flag, next) = match (is_set("quiet"), is_set("no_header")) {
        (true, _) => ("--quiet", "--output json > /dev/null, which prints errors only, as objects"),
        (_, true) => ("--no-header", "--output json alone: objects have no header"),
        (false, false) => return Ok(()),
    };
    let failure = CliError::arguments(format!("{flag} cannot be used with --output json"));
    Err(failure.with("effect", "none: nothing was sent").next(next))
}
