//! Lists, shows, restores and purges the states of a running store: `tenure store state`.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_gate::KeySourceTls;
use tenure_gate::store::{PORT, StateClient, StateCredentials, StateReply, in_url};

use crate::client_name::default_name;
use crate::connection_args::{ConnectionArgs, request_id};
use crate::exit::Exit;
use crate::failure::CliError;
use crate::output::{self, OutputFormat, Side, Table};
use crate::wall_time;

/// What can be typed after `tenure store state`.
#[derive(Subcommand)]
pub(crate) enum StateCommand {
    /// List the states, and who holds them
    ///
    ///   tenure store state list
    ///   tenure store state list prod/
    #[command(verbatim_doc_comment)]
    List(StateListArgs),
    /// List the versions of a state that are kept, oldest first
    ///
    ///   tenure store state versions prod
    #[command(verbatim_doc_comment)]
    Versions(VersionsArgs),
    /// Print a state, or an old version of it
    ///
    ///   tenure store state show prod --version 7
    #[command(verbatim_doc_comment)]
    Show(StateShowArgs),
    /// Make an old version the newest one
    ///
    ///   tenure store state restore prod --version 7
    ///
    /// Locks the state, writes the old version with the next serial, and unlocks it. The versions between stay. Run
    /// `terraform plan` afterwards: what exists may differ from what the old version says.
    #[command(verbatim_doc_comment)]
    Restore(StateRestoreArgs),
    /// Remove old versions of a state for good
    ///
    ///   tenure store state purge prod --keep 10
    ///
    /// The newest ones stay, and with them the state itself. It makes room where --states-bytes-max is reached, also
    /// while the state is locked.
    #[command(verbatim_doc_comment)]
    Purge(StatePurgeArgs),
}

/// Flags of `state list`.
#[derive(Args)]
pub(crate) struct StateListArgs {
    /// Only states whose names begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    store: StoreAddressArgs,
    /// Print only names, one per line
    #[arg(long, short)]
    quiet: bool,
}

/// Flags of `state versions`.
#[derive(Args)]
pub(crate) struct VersionsArgs {
    /// Which state
    #[arg(value_parser = output::name)]
    state: String,
    #[command(flatten)]
    store: StoreAddressArgs,
    /// Print only numbers, one per line
    #[arg(long, short)]
    quiet: bool,
}

/// Flags of `state show`.
#[derive(Args)]
pub(crate) struct StateShowArgs {
    /// Which state
    #[arg(value_parser = output::name)]
    state: String,
    /// Which version [default: the newest]
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    #[command(flatten)]
    store: StoreAddressArgs,
}

/// Flags of `state restore`.
#[derive(Args)]
pub(crate) struct StateRestoreArgs {
    /// Which state
    #[arg(value_parser = output::name)]
    state: String,
    /// Which version
    #[arg(long, value_name = "N")]
    version: u64,
    /// The lock that guards it [default: the one with its name]
    #[arg(long, value_name = "NAME", value_parser = output::name)]
    lock: Option<String>,
    #[command(flatten)]
    store: StoreAddressArgs,
    /// Print nothing on success
    #[arg(long, short)]
    quiet: bool,
}

/// Flags of `state purge`.
#[derive(Args)]
pub(crate) struct StatePurgeArgs {
    /// Which state
    #[arg(value_parser = output::name)]
    state: String,
    /// How many of the newest versions stay
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keep: u64,
    /// The lock that guards it [default: the one with its name]
    #[arg(long, value_name = "NAME", value_parser = output::name)]
    lock: Option<String>,
    #[command(flatten)]
    store: StoreAddressArgs,
    /// Print nothing on success
    #[arg(long, short)]
    quiet: bool,
}

/// Flags that say where the store is.
#[derive(Args)]
struct StoreAddressArgs {
    /// The store [env: TENURE_STORE]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Authenticate with the key in this file, of the store's --readers or --writers [default: TF_HTTP_USERNAME and
    /// TF_HTTP_PASSWORD]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// For https://: this authority signed the store's certificate [env: TENURE_CA]
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Show this certificate to the store [env: TENURE_CERT]
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert [env: TENURE_KEY]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Output format
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    output: OutputFormat,
}

#[derive(Deserialize)]
struct StatesPage {
    states: Vec<Value>,
    more: bool,
}

#[derive(Deserialize)]
struct VersionsPage {
    versions: Vec<Value>,
}

impl StateCommand {
    pub(crate) fn output(&self) -> OutputFormat {
        match self {
            Self::List(flags) => flags.store.output,
            Self::Versions(flags) => flags.store.output,
            Self::Show(flags) => flags.store.output,
            Self::Restore(flags) => flags.store.output,
            Self::Purge(flags) => flags.store.output,
        }
    }

    pub(crate) fn run(&self) -> Result<Exit, CliError> {
        match self {
            Self::List(flags) => list(flags),
            Self::Versions(flags) => versions(flags),
            Self::Show(flags) => show(flags),
            Self::Restore(flags) => restore(flags),
            Self::Purge(flags) => purge(flags),
        }
    }
}

