//! Parses the configuration file of a member.
//!
//! This file depends on no other file of the crate, so that the fuzz target can include it as it is.

use serde::Deserialize;

/// Why a file cannot be read, and at which line.
#[derive(Debug)]
pub(crate) struct ConfigFileError {
    pub(crate) line: usize,
    pub(crate) what: String,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct ConfigFile {
    member: MemberTable,
    listen: ListenTable,
    cluster: ClusterTable,
    tls: TlsTable,
    log: LogTable,
    traces: TracesTable,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct MemberTable {
    name: Option<String>,
    data: Option<String>,
    preference: Option<u8>,
    snapshot_entries: Option<u64>,
    archive_bytes: Option<u64>,
    archive_hours: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct ListenTable {
    clients: Option<String>,
    members: Option<String>,
    health: Option<String>,
    advertise_clients: Option<String>,
    advertise_members: Option<String>,
    hosts: Option<Vec<String>>,
    allowed_origins: Option<Vec<String>>,
    console: Option<String>,
    insecure: Option<bool>,
    require_identity: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct ClusterTable {
    bootstrap: Option<Vec<String>>,
    join: Option<Vec<String>>,
    invitation: Option<String>,
    invitation_file: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct TlsTable {
    cert: Option<String>,
    key: Option<String>,
    member_ca: Option<String>,
    client_ca: Option<String>,
    issuer_ca: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct LogTable {
    level: Option<String>,
    slow_ms: Option<SlowMs>,
    audit_file: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct TracesTable {
    otlp_ca: Option<String>,
    otlp_endpoint: Option<String>,
    ratio: Option<f64>,
}

/// A number of milliseconds, or `"none"`.
#[derive(Deserialize)]
#[serde(untagged)]
enum SlowMs {
    Number(u64),
    Word(String),
}

/// The settings in a file, by name.
pub(crate) fn read(text: &str) -> Result<Vec<(&'static str, String)>, ConfigFileError> {
    let ConfigFile { member, listen, cluster, tls, log, traces } =
        toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            ConfigFileError { line, what: error.message().replace('\n', " ") }
        })?;
    let join = |list: Option<Vec<String>>| list.map(|list| list.join(","));
    let values = [
        ("member.name", member.name),
        ("member.data", member.data),
        ("member.preference", member.preference.map(|number| number.to_string())),
        ("member.snapshot_entries", member.snapshot_entries.map(|number| number.to_string())),
        ("member.archive_bytes", member.archive_bytes.map(|number| number.to_string())),
        ("member.archive_hours", member.archive_hours.map(|number| number.to_string())),
        ("listen.clients", listen.clients),
        ("listen.members", listen.members),
        ("listen.health", listen.health),
        ("listen.advertise_clients", listen.advertise_clients),
        ("listen.advertise_members", listen.advertise_members),
        ("listen.hosts", join(listen.hosts)),
        ("listen.allowed_origins", join(listen.allowed_origins)),
        ("listen.console", listen.console),
        ("listen.insecure", listen.insecure.map(|insecure| insecure.to_string())),
        ("listen.require_identity", listen.require_identity.map(|required| required.to_string())),
        ("cluster.bootstrap", join(cluster.bootstrap)),
        ("cluster.join", join(cluster.join)),
        ("cluster.invitation", cluster.invitation),
        ("cluster.invitation_file", cluster.invitation_file),
        ("tls.cert", tls.cert),
        ("tls.key", tls.key),
        ("tls.member_ca", tls.member_ca),
        ("tls.client_ca", tls.client_ca),
        ("tls.issuer_ca", tls.issuer_ca),
        ("log.level", log.level),
        ("log.slow_ms", log.slow_ms.map(slow_ms)),
        ("log.audit_file", log.audit_file),
        ("traces.otlp_ca", traces.otlp_ca),
        ("traces.otlp_endpoint", traces.otlp_endpoint),
        ("traces.ratio", traces.ratio.map(|ratio| ratio.to_string())),
    ];
    Ok(values.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}

fn slow_ms(given: SlowMs) -> String {
    match given {
        SlowMs::Number(number) => number.to_string(),
        SlowMs::Word(word) => word,
    }
}
