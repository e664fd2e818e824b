//! Creates, lists, rotates and revokes API keys.
//!
//! This process draws the secret and sends only its hash: no member and no log ever has the secret.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tenure_server::{NewApiKey, os};
use tenure_wire::json::access::ApiKey;
use tenure_wire::v1;
use v1::access_service_client::AccessServiceClient;

use super::{change, not_there};
use crate::connection_args::ConnectedCluster;
use crate::duration;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::listing::Listing;
use crate::lock::millis;
use crate::output::{self, OutputFormat, Side};
use crate::print_args::{ConnectionOptions, ListArgs, QuietArgs};

/// What can be done with API keys.
#[derive(Subcommand)]
pub(crate) enum ApiKeyCommand {
    /// Give a principal an API key
    ///
    ///   tenure auth key create ci-a --name "runner 7" --expires 90d --key-file ci-a.key
    ///   KEY=$(tenure auth key create ci-a)        it is shown this once
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("quiet", |arg| arg.help("Print only the key, or nothing with --key-file")))]
    Create(CreateArgs),
    /// List API keys, without their secrets
    ///
    ///   tenure auth key list
    ///   tenure auth key list ci-a
    #[command(verbatim_doc_comment)]
    List(ApiKeyListArgs),
    /// Replace an API key; the old one is accepted for a while
    ///
    ///   tenure auth key rotate 4f1c09a2b7d35e68 --key-file ci-a-new.key
    ///   tenure auth key rotate 4f1c09a2b7d35e68 --overlap 0      it may have leaked: the old one is out at once
    #[command(verbatim_doc_comment)]
    #[command(mut_arg("quiet", |arg| arg.help("Print only the new key, or nothing with --key-file")))]
    Rotate(ApiKeyRotateArgs),
    /// End an API key now: sessions that were opened with it end
    ///
    ///   tenure auth key revoke 4f1c09a2b7d35e68
    ///
    /// Leases stay, until they expire: their principal may have other keys. `tenure auth principal disable` ends them.
    #[command(verbatim_doc_comment)]
    Revoke(ApiKeyRevokeArgs),
}

/// Flags of `tenure auth key create`.
#[derive(Args)]
pub(crate) struct CreateArgs {
    /// The principal that the key stands for
    principal: String,
    /// What it is for, in words
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    name: String,
    /// Let it expire after this time [default: never]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    expires: Option<Duration>,
    /// Write the key to this new file, mode 0600, instead of showing it
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure auth key list`.
#[derive(Args)]
pub(crate) struct ApiKeyListArgs {
    /// Only those of this principal
    principal: Option<String>,
    #[command(flatten)]
    pub(crate) connection: ListArgs,
}

/// Flags of `tenure auth key rotate`.
#[derive(Args)]
pub(crate) struct ApiKeyRotateArgs {
    /// The id of the key to replace: the part between the underscores
    key: String,
    /// Accept the old key for so much longer
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "24h")]
    overlap: Duration,
    /// What the new key is for [default: as the old one]
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    name: String,
    /// Let the new key expire after this time [default: never]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    expires: Option<Duration>,
    /// Write the new key to this new file, mode 0600, instead of showing it
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure auth key revoke`.
#[derive(Args)]
pub(crate) struct ApiKeyRevokeArgs {
    /// The id of the key: the part between the underscores
    key: String,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

impl ApiKeyCommand {
    pub(crate) fn connection(&self) -> ConnectionOptions<'_> {
        match self {
            Self::Create(it) => ConnectionOptions::from(&it.connection),
            Self::List(it) => ConnectionOptions::from(&it.connection),
            Self::Rotate(it) => ConnectionOptions::from(&it.connection),
            Self::Revoke(it) => ConnectionOptions::from(&it.connection),
        }
    }
}

/// What a new key is to be like, and where it goes.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) expires: Option<Duration>,
    pub(super) key_file: Option<&'a Path>,
}

/// Runs one of these subcommands.
pub(super) async fn run(
    cluster: &ConnectedCluster,
    command: &ApiKeyCommand,
) -> Result<Exit, CliError> {
    match command {
        ApiKeyCommand::Create(flags) => {
            let wanted = Wanted {
                name: &flags.name,
                expires: flags.expires,
                key_file: flags.key_file.as_deref(),
            };
            make(cluster, &flags.principal, &wanted).await?;
        }
        ApiKeyCommand::List(flags) => list(cluster, flags.principal.as_deref()).await?,
        ApiKeyCommand::Rotate(flags) => rotate(cluster, flags).await?,
        ApiKeyCommand::Revoke(flags) => revoke(cluster, &flags.key).await?,
    }
    Ok(Exit::Done)
}

/// Gives a principal a new key.
pub(super) async fn make(
    cluster: &ConnectedCluster,
    principal: &str,
    wanted: &Wanted<'_>,
) -> Result<(), CliError> {
    let new = NewApiKey::random();
    let file = wanted.key_file.map(|path| KeyFile::write(path, &new.text)).transpose()?;
    let ask = v1::CreateApiKeyRequest {
        principal: principal.to_owned(),
        key: new.id.clone(),
        hash: new.hash.to_vec().into(),
        name: wanted.name.to_owned(),
        expires_in_ms: wanted.expires.map(millis),
    };
    let asked = async |channel| AccessServiceClient::new(channel).create_api_key(ask.clone()).await;
    let created = change(cluster, asked).await?;
    let key = created.key.unwrap_or_default();
    let words = format!("key {} of principal `{}`", key.key, output::clean(principal));
    show(cluster, "created", &words, key, None, &new, file);
    Ok(())
}

