//! Connects to members over TLS: verifies their certificates, and presents the client's own.
//!
//! The client reads the files again for every connection, so that a certificate can be replaced without a restart. If
//! the new files cannot be used, the previous ones stay in effect.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::tls::TlsFiles;

/// The paths of the certificate files, and the TLS configuration that was last read from them.
pub(crate) struct TlsTrust {
    ca: PathBuf,
    identity: Option<(PathBuf, PathBuf)>,
    config: Mutex<Arc<ClientConfig>>,
}

impl TlsTrust {
    /// Reads the files. Returns `None` without an authority: sessions are then in plain text.
    pub(crate) fn load(files: &TlsFiles) -> Result<Option<Self>, String> {
        let Some(ca) = files.ca.clone() else {
            return match files.identity {
                None => Ok(None),
                Some(_) => Err("a certificate is of no use without an authority".to_owned()),
            };
        };
        let identity = files.identity.clone();
        let config = Mutex::new(Arc::new(configure(&ca, identity.as_ref())?));
        Ok(Some(Self { ca, identity, config }))
    }

    /// Returns the configuration of the files as they are now, or the previous one if they cannot be used.
    fn newest(&self) -> Arc<ClientConfig> {
        let read = configure(&self.ca, self.identity.as_ref());
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(newer) => *config = Arc::new(newer),
            Err(error) => tracing::warn!(%error, "the certificates cannot be read again"),
        }
        config.clone()
    }

    /// Connects to an address. The certificate there must name the host.
    pub(crate) fn connect(
        &self,
        endpoint: Endpoint,
        address: &str,
    ) -> impl Future<Output = Result<Channel, tonic::transport::Error>> + Send + use<> {
        let (address, connector) = (address.to_owned(), TlsConnector::from(self.newest()));
        let connector = tower::service_fn(move |_: Uri| {
            let (address, connector) = (address.clone(), connector.clone());
            async move {
                let name = host_of(&address)?;
                let stream = TcpStream::connect(&address).await?;
                stream.set_nodelay(true)?;
                let stream: TlsStream<TcpStream> = connector.connect(name, stream).await?;
                Ok::<_, io::Error>(TokioIo::new(stream))
            }
        });
        async move { endpoint.connect_with_connector(connector).await }
    }
}

/// Whether the peer ended the handshake with `handshake_failure`, the alert that a member without TLS sends.
pub(crate) fn is_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let inside = inside.and_then(|inside| inside.downcast_ref::<rustls::Error>());
    let refused = rustls::Error::AlertReceived(rustls::AlertDescription::HandshakeFailure);
    error.downcast_ref::<rustls::Error>().or(inside) == Some(&refused)
}

fn configure(ca: &Path, identity: Option<&(PathBuf, PathBuf)>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate).map_err(|why| format!("{} is no authority: {why}", ca.display()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|why| why.to_string())?
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => builder
            .with_client_auth_cert(certificates(cert)?, private_key(key)?)
            .map_err(|why| format!("{} and its key: {why}", cert.display()))?,
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(path)?;
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(&bytes).collect::<Result<_, _>>().unwrap_or_default();
    if found.is_empty() {
        return Err(format!("{} holds no certificate in PEM form", path.display()));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let none = |_| format!("{} holds no private key in PEM form", path.display());
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(none)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// The name that the certificate at `host:port` must carry.
fn host_of(address: &str) -> io::Result<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    ServerName::try_from(host).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let missing = TlsFiles { ca: Some("/nowhere/ca.pem".into()), ..TlsFiles::default() };
        assert!(TlsTrust::load(&missing).err().unwrap().contains("/nowhere/ca.pem"));
        let half = TlsFiles { identity: Some(("a".into(), "b".into())), ..TlsFiles::default() };
        assert!(TlsTrust::load(&half).is_err());
        assert!(TlsTrust::load(&TlsFiles::default()).unwrap().is_none());
    }
}
