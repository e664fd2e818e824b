//! Tests members with certificates in one process: snapshots, replaced certificates, and the public port.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use crate::authority::{Authority, CertificateFiles};
use crate::support::{catch_up, leader, listed, put, settings, start_all, wait};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection, Stream};
use tenure_server::tls::{ServerTls, ServerTlsFiles};
use tenure_server::{RunningServer, ServerSettings, start};

fn files(cert_files: &CertificateFiles) -> ServerTlsFiles {
    let CertificateFiles { cert, key, ca } = cert_files;
    let member_ca = Some(ca.clone());
    ServerTlsFiles { cert: cert.clone(), key: key.clone(), client_ca: None, member_ca }
}

#[test]
fn a_snapshot_arrives_under_certificates_on_addresses_that_others_reach() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ours");
    let listed = listed(3);
    let one = |at: usize| {
        let cert_files = authority.sign(&listed[at].0);
        let port = listed[at].1.split_once(':').unwrap().1;
        ServerSettings {
            tls: Some(Arc::new(ServerTls::load(files(&cert_files)).unwrap())),
            members: Some(format!("0.0.0.0:{port}")),
            ..settings(dir.path(), at, &listed)
        }
    };
    let mut running = start_all((0..3).map(one).collect());
    catch_up(&mut running, one);
    running.iter().for_each(RunningServer::stop);
}

#[test]
fn a_new_authority_and_new_certificates_are_taken_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let old = Authority::new(dir.path(), "old");
    let new = Authority::new(dir.path(), "new");
    let both = fs::read(old.and(&new)).unwrap();
    let listed = listed(3);
    let cert_files: Vec<_> = listed
        .iter()
        .map(|(name, _)| {
            let signed = old.sign(name);
            let cert_files =
                CertificateFiles { ca: dir.path().join(format!("{name}.ca")), ..signed };
            fs::copy(old.sign(name).ca, &cert_files.ca).unwrap();
            cert_files
        })
        .collect();
    let one = |at: usize| ServerSettings {
        tls: Some(Arc::new(ServerTls::load(files(&cert_files[at])).unwrap())),
        ..settings(dir.path(), at, &listed)
    };
    let mut running = start_all((0..3).map(one).collect());
    // First every member trusts both authorities, then every member presents the new certificate.
    cert_files.iter().for_each(|one| fs::write(&one.ca, &both).unwrap());
    for (one, (name, _)) in cert_files.iter().zip(&listed) {
        let signed = new.sign(name);
        fs::copy(signed.cert, &one.cert).unwrap();
        fs::copy(signed.key, &one.key).unwrap();
    }
    // A member that trusts only the new authority joins: the two others present its certificates by now.
    let again = (leader(&running) + 1) % 3;
    running[again].stop();
    fs::copy(new.sign("nobody").ca, &cert_files[again].ca).unwrap();
    running[again] = start(one(again)).unwrap();
    let leading = running[leader(&running)].member.clone();
    assert!(put(&leading, "key"));
    wait("it follows", || {
        let revision = |member: &tenure_server::MemberHandle| member.status().unwrap().revision;
        (revision(&running[again].member) == revision(&leading)).then_some(())
    });
    running.iter().for_each(RunningServer::stop);
}

#[test]
fn files_that_cannot_be_used_leave_the_old_ones_in_force() {
    let dir = tempfile::tempdir().unwrap();
    let cert_files = Authority::new(dir.path(), "ours").sign("m0");
    let tls = ServerTls::load(files(&cert_files)).unwrap();
    let before = tls.members().unwrap().server;
    assert!(Arc::ptr_eq(&before, &tls.members().unwrap().server), "unchanged files are not read");
    fs::write(&cert_files.key, "half a k").unwrap();
    assert!(Arc::ptr_eq(&before, &tls.members().unwrap().server));
}

/// The protocol that the public port has agreed on with a client, and whether the client presented a certificate.
fn handler(tls: &ServerTls, client: ClientConfig) -> Result<(Option<Vec<u8>>, bool), String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = std::thread::spawn(move || {
        let name = ServerName::try_from("m0").unwrap();
        let mut state = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut socket = TcpStream::connect(address).unwrap();
        let _ = Stream::new(&mut state, &mut socket).read(&mut [0; 1]);
    });
    let mut state = ServerConnection::new(tls.clients()).unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    let done = state.complete_io(&mut socket).map_err(|error| error.to_string());
    drop(socket);
    client.join().unwrap();
    done?;
    Ok((state.alpn_protocol().map(<[u8]>::to_vec), state.peer_certificates().is_some()))
}

#[test]
fn clients_show_a_certificate_of_their_authority_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new(dir.path(), "ours");
    let clients = Authority::new(dir.path(), "clients");
    let (cert_files, its) = (ours.sign("m0"), clients.sign("somebody"));
    let tls =
        ServerTls::load(ServerTlsFiles { client_ca: Some(its.ca.clone()), ..files(&cert_files) })
            .unwrap();
    let client = |shown: Option<&CertificateFiles>| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&cert_files.ca).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match shown {
            None => builder.with_no_client_auth(),
            Some(cert_files) => {
                let cert = CertificateDer::from_pem_file(&cert_files.cert).unwrap();
                let key = PrivateKeyDer::from_pem_file(&cert_files.key).unwrap();
                builder.with_client_auth_cert(vec![cert], key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
        config
    };
    // A client without a certificate completes the handshake, so that it can get an error.
    assert_eq!(handler(&tls, client(None)), Ok((Some(b"h2".to_vec()), false)));
    assert_eq!(handler(&tls, client(Some(&its))), Ok((Some(b"h2".to_vec()), true)));
    // A member's certificate is not valid for a client.
    let refused = handler(&tls, client(Some(&cert_files))).unwrap_err();
    assert!(refused.contains("UnknownIssuer"), "{refused}");
}
