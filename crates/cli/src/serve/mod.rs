//! Starts a member of a cluster.

mod config;
mod file;
mod flags;

use clap::{Args, Subcommand};
use serde_json::json;
use tenure_server::{ConsoleMode, ServerSettings, StartError, StartMode, log, os, start};

use crate::exit::Exit;
use crate::member_process::{CliError, Company, install_log, on_end, process_requests, unstarted};
use crate::output::{self, OutputFormat};
use config::ServeConfig;

/// Flags of `tenure serve`.
#[derive(Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    given: ServeFlags,
    /// Call it by --name from now on, although the data is of a member by another name
    #[arg(long)]
    rename: bool,
    /// Output format: of the log on stderr, and of the message on stdout that it is ready [default: the log as text
    /// on a terminal, else as json; the rest as text]
    #[arg(long, value_name = "FORM", value_enum)]
    output: Option<OutputFormat>,
    /// End when stdin does: for programs that start members and may be killed
    #[arg(long, hide = true)]
    while_stdin: bool,
}

/// The commands of `tenure config`.
#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check what `tenure serve` would use, and say where each setting comes from
    ///
    ///   tenure config check --config /etc/tenure.toml
    #[command(verbatim_doc_comment)]
    Check(ConfigCheckArgs),
}

/// Flags of `tenure config check`.
#[derive(Args)]
pub(crate) struct ConfigCheckArgs {
    #[command(flatten)]
    given: ServeFlags,
    /// Output format
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
}

/// Settings in flags. Each beats its TENURE_* variable, which beats the file.
#[derive(Args, Default)]
struct ServeFlags {
    /// Read settings from this file [env: TENURE_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
    /// What people call this member
    #[arg(long)]
    name: Option<String>,
    /// Keep the data here
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Leader priority, 0 (last resort) to 100 [default: 50]
    #[arg(long, value_name = "NUMBER")]
    preference: Option<String>,
    /// Write a snapshot after so many entries [default: 1000000]
    #[arg(long, value_name = "NUMBER")]
    snapshot_entries: Option<String>,
    /// Keep so many bytes of past events on the disk; 0 for none [default: 1073741824]
    #[arg(long, value_name = "NUMBER")]
    archive_bytes: Option<String>,
    /// Keep past events for so many hours [default: 720]
    #[arg(long, value_name = "NUMBER")]
    archive_hours: Option<String>,
    /// Listen for clients here [default: 127.0.0.1:7450]
    #[arg(long, value_name = "ADDR")]
    clients: Option<String>,
    /// Listen for other members here [default: 127.0.0.1:7451]
    #[arg(long, value_name = "ADDR")]
    members: Option<String>,
    /// Serve health and metrics here, without certificates, or none [default: 127.0.0.1:7452]
    #[arg(long, value_name = "ADDR")]
    health: Option<String>,
    /// Where clients reach this member, if not where it listens
    #[arg(long, value_name = "ADDR")]
    advertise_clients: Option<String>,
    /// Where other members reach this one, if not where it listens
    #[arg(long, value_name = "ADDR")]
    advertise_members: Option<String>,
    /// Names by which clients may ask for this member, beside its addresses
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    hosts: Option<Vec<String>>,
    /// Web pages of these origins may send requests, such as https://app.example
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    allowed_origins: Option<Vec<String>>,
    /// Serve the web console: on, read-only or off
    #[arg(long, value_name = "MODE")]
    console: Option<String>,
    /// Found a cluster with these: a=ADDR,b=ADDR,c=ADDR
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    bootstrap: Option<Vec<String>>,
    /// Enter the cluster that any of these belongs to
    #[arg(long, value_name = "ADDR", value_delimiter = ',', conflicts_with = "bootstrap")]
    join: Option<Vec<String>>,
    /// With --join: what `tenure cluster invite` printed. Other users of this machine see flags; the variable
    /// TENURE_CLUSTER_INVITATION and the file do not show it
    #[arg(long, value_name = "TOKEN")]
    invitation: Option<String>,
    /// With --join: read the invitation from this file
    #[arg(long, value_name = "FILE", conflicts_with = "invitation")]
    invitation_file: Option<String>,
    /// Show this certificate to members and clients, and let clients in under TLS alone
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// The private key of --tls-cert
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// Talk to members under TLS; this authority signs their certificates
    #[arg(long, value_name = "FILE")]
    tls_member_ca: Option<String>,
    /// Let only clients in whose certificates this authority signed
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<String>,
    /// Refuse callers without credentials, also before `tenure auth enable`
    #[arg(long)]
    require_identity: bool,
    /// Read keys of token issuers from servers that this authority signed [default: those the system trusts]
    #[arg(long, value_name = "FILE")]
    tls_issuer_ca: Option<String>,
    /// Allow addresses that other machines reach, without encryption or identity
    #[arg(long)]
    insecure: bool,
    /// Log what is at least so important: error, warn, info or debug [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Log requests that take so many milliseconds, with where the time went, or none [default: 1000]
    #[arg(long, value_name = "NUMBER")]
    log_slow_ms: Option<String>,
    /// Append what administrators do to this file, one JSON object per line, or to stderr
    #[arg(long, value_name = "FILE")]
    audit_file: Option<String>,
    /// Send traces of requests to this OTLP/gRPC collector, such as http://127.0.0.1:4317 or https://…
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// Trust a collector at https:// by this authority, in PEM form [default: those that the machine trusts]
    #[arg(long, value_name = "FILE")]
    otlp_ca: Option<String>,
    /// Trace this share of the requests that come without a traceparent [default: 0.01]
    #[arg(long, value_name = "NUMBER")]
    trace_ratio: Option<String>,
}

