//! Tests that bearer tokens and client certificates stand for principals, and what a member demands beyond loopback.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use tenure_core::access::{
    AccessChange, IssuerKeys, MEMBER, NewCertificateRule, NewIssuer, NewPrincipal, NewRule,
};
use tenure_core::codec::encode_request;
use tenure_core::request::{Command, Request, RequestId};
use tenure_server::tls::{DialTrust, Dialled, ServerTls, ServerTlsFiles};
use tenure_server::{ServerSettings, StartError, os, start};
use tenure_types::{Quotas, Verb, VerbSet};

use crate::alone::{self, Alone};
use crate::authority::{Authority, CertificateFiles};
use crate::bounded::{DEADLINE, wait};

pub(crate) const ISSUER: &str = "https://issuer.example";

/// Signs tokens with one key.
pub(crate) struct TokenIssuer(Ed25519KeyPair);

impl TokenIssuer {
    pub(crate) fn new(seed: u8) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    pub(crate) fn jwks(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(self.0.public_key().as_ref());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": x}]}).to_string()
    }

    /// A token for a subject that expires so many seconds from now.
    pub(crate) fn token(&self, subject: &str, seconds: i64) -> String {
        let expires = (os::wall_ms() / 1_000).saturating_add_signed(seconds);
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","kid":"a"}"#);
        let claims = json!({"iss": ISSUER, "aud": "tenure", "sub": subject, "exp": expires});
        let text = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = URL_SAFE_NO_PAD.encode(self.0.sign(text.as_bytes()));
        format!("{text}.{signature}")
    }
}

/// A single member, and how a client connects to it.
struct TokenMember {
    member: Alone,
    trust: Option<DialTrust>,
}

impl TokenMember {
    fn start(dir: tempfile::TempDir, settings: ServerSettings, trust: Option<DialTrust>) -> Self {
        let stage = Self { member: Alone::run(dir, settings), trust };
        wait("it leads", || (stage.ask("GET", "/readyz", None, "").0 == 200).then_some(()));
        stage
    }

    fn change(&self, change: AccessChange<'_>) {
        let mut bytes = Vec::new();
        let command = Command::SetAccess(change);
        let request = Request { principal: MEMBER, id: RequestId::None, command };
        encode_request(&request, &mut bytes);
        let member = &self.member.running.member;
        let outcomes = member.submit(vec![Bytes::from(bytes)], Duration::ZERO, DEADLINE);
        assert!(outcomes[0].as_ref().unwrap().result.is_ok(), "{outcomes:?}");
    }

    /// Creates principals that may do everything below `jobs/`, and enables identity.
    fn admit(&self, principals: &[&str]) {
        let verbs = [Verb::Read, Verb::Acquire, Verb::Sign];
        let verbs = verbs.into_iter().fold(VerbSet::default(), VerbSet::with);
        let rules = vec![NewRule { verbs, prefix: "jobs/", priority: 0 }];
        self.change(AccessChange::PutRole { name: "worker", rules });
        for name in principals {
            let (roles, quotas) = (vec!["worker"], Quotas::default());
            self.change(AccessChange::PutPrincipal(NewPrincipal {
                name,
                enabled: true,
                roles,
                quotas,
            }));
        }
        self.change(AccessChange::SetIdentity { enabled: true });
    }

    fn trust_issuer(&self, keys: IssuerKeys<'_>) {
        self.change(AccessChange::PutIssuer(NewIssuer {
            issuer: ISSUER,
            audience: "tenure",
            keys,
            claim: "",
            prefix: "ci:",
        }));
    }

