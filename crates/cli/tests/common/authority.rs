//! Signs the certificates of members in tests.
#![allow(dead_code, reason = "each test binary uses a part of this")]

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

/// An authority, and the directory with its files.
pub(crate) struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// The certificate files of one member.
pub(crate) struct CertificateFiles {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) ca: PathBuf,
}

impl Authority {
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        let dir = dir.join(name);
        fs::create_dir_all(&dir).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let pem = params.self_signed(&key).unwrap().pem();
        fs::write(dir.join("ca.pem"), &pem).unwrap();
        Self { dir, issuer: Issuer::new(params, key), pem }
    }

    /// Makes a certificate for a member, new each time.
    pub(crate) fn sign(&self, name: &str) -> CertificateFiles {
        let key = KeyPair::generate().unwrap();
        let mut params =
            CertificateParams::new(vec![name.to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let cert_files = CertificateFiles {
            cert: self.dir.join(format!("{name}.pem")),
            key: self.dir.join(format!("{name}.key")),
            ca: self.dir.join("ca.pem"),
        };
        fs::write(&cert_files.cert, cert.pem()).unwrap();
        fs::write(&cert_files.key, key.serialize_pem()).unwrap();
        cert_files
    }

    /// The file with the authority's own certificate.
    pub(crate) fn ca(&self) -> String {
        self.dir.join("ca.pem").to_str().unwrap().to_owned()
    }

    /// A file that trusts this authority and another one.
    pub(crate) fn and(&self, other: &Authority) -> PathBuf {
        let path = self.dir.join("both.pem");
        fs::write(&path, format!("{}{}", self.pem, other.pem)).unwrap();
        path
    }
}

impl CertificateFiles {
    /// The same certificate, for a client of members that another authority signed.
    pub(crate) fn trusting(self, other: &Authority) -> Self {
        Self { ca: other.dir.join("ca.pem"), ..self }
    }

    /// The flags for `tenure serve`.
    pub(crate) fn flags(&self) -> Vec<String> {
        let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
        let (cert, key, ca) = (text(&self.cert), text(&self.key), text(&self.ca));
        ["--tls-cert", &cert, "--tls-key", &key, "--tls-member-ca", &ca].map(str::to_owned).into()
    }
}