impl StoreAddressArgs {
    fn client(&self) -> Result<StateClient, CliError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let store = self.store.clone().or_else(|| variable("TENURE_STORE"));
        let store = store.unwrap_or_else(|| format!("http://127.0.0.1:{PORT}"));
        let tls = if store.starts_with("https://") { self.tls()? } else { None };
        let credentials = match &self.key_file {
            Some(path) => {
                let key = std::fs::read_to_string(path)
                    .map_err(|error| CliError::config(format!("cannot read {path:?}: {error}")))?;
                Some(StateCredentials::Key(key.trim().to_owned()))
            }
            None => variable("TF_HTTP_PASSWORD").map(|password| StateCredentials::Basic {
                user: variable("TF_HTTP_USERNAME").unwrap_or_default(),
                password,
            }),
        };
        StateClient::new(&store, tls, credentials).map_err(CliError::arguments)
    }

    fn tls(&self) -> Result<Option<KeySourceTls>, CliError> {
        let connection = ConnectionArgs {
            tls_ca: self.tls_ca.clone(),
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
            ..ConnectionArgs::default()
        };
        Ok(connection.place()?.tls.map(|tls| KeySourceTls { ca: tls.ca, own: tls.own }))
    }
}

fn list(flags: &StateListArgs) -> Result<Exit, CliError> {
    let client = flags.store.client()?;
    let mut table = Table::new(&[
        ("STATE", Side::Left),
        ("VERSION", Side::Right),
        ("SERIAL", Side::Right),
        ("BYTES", Side::Right),
        ("LOCK", Side::Left),
        ("HELD BY", Side::Left),
    ]);
    let (mut after, mut count) = (None, 0_u64);
    loop {
        let behind = after.as_deref().map(|after| format!("&after={}", in_url(after)));
        let of = format!("?prefix={}{}", in_url(&flags.prefix), behind.unwrap_or_default());
        let page: StatesPage = parsed(&ask(&client, "GET", &of, "")?)?;
        for state in &page.states {
            count += 1;
            let name = text(state, "state");
            match (flags.quiet, flags.store.output) {
                (true, _) => output::out(&format!("{}\n", output::clean(&name))),
                (false, OutputFormat::Json) => output::object(state),
                (false, OutputFormat::Text) => table.row([
                    name,
                    text(state, "version"),
                    text(state, "serial"),
                    text(state, "bytes"),
                    text(state, "lock"),
                    text(&state["held"], "Who"),
                ]),
            }
        }
        after = page.states.last().map(|state| text(state, "state"));
        if !page.more || after.is_none() {
            break;
        }
    }
    if flags.store.output == OutputFormat::Text && !flags.quiet {
        if count == 0 {
            output::tell("no states\n");
        } else {
            output::out(&table.text());
        }
    }
    Ok(Exit::Done)
}

fn versions(flags: &VersionsArgs) -> Result<Exit, CliError> {
    let client = flags.store.client()?;
    let of = format!("/{}?versions=true", in_url(&flags.state));
    let page: VersionsPage = parsed(&ask(&client, "GET", &of, "")?)?;
    if page.versions.is_empty() {
        return Err(CliError::new(Exit::Refused, "STATE_NOT_FOUND", "there is no such state")
            .next("tenure store state list"));
    }
    let mut table = Table::new(&[
        ("VERSION", Side::Right),
        ("SERIAL", Side::Right),
        ("BYTES", Side::Right),
        ("TOKEN", Side::Right),
        ("WRITTEN", Side::Left),
        ("BY", Side::Left),
    ]);
    for version in &page.versions {
        match (flags.quiet, flags.store.output) {
            (true, _) => output::out(&format!("{}\n", text(version, "version"))),
            (false, OutputFormat::Json) => output::object(version),
            (false, OutputFormat::Text) => {
                let deleted = version["deleted"] == true;
                table.row([
                    text(version, "version"),
                    text(version, "serial"),
                    if deleted { "deleted".to_owned() } else { text(version, "bytes") },
                    text(version, "token"),
                    wall_time::local(version["at_unix_ms"].as_u64().unwrap_or(0)),
                    text(version, "who"),
                ]);
            }
        }
    }
    if flags.store.output == OutputFormat::Text && !flags.quiet {
        output::out(&table.text());
    }
    Ok(Exit::Done)
}

fn show(flags: &StateShowArgs) -> Result<Exit, CliError> {
    let version = flags.version.map(|version| format!("?version={version}"));
    let of = format!("/{}{}", in_url(&flags.state), version.unwrap_or_default());
    let state = ask(&flags.store.client()?, "GET", &of, "")?;
    let failed = |error| CliError::refused(format!("cannot write: {error}"));
    std::io::stdout().write_all(&state.body).map_err(failed)?;
    Ok(Exit::Done)
}

