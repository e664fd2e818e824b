//! Puts, lists and deletes certificate rules and issuers of bearer tokens.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use tenure_wire::json::access::{CertificateRule, Issuer};
use tenure_wire::v1;
use v1::access_service_client::AccessServiceClient;

use super::{change, not_there};
use crate::connection_args::ConnectedCluster;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::listing::Listing;
use crate::output::{self, OutputFormat, Side};
use crate::print_args::{ConnectionOptions, ListArgs, QuietArgs};

/// What can be done with certificate rules.
#[derive(Subcommand)]
pub(crate) enum CertRuleCommand {
    /// Create or replace a rule
    ///
    ///   tenure auth cert-rule put ana --pattern cn:ana --principal ana
    ///   tenure auth cert-rule put workers --pattern 'dns:*.workers.example.com' --principal worker
    ///   tenure auth cert-rule put mesh --pattern 'uri:spiffe://prod/ns/*/sa/worker' --principal worker
    ///
    /// A * stands for characters of one part of the name. Rules are tried in the order of their names.
    #[command(verbatim_doc_comment)]
    Put(RulePutArgs),
    /// List rules in the order in which they are tried
    ///
    ///   tenure auth cert-rule list
    #[command(verbatim_doc_comment)]
    List(ListArgs),
    /// Delete a rule
    ///
    ///   tenure auth cert-rule delete workers
    #[command(verbatim_doc_comment)]
    Delete(RuleDeleteArgs),
}

/// Flags of `tenure auth cert-rule put`.
#[derive(Args)]
pub(crate) struct RulePutArgs {
    /// The rule
    rule: String,
    /// A name that the certificate must have: cn:NAME, dns:NAME or uri:URI
    #[arg(long, value_name = "PATTERN")]
    pattern: String,
    /// The principal that the certificate then stands for
    #[arg(long, value_name = "NAME")]
    principal: String,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure auth cert-rule delete`.
#[derive(Args)]
pub(crate) struct RuleDeleteArgs {
    /// The rule
    rule: String,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// What can be done with issuers.
#[derive(Subcommand)]
pub(crate) enum IssuerCommand {
    /// Trust an issuer, or replace what is known of it
    ///
    ///   tenure auth issuer put https://ci.example.com --audience tenure --jwks-url https://ci.example.com/jwks \
    ///       --prefix ci:
    ///   tenure auth issuer put https://kubernetes.default.svc --audience tenure --jwks-file jwks.json --prefix k8s:
    ///
    /// The prefix and the claim make the name of the principal: `k8s:` and the subject
    /// `system:serviceaccount:prod:worker` make `k8s:system:serviceaccount:prod:worker`. That principal must exist.
    #[command(verbatim_doc_comment)]
    Put(IssuerPutArgs),
    /// List the issuers that are trusted
    ///
    ///   tenure auth issuer list
    #[command(verbatim_doc_comment)]
    List(ListArgs),
    /// Trust an issuer no more
    ///
    ///   tenure auth issuer delete https://ci.example.com
    #[command(verbatim_doc_comment)]
    Delete(IssuerDeleteArgs),
}

/// Flags of `tenure auth issuer put`.
#[derive(Args)]
pub(crate) struct IssuerPutArgs {
    /// The issuer, as `iss` in its tokens
    issuer: String,
    /// What tokens must name as their audience
    #[arg(long, value_name = "TEXT")]
    audience: String,
    /// Read its public keys from this JWKS document now
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "jwks_url",
        conflicts_with = "jwks_url"
    )]
    jwks_file: Option<PathBuf>,
    /// Let the members fetch its public keys from here
    #[arg(long, value_name = "URL")]
    jwks_url: Option<String>,
    /// The claim that names the principal
    #[arg(long, value_name = "NAME", default_value = "sub")]
    claim: String,
    /// Put this before the claim, so that names of different issuers differ
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure auth issuer delete`.
#[derive(Args)]
pub(crate) struct IssuerDeleteArgs {
    /// The issuer
    issuer: String,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

impl CertRuleCommand {
    pub(crate) fn connection(&self) -> ConnectionOptions<'_> {
        match self {
            Self::Put(it) => ConnectionOptions::from(&it.connection),
            Self::List(connection) => connection.into(),
            Self::Delete(it) => ConnectionOptions::from(&it.connection),
        }
    }
}

impl IssuerCommand {
    pub(crate) fn connection(&self) -> ConnectionOptions<'_> {
        match self {
            Self::Put(it) => ConnectionOptions::from(&it.connection),
            Self::List(connection) => connection.into(),
            Self::Delete(it) => ConnectionOptions::from(&it.connection),
        }
    }
}

