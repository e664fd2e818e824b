//! Builds the TLS configurations from the certificate files.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, TrustAnchor, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::validity::Validity;
use super::verify::{self, Authority, dns_names};
use super::{MemberTls, ServerTlsFiles, TlsError};

/// The protocols of the public port, best first.
const APIS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The configurations made from one reading of the files.
pub(super) struct Configs {
    pub(super) members: Option<MemberTls>,
    pub(super) clients: Arc<ServerConfig>,
    pub(super) names: Vec<String>,
}

pub(super) fn configs(files: &ServerTlsFiles) -> Result<Configs, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates(&files.cert)?;
    for certificate in &chain {
        check_validity(certificate, &files.cert)?;
    }
    let key = key(&files.key)?;
    let names = dns_names(&chain[0]);
    check_authorities(files)?;
    let own = OwnCertificate { files, provider, chain, key };
    let members = files.member_ca.as_deref().map(|path| own.members(path)).transpose()?;
    let clients = own.clients(files.client_ca.as_deref())?;
    Ok(Configs { members, clients, names })
}

/// Checks that clients would find the certificate valid now.
fn check_validity(certificate: &CertificateDer<'_>, path: &Path) -> Result<(), TlsError> {
    let what = "certificate whose validity can be read";
    let validity = Validity::of(certificate);
    let validity = validity.ok_or_else(|| TlsError::Holds { path: path.to_owned(), what })?;
    let now = i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX);
    match validity.objection(now) {
        None => Ok(()),
        Some(why) => Err(TlsError::NotValid { cert: path.to_owned(), why }),
    }
}

/// Checks that no authority signs both for members and for clients: every client with a certificate of it could connect
/// to the members' port.
fn check_authorities(files: &ServerTlsFiles) -> Result<(), TlsError> {
    let (Some(client_ca), Some(member_ca)) = (&files.client_ca, &files.member_ca) else {
        return Ok(());
    };
    // The keys are compared, so that a renewed certificate of the same authority counts as equal.
    let (clients, members) = (authority(client_ca)?, authority(member_ca)?);
    let is_shared = |root| members.roots.iter().any(|other: &TrustAnchor<'_>| same(root, other));
    if clients.roots.iter().any(is_shared) {
        let (client_ca, member_ca) = (client_ca.clone(), member_ca.clone());
        return Err(TlsError::SharedAuthority { client_ca, member_ca });
    }
    Ok(())
}

fn same(one: &TrustAnchor<'_>, other: &TrustAnchor<'_>) -> bool {
    one.subject_public_key_info == other.subject_public_key_info
}

/// This member's certificate and key.
struct OwnCertificate<'a> {
    files: &'a ServerTlsFiles,
    provider: Arc<CryptoProvider>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl OwnCertificate<'_> {
    fn members(&self, path: &Path) -> Result<MemberTls, TlsError> {
        let roots = authority(path)?;
        let algorithms = self.provider.signature_verification_algorithms;
        verify::chain(&roots, &self.chain, algorithms)
            .map_err(|why| TlsError::Unbelieved { cert: self.files.cert.clone(), why })?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots.clone(), self.provider.clone())
                .build()
                .map_err(|why| TlsError::Authority {
                    path: path.to_owned(),
                    why: why.to_string(),
                })?;
        let mut server = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|why| self.pair(why))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|why| self.pair(why))?;
        // A link lives for days, so session resumption gains nothing, and every new link must check the certificate.
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|why| self.pair(why))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Authority { roots, algorithms }))
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|why| self.pair(why))?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(MemberTls { client: Arc::new(client), server: Arc::new(server) })
    }

    fn clients(&self, authority_path: Option<&Path>) -> Result<Arc<ServerConfig>, TlsError> {
        let builder = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|why| self.pair(why))?;
        let builder = match authority_path {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = authority(path)?;
                // A client without a certificate completes the handshake; the request filter then rejects it with a
                // reason, because few people see the alert of a failed handshake.
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots, self.provider.clone())
                        .allow_unauthenticated()
                        .build();
                builder.with_client_cert_verifier(verifier.map_err(|why| TlsError::Authority {
                    path: path.to_owned(),
                    why: why.to_string(),
                })?)
            }
        };
        let mut server = builder
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(|why| self.pair(why))?;
        server.alpn_protocols = APIS.iter().map(|api| api.to_vec()).collect();
        Ok(Arc::new(server))
    }

    fn pair(&self, why: rustls::Error) -> TlsError {
        TlsError::Pair { cert: self.files.cert.clone(), key: self.files.key.clone(), why }
    }
}

/// Trusts servers whose certificates the authority signed, and presents a client certificate if there is one.
pub(super) fn trust(ca: &Path, own: Option<(&Path, &Path)>) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable = |path: &Path, why: rustls::Error| TlsError::Authority {
        path: path.to_owned(),
        why: why.to_string(),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|why| unusable(ca, why))?
        .with_root_certificates(authority(ca)?);
    let client = match own {
        None => builder.with_no_client_auth(),
        Some((cert_path, key_path)) => {
            builder.with_client_auth_cert(certificates(cert_path)?, key(key_path)?).map_err(
                |why| TlsError::Pair { cert: cert_path.to_owned(), key: key_path.to_owned(), why },
            )?
        }
    };
    Ok(client)
}

fn authority(path: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|why| TlsError::Authority { path: path.to_owned(), why: why.to_string() })?;
    }
    Ok(Arc::new(roots))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let none = || TlsError::Holds { path: path.to_owned(), what: "certificate in PEM form" };
    let bytes = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|_| none())?;
    if found.is_empty() { Err(none()) } else { Ok(found) }
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let what = "private key in PEM form without a password";
    PrivateKeyDer::from_pem_slice(&read(path)?)
        .map_err(|_| TlsError::Holds { path: path.to_owned(), what })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}
