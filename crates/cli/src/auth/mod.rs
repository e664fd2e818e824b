//! Administers access: the `tenure auth` subcommands.

mod identity;
mod keys;
mod principals;
mod roles;
mod trust;

use clap::{Args, Subcommand};
use tenure::{Error, MemberChannel};

use crate::connection_args::{ConnectedCluster, ConnectionArgs, request_id};
use crate::exit::Exit;
use crate::failure::CliError;
use crate::output::OutputFormat;
use crate::print_args::QuietArgs;

/// How often a change is sent whose outcome is not known. Every change here can be repeated.
const TRIES: u32 = 3;

/// What can be done about access.
#[derive(Subcommand)]
pub(crate) enum AuthCommand {
    /// Make the first administrator, on the machine of a member
    ///
    ///   tenure auth init --data-dir /var/lib/tenure                               shows its API key once
    ///   tenure auth init --data-dir /var/lib/tenure --key-file ~/.tenure-admin    writes it to a file, mode 0600
    ///
    /// Every member writes a key of its own to DIR/admin.key when it starts. A user that can read the file may do this.
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("quiet", |arg| arg.help("Print only the API key, or nothing with --key-file")))]
    Init(identity::InitArgs),
    /// Show whether identity is enabled, and who you are
    ///
    ///   tenure auth status
    #[command(verbatim_doc_comment)]
    Status(ConnectionOnlyArgs),
    /// Require credentials of every caller from now on
    ///
    ///   tenure auth enable
    ///
    /// Refused while no administrator could prove who it is afterwards: see `tenure auth init`.
    #[command(verbatim_doc_comment)]
    Enable(QuietArgs),
    /// Require credentials no more: every caller may then do everything but change access rules
    ///
    ///   tenure auth disable --yes
    #[command(verbatim_doc_comment)]
    Disable(identity::DisableArgs),
    /// Say whether a principal may do something, and by which role
    ///
    ///   tenure auth can alice acquire jobs/7      may alice take this lock?
    ///   tenure auth can - acquire jobs/7          may you, with your key?
    ///   tenure auth can alice acquire jobs/7 --priority 5
    ///   tenure auth can alice administer          without a name: the cluster itself
    ///
    /// Ends with 0 for yes and 1 for no.
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("quiet", |arg| arg.help("Print nothing: the exit code is the answer")))]
    Can(identity::CanArgs),
    /// Name what may be done with which names
    ///
    ///   tenure auth role put team-a --allow read,acquire,keys:team-a/
    ///   tenure auth role list
    #[command(subcommand, verbatim_doc_comment)]
    Role(roles::RoleCommand),
    /// Create, change and end principals: programs, teams and people
    ///
    ///   tenure auth principal put ci-a --role team-a
    ///   tenure auth principal disable ci-a        its leases end, its keys are refused
    #[command(subcommand, verbatim_doc_comment)]
    Principal(principals::PrincipalCommand),
    /// Create, rotate and revoke API keys
    ///
    ///   tenure auth key create ci-a --expires 90d --key-file ci-a.key
    ///   tenure auth key rotate 4f1c09a2b7d35e68 --key-file ci-a-new.key
    ///   tenure auth key revoke 4f1c09a2b7d35e68
    #[command(subcommand, verbatim_doc_comment)]
    Key(keys::ApiKeyCommand),
    /// Let client certificates stand for principals
    ///
    ///   tenure auth cert-rule put workers --pattern 'dns:*.workers.example.com' --principal worker
    #[command(subcommand, verbatim_doc_comment)]
    CertRule(trust::CertRuleCommand),
    /// Trust issuers of bearer tokens: Kubernetes, CI systems, identity providers
    ///
    ///   tenure auth issuer put https://ci.example.com --audience tenure --jwks-url https://ci.example.com/jwks \
    ///       --prefix ci:
    #[command(subcommand, verbatim_doc_comment)]
    Issuer(trust::IssuerCommand),
    /// Show and set the quotas of principals that have none of their own
    ///
    ///   tenure auth quota set leases=1000 bytes=1000000
    ///   tenure auth quota show
    #[command(subcommand, verbatim_doc_comment)]
    Quota(identity::QuotaCommand),
}

/// Flags of commands that need nothing else.
#[derive(Args)]
pub(crate) struct ConnectionOnlyArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

impl AuthCommand {
    pub(crate) fn output(&self) -> OutputFormat {
        match self {
            Self::Init(it) => it.connection.output,
            Self::Status(it) => it.connection.output,
            Self::Enable(connection) => connection.output,
            Self::Disable(it) => it.connection.output,
            Self::Can(it) => it.connection.output,
            Self::Role(it) => it.connection().connection.output,
            Self::Principal(it) => it.connection().connection.output,
            Self::Key(it) => it.connection().connection.output,
            Self::CertRule(it) => it.connection().connection.output,
            Self::Issuer(it) => it.connection().connection.output,
            Self::Quota(it) => it.connection().connection.output,
        }
    }
}

/// Runs one of these subcommands.
pub(crate) fn run(command: &AuthCommand) -> Result<Exit, CliError> {
    match command {
        AuthCommand::Init(flags) => identity::init(flags),
        AuthCommand::Status(flags) => flags.connection.with(identity::status),
        AuthCommand::Enable(connection) => {
            connection.with(async |it| identity::switch(it, true).await)
        }
        AuthCommand::Disable(flags) => identity::disable(flags),
        AuthCommand::Can(flags) => flags.connection.with(async |it| identity::can(it, flags).await),
        AuthCommand::Role(command) => {
            command.connection().with(async |it| roles::run(it, command).await)
        }
        AuthCommand::Principal(command) => {
            command.connection().with(async |it| principals::run(it, command).await)
        }
        AuthCommand::Key(command) => {
            command.connection().with(async |it| keys::run(it, command).await)
        }
        AuthCommand::CertRule(command) => {
            command.connection().with(async |it| trust::run_rule(it, command).await)
        }
        AuthCommand::Issuer(command) => {
            command.connection().with(async |it| trust::run_issuer(it, command).await)
        }
        AuthCommand::Quota(command) => {
            command.connection().with(async |it| identity::quota(it, command).await)
        }
    }
}

/// Makes a change, and repeats it while its outcome is not known: all changes of access can be repeated.
async fn change<T>(
    cluster: &ConnectedCluster,
    ask: impl AsyncFn(MemberChannel) -> Result<tonic::Response<T>, tonic::Status>,
) -> Result<T, CliError> {
    let id = request_id(None);
    let within = Some(cluster.place.timeout);
    let mut tries = 1;
    loop {
        match cluster.client.order(&id, within, &ask).await {
            Ok(answer) => return Ok(answer),
            Err(Error::Unknown { .. }) if tries < TRIES => tries += 1,
            Err(error @ Error::Unknown { .. }) => {
                return Err(CliError::from(error).next("the same again: it can be repeated"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// How often a change is based anew on what another administrator has made meanwhile.
const ATTEMPTS_MAX: usize = 16;

/// The version on which a change is based: members of older releases do not tell it, and one that does not exist has
/// none.
fn seen(found: Option<&str>) -> Option<String> {
    match found {
        None => Some("none".to_owned()),
        Some("") => None,
        Some(version) => Some(version.to_owned()),
    }
}

/// Whether a change was refused because another administrator was faster.
fn is_changed(error: &CliError) -> bool {
    error.reason == tenure::Refusal::AccessChanged.reason()
}

/// Says that there was nothing to delete.
fn not_there(what: &str, name: &str) -> CliError {
    CliError::refused(format!("there is no {what} `{name}`")).with("effect", "none")
}