/// Runs a subcommand about certificate rules.
pub(super) async fn run_rule(
    cluster: &ConnectedCluster,
    command: &CertRuleCommand,
) -> Result<Exit, CliError> {
    match command {
        CertRuleCommand::Put(flags) => {
            let rule = v1::CertificateRule {
                rule: flags.rule.clone(),
                pattern: flags.pattern.clone(),
                principal: flags.principal.clone(),
            };
            let ask = v1::PutCertificateRuleRequest { rule: Some(rule.clone()) };
            let asked = async |channel| {
                AccessServiceClient::new(channel).put_certificate_rule(ask.clone()).await
            };
            change(cluster, asked).await?;
            match cluster.output {
                OutputFormat::Json => output::object(&CertificateRule::from(rule)),
                OutputFormat::Text => set(cluster, "certificate rule", &rule.rule),
            }
        }
        CertRuleCommand::List(_) => list_rules(cluster).await?,
        CertRuleCommand::Delete(flags) => {
            let ask = v1::DeleteCertificateRuleRequest { rule: flags.rule.clone() };
            let asked = async |channel| {
                AccessServiceClient::new(channel).delete_certificate_rule(ask.clone()).await
            };
            if !change(cluster, asked).await?.deleted {
                let missing = not_there("certificate rule", &flags.rule);
                return Err(missing.next("tenure auth cert-rule list"));
            }
            deleted(cluster, "rule", "certificate rule", &flags.rule);
        }
    }
    Ok(Exit::Done)
}

async fn list_rules(cluster: &ConnectedCluster) -> Result<(), CliError> {
    let ask = v1::ListCertificateRulesRequest {};
    let asked = async |channel| AccessServiceClient::new(channel).list_certificate_rules(ask).await;
    let head = ["RULE", "PATTERN", "PRINCIPAL"].map(|head| (head, Side::Left));
    let mut listing = Listing::new(cluster, &head);
    for rule in cluster.client.question(asked).await?.rules {
        let cells = || [rule.rule.clone(), rule.pattern.clone(), rule.principal.clone()];
        let object = || CertificateRule::from(rule.clone());
        listing.item(&rule.rule, |table| table.row(cells()), object);
    }
    listing.print();
    Ok(())
}

/// Runs a subcommand about issuers.
pub(super) async fn run_issuer(
    cluster: &ConnectedCluster,
    command: &IssuerCommand,
) -> Result<Exit, CliError> {
    match command {
        IssuerCommand::Put(flags) => put_issuer(cluster, flags).await?,
        IssuerCommand::List(_) => list_issuers(cluster).await?,
        IssuerCommand::Delete(flags) => {
            let ask = v1::DeleteIssuerRequest { issuer: flags.issuer.clone() };
            let asked =
                async |channel| AccessServiceClient::new(channel).delete_issuer(ask.clone()).await;
            if !change(cluster, asked).await?.deleted {
                return Err(not_there("issuer", &flags.issuer).next("tenure auth issuer list"));
            }
            deleted(cluster, "issuer", "issuer", &flags.issuer);
        }
    }
    Ok(Exit::Done)
}

async fn put_issuer(cluster: &ConnectedCluster, flags: &IssuerPutArgs) -> Result<(), CliError> {
    let jwks = match &flags.jwks_file {
        None => String::new(),
        Some(path) => std::fs::read_to_string(path).map_err(|error| {
            CliError::arguments(format!("cannot read {path:?}: {error}"))
                .with("effect", "none: nothing was sent")
        })?,
    };
    let issuer = v1::Issuer {
        issuer: flags.issuer.clone(),
        audience: flags.audience.clone(),
        jwks,
        jwks_url: flags.jwks_url.clone().unwrap_or_default(),
        claim: flags.claim.clone(),
        prefix: flags.prefix.clone(),
    };
    let ask = v1::PutIssuerRequest { issuer: Some(issuer.clone()) };
    let asked = async |channel| AccessServiceClient::new(channel).put_issuer(ask.clone()).await;
    change(cluster, asked).await?;
    match cluster.output {
        OutputFormat::Json => output::object(&Issuer::from(issuer)),
        OutputFormat::Text => set(cluster, "issuer", &issuer.issuer),
    }
    Ok(())
}

async fn list_issuers(cluster: &ConnectedCluster) -> Result<(), CliError> {
    let ask = v1::ListIssuersRequest {};
    let asked = async |channel| AccessServiceClient::new(channel).list_issuers(ask).await;
    let head = ["ISSUER", "AUDIENCE", "PRINCIPALS", "KEYS"].map(|head| (head, Side::Left));
    let mut listing = Listing::new(cluster, &head);
    for issuer in cluster.client.question(asked).await?.issuers {
        let cells = || {
            let names = format!("{}<{}>", issuer.prefix, issuer.claim);
            let keys = match issuer.jwks_url.as_str() {
                "" => "a document".to_owned(),
                url => url.to_owned(),
            };
            [issuer.issuer.clone(), issuer.audience.clone(), names, keys]
        };
        let object = || Issuer::from(issuer.clone());
        listing.item(&issuer.issuer, |table| table.row(cells()), object);
    }
    listing.print();
    Ok(())
}

fn set(cluster: &ConnectedCluster, what: &str, name: &str) {
    if !cluster.quiet {
        output::out(&format!("{what} `{}` is set\n", output::clean(name)));
    }
}

fn deleted(cluster: &ConnectedCluster, field: &str, what: &str, name: &str) {
    match cluster.output {
        OutputFormat::Json => {
            let mut object = json!({ "event": "deleted" });
            object[field] = json!(name);
            output::object(&object);
        }
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => {
            output::out(&format!("{what} `{}` is deleted\n", output::clean(name)));
        }
    }
}
