//! Switches identity on and off, shows its status, and makes the first administrator.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use tenure_types::{Quota, Verb};
use tenure_wire::json::access::{AccessStatus, Can, Quotas};
use tenure_wire::v1;
use v1::access_service_client::AccessServiceClient;

use super::{ConnectionOnlyArgs, change, keys};
use crate::connection_args::{ConnectedCluster, CredentialArgs, runtime};
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::output::{self, OutputFormat};
use crate::print_args::{ConnectionOptions, QuietArgs};
use crate::suggest::suggested;

/// The file in a member's data directory that has the key of its own administrator.
const LOCAL_KEY: &str = "admin.key";
/// The role of the first administrator.
const ROLE: &str = "administrator";

/// Flags of `tenure auth init`.
#[derive(Args)]
pub(crate) struct InitArgs {
    /// The data directory of a member that runs on this machine
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// The name of the administrator
    #[arg(long, value_name = "NAME", default_value = "admin")]
    principal: String,
    /// Write the API key to this new file instead of showing it
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Let the API key expire after this time [default: never]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    expires: Option<Duration>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure auth disable`.
#[derive(Args)]
pub(crate) struct DisableArgs {
    /// Every caller may then do everything but change access rules, and that is meant
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure auth can`.
#[derive(Args)]
pub(crate) struct CanArgs {
    /// The principal; - for yourself
    #[arg(allow_hyphen_values = true)]
    principal: String,
    /// read, acquire, keys, elect, observe, sign, force, operate or administer
    verb: String,
    /// The name of a lock, key or election [default: the cluster itself]
    name: Option<String>,
    /// With acquire or elect: with this priority, 0 to 9
    #[arg(long, value_name = "NUMBER", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=9))]
    priority: u32,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// What can be done about default quotas.
#[derive(Subcommand)]
pub(crate) enum QuotaCommand {
    /// Show the default quotas
    ///
    ///   tenure auth quota show
    #[command(verbatim_doc_comment)]
    Show(ConnectionOnlyArgs),
    /// Set default quotas; those that are not named stay as they are
    ///
    ///   tenure auth quota set leases=1000 places=5000
    ///   tenure auth quota set leases=none           no bound
    #[command(verbatim_doc_comment)]
    Set(QuotaSetArgs),
}

/// Flags of `tenure auth quota set`.
#[derive(Args)]
pub(crate) struct QuotaSetArgs {
    /// leases, places (queue positions), locks, keys or bytes, with its value or none
    #[arg(required = true, value_name = "QUOTA=VALUE", value_parser = parse_quota)]
    quotas: Vec<(Quota, Option<u64>)>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

impl QuotaCommand {
    pub(crate) fn connection(&self) -> ConnectionOptions<'_> {
        match self {
            Self::Show(it) => ConnectionOptions::from(&it.connection),
            Self::Set(it) => ConnectionOptions::from(&it.connection),
        }
    }
}

/// Parses `leases=10` or `leases=none`.
pub(super) fn parse_quota(text: &str) -> Result<(Quota, Option<u64>), String> {
    let known = || Quota::ALL.map(Quota::name).join(", ");
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("`{text}` has no value; try {text}=100"))?;
    let quota = Quota::from_name(name)
        .ok_or_else(|| format!("there is no quota `{name}`; there are {}", known()))?;
    match value {
        "none" => Ok((quota, None)),
        value => match value.parse() {
            Ok(value) => Ok((quota, Some(value))),
            Err(_) => Err(format!("`{value}` is no number; try {name}=100, or {name}=none")),
        },
    }
}

/// The quotas after a change.
pub(super) fn merged(
    old: Vec<v1::QuotaValue>,
    new: &[(Quota, Option<u64>)],
) -> Vec<v1::QuotaValue> {
    let mut quotas = old;
    for (quota, value) in new {
        quotas.retain(|it| it.quota != quota.name());
        let value = value.map(|value| v1::QuotaValue { quota: quota.name().to_owned(), value });
        quotas.extend(value);
    }
    // In the order of the members, which list them by their numbers.
    quotas.sort_by_key(|it| Quota::from_name(&it.quota).map(|quota| quota as usize));
    quotas
}

/// Quotas for people.
pub(super) fn quota_words(quotas: &[v1::QuotaValue]) -> String {
    let each: Vec<String> = quotas.iter().map(|it| format!("{}={}", it.quota, it.value)).collect();
    if each.is_empty() { "-".to_owned() } else { each.join(" ") }
}

/// Makes the first administrator, with the key that the member wrote to its data directory.
pub(super) fn init(flags: &InitArgs) -> Result<Exit, CliError> {
    let path = flags.data_dir.join(LOCAL_KEY);
    let mut place = flags.connection.place()?;
    place.credentials = Some(CredentialArgs::ApiKeyFile(path.clone()));
    // Only the member whose directory this is knows the key.
    runtime()?.block_on(async {
        let connected = place.connect().await.map_err(|failure| match failure.reason.as_str() {
            "UNAUTHENTICATED" => failure.with("file", path.display().to_string()).next(
                "--addr with the address of the member whose directory this is; the file is written anew at each start",
            ),
            _ => failure,
        });
        let mut cluster = ConnectedCluster::new(connected?, flags.connection.output, place);
        cluster.quiet = flags.connection.quiet;
        make_administrator(&cluster, flags).await
    })
}

async fn make_administrator(
    cluster: &ConnectedCluster,
    flags: &InitArgs,
) -> Result<Exit, CliError> {
    let verbs = Verb::ALL.map(|verb| verb.name().to_owned()).to_vec();
    let rules = vec![v1::AccessRule { verbs, ..Default::default() }];
    let role = Some(v1::AccessRole { role: ROLE.to_owned(), rules, ..Default::default() });
    let put = v1::PutRoleRequest { role, ..Default::default() };
    change(cluster, async |channel| AccessServiceClient::new(channel).put_role(put.clone()).await)
        .await?;
    let put = v1::PutPrincipalRequest {
        principal: flags.principal.clone(),
        roles: vec![ROLE.to_owned()],
        quotas: Vec::new(),
        enabled: Some(true),
        if_version: None,
    };
    let asked = async |channel| AccessServiceClient::new(channel).put_principal(put.clone()).await;
    change(cluster, asked).await?;
    let wanted = keys::Wanted {
        name: "made by tenure auth init",
        expires: flags.expires,
        key_file: flags.key_file.as_deref(),
    };
    keys::make(cluster, &flags.principal, &wanted).await?;
    if cluster.output == OutputFormat::Text && !cluster.quiet {
        output::tell(&suggested(
            "tenure: try it with TENURE_API_KEY or --api-key-file, then: tenure auth enable\n",
        ));
    }
    Ok(Exit::Done)
}

async fn ask_status(cluster: &ConnectedCluster) -> Result<v1::AccessStatusResponse, CliError> {
    let asked =
        async |channel| AccessServiceClient::new(channel).status(v1::AccessStatusRequest {}).await;
    Ok(cluster.client.question(asked).await?)
}

/// Shows whether identity is enabled, and who the caller is.
pub(super) async fn status(cluster: &ConnectedCluster) -> Result<Exit, CliError> {
    let status = ask_status(cluster).await?;
    if cluster.output == OutputFormat::Json {
        output::object(&AccessStatus::from(status));
        return Ok(Exit::Done);
    }
    let mut text = match status.enabled {
        true => "identity is enabled: every caller needs credentials\n".to_owned(),
        false => "identity is disabled: every caller may do everything but change access rules\n"
            .to_owned(),
    };
    let mut line = |label: &str, words: String| text.push_str(&format!("{label:<9} {words}\n"));
    match status.principal.as_str() {
        "" => line("you", "have no credentials".to_owned()),
        name => line("you", format!("principal `{}`", output::clean(name))),
    }
    if let Some(administrable) = status.administrable {
        let count = |number: u32, word: &str| output::count(u64::from(number), word);
        let each = [
            count(status.roles, "role"),
            count(status.principals, "principal"),
            count(status.keys, "API key"),
            count(status.certificate_rules, "certificate rule"),
            count(status.issuers, "issuer"),
        ];
        line("there are", each.join(", "));
        line("quotas", quota_words(&status.default_quotas));
        match (status.level < 3, status.enabled, administrable) {
            (true, ..) => line("next", suggested("tenure cluster raise-level 4")),
            (_, false, false) => line("next", suggested("tenure auth init --data-dir DIR")),
            (_, false, true) => line("next", suggested("tenure auth enable")),
            (_, true, false) => {
                line("warning", "no administrator has a usable credential".to_owned());
            }
            (_, true, true) => {}
        }
    }
    output::out(&text);
    Ok(Exit::Done)
}

/// Switches identity on or off.
pub(super) async fn switch(cluster: &ConnectedCluster, enabled: bool) -> Result<Exit, CliError> {
    let ask = v1::SetIdentityRequest { enabled };
    change(cluster, async |channel| AccessServiceClient::new(channel).set_identity(ask).await)
        .await?;
    match cluster.output {
        OutputFormat::Json => {
            output::object(&json!({ "event": "identity", "enabled": enabled }));
        }
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text if enabled => {
            output::out("identity is enabled: every caller needs credentials\n");
        }
        OutputFormat::Text => {
            output::out(
                "identity is disabled: every caller may do everything but change access rules\n",
            );
        }
    }
    Ok(Exit::Done)
}

pub(super) fn disable(flags: &DisableArgs) -> Result<Exit, CliError> {
    if !flags.yes {
        return Err(CliError::arguments("every caller could do everything then")
            .with("effect", "none: nothing was sent")
            .next("tenure auth disable --yes"));
    }
    flags.connection.with(async |it| switch(it, false).await)
}

/// Says whether a principal may do something.
pub(super) async fn can(cluster: &ConnectedCluster, flags: &CanArgs) -> Result<Exit, CliError> {
    let own = flags.principal == "-";
    let ask = v1::CanRequest {
        principal: if own { String::new() } else { flags.principal.clone() },
        verb: flags.verb.clone(),
        name: flags.name.clone().unwrap_or_default(),
        priority: flags.priority,
    };
    let asked = async |channel| AccessServiceClient::new(channel).can(ask.clone()).await;
    let answer = cluster.client.question(asked).await?;
    let exit = if answer.allowed { Exit::Done } else { Exit::Refused };
    match cluster.output {
        OutputFormat::Json => output::object(&Can::from(answer)),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => {
            let word = if answer.allowed { "yes" } else { "no" };
            let mut text = format!("{word}: {}\n", output::clean(&answer.why));
            if !answer.enabled {
                text.push_str("identity is disabled: until it is enabled, every caller may\n");
            }
            if !answer.allowed && !answer.principal.is_empty() {
                let name = quoted(&answer.principal);
                let look = suggested(&format!("tenure auth principal show {name}"));
                text.push_str(&format!("look      {look}\n"));
            }
            output::out(&text);
        }
    }
    Ok(exit)
}

/// Shows or sets the default quotas.
pub(super) async fn quota(
    cluster: &ConnectedCluster,
    command: &QuotaCommand,
) -> Result<Exit, CliError> {
    let status = ask_status(cluster).await?;
    if status.administrable.is_none() {
        return Err(CliError::from(tenure::Error::Failed {
            reason: "PERMISSION_DENIED".to_owned(),
            message: "not allowed: this needs the verb `administer`".to_owned(),
        }));
    }
    let mut quotas = status.default_quotas;
    if let QuotaCommand::Set(flags) = command {
        quotas = merged(quotas, &flags.quotas);
        let ask = v1::SetDefaultQuotasRequest { quotas: quotas.clone() };
        let asked =
            async |channel| AccessServiceClient::new(channel).set_default_quotas(ask.clone()).await;
        change(cluster, asked).await?;
    }
    match cluster.output {
        OutputFormat::Json => output::object(&Quotas::from(quotas)),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => output::out(&format!("default quotas: {}\n", quota_words(&quotas))),
    }
    Ok(Exit::Done)
}
