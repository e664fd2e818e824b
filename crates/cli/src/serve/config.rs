//! Gathers the settings of a member, each with its source.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tenure_server::log::Level;
use tenure_server::tls::{ServerTls, ServerTlsFiles};
use tenure_server::{
    ArchiveSettings, AuditTo, HealthListen, InvitationSource, InvitationToken, Preference,
    ServerAuthority, ServerSettings, StartError, StartMode, TraceSettings,
};

use super::flags::from_flags;
use super::{ServeFlags, console_mode, file};
use crate::address::is_address;
use crate::member_process::CliError;

/// Every setting with its default, if it has one. The name is the one in the file; the variable's name follows from
/// it.
const NAMES: &[(&str, Option<&str>)] = &[
    ("member.name", None),
    ("member.data", None),
    ("member.preference", Some("50")),
    ("member.snapshot_entries", Some("1000000")),
    ("member.archive_bytes", Some("1073741824")),
    ("member.archive_hours", Some("720")),
    ("listen.clients", Some("127.0.0.1:7450")),
    ("listen.members", Some("127.0.0.1:7451")),
    ("listen.health", Some("127.0.0.1:7452")),
    ("listen.advertise_clients", None),
    ("listen.advertise_members", None),
    ("listen.hosts", None),
    ("listen.allowed_origins", None),
    ("listen.console", Some("on")),
    ("listen.insecure", Some("false")),
    ("listen.require_identity", Some("false")),
    ("cluster.bootstrap", None),
    ("cluster.join", None),
    (INVITATION, None),
    ("cluster.invitation_file", None),
    ("tls.cert", None),
    ("tls.key", None),
    ("tls.member_ca", None),
    ("tls.client_ca", None),
    ("tls.issuer_ca", None),
    ("log.level", Some("info")),
    ("log.slow_ms", Some("1000")),
    ("log.audit_file", None),
    ("traces.otlp_ca", None),
    ("traces.otlp_endpoint", None),
    ("traces.ratio", Some("0.01")),
];

/// The variable that OpenTelemetry gives to the address of a collector.
const OTEL_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The setting that is a secret.
pub(super) const INVITATION: &str = "cluster.invitation";

/// The source of a default.
const DEFAULT: &str = "default";

/// The settings that are a host and a port.
const ADDRESSES: &[&str] =
    &["listen.clients", "listen.members", "listen.advertise_clients", "listen.advertise_members"];

/// The settings by name, each with its source.
pub(crate) struct ServeConfig {
    values: BTreeMap<&'static str, (String, String)>,
}

impl ServeConfig {
    /// Flags override variables, which override the file, which overrides the defaults.
    pub(super) fn gather(flags: &ServeFlags) -> Result<Self, CliError> {
        let is_ours = |name: &str| name.starts_with("TENURE_") || name == OTEL_ENDPOINT;
        let variables = std::env::vars().filter(|(name, _)| is_ours(name));
        Self::from_parts(flags, &variables.collect(), |path| {
            std::fs::read_to_string(path)
                .map_err(|error| CliError::config(format!("cannot read {path:?}: {error}")))
        })
    }

    fn from_parts(
        flags: &ServeFlags,
        variables: &BTreeMap<String, String>,
        read: impl Fn(&str) -> Result<String, CliError>,
    ) -> Result<Self, CliError> {
        let mut values = BTreeMap::new();
        for (name, usual) in NAMES {
            if let Some(usual) = usual {
                values.insert(*name, ((*usual).to_owned(), DEFAULT.to_owned()));
            }
        }
        if let Some(path) = flags.config.as_ref().or_else(|| variables.get("TENURE_CONFIG")) {
            for (name, value) in from_file(path, &read(path)?)? {
                values.insert(name, (value, path.clone()));
            }
        }
        // It applies to every program on the machine, so a setting of this one overrides it.
        if let Some(value) = variables.get(OTEL_ENDPOINT).filter(|value| !value.is_empty()) {
            let from = (value.clone(), OTEL_ENDPOINT.to_owned());
            values.entry("traces.otlp_endpoint").or_insert(from);
        }
        for (name, _) in NAMES {
            let variable = variable(name);
            if let Some(value) = variables.get(&variable) {
                values.insert(name, (value.clone(), variable));
            }
        }
        check_variables(variables)?;
        for (name, value, flag) in from_flags(flags) {
            values.insert(name, (value, flag.to_owned()));
        }
        Ok(Self { values })
    }

