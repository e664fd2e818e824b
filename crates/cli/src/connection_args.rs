//! Resolves which cluster to use and how to connect to it.
//!
//! Flags override `TENURE_*` variables, which override the file, which overrides the default: one cluster on this
//! machine.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use tenure::{Client, Credentials, MemberChannel, RequestId};
use tenure_server::os;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::address;
use crate::client_name::default_name;
use crate::duration;
use crate::failure::CliError;
use crate::output::OutputFormat;

/// The default address.
pub(crate) const LOOPBACK: &str = "127.0.0.1:7450";
/// The default limit for finding a member and for one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Flags of every command that talks to a cluster.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster and output")]
pub(crate) struct ConnectionArgs {
    /// Members of the cluster, with commas between [env: TENURE_ADDR] [default: 127.0.0.1:7450]
    #[arg(long, value_name = "LIST")]
    pub(crate) addr: Option<String>,
    /// Client name shown to others [env: TENURE_CLIENT] [default: user@host/pid, and the command of `run`]
    #[arg(long, value_name = "NAME")]
    pub(crate) client: Option<String>,
    /// Look for members, and wait for answers, at most this long [env: TENURE_CONNECT_TIMEOUT] [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) connect_timeout: Option<Duration>,
    /// Keep trying for this long while no member can be reached, or none leads [env: TENURE_WAIT_FOR_SERVER]
    /// [default: a moment]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) wait_for_server: Option<Duration>,
    /// Speak TLS; this authority signed the members' certificates [env: TENURE_CA]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Show this certificate to members [env: TENURE_CERT]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert [env: TENURE_KEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Authenticate with the API key in this file [env: TENURE_API_KEY, the key itself, or TENURE_API_KEY_FILE]
    #[arg(long, value_name = "FILE", conflicts_with = "token_file")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Authenticate with the bearer token in this file, read again when it changes [env: TENURE_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Send credentials to other machines without TLS too, where everyone on the way can read them
    #[arg(long)]
    pub(crate) insecure_credentials: bool,
    /// Read what is not said here from this file [env: TENURE_CLIENT_CONFIG] [default: ~/.config/tenure/client.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) client_config: Option<PathBuf>,
    /// Output format
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
}

/// The client name that is recorded with a forced release or a revocation. Strips the process id from a default name,
/// so that a repetition of the request by another process carries the same name.
pub(crate) fn actor_name(client: &tenure::Client) -> String {
    let name = client.name();
    let numbered = format!("/{}", std::process::id());
    name.strip_suffix(&numbered).unwrap_or(name).to_owned()
}

/// The settings that result from flags, variables and file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionTarget {
    pub(crate) addresses: Vec<String>,
    pub(crate) client: Option<String>,
    pub(crate) timeout: Duration,
    /// How long to keep trying if no member can be reached; `None` gives up at once.
    pub(crate) wait_for_server: Option<Duration>,
    pub(crate) tls: Option<TlsArgs>,
    pub(crate) credentials: Option<CredentialArgs>,
    pub(crate) insecure_credentials: bool,
}

/// The source of the credentials.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum CredentialArgs {
    /// An API key from a variable.
    ApiKey(String),
    /// A file with an API key.
    ApiKeyFile(PathBuf),
    /// A file with a bearer token.
    TokenFile(PathBuf),
}

impl std::fmt::Debug for CredentialArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ApiKey(_) => f.write_str("ApiKey"),
            Self::ApiKeyFile(path) => write!(f, "ApiKeyFile({path:?})"),
            Self::TokenFile(path) => write!(f, "TokenFile({path:?})"),
        }
    }
}

/// The paths of the certificate and key files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TlsArgs {
    pub(crate) ca: PathBuf,
    pub(crate) own: Option<(PathBuf, PathBuf)>,
}

