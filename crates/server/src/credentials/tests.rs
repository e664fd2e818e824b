//! Attacks the verifier of bearer tokens, and reads keys from a server that misbehaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _,
};
use serde_json::{Value, json};
use tenure_core::access::{Issuer, OwnedIssuerKeys};
use tenure_types::Name;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use super::{ServerAuthority, TokenError, TrustedIssuers};

const ISSUER: &str = "https://issuer.example";
const NOW_S: u64 = 1_800_000_000;

enum Signer {
    Ed25519(Ed25519KeyPair),
    Ecdsa(EcdsaKeyPair, &'static str, &'static str),
}

impl Signer {
    fn ed25519(seed: u8) -> Self {
        Self::Ed25519(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm, alg: &'static str) -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).unwrap();
        let curve = if alg == "ES256" { "P-256" } else { "P-384" };
        Self::Ecdsa(pair, alg, curve)
    }

    fn alg(&self) -> &'static str {
        match self {
            Self::Ed25519(_) => "EdDSA",
            Self::Ecdsa(_, alg, _) => alg,
        }
    }

    fn jwk(&self, kid: &str) -> Value {
        let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::Ed25519(pair) => {
                let x = encoded(pair.public_key().as_ref());
                json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x})
            }
            Self::Ecdsa(pair, _, curve) => {
                let (x, y) =
                    pair.public_key().as_ref()[1..].split_at(pair.public_key().as_ref().len() / 2);
                json!({"kty": "EC", "crv": curve, "kid": kid, "x": encoded(x), "y": encoded(y)})
            }
        }
    }

    fn signature(&self, text: &str) -> Vec<u8> {
        match self {
            Self::Ed25519(pair) => pair.sign(text.as_bytes()).as_ref().to_vec(),
            Self::Ecdsa(pair, ..) => {
                pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap().as_ref().to_vec()
            }
        }
    }

    fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({"alg": self.alg(), "kid": "a"}), claims)
    }

    fn token_with(&self, header: &Value, claims: &Value) -> String {
        let text = unsigned(&header.to_string(), &claims.to_string());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(self.signature(&text)))
    }
}

fn unsigned(header: &str, claims: &str) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims))
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": "tenure", "sub": "alice", "exp": NOW_S + 600})
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

/// A public key with this id. The private key follows from the seed.
pub(super) fn key(seed: u8, kid: &str) -> Value {
    Signer::ed25519(seed).jwk(kid)
}

pub(super) fn document(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

fn issuer(keys: OwnedIssuerKeys) -> Issuer {
    Issuer { audience: "tenure".into(), keys, claim: "".into(), prefix: "".into() }
}

fn issuer_of(signer: &Signer) -> Issuer {
    issuer(OwnedIssuerKeys::Jwks(document(&[signer.jwk("a")]).into()))
}

fn trusting(record: &Issuer) -> TrustedIssuers {
    let issuers = TrustedIssuers::new(Handle::current(), ServerAuthority::System);
    issuers.replace([(&Name::new(ISSUER).unwrap(), record)].into_iter());
    issuers
}

fn check(record: &Issuer, token: &str, now_s: u64) -> Result<String, TokenError> {
    let verified = trusting(record).verify(token, now_s)?;
    Ok(verified.principal.as_str().to_owned())
}

/// Verifies a token as the APIs do: waits once for keys that are missing.
async fn verify_waiting(
    issuers: &TrustedIssuers,
    token: &str,
) -> Result<super::jwt::VerifiedToken, TokenError> {
    if let Some(missing) = issuers.missing_keys(token) {
        missing.read().await;
    }
    issuers.verify(token, NOW_S)
}

fn alice() -> Result<String, TokenError> {
    Ok("alice".to_owned())
}

#[tokio::test]
async fn tokens_of_every_kind_of_key_name_their_principal() {
    for signer in [
        Signer::ed25519(1),
        Signer::ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING, "ES256"),
        Signer::ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING, "ES384"),
    ] {
        let record = issuer_of(&signer);
        assert_eq!(check(&record, &signer.token(&claims()), NOW_S), alice());
        let several = with("aud", json!(["other", "tenure"]));
        assert_eq!(check(&record, &signer.token(&several), NOW_S), alice());
        let unnamed = signer.token_with(&json!({"alg": signer.alg()}), &claims());
        assert_eq!(check(&record, &unnamed, NOW_S), alice(), "the only key needs no id");
    }
}

