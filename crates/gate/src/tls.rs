//! Serves TLS, and reads the certificate again when its files change.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::listen::StartError;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The certificate files of a store or proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServeTls {
    /// The certificate, and the intermediate ones up to the authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that signs the certificates of clients. With it, a client without such a certificate is refused in
    /// the handshake; without it clients need none.
    pub client_ca: Option<PathBuf>,
}

/// When each file was changed, and its length; `None` for a file that cannot be read.
type CertificateStamp = Vec<Option<(SystemTime, u64)>>;

/// Performs handshakes with the certificate in force.
pub(crate) struct Handshakes {
    files: ServeTls,
    loaded: Mutex<(CertificateStamp, Arc<ServerConfig>)>,
}

impl Handshakes {
    pub(crate) fn open(files: ServeTls) -> Result<Self, StartError> {
        // The stamp comes first: a change while the files are read is then seen by the next handshake.
        let stamp = stamp(&files);
        let config = Arc::new(configure(&files).map_err(StartError::Setting)?);
        Ok(Self { files, loaded: Mutex::new((stamp, config)) })
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        timeout(HANDSHAKE, TlsAcceptor::from(self.config()).accept(stream)).await?
    }

    /// The configuration of the files as they are. Files that cannot be used leave the last good ones in force.
    fn config(&self) -> Arc<ServerConfig> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamp(&self.files);
        if loaded.0 != now {
            loaded.0 = now;
            match configure(&self.files) {
                Ok(config) => loaded.1 = Arc::new(config),
                Err(why) => eprintln!("warning: the last certificate stays in force: {why}"),
            }
        }
        Arc::clone(&loaded.1)
    }
}

fn stamp(files: &ServeTls) -> CertificateStamp {
    let paths = [Some(&files.cert), Some(&files.key), files.client_ca.as_ref()];
    let stamp = |path: &PathBuf| {
        let about = fs::metadata(path).ok()?;
        Some((about.modified().ok()?, about.len()))
    };
    paths.into_iter().flatten().map(stamp).collect()
}

fn configure(files: &ServeTls) -> Result<ServerConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|why| why.to_string())?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let no =
                |why: &dyn std::fmt::Display| format!("{} is no authority: {why}", path.display());
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|why| no(&why))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(|why| no(&why))?)
        }
    };
    let none = |_| format!("{} holds no private key in PEM form", files.key.display());
    let key = PrivateKeyDer::from_pem_slice(&read(&files.key)?).map_err(none)?;
    let server = builder.with_single_cert(certificates(&files.cert)?, key);
    let mut server =
        server.map_err(|why| format!("{} and its key: {why}", files.cert.display()))?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(server)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = read(path)?;
    let found = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let found = found.unwrap_or_default();
    if found.is_empty() {
        return Err(format!("{} holds no certificate in PEM form", path.display()));
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}