/// A connected cluster, and how to print its answers.
#[derive(Clone)]
pub(crate) struct ConnectedCluster {
    pub(crate) client: Client,
    pub(crate) output: OutputFormat,
    /// Whether a change prints nothing on success, and a list only names.
    pub(crate) quiet: bool,
    /// Whether a list begins with the names of its columns.
    pub(crate) header: bool,
    pub(crate) place: ConnectionTarget,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct ConnectionFile {
    addr: Option<AddressList>,
    client: Option<String>,
    connect_timeout: Option<String>,
    api_key_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    tls: ConnectionTlsTable,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AddressList {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct ConnectionTlsTable {
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl ConnectedCluster {
    /// A cluster whose answers are printed in full.
    pub(crate) fn new(client: Client, output: OutputFormat, place: ConnectionTarget) -> Self {
        Self { client, output, quiet: false, header: true, place }
    }
}

impl ConnectionArgs {
    /// Connects to a cluster that has a leader and runs `work` with it.
    pub(crate) fn with<T>(
        &self,
        work: impl AsyncFnOnce(&ConnectedCluster) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let place = self.place()?;
        runtime()?.block_on(async {
            let client = place.connect_to_leader().await?;
            work(&ConnectedCluster::new(client, self.output, place)).await
        })
    }

    /// Connects to any member and runs `work`, which needs no leader.
    pub(crate) fn with_any<T>(
        &self,
        work: impl AsyncFnOnce(&ConnectedCluster) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let place = self.place()?;
        runtime()?.block_on(async {
            let client = place.connect().await?;
            work(&ConnectedCluster::new(client, self.output, place)).await
        })
    }

    /// Resolves the settings from flags, variables and file.
    pub(crate) fn place(&self) -> Result<ConnectionTarget, CliError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        self.gather(variable, |path| std::fs::read_to_string(path))
    }

    fn gather(
        &self,
        variable: impl Fn(&str) -> Option<String>,
        read: impl Fn(&Path) -> std::io::Result<String>,
    ) -> Result<ConnectionTarget, CliError> {
        let named = self.client_config.clone();
        let named = named.or_else(|| variable("TENURE_CLIENT_CONFIG").map(PathBuf::from));
        let usual = usual_file(&variable);
        let file = match named.as_ref().or(usual.as_ref()) {
            None => ConnectionFile::default(),
            Some(path) => match read(path) {
                Ok(text) => ConnectionFile::read(path, &text)?,
                // Only the default file may be missing.
                Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => {
                    ConnectionFile::default()
                }
                Err(error) => {
                    return Err(CliError::config(format!(
                        "cannot read {path:?}: {error}; try --client-config with another file, or /dev/null"
                    )));
                }
            },
        };
        let path = |flag: &Option<PathBuf>, name: &str, file: Option<PathBuf>| {
            flag.clone().or_else(|| variable(name).map(PathBuf::from)).or(file)
        };
        let ca = path(&self.tls_ca, "TENURE_CA", file.tls.ca);
        let cert = path(&self.tls_cert, "TENURE_CERT", file.tls.cert);
        let key = path(&self.tls_key, "TENURE_KEY", file.tls.key);
        // An invalid value in a flag is an argument error; one in a variable or the file is a configuration error.
        let wrong_addr = if self.addr.is_some() { CliError::arguments } else { CliError::config };
        let flagged = self.tls_ca.is_some() || self.tls_cert.is_some() || self.tls_key.is_some();
        let wrong_tls = if flagged { CliError::arguments } else { CliError::config };
        let addr = self.addr.clone().or_else(|| variable("TENURE_ADDR"));
        let addresses = match (addr, file.addr) {
            (Some(list), _) | (None, Some(AddressList::One(list))) => split(&list),
            (None, Some(AddressList::Several(list))) => list,
            (None, None) => vec![LOOPBACK.to_owned()],
        };
        Ok(ConnectionTarget {
            addresses: address::check(addresses).map_err(wrong_addr)?,
            client: self.client.clone().or_else(|| variable("TENURE_CLIENT")).or(file.client),
            timeout: self.timeout(variable("TENURE_CONNECT_TIMEOUT").or(file.connect_timeout))?,
            wait_for_server: self.wait_for_server(variable("TENURE_WAIT_FOR_SERVER"))?,
            tls: tls(ca, cert, key).map_err(wrong_tls)?,
            credentials: self.credentials(&variable, file.api_key_file, file.token_file)?,
            insecure_credentials: self.insecure_credentials,
        })
    }

    /// The credentials from the first of these that has any: flags, variables, file.
    fn credentials(
        &self,
        variable: &impl Fn(&str) -> Option<String>,
        file_key: Option<PathBuf>,
        file_token: Option<PathBuf>,
    ) -> Result<Option<CredentialArgs>, CliError> {
        let key_file = |path: Option<PathBuf>| path.map(CredentialArgs::ApiKeyFile);
        let token_file = |path: Option<PathBuf>| path.map(CredentialArgs::TokenFile);
        let path = |name: &str| variable(name).map(PathBuf::from);
        let said = [
            vec![key_file(self.api_key_file.clone()), token_file(self.token_file.clone())],
            vec![
                variable("TENURE_API_KEY").map(CredentialArgs::ApiKey),
                key_file(path("TENURE_API_KEY_FILE")),
                token_file(path("TENURE_TOKEN_FILE")),
            ],
            vec![key_file(file_key), token_file(file_token)],
        ];
        for place in said {
            let mut given = place.into_iter().flatten();
            match (given.next(), given.next()) {
                (None, _) => {}
                (Some(credentials), None) => return Ok(Some(credentials)),
                (Some(_), Some(_)) => {
                    return Err(CliError::config(
                        "both an API key and a token are given, or two API keys; \
                         try TENURE_API_KEY, TENURE_API_KEY_FILE or TENURE_TOKEN_FILE alone",
                    ));
                }
            }
        }
        Ok(None)
    }

    fn timeout(&self, set: Option<String>) -> Result<Duration, CliError> {
        let set = set.map(|text| duration::parse(&text)).transpose();
        let set = set.map_err(|why| CliError::config(format!("connect_timeout: {why}")))?;
        Ok(self.connect_timeout.or(set).unwrap_or(TIMEOUT))
    }

    fn wait_for_server(&self, set: Option<String>) -> Result<Option<Duration>, CliError> {
        let set = set.map(|text| duration::parse(&text)).transpose();
        let set = set.map_err(|why| CliError::config(format!("TENURE_WAIT_FOR_SERVER: {why}")))?;
        Ok(self.wait_for_server.or(set))
    }
}

impl ConnectionTarget {
    /// Reads the credentials from their variable or file.
    pub(crate) fn credentials(&self) -> Result<Credentials, CliError> {
        let wrong = |what: String| CliError::config(what).with("effect", "none: nothing was sent");
        let credentials = match &self.credentials {
            None => Credentials::default(),
            Some(CredentialArgs::ApiKey(key)) => {
                Credentials::api_key(key).map_err(|why| wrong(format!("TENURE_API_KEY: {why}")))?
            }
            Some(CredentialArgs::ApiKeyFile(path)) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| wrong(format!("cannot read {path:?}: {error}")))?;
                Credentials::api_key(&text).map_err(|why| wrong(format!("{path:?}: {why}")))?
            }
            Some(CredentialArgs::TokenFile(path)) => Credentials::token_file(path),
        };
        Ok(credentials.insecure(self.insecure_credentials))
    }

    /// A channel to the member at this address, leader or not. It connects with the first request.
    pub(crate) fn channel(&self, address: &str) -> Result<MemberChannel, CliError> {
        let credentials = self.credentials()?;
        credentials.may_go_to(address, self.tls.is_some()).map_err(CliError::config)?;
        let wrong = |error| CliError::config(format!("{address}: {error}"));
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).map_err(wrong)?;
        if let Some(tls) = &self.tls {
            let mut config =
                ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem(&tls.ca)?));
            if let Some((cert, key)) = &tls.own {
                config = config.identity(Identity::from_pem(pem(cert)?, pem(key)?));
            }
            endpoint = endpoint.tls_config(config).map_err(wrong)?;
        }
        Ok(credentials.over(endpoint.connect_timeout(self.timeout).connect_lazy()))
    }

    /// A client builder with all settings.
    pub(crate) fn builder(&self) -> Result<tenure::Builder, CliError> {
        let mut builder = Client::builder().timeout(self.timeout).credentials(self.credentials()?);
        for address in &self.addresses {
            builder = builder.address(address);
        }
        builder = builder.name(self.client.clone().unwrap_or_else(|| default_name(None)));
        if let Some(tls) = &self.tls {
            builder = builder.ca(&tls.ca);
            if let Some((cert, key)) = &tls.own {
                builder = builder.identity(cert, key);
            }
        }
        Ok(builder)
    }
}