#[tokio::test]
async fn every_claim_is_checked() {
    let signer = Signer::ed25519(1);
    let record = issuer_of(&signer);
    let said = |claims: &Value| check(&record, &signer.token(claims), NOW_S);
    for (claims, why) in [
        (with("iss", json!("https://other.example")), TokenError::Issuer),
        (with("iss", json!("https://issuer.example/")), TokenError::Issuer),
        (without("iss"), TokenError::Malformed),
        (without("aud"), TokenError::Malformed),
        (without("exp"), TokenError::Malformed),
        (without("sub"), TokenError::Unnamed),
        (with("aud", json!("other")), TokenError::Audience),
        (with("aud", json!([])), TokenError::Audience),
        (with("aud", json!({"tenure": true})), TokenError::Malformed),
        (with("exp", json!(NOW_S - 30)), TokenError::Expired),
        (with("exp", json!("9999999999")), TokenError::Malformed),
        (with("exp", json!(-1)), TokenError::Malformed),
        (with("exp", json!(1e300)), TokenError::Malformed),
        (with("nbf", json!(NOW_S + 31)), TokenError::NotYetValid),
        (with("nbf", json!(-0.5)), TokenError::Malformed),
        (with("sub", json!("")), TokenError::Unnamed),
        (with("sub", json!(7)), TokenError::Unnamed),
        (with("sub", json!("a\nb")), TokenError::Unnamed),
        (with("sub", json!("x".repeat(513))), TokenError::Unnamed),
        (with("sub", json!("tenure/member")), TokenError::Unnamed),
    ] {
        assert_eq!(said(&claims), Err(why), "{claims}");
    }
    assert_eq!(said(&with("exp", json!(NOW_S - 29))), alice(), "clocks may differ");
    assert_eq!(said(&with("exp", json!(NOW_S as f64 + 0.5))), alice());
    assert_eq!(said(&with("nbf", json!(NOW_S + 30))), alice());
    let everyone = Issuer { audience: "".into(), ..record.clone() };
    let anyone = signer.token(&with("aud", json!("")));
    assert_eq!(check(&everyone, &anyone, NOW_S), Err(TokenError::Audience));
}

#[tokio::test]
async fn the_operator_chooses_the_claim_and_the_prefix() {
    let signer = Signer::ed25519(1);
    let mut claims = claims();
    claims["kubernetes.io"] = json!({"namespace": "jobs", "serviceaccount": {"name": "worker"}});
    claims["email"] = json!("alice@example.com");
    claims["https://example.com/name"] = json!("al");
    let token = signer.token(&claims);
    let said = |claim: &str, prefix: &str| {
        let record = Issuer { claim: claim.into(), prefix: prefix.into(), ..issuer_of(&signer) };
        check(&record, &token, NOW_S)
    };
    assert_eq!(said("email", ""), Ok("alice@example.com".into()));
    assert_eq!(said("kubernetes.io.serviceaccount.name", "k8s:"), Ok("k8s:worker".into()));
    assert_eq!(said("https://example.com/name", "ci/"), Ok("ci/al".into()));
    for claim in ["kubernetes.io", "kubernetes.io.", ".", "sub.x", "groups", "kubernetes.io.x.y"] {
        assert_eq!(said(claim, ""), Err(TokenError::Unnamed), "{claim}");
    }
    assert_eq!(said("sub", "tenure/"), Err(TokenError::Unnamed));
}