    /// The settings of the member, if they are valid.
    pub(crate) fn settings(&self) -> Result<ServerSettings, CliError> {
        let need = |name: &str| {
            self.get(name).map(str::to_owned).ok_or_else(|| {
                let (short, variable) = (name.rsplit('.').next().unwrap_or(name), variable(name));
                CliError::config(format!("no {name}; try --{short}, {variable}, or the file"))
            })
        };
        for name in ADDRESSES {
            if let Some(text) = self.get(name).filter(|text| !is_address(text)) {
                let text = format!("{name} is `{text}`, which is no address; try host:port");
                return Err(self.wrong(name, text));
            }
        }
        let entries = need("member.snapshot_entries")?;
        let snapshot_entries = entries.parse().ok().filter(|entries| *entries > 0);
        let snapshot_entries = snapshot_entries.ok_or_else(|| {
            let text = format!("member.snapshot_entries is `{entries}`; try a number above 0");
            self.wrong("member.snapshot_entries", text)
        })?;
        let own = |name| self.get(name).map(str::to_owned);
        let archive = ArchiveSettings {
            bytes_max: self.number("member.archive_bytes")?,
            age_max: Duration::from_secs(
                self.number("member.archive_hours")?.saturating_mul(3_600),
            ),
        };
        Ok(ServerSettings {
            archive,
            clients: need("listen.clients")?,
            members: Some(need("listen.members")?),
            health: self.health()?,
            slow: self.slow()?,
            audit: self.audit(),
            traces: self.traces()?,
            advertise_clients: own("listen.advertise_clients"),
            advertise_members: own("listen.advertise_members"),
            hosts: self.get("listen.hosts").map(list).unwrap_or_default(),
            allowed_origins: self.get("listen.allowed_origins").map(list).unwrap_or_default(),
            console: console_mode(self.get("listen.console"))
                .map_err(|text| self.wrong("listen.console", text))?,
            entrance: self.entrance()?,
            invitation: self.invitation()?,
            insecure: self.flag("listen.insecure")?,
            require_identity: self.flag("listen.require_identity")?,
            issuer_authority: self
                .get("tls.issuer_ca")
                .map_or(ServerAuthority::System, |path| ServerAuthority::File(path.into())),
            preference: self.preference()?,
            tls: self.tls()?,
            snapshot_entries,
            ..ServerSettings::new(need("member.name")?, need("member.data")?)
        })
    }

    /// A setting that is a number.
    fn number(&self, name: &'static str) -> Result<u64, CliError> {
        let text = self.get(name).unwrap_or_default();
        text.parse().map_err(|_| self.wrong(name, format!("{name} is `{text}`; try a number")))
    }

    /// A setting that is true or false.
    fn flag(&self, name: &str) -> Result<bool, CliError> {
        match self.get(name) {
            Some("true") => Ok(true),
            Some("false") | None => Ok(false),
            Some(other) => Err(self.wrong(name, format!("{name} is `{other}`; try true or false"))),
        }
    }

    fn preference(&self) -> Result<Preference, CliError> {
        let Some(text) = self.get("member.preference") else { return Ok(Preference::default()) };
        text.parse().ok().and_then(Preference::new).ok_or_else(|| {
            let text = format!("member.preference is `{text}`; try a number from 0 to 100");
            self.wrong("member.preference", text)
        })
    }

    /// Where health and metrics are served. The default address may be in use: by another member on this machine.
    fn health(&self) -> Result<HealthListen, CliError> {
        let Some((text, source)) = self.values.get("listen.health") else {
            return Ok(HealthListen::Off);
        };
        match text.as_str() {
            "none" => Ok(HealthListen::Off),
            text if !is_address(text) => {
                let text = format!("listen.health is `{text}`; try host:port, or none");
                Err(self.wrong("listen.health", text))
            }
            text if source == DEFAULT => Ok(HealthListen::IfFree(text.to_owned())),
            text => Ok(HealthListen::At(text.to_owned())),
        }
    }

