//! Reads and writes keys from a shell.

use std::io::Read;

use clap::{Args, Subcommand};
use serde_json::json;
use tenure_wire::json::key::KeyShown;
use tenure_wire::v1;
use v1::answer::Result as Answer;
use v1::expect::How;
use v1::key_service_client::KeyServiceClient;
use v1::request::Command;

use crate::connection_args::{ConnectedCluster, ConnectionArgs, flag_or_variable, request_id};
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::lease;
use crate::listing::Listing;
use crate::lock::wait::strange;
use crate::output::{self, OutputFormat, Side};
use crate::print_args::{ListArgs, QuietArgs};
use crate::suggest::suggested;

/// The prefix of the cluster's own keys.
const OWN: &str = "tenure/";

/// What can be done with keys.
#[derive(Subcommand)]
pub(crate) enum KeyCommand {
    /// Print a key's value
    ///
    ///   tenure key get config
    #[command(verbatim_doc_comment)]
    Get(GetArgs),
    /// Write a key
    ///
    ///   tenure key put config v1
    ///   tenure key put config - < config.toml                     from stdin
    ///   tenure key put ledger paid --guarded                      inside `tenure run`: only while its lock is held
    ///   tenure key put ledger paid --lock deploy --token 1042     the same by hand
    #[command(verbatim_doc_comment)]
    Put(KeyPutArgs),
    /// Delete a key
    ///
    ///   tenure key delete config
    #[command(verbatim_doc_comment)]
    Delete(KeyDeleteArgs),
    /// Write a key only if it is as you believe
    ///
    ///   tenure key cas config v2 --old v1
    ///   tenure key cas config v1 --absent
    ///   tenure key cas config v2 --modified 8841      as `tenure key get --output json` showed it
    #[command(verbatim_doc_comment)]
    Cas(CasArgs),
    /// List keys
    ///
    ///   tenure key list config/
    #[command(verbatim_doc_comment)]
    List(KeyListArgs),
}

/// Flags of `tenure key get`.
#[derive(Args)]
pub(crate) struct GetArgs {
    /// Which key
    #[arg(value_parser = output::name)]
    key: String,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
}

/// Flags of `tenure key put`.
#[derive(Args)]
pub(crate) struct KeyPutArgs {
    /// Which key
    #[arg(value_parser = output::name)]
    key: String,
    /// The value; - reads it from stdin
    value: String,
    #[command(flatten)]
    bound: Bound,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure key delete`.
#[derive(Args)]
pub(crate) struct KeyDeleteArgs {
    /// Which key
    #[arg(value_parser = output::name)]
    key: String,
    #[command(flatten)]
    guard: GuardArgs,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure key cas`.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("believed").required(true).args(["old", "absent", "modified"]))]
