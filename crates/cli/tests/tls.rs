//! Tests which members and clients get in under TLS, and that others do not disturb the cluster.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::authority::{Authority, CertificateFiles};
use crate::common::{Cluster, Process, TENURE, field, tenure, wait};
use tenure_server::tls::DialTrust;

/// Three members that use certificates.
fn found(name: &str) -> (Cluster, Authority, Vec<CertificateFiles>) {
    let mut cluster = Cluster::new();
    let authority = Authority::new(cluster.dir.path(), name);
    cluster.trust = Some(DialTrust::load(&authority.sign("somebody").ca, None).unwrap());
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
    (cluster, authority, cert_files)
}

fn start(cluster: &mut Cluster, at: usize, cert_files: &CertificateFiles, more: &[&str]) {
    let flags = cert_files.flags();
    let flags: Vec<_> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    cluster.start(at, &flags);
}

fn words(cluster: &Cluster, at: usize) -> String {
    cluster.members[at].process.as_ref().unwrap().words()
}

/// Waits until one of these members has logged something.
fn one_member_logs(cluster: &Cluster, others: &[usize], what: &str) {
    wait(what, || others.iter().any(|at| words(cluster, *at).contains(what)).then_some(()));
}

#[test]
fn members_under_certificates_survive_their_leader_and_let_another_one_in() {
    let (mut cluster, authority, cert_files) = found("ours");
    cluster.ok("lease 7 60000 worker");
    let token = field(&cluster.ok("lock 7 deploy"), "token");
    assert!(token.is_some());
    let leader = cluster.leader();
    cluster.kill(leader);
    assert!(cluster.ok("locks").contains("deploy held client=worker"));
    // A backup is taken under TLS too, and a client without an authority gets none.
    let file = cluster.dir.path().join("backup");
    let address = cluster.address(cluster.leader()).to_string();
    let plain = ["backup", file.to_str().unwrap(), "--addr", &address];
    assert_eq!(tenure(&plain).code, Some(69));
    assert!(!file.exists());
    let trusting = [&plain[..], &["--tls-ca", cert_files[0].ca.to_str().unwrap()]].concat();
    let taken = tenure(&trusting);
    assert!(taken.code == Some(0) && file.exists(), "{}", taken.err);
    // So do all other commands. They show no certificate, because these members do not require one.
    let ca = cert_files[0].ca.to_str().unwrap();
    let locks = tenure(&["locks", "--addr", &address, "--tls-ca", ca]);
    assert!(locks.code == Some(0) && locks.out.contains("worker"), "{}{}", locks.out, locks.err);
    let status = tenure(&["cluster", "status", "--addr", &address, "--tls-ca", ca]);
    // Each member reports the state of its disk, under TLS.
    let told =
        status.out.lines().filter(|line| line.contains("ms ") && !line.contains("dead")).count();
    assert!(status.code == Some(1) && told == 2, "{}{}", status.out, status.err);
    let short = ["--addr", &address, "--connect-timeout", "500ms"];
    assert_eq!(tenure(&[&["locks"], &short[..]].concat()).code, Some(69), "not in plain");
    start(&mut cluster, leader, &cert_files[leader], &[]);
    let joiner = cluster.add();
    let seed = format!("127.0.0.1:{}", cluster.members[0].members);
    let its = authority.sign(&cluster.members[joiner].name);
    let added = tenure(&["cluster", "add", "m4", "--addr", &address, "--tls-ca", ca]);
    let tls = "--tls-cert CERT --tls-key KEY --tls-member-ca CA --join ";
    assert!(added.out.contains(tls), "{}{}", added.out, added.err);
    let invited = tenure(&["cluster", "invite", "--addr", &address, "--tls-ca", ca]);
    assert_eq!(invited.code, Some(0), "{}", invited.err);
    let file = cluster.dir.path().join("invitation");
    std::fs::write(&file, &invited.out).unwrap();
    let joining = ["--join", &seed, "--invitation-file", file.to_str().unwrap()];
    start(&mut cluster, joiner, &its, &joining);
    let id = cluster.id(joiner);
    cluster.ok("put key value");
    cluster.agree(&[0, 1, 2, joiner]);
    cluster.ok(&format!("promote {id}"));
    assert!(cluster.ok("members").contains(&format!("[{id} follower name=m3")));
}

