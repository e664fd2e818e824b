//! Which certificates does a member show, and whom does it believe?
//!
//! Members know each other by certificates of their own authority: both ends show one, and it must
//! name the member that speaks. Clients see the same certificate at the public port. The files are
//! read again when they change, so that a certificate is replaced without a restart; what cannot be
//! used then is said once, and what was in force stays in force.

mod dial;
mod load;
mod verify;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::{ClientConfig, ServerConfig};

pub use dial::Dialled;
pub(crate) use dial::host_of;
pub(crate) use verify::dns_names;

/// Where the certificates are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// This member's certificate, and those between it and the authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who signs the certificates of clients; without it they need none.
    pub client_ca: Option<PathBuf>,
    /// Who signs the certificates of members; without it members talk in plain.
    pub member_ca: Option<PathBuf>,
}

/// The certificates in force.
pub struct Tls {
    files: Files,
    loaded: Mutex<Loaded>,
}

/// What somebody who dials a member believes, and shows.
pub struct Trust {
    config: Arc<ClientConfig>,
}

impl Trust {
    /// Believes members whose certificates `ca` signed; shows a certificate, with its key, if there is one.
    pub fn load(ca: &Path, own: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        Ok(Self { config: Arc::new(load::trust(ca, own)?) })
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }

    /// The same, for those who speak HTTP/2.
    pub(crate) fn http2(&self) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }
}

/// Both ends of a connection between members.
#[derive(Clone)]
pub struct Members {
    /// For those who dial.
    pub client: Arc<ClientConfig>,
    /// For those who are dialled.
    pub server: Arc<ServerConfig>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path:?}")]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path:?} holds no {what}")]
    Holds {
        /// Which.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// The key is not that of the certificate, or either is of no use.
    #[error("the key {key:?} and the certificate {cert:?} cannot be used together: {why}")]
    Pair {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        /// In the library's words.
        why: rustls::Error,
    },
    /// The authority cannot be used.
    #[error("{path:?} cannot be used as an authority: {why}")]
    Authority {
        /// Its file.
        path: PathBuf,
        /// In the library's words.
        why: String,
    },
    /// Other members would not believe this one.
    #[error("the certificate {cert:?} would be refused by other members: {why}")]
    Unbelieved {
        /// It.
        cert: PathBuf,
        /// In the library's words.
        why: rustls::Error,
    },
    /// The certificate is somebody else's.
    #[error("the certificate {cert:?} names {named}, not this member, `{name}`")]
    Unnamed {
        /// It.
        cert: PathBuf,
        /// Those it names.
        named: String,
        /// This member.
        name: String,
    },
}

impl TlsError {
    /// What to do next.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Read { .. } => "another path, or letting this user read it",
            Self::Holds { .. } => "a file that holds one, as text between BEGIN and END lines",
            Self::Pair { .. } => "the key that the certificate was made for",
            Self::Authority { .. } => "the authority's own certificate",
            Self::Unbelieved { .. } => "a certificate that member_ca signed and that is valid now",
            Self::Unnamed { .. } => "a certificate with this member's name among its DNS names",
        }
    }
}

struct Loaded {
    seen: Seen,
    /// Files that could not be used, so that it is said once.
    refused: Option<Seen>,
    now: load::Configs,
}

/// What tells a file from the one that was there before.
type Seen = Vec<Option<(std::time::SystemTime, u64)>>;

impl Tls {
    /// Reads the files and checks that they fit together.
    pub fn load(files: Files) -> Result<Self, TlsError> {
        let seen = seen(&files);
        let now = load::configs(&files)?;
        Ok(Self { files, loaded: Mutex::new(Loaded { seen, refused: None, now }) })
    }

    /// For connections between members: certificates on both ends. Nothing if they talk in plain.
    pub fn members(&self) -> Option<Members> {
        self.newest(|now| now.members.clone())
    }

    /// For the public port: who shows a certificate must have it from the authority for clients, if one is set.
    pub fn clients(&self) -> Arc<ServerConfig> {
        self.newest(|now| now.clients.clone())
    }

    /// Whether clients need a certificate.
    pub(crate) fn knows_clients(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// Whether members talk under certificates.
    pub(crate) fn covers_members(&self) -> bool {
        self.files.member_ca.is_some()
    }

    /// Whether other members will take this one for `name`.
    pub(crate) fn check_name(&self, name: &str) -> Result<(), TlsError> {
        if !self.covers_members() {
            return Ok(());
        }
        let names = self.newest(|now| now.names.clone());
        if is_named(&names, name) {
            return Ok(());
        }
        let (cert, name) = (self.files.cert.clone(), name.to_owned());
        Err(TlsError::Unnamed { cert, named: listed(&names), name })
    }

    fn newest<T>(&self, get: impl FnOnce(&load::Configs) -> T) -> T {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen(&self.files);
        if seen != loaded.seen && loaded.refused.as_ref() != Some(&seen) {
            match load::configs(&self.files) {
                Ok(now) => {
                    tracing::info!(cert = %shown(&self.files), "certificates were read again");
                    *loaded = Loaded { seen, refused: None, now };
                }
                Err(error) => {
                    let why = crate::turn::chain(&error);
                    tracing::warn!(why, "new certificates cannot be used; the old ones stay");
                    loaded.refused = Some(seen);
                }
            }
        }
        get(&loaded.now)
    }
}

/// Whether a certificate with these names speaks for a member: one of them is its name, letter for
/// letter but for case. A wildcard names nobody.
pub(crate) fn is_named(names: &[String], name: &str) -> bool {
    names.iter().any(|named| named.eq_ignore_ascii_case(name))
}

/// Names for people.
pub(crate) fn listed(names: &[String]) -> String {
    match names {
        [] => "nobody".to_owned(),
        names => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and "),
    }
}

fn shown(files: &Files) -> String {
    files.cert.display().to_string()
}

fn seen(files: &Files) -> Seen {
    let all =
        [Some(&files.cert), Some(&files.key), files.client_ca.as_ref(), files.member_ca.as_ref()];
    let one = |path: &Path| {
        let found = fs::metadata(path).ok()?;
        Some((found.modified().ok()?, found.len()))
    };
    all.into_iter().flatten().map(|path| one(path)).collect()
}