impl ServeArgs {
    /// The form of failures and of the ready message, independent of the log's form.
    pub(crate) fn form(&self) -> OutputFormat {
        self.output.unwrap_or_default()
    }
}

/// Shows the settings that `tenure serve` would use.
pub(crate) fn check(flags: &ConfigCheckArgs) -> Result<Exit, CliError> {
    let config = ServeConfig::gather(&flags.given)?;
    let settings = config.settings()?;
    if let Some(tls) = &settings.tls {
        tls.check_name(&settings.name).map_err(StartError::from)?;
    }
    config.log_level()?;
    match flags.output {
        OutputFormat::Text => output::out(&config.to_string()),
        OutputFormat::Json => config.objects().iter().for_each(output::object),
    }
    Ok(Exit::Done)
}

/// What a member serves of the web console, by the value of the setting.
fn console_mode(text: Option<&str>) -> Result<ConsoleMode, String> {
    let text = text.unwrap_or("on");
    let wrong = || format!("listen.console is `{text}`; try on, read-only or off");
    ConsoleMode::parse(text).ok_or_else(wrong)
}

/// Runs a member until a signal stops it.
pub(crate) fn run(flags: &ServeArgs) -> Result<Exit, CliError> {
    let config = ServeConfig::gather(&flags.given)?;
    let mut settings: ServerSettings = config.settings()?;
    let form = flags.output.map(|output| match output {
        OutputFormat::Json => log::LineForm::Json,
        OutputFormat::Text => log::LineForm::Text,
    });
    install_log(form, config.log_level()?)?;
    let requests = process_requests()?;
    os::raise_open_files();
    if flags.while_stdin {
        let end_with_stdin = || {
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            log::flush();
            std::process::exit(0);
        };
        let failed =
            |error| CliError::refused(format!("cannot wait for the end of stdin: {error}"));
        let named = std::thread::Builder::new().name("tenure-stdin".to_owned());
        named.spawn(end_with_stdin).map_err(failed)?;
    }
    settings.stop = requests.stop.clone();
    settings.on_end = on_end(&settings.name, flags.form());
    settings.rename = flags.rename;
    let name = settings.name.clone();
    let again = matches!(settings.entrance, StartMode::None);
    let data = settings.data.clone();
    let running = start(settings).map_err(|error| unstarted(error, &data, Company::Unknown))?;
    let (member, cluster) = (running.member.id(), running.cluster.clone());
    let (clients, members) = (running.clients, running.members.unwrap_or(running.clients));
    let health = running.health.map(|at| at.to_string());
    tracing::info!(name, %member, cluster, %clients, %members, health, restart = again, "serving");
    if flags.form() == OutputFormat::Json {
        output::offer(&json!({
            "event": "ready", "name": name, "member": member.to_string(), "cluster": cluster,
            "clients": clients.to_string(), "members": members.to_string(), "health": health, "restart": again,
        }));
    }
    requests.wait(&[running], |_| {});
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_is_on_read_only_or_off() {
        assert_eq!(console_mode(None), Ok(ConsoleMode::On));
        assert_eq!(console_mode(Some("read-only")), Ok(ConsoleMode::ReadOnly));
        assert_eq!(console_mode(Some("off")), Ok(ConsoleMode::Off));
        let refused = console_mode(Some("readonly")).unwrap_err();
        assert!(refused.contains("on, read-only or off"), "{refused}");
    }
}
