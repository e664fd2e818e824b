//! Puts, shows, enables, disables and deletes principals.

use clap::{Args, Subcommand};
use serde_json::json;
use tenure_types::Quota;
use tenure_wire::json::access::Principal;
use tenure_wire::v1;
use v1::access_service_client::AccessServiceClient;

use super::identity::{merged, parse_quota, quota_words};
use super::keys::expiry;
use super::{ATTEMPTS_MAX, change, is_changed, not_there, seen};
use crate::connection_args::{ConnectedCluster, ConnectionArgs};
use crate::exit::Exit;
use crate::failure::CliError;
use crate::listing::Listing;
use crate::output::{self, OutputFormat, Side};
use crate::print_args::{ConnectionOptions, ListArgs, QuietArgs};
use crate::suggest::suggested;

/// What can be done with principals.
#[derive(Subcommand)]
pub(crate) enum PrincipalCommand {
    /// Create a principal, or change its roles and quotas
    ///
    ///   tenure auth principal put ci-a --role team-a --role watcher
    ///   tenure auth principal put ci-a --quota leases=200 --quota bytes=1000000
    ///   tenure auth principal put ci-a --add-role deployer
    ///   tenure auth principal put ci-a --no-roles
    ///
    /// Roles that are given with --role replace all its roles; without any, they stay as they are. So do quotas that
    /// are not named. If another administrator changes the principal at the same time, --role and --no-roles are
    /// refused, and all else is added to what is there then.
    #[command(verbatim_doc_comment)]
    Put(PrincipalPutArgs),
    /// List principals
    ///
    ///   tenure auth principal list
    #[command(verbatim_doc_comment)]
    List(ListArgs),
    /// Show a principal and its API keys
    ///
    ///   tenure auth principal show ci-a
    #[command(verbatim_doc_comment)]
    Show(PrincipalShowArgs),
    /// Accept calls of a principal again; what it had before is gone
    ///
    ///   tenure auth principal enable ci-a
    #[command(verbatim_doc_comment)]
    Enable(OneArgs),
    /// Refuse a principal from now on: its sessions end, and its leases with all they hold
    ///
    ///   tenure auth principal disable ci-a
    #[command(verbatim_doc_comment)]
    Disable(OneArgs),
    /// Delete a principal and its API keys; its leases end
    ///
    ///   tenure auth principal delete ci-a
    #[command(verbatim_doc_comment)]
    Delete(OneArgs),
}