impl ConnectionFile {
    fn read(path: &Path, text: &str) -> Result<Self, CliError> {
        let mut file: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            let what = error.message().replace('\n', " ");
            CliError::config(format!(
                "{path:?} line {line}: {what}; try addr, client, connect_timeout, api_key_file, token_file, [tls]"
            ))
        })?;
        // Paths in the file are relative to its directory.
        let beside = path.parent().unwrap_or(Path::new(""));
        let named = [
            &mut file.tls.ca,
            &mut file.tls.cert,
            &mut file.tls.key,
            &mut file.api_key_file,
            &mut file.token_file,
        ];
        for named in named.into_iter().flatten() {
            *named = beside.join(&named);
        }
        Ok(file)
    }
}

/// Creates a single-threaded runtime, which is enough because commands mostly wait.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| CliError::refused(format!("cannot start: {error}")))
}

/// The given request id, or a new one. A request with an id takes effect once, however often it is sent.
pub(crate) fn request_id(given: Option<&String>) -> RequestId {
    let drawn = || format!("{:016x}{:016x}", os::random(), os::random());
    RequestId::from(given.cloned().unwrap_or_else(drawn))
}

/// Returns the value of a flag or, without the flag, of its environment variable. `tenure run` sets these variables for
/// its command.
pub(crate) fn flag_or_variable<T: std::str::FromStr>(
    flag: Option<T>,
    name: &str,
    variable: &str,
) -> Result<T, CliError> {
    if let Some(value) = flag {
        return Ok(value);
    }
    let Ok(text) = std::env::var(variable) else {
        let text = format!("{name} is missing, and {variable} is not set");
        let next = match name {
            "--lease" | "LEASE" => {
                "the lease that `tenure lease grant` printed; which holds a lock: tenure explain LOCK"
            }
            "--lock" => {
                "the name of the lock; a command under `tenure run` finds it in its environment"
            }
            _ => {
                "what `tenure lock` or `tenure try` printed; which is in force: tenure explain LOCK"
            }
        };
        return Err(CliError::arguments(text).with("try", next));
    };
    let wrong = || CliError::arguments(format!("{variable} is `{text}`, which {name} cannot be"));
    text.parse().map_err(|_| wrong())
}

