//! Puts, lists and deletes roles.

use clap::{Args, Subcommand};
use serde_json::json;
use tenure_types::Verb;
use tenure_wire::json::access::AccessRole;
use tenure_wire::v1;
use v1::access_service_client::AccessServiceClient;

use super::{change, is_changed, not_there, seen};
use crate::connection_args::ConnectedCluster;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::listing::Listing;
use crate::output::{self, OutputFormat, Side, Table};
use crate::print_args::{ConnectionOptions, ListArgs, QuietArgs};

/// The word for every verb.
const ALL: &str = "all";
/// The greatest priority of a request.
const PRIORITY_MAX: u32 = 9;

/// What can be done with roles.
#[derive(Subcommand)]
pub(crate) enum RoleCommand {
    /// Create a role, or replace its rules
    ///
    ///   tenure auth role put team-a --allow read,acquire,keys:team-a/        names that begin with team-a/
    ///   tenure auth role put deployer --allow acquire@3:deploy/              with priorities up to 3
    ///   tenure auth role put watcher --allow read,observe:                   every name
    ///   tenure auth role put operator --allow read,observe,force,operate:    and the cluster itself
    ///
    /// Verbs: read, acquire, keys, elect, observe, sign, force, operate, administer, or all.
    /// acquire and elect permit requests without a priority, acquire@3 and elect@3 those with priorities up to 3,
    /// force those with every priority.
    #[command(verbatim_doc_comment)]
    Put(RolePutArgs),
    /// List roles and their rules
    ///
    ///   tenure auth role list
    #[command(verbatim_doc_comment)]
    List(ListArgs),
    /// Delete a role: principals that have it lose its permissions
    ///
    ///   tenure auth role delete team-a
    #[command(verbatim_doc_comment)]
    Delete(RoleDeleteArgs),
}