/// Flags of `tenure auth principal put`.
#[derive(Args)]
pub(crate) struct PrincipalPutArgs {
    /// The principal
    principal: String,
    /// Give it this role; may be repeated
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<String>,
    /// Give it this role too; may be repeated
    #[arg(long = "add-role", value_name = "ROLE", conflicts_with_all = ["roles", "no_roles"])]
    add_roles: Vec<String>,
    /// Take this role from it; may be repeated
    #[arg(long = "remove-role", value_name = "ROLE", conflicts_with_all = ["roles", "no_roles"])]
    remove_roles: Vec<String>,
    /// Take all its roles
    #[arg(long, conflicts_with = "roles")]
    no_roles: bool,
    /// Only if it still has this version, as `tenure auth principal show` tells; none if it must be new
    #[arg(long, value_name = "VERSION")]
    if_version: Option<String>,
    /// Its own leases, places (queue positions), locks, keys or bytes, or none for the default; may be repeated
    #[arg(long = "quota", value_name = "QUOTA=VALUE", value_parser = parse_quota)]
    quotas: Vec<(Quota, Option<u64>)>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure auth principal show`.
#[derive(Args)]
pub(crate) struct PrincipalShowArgs {
    /// The principal
    principal: String,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Flags of commands that change one principal.
#[derive(Args)]
pub(crate) struct OneArgs {
    /// The principal
    principal: String,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

impl PrincipalCommand {
    pub(crate) fn connection(&self) -> ConnectionOptions<'_> {
        match self {
            Self::Put(it) => ConnectionOptions::from(&it.connection),
            Self::List(connection) => connection.into(),
            Self::Show(it) => ConnectionOptions::from(&it.connection),
            Self::Enable(it) | Self::Disable(it) | Self::Delete(it) => {
                ConnectionOptions::from(&it.connection)
            }
        }
    }
}

/// Runs one of these subcommands.
pub(super) async fn run(
    cluster: &ConnectedCluster,
    command: &PrincipalCommand,
) -> Result<Exit, CliError> {
    match command {
        PrincipalCommand::Put(flags) => put(cluster, flags).await?,
        PrincipalCommand::List(_) => list(cluster).await?,
        PrincipalCommand::Show(flags) => {
            let principal = find(cluster, &flags.principal).await?;
            let principal = principal.ok_or_else(|| unknown(&flags.principal))?;
            show(cluster, &principal);
            if cluster.output == OutputFormat::Text {
                output::out(&format!("version   {}\n", output::clean(&principal.version)));
            }
        }
        PrincipalCommand::Enable(flags) => enable(cluster, &flags.principal, true).await?,
        PrincipalCommand::Disable(flags) => enable(cluster, &flags.principal, false).await?,
        PrincipalCommand::Delete(flags) => delete(cluster, &flags.principal).await?,
    }
    Ok(Exit::Done)
}

fn unknown(principal: &str) -> CliError {
    not_there("principal", principal).next("tenure auth principal list")
}

async fn find(
    cluster: &ConnectedCluster,
    principal: &str,
) -> Result<Option<v1::PrincipalView>, CliError> {
    let ask = v1::GetPrincipalRequest { principal: principal.to_owned() };
    let asked = async |channel| AccessServiceClient::new(channel).get_principal(ask.clone()).await;
    match cluster.client.question(asked).await {
        Ok(answer) => Ok(answer.principal),
        Err(tenure::Error::Refused(tenure::Refusal::PrincipalNotFound)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn put(cluster: &ConnectedCluster, flags: &PrincipalPutArgs) -> Result<(), CliError> {
    let replaces = !flags.roles.is_empty() || flags.no_roles;
    let mut attempt = 1;
    let now = loop {
        let old = find(cluster, &flags.principal).await?;
        let version = seen(old.as_ref().map(|it| &*it.version));
        let old = old.unwrap_or_default();
        let ask = v1::PutPrincipalRequest {
            principal: flags.principal.clone(),
            roles: if replaces { flags.roles.clone() } else { merged_roles(old.roles, flags) },
            quotas: merged(old.quotas, &flags.quotas),
            enabled: None,
            if_version: flags.if_version.clone().or(version),
        };
        let asked =
            async |channel| AccessServiceClient::new(channel).put_principal(ask.clone()).await;
        match change(cluster, asked).await {
            Ok(answer) => break answer.principal.unwrap_or_default(),
            // What adds to the principal can be added to what another administrator has made of it.
            Err(error)
                if is_changed(&error)
                    && !replaces
                    && flags.if_version.is_none()
                    && attempt < ATTEMPTS_MAX =>
            {
                attempt += 1;
            }
            Err(error) if is_changed(&error) => {
                let name = crate::failure::quoted(&flags.principal);
                return Err(error.next(format!("tenure auth principal show {name}")));
            }
            Err(error) => return Err(error),
        }
    };
    if cluster.quiet {
        return Ok(());
    }
    show(cluster, &now);
    if cluster.output == OutputFormat::Text && now.keys.is_empty() {
        let name = crate::failure::quoted(&now.principal);
        let next = suggested(&format!("tenure auth key create {name}"));
        output::tell(&format!("tenure: give it a key: {next}\n"));
    }
    Ok(())
}

/// The roles with those to add and without those to remove.
fn merged_roles(mut roles: Vec<String>, flags: &PrincipalPutArgs) -> Vec<String> {
    roles.retain(|role| !flags.remove_roles.contains(role));
    for role in &flags.add_roles {
        if !roles.contains(role) {
            roles.push(role.clone());
        }
    }
    roles
}

async fn enable(cluster: &ConnectedCluster, principal: &str, on: bool) -> Result<(), CliError> {
    let ask = v1::EnablePrincipalRequest { principal: principal.to_owned(), enabled: on };
    let asked =
        async |channel| AccessServiceClient::new(channel).enable_principal(ask.clone()).await;
    let now = change(cluster, asked).await?.principal.unwrap_or_default();
    match cluster.output {
        OutputFormat::Json => output::object(&Principal::from(now)),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text if on => {
            output::out(&format!("principal `{}` is enabled\n", output::clean(principal)));
        }
        OutputFormat::Text => {
            let name = output::clean(principal);
            output::out(&format!("principal `{name}` is disabled; its leases end\n"));
        }
    }
    Ok(())
}

async fn delete(cluster: &ConnectedCluster, principal: &str) -> Result<(), CliError> {
    let ask = v1::DeletePrincipalRequest { principal: principal.to_owned() };
    let asked =
        async |channel| AccessServiceClient::new(channel).delete_principal(ask.clone()).await;
    if !change(cluster, asked).await?.deleted {
        return Err(unknown(principal));
    }
    match cluster.output {
        OutputFormat::Json => {
            output::object(&json!({ "event": "deleted", "principal": principal }));
        }
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => {
            let name = output::clean(principal);
            output::out(&format!("principal `{name}` is deleted; its leases end\n"));
        }
    }
    Ok(())
}

async fn list(cluster: &ConnectedCluster) -> Result<(), CliError> {
    let head = [
        ("PRINCIPAL", Side::Left),
        ("STATE", Side::Left),
        ("ROLES", Side::Left),
        ("KEYS", Side::Right),
        ("QUOTAS", Side::Left),
    ];
    let (mut listing, mut after) = (Listing::new(cluster, &head), String::new());
    loop {
        let ask = v1::ListPrincipalsRequest { limit: 0, after };
        let asked =
            async |channel| AccessServiceClient::new(channel).list_principals(ask.clone()).await;
        let page = cluster.client.question(asked).await?;
        for it in page.principals {
            let cells = || {
                let (state, keys) = (state(it.enabled).to_owned(), it.keys.len().to_string());
                [it.principal.clone(), state, words(&it.roles), keys, quota_words(&it.quotas)]
            };
            let object = || Principal::from(it.clone());
            listing.item(&it.principal, |table| table.row(cells()), object);
        }
        after = page.next;
        if after.is_empty() {
            break;
        }
    }
    listing.print();
    Ok(())
}

fn show(cluster: &ConnectedCluster, it: &v1::PrincipalView) {
    if cluster.output == OutputFormat::Json {
        output::object(&Principal::from(it.clone()));
        return;
    }
    let mut text = format!("principal `{}`, {}\n", output::clean(&it.principal), state(it.enabled));
    text.push_str(&format!("roles     {}\n", output::clean(&words(&it.roles))));
    text.push_str(&format!("quotas    {}\n", quota_words(&it.quotas)));
    for (at, key) in it.keys.iter().enumerate() {
        let label = if at == 0 { "keys" } else { "" };
        let name = if key.name.is_empty() { String::new() } else { format!("  {}", key.name) };
        let words = format!("{}  expires {}{}", key.key, expiry(key), output::clean(&name));
        text.push_str(&format!("{label:<9} {words}\n"));
    }
    output::out(&text);
}

fn state(enabled: bool) -> &'static str {
    if enabled { "enabled" } else { "disabled" }
}

fn words(names: &[String]) -> String {
    if names.is_empty() { "-".to_owned() } else { names.join(", ") }
}