async fn rotate(cluster: &ConnectedCluster, flags: &ApiKeyRotateArgs) -> Result<(), CliError> {
    let new = NewApiKey::random();
    let file = flags.key_file.as_deref().map(|path| KeyFile::write(path, &new.text)).transpose()?;
    let ask = v1::RotateApiKeyRequest {
        old_key: flags.key.clone(),
        key: new.id.clone(),
        hash: new.hash.to_vec().into(),
        name: flags.name.clone(),
        expires_in_ms: flags.expires.map(millis),
        overlap_ms: millis(flags.overlap),
    };
    let asked = async |channel| AccessServiceClient::new(channel).rotate_api_key(ask.clone()).await;
    let rotated = change(cluster, asked).await?;
    let (key, old) = (rotated.key.unwrap_or_default(), rotated.old_key.unwrap_or_default());
    let end = match old.expired {
        true => "which is refused from now on".to_owned(),
        false => format!("which is accepted for {} more", left(old.expires_ms.unwrap_or(0))),
    };
    let words = format!("key {} replaces {}, {end}", key.key, old.key);
    show(cluster, "rotated", &words, key, Some(old), &new, file);
    Ok(())
}

/// Shows a new key once, or says where it is.
fn show(
    cluster: &ConnectedCluster,
    event: &str,
    words: &str,
    key: v1::ApiKey,
    old: Option<v1::ApiKey>,
    new: &NewApiKey,
    file: Option<KeyFile>,
) {
    let path = file.map(KeyFile::keep);
    if cluster.output == OutputFormat::Json {
        let mut object = json!({ "event": event, "key": ApiKey::from(key) });
        if let Some(old) = old {
            object["old_key"] = json!(ApiKey::from(old));
        }
        match path {
            Some(path) => object["key_file"] = Value::from(path.display().to_string()),
            None => object["api_key"] = Value::from(new.text.as_str()),
        }
        output::object(&object);
        return;
    }
    match path {
        Some(_) if cluster.quiet => {}
        Some(path) => output::tell(&format!("tenure: {words}\n  file     {}\n", path.display())),
        None => {
            if !cluster.quiet {
                output::tell(&format!("tenure: {words}; it is shown this once\n"));
            }
            output::out(&format!("{}\n", new.text));
        }
    }
}

async fn list(cluster: &ConnectedCluster, principal: Option<&str>) -> Result<(), CliError> {
    let head = ["KEY", "PRINCIPAL", "NAME", "EXPIRES"].map(|head| (head, Side::Left));
    let (mut listing, mut after) = (Listing::new(cluster, &head), String::new());
    loop {
        let principal = principal.unwrap_or_default().to_owned();
        let ask = v1::ListApiKeysRequest { principal, limit: 0, after };
        let asked =
            async |channel| AccessServiceClient::new(channel).list_api_keys(ask.clone()).await;
        let page = cluster.client.question(asked).await?;
        for key in page.keys {
            let cells = || [key.key.clone(), key.principal.clone(), key.name.clone(), expiry(&key)];
            listing.item(&key.key, |table| table.row(cells()), || ApiKey::from(key.clone()));
        }
        after = page.next;
        if after.is_empty() {
            break;
        }
    }
    listing.print();
    Ok(())
}

async fn revoke(cluster: &ConnectedCluster, key: &str) -> Result<(), CliError> {
    let ask = v1::RevokeApiKeyRequest { key: key.to_owned() };
    let asked = async |channel| AccessServiceClient::new(channel).revoke_api_key(ask.clone()).await;
    if !change(cluster, asked).await?.deleted {
        return Err(not_there("API key", key).next("tenure auth key list"));
    }
    match cluster.output {
        OutputFormat::Json => output::object(&json!({ "event": "revoked", "key": key })),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => output::out(&format!("key {key} is refused from now on\n")),
    }
    Ok(())
}

/// When a key expires, for people.
pub(super) fn expiry(key: &v1::ApiKey) -> String {
    match key.expires_ms {
        None => "never".to_owned(),
        Some(_) if key.expired => "expired".to_owned(),
        Some(at_ms) => format!("in {}", left(at_ms)),
    }
}

/// The time until a moment of the wall clock, rounded up: a time that was just given is shown as it was given.
fn left(at_ms: u64) -> String {
    duration::ms(at_ms.saturating_sub(os::wall_ms()).div_ceil(1_000) * 1_000)
}

/// A file with a new key. Removed again unless the cluster knows the key.
struct KeyFile {
    path: PathBuf,
    kept: bool,
}

impl KeyFile {
    /// Writes the key before the cluster learns of it, so that no key exists that its user does not have.
    fn write(path: &Path, text: &str) -> Result<Self, CliError> {
        let wrong = |error: std::io::Error| {
            CliError::refused(format!("cannot write {path:?}: {error}"))
                .with("effect", "none: no key was created")
                .next("--key-file with a file that does not exist yet")
        };
        let mut options = OpenOptions::new();
        let mut file: File =
            options.write(true).create_new(true).mode(0o600).open(path).map_err(wrong)?;
        let written = Self { path: path.to_owned(), kept: false };
        file.write_all(format!("{text}\n").as_bytes()).map_err(wrong)?;
        file.sync_all().map_err(wrong)?;
        Ok(written)
    }

    fn keep(mut self) -> PathBuf {
        self.kept = true;
        std::mem::take(&mut self.path)
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        if !self.kept {
            // It has a key that does not exist. If it stays, members refuse the key.
            let _ = fs::remove_file(&self.path);
        }
    }
}