/// Flags of `tenure auth role put`.
#[derive(Args)]
pub(crate) struct RolePutArgs {
    /// The role
    role: String,
    /// Verbs, with commas between, for names that begin with the prefix; may be repeated
    #[arg(long, required = true, value_name = "VERBS:PREFIX", value_parser = parse_rule)]
    allow: Vec<v1::AccessRule>,
    /// Only if it still has this version, as `tenure auth role list --output json` tells; none if it must be new
    #[arg(long, value_name = "VERSION")]
    if_version: Option<String>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure auth role delete`.
#[derive(Args)]
pub(crate) struct RoleDeleteArgs {
    /// The role
    role: String,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

impl RoleCommand {
    pub(crate) fn connection(&self) -> ConnectionOptions<'_> {
        match self {
            Self::Put(it) => ConnectionOptions::from(&it.connection),
            Self::List(connection) => connection.into(),
            Self::Delete(it) => ConnectionOptions::from(&it.connection),
        }
    }
}

/// Parses `read,acquire@3:team-a/`.
fn parse_rule(text: &str) -> Result<v1::AccessRule, String> {
    let Some((verbs, prefix)) = text.split_once(':') else {
        let are_verbs = text.split(',').all(|it| it == ALL || Verb::from_name(it).is_some());
        return Err(if are_verbs {
            format!("`{text}` has no prefix; try {text}:team-a/, or {text}: for every name")
        } else {
            format!("`{text}` has no verbs; try read,acquire:{text}")
        });
    };
    if let Some(before) = prefix.strip_suffix('*') {
        return Err(format!("a prefix needs no `*`; try {verbs}:{before}"));
    }
    let known = || Verb::ALL.map(Verb::name).join(", ");
    let (mut names, mut priorities) = (Vec::new(), Vec::new());
    for word in verbs.split(',') {
        let (name, priority) = match word.split_once('@') {
            Some((name, priority)) => (name, Some(priority)),
            None => (word, None),
        };
        match (Verb::from_name(name), name) {
            (_, ALL) => names.extend(Verb::ALL.map(|verb| verb.name().to_owned())),
            (Some(verb), _) => names.push(verb.name().to_owned()),
            (None, _) => {
                return Err(format!("there is no verb `{name}`; there are {} and {ALL}", known()));
            }
        }
        match (name, priority) {
            ("acquire" | "elect", priority) => priorities.push(parse_priority(name, priority)?),
            (ALL, Some(_)) => {
                return Err(format!("`{ALL}` permits every priority; try {ALL}:{prefix}"));
            }
            (_, Some(_)) => {
                return Err(format!("only acquire and elect have a priority, not `{name}`"));
            }
            (_, None) => {}
        }
    }
    let priority = priorities.first().copied().unwrap_or(0);
    if priorities.iter().any(|other| *other != priority) {
        return Err(
            "acquire and elect of one rule have one priority; try an --allow for each".to_owned()
        );
    }
    Ok(v1::AccessRule { verbs: names, prefix: prefix.to_owned(), priority })
}

/// Parses what follows the `@` of `acquire@3`.
fn parse_priority(verb: &str, text: Option<&str>) -> Result<u32, String> {
    let Some(text) = text else { return Ok(0) };
    let number = text.parse().ok().filter(|number| *number <= PRIORITY_MAX);
    number
        .ok_or_else(|| format!("`{text}` is no priority; try {verb}@{PRIORITY_MAX}, the greatest"))
}

/// Runs one of these subcommands.
pub(super) async fn run(
    cluster: &ConnectedCluster,
    command: &RoleCommand,
) -> Result<Exit, CliError> {
    match command {
        RoleCommand::Put(flags) => put(cluster, flags).await?,
        RoleCommand::List(_) => list(cluster).await?,
        RoleCommand::Delete(flags) => delete(cluster, &flags.role).await?,
    }
    Ok(Exit::Done)
}

async fn put(cluster: &ConnectedCluster, flags: &RolePutArgs) -> Result<(), CliError> {
    let (name, rules) = (flags.role.clone(), flags.allow.clone());
    let role = v1::AccessRole { role: name, rules, ..Default::default() };
    let if_version = match &flags.if_version {
        Some(version) => Some(version.clone()),
        None => seen(find(cluster, &flags.role).await?.as_deref()),
    };
    let ask = v1::PutRoleRequest { role: Some(role.clone()), if_version };
    let asked = async |channel| AccessServiceClient::new(channel).put_role(ask.clone()).await;
    if let Err(error) = change(cluster, asked).await {
        // The rules that are given replace all others, so those of another administrator must be seen first.
        let changed = is_changed(&error);
        return Err(if changed { error.next("tenure auth role list") } else { error });
    }
    match cluster.output {
        OutputFormat::Json => output::object(&AccessRole::from(role)),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => {
            output::out(&format!("role `{}` is set\n", output::clean(&role.role)));
        }
    }
    Ok(())
}

/// The version of a role, if it exists.
async fn find(cluster: &ConnectedCluster, name: &str) -> Result<Option<String>, CliError> {
    let mut after = String::new();
    loop {
        let ask = v1::ListRolesRequest { limit: 1_000, after };
        let asked = async |channel| AccessServiceClient::new(channel).list_roles(ask.clone()).await;
        let page = cluster.client.question(asked).await?;
        let found = page.roles.into_iter().find(|role| role.role == name);
        after = page.next;
        if found.is_some() || after.is_empty() {
            return Ok(found.map(|role| role.version));
        }
    }
}

async fn list(cluster: &ConnectedCluster) -> Result<(), CliError> {
    let head = ["ROLE", "VERBS", "NAMES"].map(|head| (head, Side::Left));
    let (mut listing, mut after) = (Listing::new(cluster, &head), String::new());
    loop {
        let ask = v1::ListRolesRequest { limit: 0, after };
        let asked = async |channel| AccessServiceClient::new(channel).list_roles(ask.clone()).await;
        let page = cluster.client.question(asked).await?;
        for role in page.roles {
            let rows = |table: &mut Table| {
                for (at, rule) in role.rules.iter().enumerate() {
                    let name = if at == 0 { role.role.clone() } else { String::new() };
                    table.row([name, verb_words(rule), name_words(&rule.prefix)]);
                }
            };
            listing.item(&role.role, rows, || AccessRole::from(role.clone()));
        }
        after = page.next;
        if after.is_empty() {
            break;
        }
    }
    listing.print();
    Ok(())
}

/// The verbs of a rule, as `--allow` takes them.
fn verb_words(rule: &v1::AccessRule) -> String {
    // Who may do everything may use every priority.
    if rule.verbs.len() == Verb::ALL.len() {
        return ALL.to_owned();
    }
    let word = |verb: &String| match (verb.as_str(), rule.priority) {
        ("acquire" | "elect", priority @ 1..) => format!("{verb}@{priority}"),
        _ => verb.clone(),
    };
    rule.verbs.iter().map(word).collect::<Vec<_>>().join(",")
}

fn name_words(prefix: &str) -> String {
    if prefix.is_empty() {
        "every name, and the cluster".to_owned()
    } else {
        format!("{prefix}…")
    }
}

async fn delete(cluster: &ConnectedCluster, role: &str) -> Result<(), CliError> {
    let ask = v1::DeleteRoleRequest { role: role.to_owned() };
    let asked = async |channel| AccessServiceClient::new(channel).delete_role(ask.clone()).await;
    if !change(cluster, asked).await?.deleted {
        return Err(not_there("role", role).next("tenure auth role list"));
    }
    match cluster.output {
        OutputFormat::Json => output::object(&json!({ "event": "deleted", "role": role })),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => output::out(&format!("role `{}` is deleted\n", output::clean(role))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_verbs_and_a_prefix() {
        let rule = parse_rule("read,acquire:teams/a:b/").unwrap();
        assert_eq!(
            (rule.verbs.join(" ").as_str(), rule.prefix.as_str()),
            ("read acquire", "teams/a:b/")
        );
        assert_eq!(parse_rule("all:").unwrap().verbs.len(), Verb::ALL.len());
        assert!(parse_rule("read").unwrap_err().contains("try read:team-a/"));
        assert!(parse_rule("write:a").unwrap_err().contains("no verb `write`"));
    }

    #[test]
    fn a_rule_may_permit_priorities() {
        let rule = parse_rule("read,acquire@3:deploy/a@b").unwrap();
        assert_eq!((rule.priority, rule.prefix.as_str()), (3, "deploy/a@b"));
        assert_eq!(verb_words(&rule), "read,acquire@3");
        let rule = parse_rule("acquire@9,elect@9:").unwrap();
        assert_eq!((rule.priority, verb_words(&rule).as_str()), (9, "acquire@9,elect@9"));
        assert_eq!(parse_rule("acquire@0:a").unwrap().priority, 0);
        for (text, words) in [
            ("acquire@10:a", "`10` is no priority; try acquire@9"),
            ("acquire@:a", "is no priority"),
            ("acquire@x:a", "is no priority"),
            ("read@3:a", "only acquire and elect have a priority, not `read`"),
            ("all@3:", "`all` permits every priority; try all:"),
            ("acquire@3,elect:a", "try an --allow for each"),
        ] {
            let error = parse_rule(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
