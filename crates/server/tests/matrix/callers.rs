//! Gives the callers of the matrix credentials of one kind: API keys, tokens of an issuer, or client certificates.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tenure_core::access::{AccessChange, IssuerKeys, NewCertificateRule, NewIssuer, NewPrincipal};
use tenure_server::MemberHandle;
use tenure_server::tls::{ServerTls, ServerTlsFiles};
use tenure_types::Quotas;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

use super::stage::{Column, change, key};
use crate::authority::{Authority, CertificateFiles};
use crate::tokens::{ISSUER, TokenIssuer};

/// How callers prove who they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Credentials {
    Keys,
    Tokens,
    Certificates,
}

/// How one caller reaches the member: an address, and the value of the header `authorization`.
pub(super) struct CallerWay {
    pub(super) at: SocketAddr,
    pub(super) bearer: Option<String>,
}

/// The authorities that sign the certificates of the member and of its callers.
pub(super) struct Signers {
    member: CertificateFiles,
    callers: Authority,
}

impl Signers {
    pub(super) fn new(dir: &Path) -> Self {
        let member = Authority::new(dir, "ours").sign("m0");
        Self { member, callers: Authority::new(dir, "callers") }
    }

    pub(super) fn server(&self) -> Arc<ServerTls> {
        let (cert, key) = (self.member.cert.clone(), self.member.key.clone());
        let client_ca = Some(self.callers.ca().into());
        Arc::new(ServerTls::load(ServerTlsFiles { cert, key, client_ca, member_ca: None }).unwrap())
    }

    fn connector(&self, shown: Option<&CertificateFiles>) -> TlsConnector {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&self.member.ca).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let config = match shown {
            None => builder.with_no_client_auth(),
            Some(cert_files) => {
                let cert = CertificateDer::from_pem_file(&cert_files.cert).unwrap();
                let key = PrivateKeyDer::from_pem_file(&cert_files.key).unwrap();
                builder.with_client_auth_cert(vec![cert], key).unwrap()
            }
        };
        TlsConnector::from(Arc::new(config))
    }

    /// Opens a port that passes plain connections on to the member under TLS, with this certificate.
    fn tunnel(&self, to: SocketAddr, shown: Option<&CertificateFiles>) -> SocketAddr {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        port.set_nonblocking(true).unwrap();
        let port = TcpListener::from_std(port).unwrap();
        let (at, connector) = (port.local_addr().unwrap(), self.connector(shown));
        tokio::spawn(async move {
            while let Ok((mut plain, _)) = port.accept().await {
                let connector = connector.clone();
                tokio::spawn(async move {
                    let stream = TcpStream::connect(to).await.unwrap();
                    let name = ServerName::try_from("m0").unwrap();
                    let mut under_tls = connector.connect(name, stream).await.unwrap();
                    // Either side may end without a farewell.
                    let _ = tokio::io::copy_bidirectional(&mut plain, &mut under_tls).await;
                });
            }
        });
        at
    }
}

/// The principal of each column; none for a caller without a valid identity.
const PRINCIPALS: [(Column, &str); 4] = [
    (Column::NoRole, "nil"),
    (Column::WrongPrefix, "other"),
    (Column::OthersLease, "twin"),
    (Column::Right, "owner"),
];

/// Gives every column its credentials.
pub(super) fn ways(
    member: &MemberHandle,
    at: SocketAddr,
    credentials: Credentials,
    signers: Option<&Signers>,
) -> Vec<(Column, CallerWay)> {
    // A member enables identity only if an administrator has a key.
    let (id, _) = key(member, "owner");
    let plain = |column, bearer: Option<String>| (column, CallerWay { at, bearer });
    match (credentials, signers) {
        (Credentials::Keys, _) => {
            let (revoked, revoked_bearer) = key(member, "owner");
            change(member, &AccessChange::DeleteCredential { id: &revoked });
            change(member, &AccessChange::DeleteCredential { id: &id });
            let unknown = format!("Bearer tenure_{}_{}", "1".repeat(16), "0".repeat(64));
            let mut ways = vec![
                plain(Column::NoIdentity, None),
                plain(Column::UnknownKey, Some(unknown)),
                plain(Column::RevokedKey, Some(revoked_bearer)),
            ];
            let of = |(column, name)| plain(column, Some(key(member, name).1));
            ways.extend(PRINCIPALS.into_iter().map(of));
            ways
        }
        (Credentials::Tokens, _) => {
            let (issuer, stranger) = (TokenIssuer::new(7), TokenIssuer::new(8));
            change(
                member,
                &AccessChange::PutIssuer(NewIssuer {
                    issuer: ISSUER,
                    audience: "tenure",
                    keys: IssuerKeys::Jwks(&issuer.jwks()),
                    claim: "",
                    prefix: "",
                }),
            );
            let bearer = |token: String| Some(format!("Bearer {token}"));
            let mut ways = vec![
                plain(Column::NoIdentity, None),
                plain(Column::UnknownKey, bearer(stranger.token("owner", 3_600))),
                plain(Column::RevokedKey, bearer(issuer.token("owner", -3_600))),
            ];
            let of = |(column, name)| plain(column, bearer(issuer.token(name, 3_600)));
            ways.extend(PRINCIPALS.into_iter().map(of));
            ways
        }
        (Credentials::Certificates, None) => panic!("certificates need authorities"),
        (Credentials::Certificates, Some(signers)) => {
            let (roles, quotas) = (vec!["owner"], Quotas::default());
            let gone = NewPrincipal { name: "gone", enabled: false, roles, quotas };
            change(member, &AccessChange::PutPrincipal(gone));
            for (_, principal) in PRINCIPALS.into_iter().chain([(Column::RevokedKey, "gone")]) {
                let (name, pattern) = (format!("a-{principal}"), format!("dns:{principal}.test"));
                let rule = NewCertificateRule { name: &name, pattern: &pattern, principal };
                change(member, &AccessChange::PutCertificateRule(rule));
            }
            let way = |column, name: Option<&str>| {
                let cert_files = name.map(|name| signers.callers.sign(&format!("{name}.test")));
                let at = signers.tunnel(at, cert_files.as_ref());
                (column, CallerWay { at, bearer: None })
            };
            let mut ways = vec![
                way(Column::NoIdentity, None),
                way(Column::UnknownKey, Some("stranger")),
                way(Column::RevokedKey, Some("gone")),
            ];
            ways.extend(PRINCIPALS.into_iter().map(|(column, name)| way(column, Some(name))));
            ways
        }
    }
}