#[tokio::test]
async fn unsigned_and_symmetric_tokens_are_refused() {
    let signer = Signer::ed25519(1);
    let record = issuer_of(&signer);
    for alg in ["none", "None", "", "HS256", "HS384", "HS512", "RS1", "ES256K", "A128KW"] {
        let text = unsigned(&json!({"alg": alg, "kid": "a"}).to_string(), &claims().to_string());
        for token in [format!("{text}."), signer.token_with(&json!({"alg": alg}), &claims())] {
            assert_eq!(check(&record, &token, NOW_S), Err(TokenError::Algorithm), "{alg}");
        }
    }
    // The public key as the secret of an HMAC, which a verifier that trusts `alg` would accept.
    let Signer::Ed25519(pair) = &signer else { unreachable!() };
    let key = hmac::Key::new(hmac::HMAC_SHA256, pair.public_key().as_ref());
    let text = unsigned(r#"{"alg":"HS256","kid":"a"}"#, &claims().to_string());
    let mac = URL_SAFE_NO_PAD.encode(hmac::sign(&key, text.as_bytes()));
    let token = format!("{text}.{mac}");
    assert_eq!(check(&record, &token, NOW_S), Err(TokenError::Algorithm));
}

#[tokio::test]
async fn an_algorithm_of_another_kind_of_key_is_refused() {
    let signer = Signer::ed25519(1);
    let record = issuer_of(&signer);
    for alg in ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384"] {
        let token = signer.token_with(&json!({"alg": alg, "kid": "a"}), &claims());
        assert_eq!(check(&record, &token, NOW_S), Err(TokenError::UnknownKey), "{alg}");
    }
    let mut key = signer.jwk("a");
    key["alg"] = json!("EdDSA");
    let said = issuer(OwnedIssuerKeys::Jwks(document(&[key]).into()));
    assert_eq!(check(&said, &signer.token(&claims()), NOW_S), alice());
}

#[tokio::test]
async fn a_key_that_the_token_brings_does_not_count() {
    let (signer, thief) = (Signer::ed25519(1), Signer::ed25519(2));
    let record = issuer_of(&signer);
    let header = json!({"alg": "EdDSA", "kid": "a", "jwk": thief.jwk("a"),
        "jku": "https://thief.example/keys", "x5u": "https://thief.example/cert"});
    let token = thief.token_with(&header, &claims());
    assert_eq!(check(&record, &token, NOW_S), Err(TokenError::Signature));
    let crit = signer.token_with(&json!({"alg": "EdDSA", "kid": "a", "crit": ["b64"]}), &claims());
    assert_eq!(check(&record, &crit, NOW_S), Err(TokenError::Critical));
}