fn restore(flags: &StateRestoreArgs) -> Result<Exit, CliError> {
    let client = flags.store.client()?;
    let state = in_url(&flags.state);
    let id = request_id(None).to_string();
    let info = json!({
        "ID": id, "Operation": "restore", "Info": format!("version {}", flags.version),
        "Who": default_name(None), "Version": "", "Path": flags.state,
        "Created": tenure_wire::wall::utc(tenure_server::os::wall_ms()),
    });
    let lock = format!("lock={}", in_url(flags.lock.as_ref().unwrap_or(&flags.state)));
    let (at, info) = (format!("/{state}?{lock}"), info.to_string());
    let unlock = || ask(&client, "UNLOCK", &at, &info);
    if let Err(error) = ask(&client, "LOCK", &at, &info) {
        // If the state was locked all the same, this command is the only one that knows the id.
        return Err(if error.exit == Exit::Unknown {
            not_unlocked(error, unlock())
        } else {
            error
        });
    }
    let of = format!("{at}&restore={}&ID={}", flags.version, in_url(&id));
    let restored = ask(&client, "POST", &of, "");
    // The state is unlocked also if nothing was restored.
    let unlocked = unlock();
    let restored: Value = match restored {
        Ok(restored) => parsed(&restored)?,
        Err(error) => return Err(not_unlocked(error, unlocked)),
    };
    match flags.store.output {
        OutputFormat::Json => output::object(&restored),
        OutputFormat::Text if flags.quiet => {}
        OutputFormat::Text => output::out(&format!(
            "version {} of `{}` is now version {}, serial {}\n",
            flags.version,
            output::clean(&flags.state),
            text(&restored, "version"),
            text(&restored, "serial"),
        )),
    }
    // What was restored is printed first: it happened, whatever became of the lock.
    let locked = |error: CliError| error.with("restored", "yes; only the unlocking failed");
    unlocked.map_err(locked)?;
    Ok(Exit::Done)
}

/// Adds to an error that the state may be locked still.
fn not_unlocked(error: CliError, unlocked: Result<StateReply, CliError>) -> CliError {
    match unlocked {
        Ok(_) => error,
        Err(also) => error.with("unlock", also.text),
    }
}

fn purge(flags: &StatePurgeArgs) -> Result<Exit, CliError> {
    let lock = in_url(flags.lock.as_ref().unwrap_or(&flags.state));
    let of = format!("/{}?lock={lock}&keep={}", in_url(&flags.state), flags.keep);
    let purged: Value = parsed(&ask(&flags.store.client()?, "DELETE", &of, "")?)?;
    match flags.store.output {
        OutputFormat::Json => output::object(&purged),
        OutputFormat::Text if flags.quiet => {}
        OutputFormat::Text => output::out(&format!(
            "{} of `{}` removed, {} bytes\n",
            output::count(purged["removed"].as_u64().unwrap_or(0), "version"),
            output::clean(&flags.state),
            text(&purged, "bytes"),
        )),
    }
    Ok(Exit::Done)
}

/// Sends a call. Returns the answer if it was successful, or why it was not.
fn ask(client: &StateClient, verb: &str, of: &str, body: &str) -> Result<StateReply, CliError> {
    let reply = client.call(verb, of, body.to_owned()).map_err(|unanswered| {
        if unanswered.may_have_happened && verb != "GET" {
            let (exit, reason) = (Exit::Unknown, "UNKNOWN_OUTCOME");
            return CliError::new(exit, reason, format!("{verb}: {}", unanswered.why))
                .unknown("it may have happened, or may still")
                .next("tenure store state list, and: tenure store state versions NAME");
        }
        CliError::new(Exit::Unreachable, "UNREACHABLE", unanswered.why)
            .next("--store URL of a store that runs, or TENURE_STORE")
    })?;
    if reply.is_success() {
        return Ok(reply);
    }
    let said: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    // An error without an effect is not the store's, but that of something in between.
    let is_unknown = verb != "GET"
        && (said["error"]["effect"] == "unknown" || (reply.status >= 500 && said.is_null()));
    let exit = match reply.status {
        _ if is_unknown => Exit::Unknown,
        401 | 403 => Exit::NotAllowed,
        423 => Exit::NotAcquired,
        _ => Exit::Refused,
    };
    let reason = if reply.reason.is_empty() { "REFUSED" } else { &reply.reason };
    let message = match said["error"]["message"].as_str() {
        Some(message) => message.to_owned(),
        // The holder of a state is described in Terraform's words.
        None if reply.status == 423 => {
            let (who, id) = (text(&said, "Who"), text(&said, "ID"));
            format!("the state is locked by {who}, id {id}")
        }
        None => format!("the store answers {}", reply.status),
    };
    let error = CliError::new(exit, reason, output::clean(&message));
    let error = if is_unknown { error.unknown("it may have happened") } else { error };
    let next = said["error"]["next"].as_str().map(ToOwned::to_owned);
    Err(error.next(next.unwrap_or_else(|| format!("tenure help {reason}"))))
}

fn parsed<T: for<'de> Deserialize<'de>>(reply: &StateReply) -> Result<T, CliError> {
    serde_json::from_slice(&reply.body)
        .map_err(|error| CliError::refused(format!("the answer of the store: {error}")))
}

/// A field as text; `-` if it is absent.
fn text(of: &Value, field: &str) -> String {
    match &of[field] {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