pub(crate) struct CasArgs {
    /// Which key
    #[arg(value_parser = output::name)]
    key: String,
    /// The new value; - reads it from stdin
    value: String,
    /// Only if it has this value
    #[arg(long, value_name = "VALUE")]
    old: Option<String>,
    /// Only if it does not exist
    #[arg(long)]
    absent: bool,
    /// Only if it was last written at this revision
    #[arg(long, value_name = "REVISION")]
    modified: Option<i64>,
    #[command(flatten)]
    bound: Bound,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure key list`.
#[derive(Args)]
pub(crate) struct KeyListArgs {
    /// Only names that begin with this text
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    pub(crate) connection: ListArgs,
}

/// What a written key depends on.
#[derive(Args)]
struct Bound {
    /// The key ends with this lease; its first digits will do
    #[arg(long, value_name = "LEASE")]
    lease: Option<String>,
    #[command(flatten)]
    guard: GuardArgs,
}

/// The conditions of a write.
#[derive(Args)]
struct GuardArgs {
    /// Only while this lock is held under --token
    #[arg(long, value_name = "LOCK", requires = "token")]
    lock: Option<String>,
    /// The token of --lock
    #[arg(long, requires = "lock")]
    token: Option<u64>,
    /// Only while the lock of the surrounding `tenure run` is held: TENURE_LOCK and TENURE_TOKEN
    #[arg(long, conflicts_with = "lock")]
    guarded: bool,
    /// Repeat a request whose outcome is not known
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

impl KeyCommand {
    pub(crate) fn output(&self) -> OutputFormat {
        match self {
            Self::Get(it) => it.connection.output,
            Self::Put(it) => it.connection.output,
            Self::Delete(it) => it.connection.output,
            Self::Cas(it) => it.connection.output,
            Self::List(it) => it.connection.output,
        }
    }
}

/// Runs one of these subcommands.
pub(crate) fn run(command: &KeyCommand) -> Result<Exit, CliError> {
    match command {
        KeyCommand::Get(flags) => flags.connection.with(async |cluster| get(cluster, flags).await),
        KeyCommand::Put(flags) => {
            let value = value(&flags.value)?;
            let (key, bound) = (flags.key.clone(), &flags.bound);
            flags.connection.with(async |cluster| put(cluster, key, value, bound, None).await)
        }
        KeyCommand::Cas(flags) => {
            let value = value(&flags.value)?;
            let how = match (&flags.old, flags.modified) {
                (Some(old), _) => How::Value(old.clone().into()),
                (None, Some(revision)) => How::Modified(revision),
                (None, None) => How::Absent(true),
            };
            let (key, bound) = (flags.key.clone(), &flags.bound);
            flags.connection.with(async |cluster| put(cluster, key, value, bound, Some(how)).await)
        }
        KeyCommand::Delete(flags) => {
            flags.connection.with(async |cluster| delete(cluster, flags).await)
        }
        KeyCommand::List(flags) => {
            flags.connection.with(async |cluster| list(cluster, &flags.prefix).await)
        }
    }
}

impl GuardArgs {
    fn wire(&self) -> Result<Option<v1::Guard>, CliError> {
        if self.guarded {
            let lock = flag_or_variable(None, "--lock", "TENURE_LOCK")?;
            let token = flag_or_variable(None, "--token", "TENURE_TOKEN")?;
            return Ok(Some(v1::Guard { lock, token }));
        }
        let both = self.lock.clone().zip(self.token);
        Ok(both.map(|(lock, token)| v1::Guard { lock, token }))
    }
}

fn value(given: &str) -> Result<Vec<u8>, CliError> {
    if given != "-" {
        return Ok(given.as_bytes().to_vec());
    }
    let mut value = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut value);
    read.map_err(|error| CliError::refused(format!("cannot read stdin: {error}")))?;
    Ok(value)
}

async fn get(cluster: &ConnectedCluster, flags: &GetArgs) -> Result<Exit, CliError> {
    let ask = Command::GetKey(v1::GetKeyRequest { key: flags.key.clone(), stale: false });
    let (Answer::Key(it), _) = cluster.client.ask(ask, None).await? else { return Err(strange()) };
    let Some(kv) = it.kv else {
        let key = &flags.key;
        let failure =
            CliError::new(Exit::Refused, "KEY_NOT_FOUND", format!("key `{key}` does not exist"));
        return Err(failure.next(format!("tenure key put {} VALUE", quoted(key))));
    };
    match cluster.output {
        OutputFormat::Json => output::object(&KeyShown::from(kv)),
        OutputFormat::Text => {
            use std::io::{IsTerminal, Write};
            // Print the bytes unchanged; only a terminal gets a newline.
            let mut stdout = std::io::stdout().lock();
            let end: &[u8] = if stdout.is_terminal() { b"\n" } else { b"" };
            let written = stdout.write_all(&kv.value).and_then(|()| stdout.write_all(end));
            if written.and_then(|()| stdout.flush()).is_err() {
                std::process::exit(141);
            }
        }
    }
    Ok(Exit::Done)
}

async fn put(
    cluster: &ConnectedCluster,
    key: String,
    value: Vec<u8>,
    bound: &Bound,
    expect: Option<How>,
) -> Result<Exit, CliError> {
    let guard = bound.guard.wire()?;
    let lease = match &bound.lease {
        Some(lease) => lease::find(cluster, lease).await?,
        None => 0,
    };
    let put = Command::Put(v1::PutRequest {
        key: key.clone(),
        value: value.into(),
        lease,
        expect: expect.map(|how| v1::Expect { how: Some(how) }),
        guard,
        ..Default::default()
    });
    let id = request_id(bound.guard.request_id.as_ref());
    let written = cluster.client.ask(put, Some(&id)).await;
    let (answer, revision) = written.map_err(|error| named(&key, error))?;
    let Answer::Put(it) = answer else { return Err(strange()) };
    match cluster.output {
        OutputFormat::Json => output::object(&json!({
            "key": key, "revision": revision.to_string(), "version": it.version,
            "created": it.created.to_string(),
        })),
        OutputFormat::Text if output::watched() && !cluster.quiet => {
            let version = it.version;
            output::tell(&format!(
                "key `{key}` written at revision {revision}, version {version}\n"
            ));
        }
        OutputFormat::Text => {}
    }
    Ok(Exit::Done)
}

async fn delete(cluster: &ConnectedCluster, flags: &KeyDeleteArgs) -> Result<Exit, CliError> {
    let key = flags.key.clone();
    let guard = flags.guard.wire()?;
    let delete = Command::Delete(v1::DeleteRequest { key: key.clone(), expect: None, guard });
    let id = request_id(flags.guard.request_id.as_ref());
    let deleted = cluster.client.ask(delete, Some(&id)).await;
    let (answer, revision) = deleted.map_err(|error| named(&key, error))?;
    let Answer::Deleted(it) = answer else { return Err(strange()) };
    match cluster.output {
        OutputFormat::Json => output::object(&json!({
            "key": key, "existed": it.existed, "revision": revision.to_string(),
        })),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text if it.existed => {
            output::tell(&format!("key `{key}` deleted at revision {revision}\n"));
        }
        OutputFormat::Text => output::tell(&format!("key `{key}` did not exist\n")),
    }
    Ok(Exit::Done)
}

/// A failure that names the key and how to inspect it.
fn named(key: &str, error: tenure::Error) -> CliError {
    let mut failure = CliError::from(error);
    if failure.reason == "COMPARE_FAILED" {
        failure.text = format!("key `{key}` is not as expected");
        return failure.next(format!("tenure key get {} --output json", quoted(key)));
    }
    failure
}

async fn list(cluster: &ConnectedCluster, prefix: &str) -> Result<Exit, CliError> {
    let head = [
        ("KEY", Side::Left),
        ("VALUE", Side::Left),
        ("WRITTEN", Side::Right),
        ("VERSION", Side::Right),
        ("LEASE", Side::Left),
    ];
    let (mut listing, mut after) = (Listing::new(cluster, &head), String::new());
    loop {
        let ask = v1::ListKeysRequest { prefix: prefix.to_owned(), limit: 0, after, stale: false };
        let asked = async |channel| KeyServiceClient::new(channel).list(ask.clone()).await;
        let page = cluster.client.question(asked).await?;
        for kv in page.kvs {
            // The cluster's own keys are shown only if the prefix asks for them.
            if kv.key.starts_with(OWN) && !prefix.starts_with(OWN) {
                continue;
            }
            let cells = || {
                let lease = if kv.lease > 0 { lease::short(kv.lease) } else { "-".to_owned() };
                let (written, version) = (kv.mod_revision.to_string(), kv.version.to_string());
                [kv.key.clone(), brief(&kv.value), written, version, lease]
            };
            listing.item(&kv.key, |table| table.row(cells()), || KeyShown::from(kv.clone()));
        }
        after = page.next;
        if after.is_empty() {
            break;
        }
    }
    listing.print_or(&match output::clean(prefix).as_str() {
        "" => suggested("there is no key; write one: tenure key put KEY VALUE"),
        prefix => format!("there is no key whose name begins with `{prefix}`"),
    });
    Ok(Exit::Done)
}

/// The beginning of a value.
fn brief(value: &[u8]) -> String {
    let text = output::bytes(value);
    if text.chars().count() <= 40 {
        return text;
    }
    let start: String = text.chars().take(39).collect();
    format!("{start}…")
}