    /// Sends a request and returns the status and the answer.
    fn ask(&self, verb: &str, path: &str, bearer: Option<&str>, body: &str) -> (u16, Value) {
        let port = self.member.running.clients.port();
        let at = SocketAddr::from(([127, 0, 0, 1], port)).to_string();
        let mut stream = Dialled::dial(&at, self.trust.as_ref(), DEADLINE).unwrap();
        let bearer = bearer.map(|it| format!("Authorization: Bearer {it}\r\n")).unwrap_or_default();
        let length = body.len();
        let request = format!(
            "{verb} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n{bearer}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The end of a TLS stream may be missing.
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer: {answer:?}"));
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn post(&self, path: &str, bearer: Option<&str>, body: &Value) -> (u16, Value) {
        self.ask("POST", path, bearer, &body.to_string())
    }

    /// Takes a lock under a new lease. Returns what a ticket for it is asked with.
    fn lock(&self, bearer: Option<&str>, lock: &str) -> Value {
        let (status, granted) = self.post("/v1/leases", bearer, &json!({"ttl_ms": 60_000}));
        assert_eq!(status, 200, "{granted}");
        let lease = granted["lease"].clone();
        let path = format!("/v1/locks/{lock}");
        let (status, held) = self.post(&path, bearer, &json!({"lease": lease}));
        assert_eq!(status, 200, "{held}");
        json!({"lock": lock, "lease": lease, "token": held["token"]})
    }

    /// The principal that a ticket for a held lock names.
    fn signed_for(&self, bearer: Option<&str>, hold: &Value) -> Result<String, Value> {
        let (status, signed) = self.post("/v1/tickets", bearer, hold);
        if status != 200 {
            return Err(signed["error"]["reason"].clone());
        }
        let ticket = signed["ticket"].as_str().unwrap();
        let claims = URL_SAFE_NO_PAD.decode(ticket.split('.').nth(1).unwrap()).unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        Ok(claims["principal"].as_str().unwrap_or_default().to_owned())
    }
}

fn plain() -> TokenMember {
    let dir = tempfile::tempdir().unwrap();
    let settings = alone::settings(dir.path());
    TokenMember::start(dir, settings, None)
}

fn tls(cert_files: &CertificateFiles, client_ca: Option<&Path>) -> Arc<ServerTls> {
    let (cert, key) = (cert_files.cert.clone(), cert_files.key.clone());
    let client_ca = client_ca.map(Path::to_path_buf);
    Arc::new(ServerTls::load(ServerTlsFiles { cert, key, client_ca, member_ca: None }).unwrap())
}

#[test]
fn a_token_acquires_a_lock_and_a_ticket_names_its_principal() {
    let stage = plain();
    let (issuer, thief) = (TokenIssuer::new(1), TokenIssuer::new(2));
    stage.trust_issuer(IssuerKeys::Jwks(&issuer.jwks()));
    stage.admit(&["ci:alice", "ci:bob"]);
    let (alice, bob) = (issuer.token("alice", 600), issuer.token("bob", 600));
    let hold = stage.lock(Some(&alice), "jobs/x");
    assert_eq!(stage.signed_for(Some(&alice), &hold), Ok("ci:alice".into()));
    // Lease and token are in lists and events: they prove nothing.
    assert_eq!(stage.signed_for(Some(&bob), &hold), Err(json!("LEASE_NOT_FOUND")));
    for (what, bearer) in [
        ("no credentials", None),
        ("another key", Some(thief.token("alice", 600))),
        ("expired", Some(issuer.token("alice", -60))),
        ("no such principal", Some(issuer.token("eve", 600))),
        ("no token", Some("a.b.c".to_owned())),
    ] {
        let (status, answer) = stage.post("/v1/leases", bearer.as_deref(), &json!({}));
        assert_eq!(status, 401, "{what}: {answer}");
        assert_eq!(answer["error"]["reason"], "UNAUTHENTICATED", "{what}");
    }
}

#[test]
fn keys_of_an_issuer_are_read_from_its_address() {
    let issuer = TokenIssuer::new(1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let keys = issuer.jwks();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 4_096]);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", keys.len());
            let _ = stream.write_all(format!("{head}{keys}").as_bytes());
        }
    });
    let stage = plain();
    stage.admit(&["ci:alice"]);
    stage.trust_issuer(IssuerKeys::Url(&url));
    // The first request may come before the keys: it waits for them.
    stage.lock(Some(&issuer.token("alice", 600)), "jobs/x");
}

