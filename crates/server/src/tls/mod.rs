//! Loads the certificates that a member presents and trusts, and reloads them when the files change.
//!
//! Members authenticate each other with certificates of their own authority: both ends present one, and it must name
//! the member that presents it. Clients see the same certificate at the public port. The files are read again when they
//! change, so that a certificate is replaced without a restart. New files that cannot be used are reported once, and
//! the previous certificates stay in force.

pub(crate) mod der;
mod dial;
mod load;
mod validity;
mod verify;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustls::{ClientConfig, ServerConfig};

pub use dial::Dialled;
pub(crate) use dial::host_of;
pub(crate) use validity::Validity;
pub(crate) use verify::dns_names;

/// The paths of the certificates and keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerTlsFiles {
    /// This member's certificate, and the intermediate ones up to the authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that signs the certificates of clients; without it they need none.
    pub client_ca: Option<PathBuf>,
    /// The authority that signs the certificates of members; without it members connect in plain text.
    pub member_ca: Option<PathBuf>,
}

/// The certificates in force.
pub struct ServerTls {
    files: ServerTlsFiles,
    /// The name that the certificate must have, once it was checked.
    name: OnceLock<String>,
    loaded: Mutex<Loaded>,
}

/// What a client that dials a member trusts, and the certificate it presents.
pub struct DialTrust {
    config: Arc<ClientConfig>,
}

impl DialTrust {
    /// Trusts members whose certificates `ca` signed; presents the certificate of `own`, with its key, if given.
    pub fn load(ca: &Path, own: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        Ok(Self { config: Arc::new(load::trust(ca, own)?) })
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        self.config.clone()
    }

    /// The same configuration for HTTP/2.
    pub(crate) fn http2(&self) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }
}

/// The configurations for both ends of a connection between members.
#[derive(Clone)]
pub struct MemberTls {
    /// The configuration of the end that dials.
    pub client: Arc<ClientConfig>,
    /// The configuration of the end that accepts.
    pub server: Arc<ServerConfig>,
}

/// The reason certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A file does not contain what it should.
    #[error("{path:?} holds no {what}")]
    Holds {
        /// The file.
        path: PathBuf,
        /// The expected contents.
        what: &'static str,
    },
    /// The key does not belong to the certificate, or one of them cannot be used.
    #[error("the key {key:?} and the certificate {cert:?} cannot be used together: {why}")]
    Pair {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        /// The error of the TLS library.
        why: rustls::Error,
    },
    /// The authority cannot be used.
    #[error("{path:?} cannot be used as an authority: {why}")]
    Authority {
        /// The authority's file.
        path: PathBuf,
        /// The error of the TLS library.
        why: String,
    },
    /// Other members would not trust this member's certificate.
    #[error("the certificate {cert:?} would be refused by other members: {why}")]
    Unbelieved {
        /// The certificate.
        cert: PathBuf,
        /// The error of the TLS library.
        why: rustls::Error,
    },
    /// The same authority signs the certificates of members and of clients.
    #[error(
        "an authority in {client_ca:?} is in {member_ca:?} as well, so that every client could pass for a member"
    )]
    SharedAuthority {
        /// The authorities of clients.
        client_ca: PathBuf,
        /// The authorities of members.
        member_ca: PathBuf,
    },
    /// The certificate is not valid now.
    #[error("the certificate {cert:?} {why}")]
    NotValid {
        /// The certificate.
        cert: PathBuf,
        /// Whether it has expired or is not valid yet.
        why: &'static str,
    },
    /// The certificate does not name this member.
    #[error("the certificate {cert:?} names {named}, not this member, `{name}`")]
    Unnamed {
        /// The certificate.
        cert: PathBuf,
        /// The names in the certificate.
        named: String,
        /// This member's name.
        name: String,
    },
}

impl TlsError {
    /// The next step for the operator.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Read { .. } => "another path, or letting this user read it",
            Self::Holds { .. } => "a file that holds one, as text between BEGIN and END lines",
            Self::Pair { .. } => "the key that the certificate was made for",
            Self::Authority { .. } => "the authority's own certificate",
            Self::Unbelieved { .. } => "a certificate that member_ca signed and that is valid now",
            Self::SharedAuthority { .. } => "an authority for members alone",
            Self::NotValid { .. } => {
                "a certificate that is valid now, or the right time on this machine"
            }
            Self::Unnamed { .. } => "a certificate with this member's name among its DNS names",
        }
    }
}

struct Loaded {
    seen: FileStamp,
    /// The files that could not be used, so that the warning is logged once.
    refused: Option<FileStamp>,
    now: load::Configs,
}

/// Identifies the version of each file: its modification time and length.
type FileStamp = Vec<Option<(std::time::SystemTime, u64)>>;

impl ServerTls {
    /// Reads the files and checks that they fit together.
    pub fn load(files: ServerTlsFiles) -> Result<Self, TlsError> {
        let seen = seen(&files);
        let now = load::configs(&files)?;
        let loaded = Mutex::new(Loaded { seen, refused: None, now });
        Ok(Self { files, name: OnceLock::new(), loaded })
    }

    /// The configurations for connections between members, with certificates on both ends. None if members connect in
    /// plain text.
    pub fn members(&self) -> Option<MemberTls> {
        self.newest(|now| now.members.clone())
    }

    /// The configuration for the public port: a client certificate, if presented, must come from the authority for
    /// clients, if one is set.
    pub fn clients(&self) -> Arc<ServerConfig> {
        self.newest(|now| now.clients.clone())
    }