#[test]
fn certificates_and_address_come_from_flags_else_variables_else_the_file() {
    let mut cluster = Cluster::new();
    let dir = cluster.dir.path().to_path_buf();
    let (ours, theirs) = (Authority::new(&dir, "ours"), Authority::new(&dir, "theirs"));
    let clients = Authority::new(&dir, "clients");
    let (good, bad) = (clients.sign("ana").trusting(&ours), theirs.sign("ana"));
    cluster.trust = Some(DialTrust::load(&good.ca, Some((&good.cert, &good.key))).unwrap());
    cluster.add();
    let cert_files = ours.sign(&cluster.members[0].name);
    let listed = format!("m0=127.0.0.1:{}", cluster.members[0].members);
    let ca = clients.ca();
    start(&mut cluster, 0, &cert_files, &["--bootstrap", &listed, "--tls-client-ca", &ca]);
    cluster.leader();
    let address = cluster.address(0).to_string();

    let places = [(&good, address.as_str()), (&bad, "127.0.0.1:1")];
    let run = |file: Option<usize>, variables: Option<usize>, flags: Option<usize>| {
        let mut command = std::process::Command::new(TENURE);
        command.env_clear().args(["locks", "--connect-timeout"]);
        // Only the right settings get a long timeout; the wrong ones need not wait.
        let right = flags.or(variables).or(file) == Some(0);
        command.arg(if right { "30s" } else { "300ms" });
        let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
        let all = |at: usize| {
            let (cert_files, address) = places[at];
            [
                address.to_owned(),
                text(&cert_files.ca),
                text(&cert_files.cert),
                text(&cert_files.key),
            ]
        };
        if let Some([addr, ca, cert, key]) = file.map(all) {
            let path = dir.join("client.toml");
            let tls = format!("ca = {ca:?}\ncert = {cert:?}\nkey = {key:?}");
            std::fs::write(&path, format!("addr = {addr:?}\n[tls]\n{tls}\n")).unwrap();
            command.env("TENURE_CLIENT_CONFIG", path);
        }
        if let Some(values) = variables.map(all) {
            let names = ["TENURE_ADDR", "TENURE_CA", "TENURE_CERT", "TENURE_KEY"];
            command.envs(names.into_iter().zip(values));
        }
        if let Some(values) = flags.map(all) {
            let names = ["--addr", "--tls-ca", "--tls-cert", "--tls-key"];
            command.args(names.into_iter().zip(&values).flat_map(|(name, it)| [name, it]));
        }
        command.output().unwrap().status.code()
    };
    let (right, wrong) = (Some(0), Some(1));
    for (file, variables, flags, code) in [
        (right, None, None, 0),
        (wrong, None, None, 69),
        (wrong, right, None, 0),
        (right, wrong, None, 69),
        (wrong, wrong, right, 0),
        (right, right, wrong, 69),
    ] {
        assert_eq!(run(file, variables, flags), Some(code), "{file:?} {variables:?} {flags:?}");
    }
}

#[test]
fn a_client_with_tls_at_a_port_without_it_and_the_reverse_are_told_so() {
    let (cluster, _, cert_files) = found("ours");
    let address = cluster.address(cluster.leader()).to_string();
    // Longer than the test waits.
    let long = ["--connect-timeout", "10m"];
    let plain = tenure(&[&["locks", "--addr", &address][..], &long].concat());
    assert_eq!(plain.code, Some(69), "{}", plain.err);
    let said = format!("error: cannot connect to {address}: it accepts only TLS\n");
    assert!(
        plain.err.starts_with(&said) && plain.err.contains("try      --tls-ca"),
        "{}",
        plain.err
    );
    let bare = Cluster::found(1);
    let (address, ca) = (bare.address(0).to_string(), cert_files[0].ca.to_str().unwrap());
    let tls = tenure(&[&["locks", "--addr", &address, "--tls-ca", ca][..], &long].concat());
    assert_eq!(tls.code, Some(69), "{}", tls.err);
    let said = format!("error: cannot connect to {address}: it does not accept TLS\n");
    assert!(
        tls.err.starts_with(&said) && tls.err.contains("try      the same without"),
        "{}",
        tls.err
    );
}