#[test]
fn a_certificate_acquires_a_lock_and_a_token_beside_it_prevails() {
    let dir = tempfile::tempdir().unwrap();
    let cert_files = Authority::new(dir.path(), "ours").sign("m0");
    let clients = Authority::new(dir.path(), "clients");
    let (known, other) = (clients.sign("w1.jobs.example"), clients.sign("eve"));
    let trust = |own: &CertificateFiles| {
        DialTrust::load(&cert_files.ca, Some((&own.cert, &own.key))).unwrap()
    };
    let (trust, other) = (trust(&known), trust(&other));
    let settings = ServerSettings {
        tls: Some(tls(&cert_files, Some(&known.ca))),
        ..alone::settings(dir.path())
    };
    let mut stage = TokenMember::start(dir, settings, Some(trust));
    let issuer = TokenIssuer::new(1);
    stage.trust_issuer(IssuerKeys::Jwks(&issuer.jwks()));
    stage.change(AccessChange::PutCertificateRule(NewCertificateRule {
        name: "workers",
        pattern: "dns:*.jobs.example",
        principal: "worker",
    }));
    stage.admit(&["worker", "ci:alice"]);
    let hold = stage.lock(None, "jobs/x");
    assert_eq!(stage.signed_for(None, &hold), Ok("worker".into()));
    let alice = issuer.token("alice", 600);
    let its = stage.lock(Some(&alice), "jobs/y");
    assert_eq!(stage.signed_for(Some(&alice), &its), Ok("ci:alice".into()));
    assert_eq!(stage.signed_for(None, &its), Err(json!("LEASE_NOT_FOUND")));
    stage.trust = Some(other);
    let (status, answer) = stage.post("/v1/leases", None, &json!({}));
    assert_eq!((status, &answer["error"]["reason"]), (401, &json!("UNAUTHENTICATED")));
}

#[test]
fn beyond_loopback_a_member_demands_tls_and_identity() {
    let dir = tempfile::tempdir().unwrap();
    let cert_files = Authority::new(dir.path(), "ours").sign("m0");
    let open = || ServerSettings { clients: "0.0.0.0:0".into(), ..alone::settings(dir.path()) };
    let refused = |settings| start(settings).err().expect("it does not start");
    let exposed = refused(open());
    assert!(matches!(exposed, StartError::Exposed { .. }), "{exposed}");
    let with_tls = || ServerSettings { tls: Some(tls(&cert_files, None)), ..open() };
    let unidentified = refused(with_tls());
    assert!(matches!(unidentified, StartError::Unidentified { .. }), "{unidentified}");
    for option in ["--tls-client-ca", "--require-identity", "--insecure"] {
        assert!(unidentified.advice().contains(option) && exposed.advice().contains(option));
    }
    let settings = ServerSettings { require_identity: true, ..with_tls() };
    let trust = DialTrust::load(&cert_files.ca, None).unwrap();
    let key = dir.path().join("m0/admin.key");
    let stage = TokenMember::start(dir, settings, Some(trust));
    // The cluster has not enabled identity. The setting of the member refuses callers without credentials by itself.
    let (status, answer) = stage.post("/v1/leases", None, &json!({}));
    assert_eq!((status, &answer["error"]["reason"]), (401, &json!("UNAUTHENTICATED")));
    let key = std::fs::read_to_string(key).unwrap();
    assert_eq!(stage.ask("GET", "/v1/cluster", Some(key.trim_end()), "").0, 200);
}

#[test]
fn an_address_that_presents_wrong_tokens_is_throttled_and_right_ones_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let settings = alone::settings(dir.path());
    let stage = TokenMember::start(dir, settings, None);
    let (issuer, stranger) = (TokenIssuer::new(7), TokenIssuer::new(8));
    stage.trust_issuer(IssuerKeys::Jwks(&issuer.jwks()));
    stage.admit(&["ci:a"]);
    let right = issuer.token("a", 3_600);
    let status = |bearer: &str| stage.ask("GET", "/v1/limits", Some(bearer), "").0;
    assert_eq!(status(&right), 200);
    // Each is another token.
    let mut seconds = 3_600;
    wait("wrong tokens are not verified any more", || {
        seconds += 1;
        let status = status(&stranger.token("a", seconds));
        assert!([401, 503].contains(&status), "{status}");
        (status == 503).then_some(())
    });
    assert_eq!(status(&right), 200, "it was right before");
}