    /// The duration from which on requests are logged as slow.
    fn slow(&self) -> Result<Option<Duration>, CliError> {
        match self.get("log.slow_ms") {
            None | Some("none") => Ok(None),
            Some(text) => match text.parse().ok().filter(|ms| *ms > 0) {
                Some(ms) => Ok(Some(Duration::from_millis(ms))),
                None => {
                    let text = format!("log.slow_ms is `{text}`; try a number above 0, or none");
                    Err(self.wrong("log.slow_ms", text))
                }
            },
        }
    }

    /// Where administrative acts are recorded.
    fn audit(&self) -> AuditTo {
        match self.get("log.audit_file") {
            None => AuditTo::Memory,
            Some("stderr") => AuditTo::Stderr,
            Some(path) => AuditTo::File(path.into()),
        }
    }

    /// Where traces of requests are sent, if anywhere.
    fn traces(&self) -> Result<Option<TraceSettings>, CliError> {
        let ratio = match self.get("traces.ratio").unwrap_or("0").parse() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => ratio,
            _ => {
                let text = self.get("traces.ratio").unwrap_or_default();
                let text = format!("traces.ratio is `{text}`; try a number from 0 to 1");
                return Err(self.wrong("traces.ratio", text));
            }
        };
        let endpoint = self.get("traces.otlp_endpoint").filter(|endpoint| *endpoint != "none");
        let Some(endpoint) = endpoint else { return Ok(None) };
        let host = endpoint.strip_prefix("http://").or(endpoint.strip_prefix("https://"));
        let host = host.map(|host| host.trim_end_matches('/'));
        if !host.is_some_and(is_address) {
            let text = format!(
                "traces.otlp_endpoint is `{endpoint}`; try http://host:port of OTLP/gRPC, https://host:port, or none"
            );
            return Err(self.wrong("traces.otlp_endpoint", text));
        }
        let authority = self
            .get("traces.otlp_ca")
            .map_or(ServerAuthority::System, |path| ServerAuthority::File(PathBuf::from(path)));
        Ok(Some(TraceSettings { endpoint: endpoint.to_owned(), authority, ratio }))
    }

    /// The lowest level that is logged.
    pub(crate) fn log_level(&self) -> Result<Level, CliError> {
        let Some(text) = self.get("log.level") else { return Ok(Level::default()) };
        Level::parse(text).ok_or_else(|| {
            let text = format!("log.level is `{text}`; try error, warn, info or debug");
            self.wrong("log.level", text)
        })
    }

    /// The certificates, read and checked.
    fn tls(&self) -> Result<Option<Arc<ServerTls>>, CliError> {
        let path = |name| self.get(name).map(PathBuf::from);
        let (client_ca, member_ca) = (path("tls.client_ca"), path("tls.member_ca"));
        let files = match (path("tls.cert"), path("tls.key")) {
            (Some(cert), Some(key)) => ServerTlsFiles { cert, key, client_ca, member_ca },
            (None, None) if client_ca.is_none() && member_ca.is_none() => return Ok(None),
            _ => {
                return Err(CliError::config(
                    "certificates need both tls.cert and tls.key; try --tls-cert and --tls-key",
                ));
            }
        };
        let tls = ServerTls::load(files).map_err(StartError::from)?;
        Ok(Some(Arc::new(tls)))
    }

    fn entrance(&self) -> Result<StartMode, CliError> {
        match (self.get("cluster.bootstrap"), self.get("cluster.join")) {
            // Usually a member that is replaced, with the file of the member that bootstrapped the cluster.
            (Some(_), Some(_)) => {
                let [bootstrap, join] = ["cluster.bootstrap", "cluster.join"]
                    .map(|name| self.values.get(name).map_or("", |(_, source)| source));
                let text = format!(
                    "{bootstrap} has cluster.bootstrap and {join} has cluster.join; a member that joins a cluster \
                     bootstraps none: try without cluster.bootstrap"
                );
                Err(CliError::config(text))
            }
            (None, None) => Ok(StartMode::None),
            (None, Some(join)) => {
                let seeds = list(join);
                if let Some(wrong) = seeds.iter().find(|at| !is_address(at)) {
                    let text = format!("`{wrong}` is no address; try host:port of a member");
                    return Err(self.wrong("cluster.join", text));
                }
                Ok(StartMode::Join(seeds))
            }
            (Some(bootstrap), None) => {
                let pairs = list(bootstrap).into_iter().map(|pair| {
                    let split = pair.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned()));
                    split.ok_or_else(|| {
                        let text = format!("`{pair}` names no initial member; try name=address");
                        self.wrong("cluster.bootstrap", text)
                    })
                });
                let pairs: Vec<(String, String)> = pairs.collect::<Result<_, _>>()?;
                let names: std::collections::BTreeSet<_> = pairs.iter().map(|(a, _)| a).collect();
                if names.len() < pairs.len() {
                    let text =
                        "an initial member is listed twice; try one name for each".to_owned();
                    return Err(self.wrong("cluster.bootstrap", text));
                }
                if let Some((name, address)) = pairs.iter().find(|(_, at)| !is_address(at)) {
                    let text = format!("`{address}` of `{name}` is no address; try host:port");
                    return Err(self.wrong("cluster.bootstrap", text));
                }
                Ok(StartMode::Bootstrap(pairs))
            }
        }
    }

    /// The invitation that a member presents when it joins.
    fn invitation(&self) -> Result<Option<InvitationSource>, CliError> {
        let path = self.get("cluster.invitation_file");
        match (self.get(INVITATION), path) {
            (Some(_), Some(_)) => Err(CliError::config(
                "both cluster.invitation and cluster.invitation_file; try one of them",
            )),
            (None, path) => Ok(path.map(|path| InvitationSource::File(path.into()))),
            (Some(text), None) => match InvitationToken::parse(text.trim()) {
                Some(token) => Ok(Some(InvitationSource::Token(token))),
                None => {
                    let text = "cluster.invitation is no invitation; try what \
                                `tenure cluster invite` prints";
                    Err(self.wrong(INVITATION, text.to_owned()))
                }
            },
        }
    }

    /// Every setting with its source, for programs.
    pub(crate) fn objects(&self) -> Vec<serde_json::Value> {
        let one = |(name, _): &(&str, Option<&str>)| match self.values.get(name) {
            Some((value, source)) => {
                let value = shown(name, value);
                serde_json::json!({ "setting": name, "value": value, "source": source })
            }
            None => serde_json::json!({ "setting": name, "value": null }),
        };
        NAMES.iter().map(one).collect()
    }

    /// The failure for an invalid value: a wrong argument if it comes from a flag, else an unusable configuration.
    fn wrong(&self, name: &str, text: String) -> CliError {
        match self.values.get(name) {
            Some((_, source)) if source.starts_with("--") => {
                CliError::arguments(format!("{source}: {text}"))
            }
            Some((_, source)) => CliError::config(format!("{source}: {text}")),
            None => CliError::config(text),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|(value, _)| value.as_str())
    }
}