    /// The files with certificates, by what they are used for.
    pub(crate) fn certificate_files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let ServerTlsFiles { cert, client_ca, member_ca, .. } = &self.files;
        let all = [
            ("own", Some(cert)),
            ("client_ca", client_ca.as_ref()),
            ("member_ca", member_ca.as_ref()),
        ];
        all.into_iter().filter_map(|(used, path)| Some((used, path?.as_path())))
    }

    /// The file of the certificate that this member presents.
    pub(crate) fn own_certificate_file(&self) -> &Path {
        &self.files.cert
    }

    /// Whether clients need a certificate.
    pub(crate) fn knows_clients(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// Whether members connect over TLS.
    pub(crate) fn covers_members(&self) -> bool {
        self.files.member_ca.is_some()
    }

    /// The host names in the certificate that a client can ask for.
    pub(crate) fn host_names(&self) -> Vec<String> {
        self.newest(|now| now.names.clone())
    }

    /// Checks that other members will accept this one as `name`. Later certificates are checked for the same name.
    pub fn check_name(&self, name: &str) -> Result<(), TlsError> {
        let names = self.newest(|now| now.names.clone());
        self.check_names(&names, name)?;
        let _ = self.name.set(name.to_owned());
        Ok(())
    }

    fn check_names(&self, names: &[String], name: &str) -> Result<(), TlsError> {
        if !self.covers_members() || is_named(names, name) {
            return Ok(());
        }
        let (cert, name) = (self.files.cert.clone(), name.to_owned());
        Err(TlsError::Unnamed { cert, named: listed(names), name })
    }

    /// Reads the files again, and checks that they are this member's.
    fn reload(&self) -> Result<load::Configs, TlsError> {
        let now = load::configs(&self.files)?;
        if let Some(name) = self.name.get() {
            self.check_names(&now.names, name)?;
        }
        Ok(now)
    }

    fn newest<T>(&self, get: impl FnOnce(&load::Configs) -> T) -> T {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen(&self.files);
        if seen != loaded.seen && loaded.refused.as_ref() != Some(&seen) {
            match self.reload() {
                Ok(now) => {
                    tracing::info!(cert = %shown(&self.files), "certificates reloaded");
                    *loaded = Loaded { seen, refused: None, now };
                }
                Err(error) => {
                    let why = crate::error::chain(&error);
                    tracing::warn!(why, "new certificates cannot be used; the old ones stay");
                    loaded.refused = Some(seen);
                }
            }
        }
        get(&loaded.now)
    }
}

/// Whether a certificate with these names identifies a member: one of them equals its name, ignoring case. A wildcard
/// identifies no member.
pub(crate) fn is_named(names: &[String], name: &str) -> bool {
    names.iter().any(|named| named.eq_ignore_ascii_case(name))
}

/// Formats names for people.
pub(crate) fn listed(names: &[String]) -> String {
    match names {
        [] => "no host".to_owned(),
        names => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" and "),
    }
}

fn shown(files: &ServerTlsFiles) -> String {
    files.cert.display().to_string()
}

fn seen(files: &ServerTlsFiles) -> FileStamp {
    let all =
        [Some(&files.cert), Some(&files.key), files.client_ca.as_ref(), files.member_ca.as_ref()];
    let one = |path: &Path| {
        let found = fs::metadata(path).ok()?;
        Some((found.modified().ok()?, found.len()))
    };
    all.into_iter().flatten().map(|path| one(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    };

    #[test]
    fn members_and_clients_have_different_authorities() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let sign = |name: &str, key: &KeyPair| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            let pem = params.self_signed(key).unwrap().pem();
            fs::write(path(name), &pem).unwrap();
            (Issuer::new(params, KeyPair::from_pem(&key.serialize_pem()).unwrap()), pem)
        };
        let (one, two) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let (issuer, members) = sign("members.pem", &one);
        let (_, renewed) = sign("renewed.pem", &one);
        let (_, clients) = sign("clients.pem", &two);
        fs::write(path("both.pem"), format!("{clients}{renewed}")).unwrap();
        assert_ne!(members, renewed, "another certificate of the same key");
        let params = CertificateParams::new(vec!["m0".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        fs::write(path("key.pem"), key.serialize_pem()).unwrap();
        fs::write(path("cert.pem"), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        let load = |client_ca: &str| {
            let (client_ca, member_ca) = (Some(path(client_ca)), Some(path("members.pem")));
            let (cert, key) = (path("cert.pem"), path("key.pem"));
            ServerTls::load(ServerTlsFiles { cert, key, client_ca, member_ca })
        };
        assert!(load("clients.pem").is_ok());
        for shared in ["members.pem", "renewed.pem", "both.pem"] {
            assert!(matches!(load(shared), Err(TlsError::SharedAuthority { .. })), "{shared}");
        }
    }

    #[test]
    fn a_reloaded_certificate_must_name_this_member() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        fs::write(path("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(params, key);
        let sign = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut params = CertificateParams::new(names).unwrap();
            params.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            let key = KeyPair::generate().unwrap();
            fs::write(path("key.pem"), key.serialize_pem()).unwrap();
            fs::write(path("cert.pem"), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        };
        sign(&["m0"]);
        let files = ServerTlsFiles {
            cert: path("cert.pem"),
            key: path("key.pem"),
            client_ca: None,
            member_ca: Some(path("ca.pem")),
        };
        let tls = ServerTls::load(files).unwrap();
        tls.check_name("m0").unwrap();
        // The names differ in length, so that the files differ whatever the clock of the file system says.
        sign(&["other-member"]);
        assert_eq!(tls.host_names(), ["m0"], "the old certificate stays in force");
        sign(&["m0", "m0.example"]);
        assert_eq!(tls.host_names(), ["m0", "m0.example"]);
    }
}
