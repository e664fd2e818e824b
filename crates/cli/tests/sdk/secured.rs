//! Tests that the SDK reaches members under TLS, and only those that it trusts.

use std::path::PathBuf;
use std::time::Duration;

use tenure::{Client, Error};
use tenure_server::tls::DialTrust;

use crate::authority::{Authority, CertificateFiles};
use crate::common::Cluster;
use crate::runtime;

/// Three members that use certificates and require one of another authority from every client. Returns a certificate
/// for a client as well.
fn found() -> (Cluster, CertificateFiles, Vec<CertificateFiles>) {
    let mut cluster = Cluster::new();
    let authority = Authority::new(cluster.dir.path(), "ours");
    let clients = Authority::new(cluster.dir.path(), "clients");
    let me = clients.sign("operator").trusting(&authority);
    cluster.trust = Some(DialTrust::load(&me.ca, Some((&me.cert, &me.key))).unwrap());
    for _ in 0..3 {
        cluster.add();
    }
    let cert_files: Vec<_> = cluster.members.iter().map(|one| authority.sign(&one.name)).collect();
    let listed =
        cluster.members.iter().map(|one| format!("{}=127.0.0.1:{}", one.name, one.members));
    let listed = listed.collect::<Vec<_>>().join(",");
    for (at, cert_files) in cert_files.iter().enumerate() {
        start(&mut cluster, at, cert_files, &["--bootstrap", &listed]);
    }
    cluster.leader();
    (cluster, clients.sign("worker").trusting(&authority), cert_files)
}

fn start(cluster: &mut Cluster, at: usize, cert_files: &CertificateFiles, more: &[&str]) {
    let mut flags = cert_files.flags();
    let clients = cluster.dir.path().join("clients/ca.pem");
    flags.extend(["--tls-client-ca".to_owned(), clients.to_str().unwrap().to_owned()]);
    let flags: Vec<_> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    cluster.start(at, &flags);
}

/// The error of a client that is not let in.
fn refused(builder: tenure::Builder) -> String {
    let builder = builder.timeout(Duration::from_millis(500));
    match runtime().block_on(builder.connect()) {
        Err(Error::Unreachable { tried, .. }) => format!("{tried:?}"),
        Err(other) => other.to_string(),
        Ok(_) => panic!("it was let in"),
    }
}

#[test]
fn clients_under_tls_hold_over_failovers_and_clients_without_a_certificate_are_rejected() {
    let (mut cluster, me, cert_files) = found();
    let runtime = runtime();
    let addresses: Vec<String> =
        cluster.addresses().iter().map(|address| format!("https://{address}")).collect();
    let secured = |ca: &PathBuf| Client::builder().addresses(&addresses.join(",")).ca(ca);
    let builder = secured(&me.ca).identity(&me.cert, &me.key).timeout(Duration::from_secs(30));
    let client = runtime.block_on(builder.connect()).unwrap();
    let guard = runtime.block_on(async { client.lock("deploy").await }).unwrap();
    // The client knows the other members only from the first one's answer: it must use TLS for them too.
    let leader = cluster.leader();
    cluster.kill(leader);
    runtime.block_on(client.key("a").put("1")).unwrap();
    guard.check().unwrap();
    runtime.block_on(guard.release()).unwrap();
    start(&mut cluster, leader, &cert_files[leader], &[]);

    let theirs = Authority::new(cluster.dir.path(), "theirs").sign("worker");
    let stranger = secured(&theirs.ca).identity(&me.cert, &me.key);
    assert!(
        refused(stranger).contains("UnknownIssuer"),
        "not signed by an authority that we trust"
    );
    let nameless = refused(secured(&me.ca));
    assert!(!nameless.contains("connected"), "without a certificate: {nameless}");
    let forged = refused(secured(&me.ca).identity(&theirs.cert, &theirs.key));
    assert!(!forged.contains("connected"), "with one of another authority: {forged}");
    let bare: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    let plain = refused(Client::builder().addresses(&bare.join(",")));
    assert!(!plain.contains("connected"), "in plain: {plain}");
    // Contradictory settings are refused before anything is dialled.
    assert!(refused(Client::builder().address("https://a:1")).contains("needs an authority"));
    let both = Client::builder().address("http://a:1").ca(&me.ca);
    assert!(refused(both).contains("in plain"));
    assert!(refused(Client::builder().ca("/nowhere.pem")).contains("/nowhere.pem"));
}