impl fmt::Display for ServeConfig {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, _) in NAMES {
            match self.values.get(name) {
                Some((value, source)) => {
                    writeln!(to, "{name} = {:?}  # {source}", shown(name, value))?;
                }
                None => writeln!(to, "# {name} is not set")?,
            }
        }
        Ok(())
    }
}

/// A value without its secret.
fn shown(name: &str, value: &str) -> String {
    if name != INVITATION {
        return value.to_owned();
    }
    InvitationToken::parse(value.trim()).map_or("…".to_owned(), |token| format!("{token:?}"))
}

fn from_file(path: &str, text: &str) -> Result<Vec<(&'static str, String)>, CliError> {
    file::read(text)
        .map_err(|wrong| CliError::config(format!("{path:?} line {}: {}", wrong.line, wrong.what)))
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(|word| word.trim().to_owned()).filter(|w| !w.is_empty()).collect()
}

fn variable(name: &str) -> String {
    format!("TENURE_{}", name.replace('.', "_").to_uppercase())
}

/// Refuses unknown variables with our prefixes: they are typing errors that would otherwise go unnoticed.
fn check_variables(variables: &BTreeMap<String, String>) -> Result<(), CliError> {
    for name in variables.keys() {
        let ours = [
            "TENURE_MEMBER_",
            "TENURE_LISTEN_",
            "TENURE_CLUSTER_",
            "TENURE_TLS_",
            "TENURE_LOG_",
            "TENURE_TRACES_",
        ];
        let known = NAMES.iter().any(|(known, _)| variable(known) == *name);
        if ours.iter().any(|start| name.starts_with(start)) && !known {
            return Err(CliError::config(format!(
                "{name} is no setting; try `tenure config check`"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(
        flags: &ServeFlags,
        variables: &[(&str, &str)],
        file: &str,
    ) -> Result<ServeConfig, String> {
        let variables = variables.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        ServeConfig::from_parts(flags, &variables.collect(), |_| Ok(file.to_owned()))
            .map_err(|failure| failure.text)
    }

    #[test]
    fn flags_beat_variables_which_beat_the_file() {
        let file = "[member]\nname = \"f\"\ndata = \"f\"\n[listen]\nclients = \"f\"\n";
        let flags = ServeFlags {
            config: Some("x.toml".into()),
            name: Some("flag".into()),
            ..ServeFlags::default()
        };
        let variables = [("TENURE_MEMBER_NAME", "v"), ("TENURE_MEMBER_DATA", "v")];
        let config = gather(&flags, &variables, file).unwrap();
        assert_eq!(config.get("member.name"), Some("flag"));
        assert_eq!(config.get("member.data"), Some("v"));
        assert_eq!(config.get("listen.clients"), Some("f"));
        assert_eq!(config.get("listen.members"), Some("127.0.0.1:7451"));
        assert!(config.to_string().contains("member.data = \"v\"  # TENURE_MEMBER_DATA"));
    }

    #[test]
    fn health_is_served_on_loopback_unless_told_otherwise() {
        let named = [("TENURE_MEMBER_NAME", "a"), ("TENURE_MEMBER_DATA", "d")];
        let health = |file: &str| {
            let flags = ServeFlags { config: Some("x.toml".into()), ..ServeFlags::default() };
            gather(&flags, &named, file).unwrap().settings().map(|it| it.health)
        };
        let usual = "127.0.0.1:7452".to_owned();
        assert_eq!(health("").ok(), Some(HealthListen::IfFree(usual.clone())));
        let same = format!("[listen]\nhealth = \"{usual}\"\n");
        assert_eq!(health(&same).ok(), Some(HealthListen::At(usual)));
        assert_eq!(health("[listen]\nhealth = \"none\"\n").ok(), Some(HealthListen::Off));
        let error = health("[listen]\nhealth = \"here\"\n").err().unwrap();
        assert!(error.text.contains("listen.health is `here`"), "{}", error.text);
    }

    #[test]
    fn traces_are_off_unless_a_collector_is_named() {
        let named = [("TENURE_MEMBER_NAME", "a"), ("TENURE_MEMBER_DATA", "d")];
        let traces = |file: &str, more: &[(&str, &str)]| {
            let flags = ServeFlags { config: Some("x.toml".into()), ..ServeFlags::default() };
            let variables = [&named[..], more].concat();
            gather(&flags, &variables, file).unwrap().settings().map(|it| it.traces)
        };
        let to = |endpoint: &str, ratio| {
            let authority = ServerAuthority::System;
            Some(Some(TraceSettings { endpoint: endpoint.to_owned(), authority, ratio }))
        };
        let otel = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")];
        let file = "[traces]\notlp_endpoint = \"http://[::1]:4317/\"\nratio = 0.5\n";
        assert_eq!(traces("", &[]).ok(), Some(None));
        assert_eq!(traces("", &otel).ok(), to("http://127.0.0.1:4317", 0.01));
        assert_eq!(traces(file, &otel).ok(), to("http://[::1]:4317/", 0.5));
        assert_eq!(traces("[traces]\notlp_endpoint = \"none\"\n", &otel).ok(), Some(None));
        let file = "[traces]\notlp_endpoint = \"https://a:1\"\notlp_ca = \"ca.pem\"\n";
        let under_tls = traces(file, &[]).ok().flatten().unwrap();
        assert_eq!(under_tls.authority, ServerAuthority::File("ca.pem".into()));
        for bad in ["otlp_endpoint = \"ftp://a:1\"", "otlp_endpoint = \"a:1\"", "ratio = 2.0"] {
            assert!(traces(&format!("[traces]\n{bad}\n"), &[]).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_invitation_comes_from_one_place_and_is_not_shown() {
        let secret = "cd".repeat(32);
        let text = format!("tenure-invitation_{}_{secret}", "ab".repeat(8));
        let named = |invitation: &str| {
            let variables = [
                ("TENURE_MEMBER_NAME", "a"),
                ("TENURE_MEMBER_DATA", "d"),
                ("TENURE_CLUSTER_INVITATION", invitation),
            ];
            gather(&ServeFlags::default(), &variables, "").unwrap()
        };
        let config = named(&text);
        let token = InvitationToken::parse(&text).unwrap();
        let invitation = config.settings().unwrap_or_else(|error| panic!("{}", error.text));
        assert_eq!(invitation.invitation, Some(InvitationSource::Token(token)));
        let shown = format!("{config}{:?}", config.objects());
        assert!(shown.contains("tenure-invitation_abab") && !shown.contains(&secret), "{shown}");
        let wrong = named("secret");
        let error = wrong.settings().err().unwrap();
        assert!(error.text.contains("cluster.invitation is no invitation"), "{}", error.text);
        assert!(!wrong.to_string().contains("secret") && !error.text.contains("secret"));
        let file = Some("x".to_owned());
        let flags = ServeFlags { invitation_file: file, ..ServeFlags::default() };
        let both = gather(&flags, &[("TENURE_CLUSTER_INVITATION", &text)], "").unwrap();
        assert!(both.invitation().is_err());
    }

    #[test]
    fn a_member_that_is_to_found_and_to_join_is_told_which_place_says_what() {
        let flags = ServeFlags {
            config: Some("x.toml".into()),
            join: Some(vec!["h:1".into()]),
            ..ServeFlags::default()
        };
        let file = "[member]\nname = \"b\"\ndata = \"d\"\n[cluster]\nbootstrap = [\"b=h:2\"]\n";
        let error = gather(&flags, &[], file).unwrap().settings().err().unwrap();
        assert!(
            error.text.starts_with("x.toml has cluster.bootstrap and --join has"),
            "{}",
            error.text
        );
        assert!(error.text.ends_with("try without cluster.bootstrap"), "{}", error.text);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let flags = ServeFlags { config: Some("x.toml".into()), ..ServeFlags::default() };
        let error = gather(&flags, &[], "[member]\nnmae = \"a\"\n").err().unwrap();
        assert!(error.starts_with("\"x.toml\" line 2: unknown field `nmae`"), "{error}");
        let error = gather(&flags, &[("TENURE_MEMBER_NMAE", "a")], "").err().unwrap();
        assert!(error.contains("TENURE_MEMBER_NMAE"), "{error}");
        let flags_101 = ServeFlags { preference: Some("101".into()), ..ServeFlags::default() };
        let named = [("TENURE_MEMBER_NAME", "a"), ("TENURE_MEMBER_DATA", "d")];
        let error = gather(&flags_101, &named, "").unwrap().settings().err().unwrap();
        assert!(error.text.contains("a number from 0 to 100"), "{}", error.text);
        let half =
            [("TENURE_MEMBER_NAME", "a"), ("TENURE_MEMBER_DATA", "d"), ("TENURE_TLS_CERT", "c")];
        let error = gather(&flags, &half, "").unwrap().settings().err().unwrap();
        assert!(error.text.contains("both tls.cert and tls.key"), "{}", error.text);
        let absent = gather(&flags, &half, "[tls]\nkey = \"k\"\n").unwrap();
        let error = absent.settings().err().unwrap();
        assert!(error.text.starts_with("cannot read \"c\": "), "{}", error.text);
        let loud = gather(&flags, &[], "[log]\nlevel = \"loud\"\n").unwrap();
        let error = loud.log_level().err().unwrap();
        assert!(error.text.contains("x.toml: log.level is `loud`; try error, "), "{}", error.text);
        let quiet = gather(&flags, &[("TENURE_LOG_LEVEL", "warn")], "").unwrap();
        assert_eq!(quiet.log_level().ok(), Some(Level::Warn));
        let slow = gather(&flags, &named, "[log]\nslow_ms = 0\n").unwrap();
        let error = slow.settings().err().unwrap();
        assert!(error.text.contains("log.slow_ms is `0`; try a number above 0"), "{}", error.text);
        let config = gather(&flags, &[("TENURE_CLUSTER_BOOTSTRAP", "a")], "").unwrap();
        assert!(config.settings().is_err());
    }
}