#[tokio::test]
async fn wrong_and_ambiguous_key_ids_are_refused() {
    let (one, two) = (Signer::ed25519(1), Signer::ed25519(2));
    let keys = [one.jwk("a"), two.jwk("b")];
    let record = issuer(OwnedIssuerKeys::Jwks(document(&keys).into()));
    assert_eq!(check(&record, &one.token(&claims()), NOW_S), alice());
    assert_eq!(check(&record, &two.token(&claims()), NOW_S), Err(TokenError::Signature));
    let header = json!({"alg": "EdDSA", "kid": "../../a"});
    let other = one.token_with(&header, &claims());
    assert_eq!(check(&record, &other, NOW_S), Err(TokenError::UnknownKey));
    let unnamed = one.token_with(&json!({"alg": "EdDSA"}), &claims());
    assert_eq!(check(&record, &unnamed, NOW_S), Err(TokenError::UnknownKey));
    let twice = issuer(OwnedIssuerKeys::Jwks(document(&[one.jwk("a"), two.jwk("a")]).into()));
    for signer in [&one, &two] {
        assert_eq!(check(&twice, &signer.token(&claims()), NOW_S), Err(TokenError::UnknownKey));
    }
    let text = unsigned(r#"{"alg":"EdDSA","kid":"a","kid":"b"}"#, &claims().to_string());
    let doubled = format!("{text}.{}", URL_SAFE_NO_PAD.encode(two.signature(&text)));
    assert_eq!(check(&record, &doubled, NOW_S), Err(TokenError::Malformed));
}

#[tokio::test]
async fn no_byte_of_a_token_can_be_changed_cut_or_added() {
    let signer = Signer::ed25519(1);
    let issuers = trusting(&issuer_of(&signer));
    let token = signer.token(&claims());
    for end in 0..token.len() {
        assert!(issuers.verify(&token[..end], NOW_S).is_err(), "{end} bytes");
    }
    for at in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(issuers.verify(&changed, NOW_S).is_err(), "byte {at}");
    }
    for bad in [
        format!("{token}="),
        format!("{token}."),
        format!(".{token}"),
        format!(" {token}"),
        token.replace('.', ".."),
        String::new(),
        "..".into(),
        "a.b.c".into(),
    ] {
        assert!(issuers.verify(&bad, NOW_S).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn huge_and_deep_tokens_are_refused_before_they_are_read() {
    let signer = Signer::ed25519(1);
    let record = issuer_of(&signer);
    let huge = signer.token(&with("x", json!("y".repeat(16 * 1024))));
    assert_eq!(check(&record, &huge, NOW_S), Err(TokenError::TooLong));
    let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(5_000), "]".repeat(5_000));
    let text = unsigned(r#"{"alg":"EdDSA","kid":"a"}"#, &deep);
    let token = format!("{text}.{}", URL_SAFE_NO_PAD.encode(signer.signature(&text)));
    assert_eq!(check(&record, &token, NOW_S), Err(TokenError::Malformed));
}

#[tokio::test]
async fn an_issuer_that_is_removed_is_trusted_no_more() {
    let signer = Signer::ed25519(1);
    let issuers = trusting(&issuer_of(&signer));
    let token = signer.token(&claims());
    assert!(issuers.verify(&token, NOW_S).is_ok());
    issuers.replace(std::iter::empty());
    assert_eq!(issuers.verify(&token, NOW_S), Err(TokenError::Issuer));
}

/// Serves one answer after the other at an address, the last one from then on. Counts the requests.
pub(super) async fn serve(answers: Vec<String>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let at = counted.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
            let mut buffer = [0; 4_096];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(answers[at].as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    (url, count)
}

pub(super) fn answer(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn keys_at_an_address_are_read_and_an_unknown_id_reads_them_once() {
    let (signer, next) = (Signer::ed25519(1), Signer::ed25519(2));
    let (url, count) = serve(vec![answer(&document(&[signer.jwk("a")]))]).await;
    let issuers = trusting(&issuer(OwnedIssuerKeys::Url(url.into())));
    let token = signer.token(&claims());
    let verified = verify_waiting(&issuers, &token).await.unwrap();
    assert_eq!(verified.principal.as_str(), "alice");
    assert_eq!(verified.expires_s, NOW_S + 630);
    let unknown = next.token_with(&json!({"alg": "EdDSA", "kid": "b"}), &claims());
    for _ in 0..10 {
        let said = verify_waiting(&issuers, &unknown).await;
        assert_eq!(said, Err(TokenError::UnknownKey));
    }
    assert_eq!(count.load(Ordering::SeqCst), 1, "invented ids cause no flood of requests");
    assert!(issuers.verify(&token, NOW_S).is_ok());
}

#[tokio::test]
async fn answers_that_are_no_keys_are_not_used() {
    let signer = Signer::ed25519(1);
    let keys = document(&[signer.jwk("a")]);
    let (elsewhere, reached) = serve(vec![answer(&keys)]).await;
    let padded = format!("{}{keys}", " ".repeat(300 * 1024));
    for bad in [
        format!("HTTP/1.1 302 Found\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\n\r\n"),
        "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
        answer("not keys"),
        answer(&padded),
        "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{".to_owned(),
        "SSH-2.0-OpenSSH\r\n".to_owned(),
        String::new(),
    ] {
        let (url, _) = serve(vec![bad.clone()]).await;
        let issuers = trusting(&issuer(OwnedIssuerKeys::Url(url.into())));
        let said = verify_waiting(&issuers, &signer.token(&claims())).await;
        assert_eq!(said, Err(TokenError::NoKeys), "{:.60}", bad);
    }
    assert_eq!(reached.load(Ordering::SeqCst), 0, "redirects are not followed");
}

#[tokio::test]
async fn a_server_that_never_answers_delays_a_request_by_seconds_only() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let issuers = trusting(&issuer(OwnedIssuerKeys::Url(url.into())));
    let token = Signer::ed25519(1).token(&claims());
    let asked = verify_waiting(&issuers, &token);
    let said = tokio::time::timeout(Duration::from_secs(20), asked).await;
    assert_eq!(said.expect("the wait is bounded"), Err(TokenError::NoKeys));
}