fn usual_file(variable: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let config = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let config = config.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".config")))?;
    Some(config.join("tenure/client.toml"))
}

fn split(list: &str) -> Vec<String> {
    list.split(',').map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect()
}

fn tls(
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<TlsArgs>, &'static str> {
    match (ca, cert, key) {
        (None, None, None) => Ok(None),
        (Some(ca), None, None) => Ok(Some(TlsArgs { ca, own: None })),
        (Some(ca), Some(cert), Some(key)) => Ok(Some(TlsArgs { ca, own: Some((cert, key)) })),
        _ => Err("certificates need an authority, and both certificate and key or none of them; \
             try --tls-ca, --tls-cert and --tls-key"),
    }
}

fn pem(path: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(path).map_err(|error| {
        CliError::config(format!("cannot read {path:?}: {error}; try another file"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(
        connection: &ConnectionArgs,
        variables: &[(&str, &str)],
        file: &str,
    ) -> Result<ConnectionTarget, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        connection.gather(variable, |_| Ok(file.to_owned())).map_err(|failure| failure.text)
    }

    #[test]
    fn each_setting_obeys_the_order_by_itself() {
        let file = "addr = \"f:1\"\nclient = \"f\"\nconnect_timeout = \"1s\"\n\
                    [tls]\nca = \"/f/ca\"\ncert = \"/f/cert\"\nkey = \"/f/key\"\n";
        let variables = [
            ("HOME", "/h"),
            ("TENURE_ADDR", "v:1"),
            ("TENURE_CLIENT", "v"),
            ("TENURE_CONNECT_TIMEOUT", "2s"),
            ("TENURE_CA", "/v/ca"),
            ("TENURE_CERT", "/v/cert"),
            ("TENURE_KEY", "/v/key"),
        ];
        let flags = ConnectionArgs {
            addr: Some("x:1".to_owned()),
            client: Some("x".to_owned()),
            connect_timeout: Some(Duration::from_secs(3)),
            tls_ca: Some("/x/ca".into()),
            tls_cert: Some("/x/cert".into()),
            tls_key: Some("/x/key".into()),
            ..ConnectionArgs::default()
        };
        let of = |place: ConnectionTarget| {
            let tls = place.tls.unwrap();
            let (cert, key) = tls.own.unwrap();
            let files = [tls.ca, cert, key].map(|path| path.to_str().unwrap().to_owned());
            let said = [place.addresses.join(","), place.client.unwrap()];
            let timeout = format!("{:?}", place.timeout);
            [&said[..], &[timeout], &files[..]].concat()
        };
        let from = |source: &str, seconds: u64| {
            let word = format!("{source}:1");
            let files = ["ca", "cert", "key"].map(|name| format!("/{source}/{name}"));
            [&[word, source.to_owned(), format!("{seconds}s")][..], &files[..]].concat()
        };
        let none = ConnectionArgs::default();
        assert_eq!(of(place(&none, &variables[..1], file).unwrap()), from("f", 1));
        assert_eq!(of(place(&none, &variables, file).unwrap()), from("v", 2));
        assert_eq!(of(place(&flags, &variables, file).unwrap()), from("x", 3));
        // Each setting is resolved by itself: one may come from a variable while the others come from the file.
        for at in 1..variables.len() {
            let place = place(&none, &[variables[0], variables[at]], file).unwrap();
            let mut expected = from("f", 1);
            expected[at - 1] = from("v", 2).swap_remove(at - 1);
            assert_eq!(of(place), expected, "{}", variables[at].0);
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_said_and_one_that_is_not_there_is_no_matter() {
        let failing = |named: bool, kind: ErrorKind| {
            let variable = |name: &str| match name {
                "HOME" => Some("/h".to_owned()),
                "TENURE_CLIENT_CONFIG" if named => Some("/c.toml".to_owned()),
                _ => None,
            };
            let read = |_: &Path| Err(std::io::Error::from(kind));
            ConnectionArgs::default().gather(variable, read).map_err(|failure| failure.text)
        };
        assert_eq!(failing(false, ErrorKind::NotFound).unwrap().addresses, [LOOPBACK]);
        let text = failing(false, ErrorKind::PermissionDenied).unwrap_err();
        assert!(text.starts_with("cannot read \"/h/.config/tenure/client.toml\""), "{text}");
        assert!(failing(true, ErrorKind::NotFound).is_err());
    }

    #[test]
    fn flags_beat_variables_which_beat_the_file() {
        let file = "addr = [\"f:1\", \"f:2\"]\nclient = \"file\"\nconnect_timeout = \"3s\"\n";
        let home = ("HOME", "/h");
        let usual = place(&ConnectionArgs::default(), &[home], "").unwrap();
        assert_eq!(usual.addresses, [LOOPBACK]);
        assert_eq!(usual.timeout, TIMEOUT);
        let by_file = place(&ConnectionArgs::default(), &[home], file).unwrap();
        assert_eq!(by_file.addresses, ["f:1", "f:2"]);
        assert_eq!(by_file.timeout, Duration::from_secs(3));
        let variables = [home, ("TENURE_ADDR", "v:1, v:2"), ("TENURE_CLIENT", "variable")];
        let by_variable = place(&ConnectionArgs::default(), &variables, file).unwrap();
        assert_eq!(by_variable.addresses, ["v:1", "v:2"]);
        assert_eq!(by_variable.client.as_deref(), Some("variable"));
        let flags = ConnectionArgs { addr: Some("x:9".to_owned()), ..ConnectionArgs::default() };
        assert_eq!(place(&flags, &variables, file).unwrap().addresses, ["x:9"]);
    }

    #[test]
    fn credentials_come_from_one_place_and_are_never_shown() {
        let key = ("TENURE_API_KEY", "tenure_secret");
        let file = "api_key_file = \"k\"\n";
        let from = |flags: &ConnectionArgs, variables: &[(&str, &str)]| {
            let variables = [&[("TENURE_CLIENT_CONFIG", "/etc/c.toml")], variables].concat();
            place(flags, &variables, file).map(|place| place.credentials.unwrap())
        };
        let none = ConnectionArgs::default();
        let beside = CredentialArgs::ApiKeyFile("/etc/k".into());
        assert_eq!(from(&none, &[]), Ok(beside));
        let by_variable = from(&none, &[key]).unwrap();
        assert_eq!(by_variable, CredentialArgs::ApiKey("tenure_secret".to_owned()));
        assert!(!format!("{by_variable:?}").contains("secret"));
        let flags = ConnectionArgs { token_file: Some("t".into()), ..none.clone() };
        assert_eq!(from(&flags, &[key]), Ok(CredentialArgs::TokenFile("t".into())));
        let both = from(&none, &[key, ("TENURE_TOKEN_FILE", "t")]).unwrap_err();
        assert!(both.contains("TENURE_TOKEN_FILE") && !both.contains("secret"), "{both}");
    }

    #[test]
    fn certificates_stand_beside_the_file_that_names_them() {
        let file = "[tls]\nca = \"ca.pem\"\ncert = \"/abs/c.pem\"\nkey = \"c.key\"\n";
        let variables = [("TENURE_CLIENT_CONFIG", "/etc/tenure/client.toml")];
        let tls = place(&ConnectionArgs::default(), &variables, file).unwrap().tls.unwrap();
        assert_eq!(tls.ca, Path::new("/etc/tenure/ca.pem"));
        assert_eq!(tls.own.unwrap().0, Path::new("/abs/c.pem"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_place() {
        let variables = [("TENURE_CLIENT_CONFIG", "c.toml")];
        let wrong = |file| place(&ConnectionArgs::default(), &variables, file).unwrap_err();
        assert!(wrong("client = \"a\"\nadress = \"x:1\"\n").starts_with("\"c.toml\" line 2"));
        assert!(
            wrong("addr = \"nowhere\"\n").contains("`nowhere` is not an address; try nowhere:7450")
        );
        assert!(wrong("addr = \"http://a:1\"\n").contains("is not an address; try a:1"));
        assert!(wrong("[tls]\ncert = \"c\"\n").contains("--tls-ca"));
        assert!(wrong("connect_timeout = \"soon\"\n").contains("`soon` is not a time"));
    }
}
