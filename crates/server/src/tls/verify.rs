//! Verifies that a certificate comes from our authority, and reads the names in it.
//!
//! Members dial addresses, which do not identify a member: what counts is the member's name in the certificate, and
//! only the caller knows which name to expect. So the handshake checks the chain and the key, and both ends compare the
//! names when it is over.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Trusts every server that has a certificate of the authority.
#[derive(Debug)]
pub(super) struct Authority {
    pub(super) roots: Arc<RootCertStore>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Authority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("members speak TLS 1.3 only".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Whether a peer with these roots would trust our chain now.
pub(super) fn chain(
    roots: &RootCertStore,
    chain: &[CertificateDer<'static>],
    algorithms: WebPkiSupportedAlgorithms,
) -> Result<(), Error> {
    let parsed = ParsedCertificate::try_from(&chain[0])?;
    let now = UnixTime::now();
    verify_server_cert_signed_by_trust_anchor(&parsed, roots, &chain[1..], now, algorithms.all)
}

/// The host names in a certificate; none if it cannot be parsed.
pub(crate) fn dns_names(cert: &CertificateDer<'_>) -> Vec<String> {
    let Ok(parsed) = webpki::EndEntityCert::try_from(cert) else { return Vec::new() };
    parsed.valid_dns_names().map(str::to_owned).collect()
}