#[test]
fn who_shows_a_certificate_of_another_member_is_refused_and_the_others_go_on() {
    let (mut cluster, authority, cert_files) = found("ours");
    let stolen = (cluster.leader() + 1) % 3;
    let others: Vec<_> = (0..3).filter(|at| *at != stolen).collect();
    cluster.kill(stolen);
    cluster.ok("put key value");
    // The member's data, with the name and certificate of another member.
    let real = std::mem::replace(&mut cluster.members[stolen].name, "m9".into());
    std::fs::rename(cluster.dir.path().join(&real), cluster.data(stolen)).unwrap();
    start(&mut cluster, stolen, &authority.sign("m9"), &["--rename"]);
    let why = format!("its certificate names `m9`, not the member `{real}`");
    one_member_logs(&cluster, &others, &why);
    cluster.ok("put key another");
    cluster.agree(&others);
    let behind = cluster.ask(stolen, "status").unwrap();
    assert!(behind.contains("leader=none"), "{behind}");
    cluster.kill(stolen);
    std::fs::rename(cluster.data(stolen), cluster.dir.path().join(&real)).unwrap();
    cluster.members[stolen].name = real;
    start(&mut cluster, stolen, &cert_files[stolen], &["--rename"]);
    cluster.agree(&[0, 1, 2]);

    // A certificate that names another member is refused at the start.
    let at = cluster.add();
    start(&mut cluster, at, &cert_files[0], &["--join", "127.0.0.1:1"]);
    let ended = cluster.members[at].process.as_mut().unwrap().ended();
    assert_eq!(ended.code(), Some(78));
    assert!(
        words(&cluster, at).contains("names `m0`, not this member, `m3`"),
        "{}",
        words(&cluster, at)
    );
}

#[test]
fn another_authority_is_refused_and_the_others_go_on() {
    let (mut cluster, authority, _) = found("ours");
    let theirs = Authority::new(cluster.dir.path(), "theirs");
    let at = cluster.add();
    let mut cert_files = theirs.sign("m3");
    // This member trusts both authorities; no other member trusts its certificate.
    cert_files.ca = authority.and(&theirs);
    let seed = format!("127.0.0.1:{}", cluster.members[0].members);
    start(&mut cluster, at, &cert_files, &["--join", &seed]);
    one_member_logs(&cluster, &[0], "invalid peer certificate: UnknownIssuer");
    cluster.kill(at);
    // A member that trusts only its own authority does not connect to the cluster.
    start(
        &mut cluster,
        at,
        &theirs.sign("m3"),
        &["--bootstrap", &format!("m3=127.0.0.1:1,m0={seed}")],
    );
    one_member_logs(&cluster, &[at], "invalid peer certificate: UnknownIssuer");
    cluster.ok("put key value");
    cluster.agree(&[0, 1, 2]);
    assert!(cluster.ok("members").starts_with("ok count=3 "));
}

#[test]
fn peers_that_speak_in_plain_or_not_at_all_are_cut_off_and_keep_no_member_out() {
    let (mut cluster, _, cert_files) = found("ours");
    let away = (cluster.leader() + 1) % 3;
    let here = (away + 1) % 3;
    cluster.kill(away);
    let port = cluster.members[here].members;
    // More silent connections than a member lets wait.
    let silent: Vec<_> =
        (0..100).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.write_all(b"\x05\0\0\0who 1").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("i-am"), "{answer:?}");
    one_member_logs(&cluster, &[here], "a connection was refused");
    start(&mut cluster, away, &cert_files[away], &[]);
    cluster.ok("put key value");
    cluster.agree(&[0, 1, 2]);
    for mut one in silent {
        match one.read(&mut [0; 1]) {
            Ok(read) => assert_eq!(read, 0, "it hangs up without a word"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
}

#[test]
fn certificates_that_do_not_fit_are_found_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let ours = Authority::new(dir.path(), "ours");
    let theirs = Authority::new(dir.path(), "theirs");
    let data = dir.path().join("data");
    let check = |cert_files: &CertificateFiles| {
        let said = dir.path().join("said");
        let _ = std::fs::remove_file(&said);
        let flags = cert_files.flags();
        let mut arguments =
            vec!["config", "check", "--name", "m0", "--data", data.to_str().unwrap()];
        arguments.extend(flags.iter().map(String::as_str));
        let mut process = Process::start(&said, &arguments);
        (process.ended().code(), process.words())
    };
    let good = ours.sign("m0");
    assert_eq!(check(&good), (Some(0), String::new()));
    let (cert, key, ca) = (good.cert.clone(), good.key.clone(), good.ca.clone());
    let other = theirs.sign("m0");
    for (cert_files, why) in [
        (
            CertificateFiles { cert: cert.clone(), key: other.key.clone(), ca: ca.clone() },
            "cannot be used together",
        ),
        (
            CertificateFiles { cert: other.cert, key: other.key, ca: ca.clone() },
            "would be refused by other members",
        ),
        (
            CertificateFiles { cert: key.clone(), key: key.clone(), ca: ca.clone() },
            "holds no certificate",
        ),
        (CertificateFiles { cert, key: ca.clone(), ca }, "holds no private key"),
        (ours.sign("m1"), "not this member, `m0`"),
    ] {
        let (code, said) = check(&cert_files);
        assert!(code == Some(78) && said.contains(why), "{code:?} {said}");
    }
}
