//! Tests how credentials are resolved, and when they end.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tenure_core::Machine;
use tenure_core::access::{AccessChange, NewCredential, NewPrincipal};
use tenure_types::{Epoch, Quotas};

use super::*;

/// The access rules of one test, and the identity that they are published to.
struct IdentityHarness {
    access: Access,
    identity: Arc<Identity>,
}

impl IdentityHarness {
    fn new() -> Self {
        let mut stage = Self { access: Access::default(), identity: Arc::default() };
        stage.change(&AccessChange::SetIdentity { enabled: true });
        stage.principal(true);
        stage
    }

    fn change(&mut self, change: &AccessChange<'_>) {
        self.access.change(change).unwrap();
        self.identity.publish(&Arc::new(self.access.clone()));
    }

    fn principal(&mut self, enabled: bool) {
        let (roles, quotas) = (Vec::new(), Quotas::default());
        let ana = NewPrincipal { name: "ana", enabled, roles, quotas };
        self.change(&AccessChange::PutPrincipal(ana));
    }

    fn key(&mut self, expires_ms: Option<u64>) -> NewApiKey {
        let key = NewApiKey::random();
        let new =
            NewCredential { principal: "ana", id: &key.id, name: "ci", hash: key.hash, expires_ms };
        self.change(&AccessChange::PutCredential(new));
        key
    }

    fn revoke(&mut self, key: &NewApiKey) {
        self.change(&AccessChange::DeleteCredential { id: &key.id });
    }

    fn resolve(&self, bearer: &str) -> Result<CallerIdentity, Failure> {
        CallerIdentity::resolve(&self.identity, presented(bearer)?)
    }
}

fn presented(bearer: &str) -> Result<Presented, Failure> {
    Presented::default().with_authorization(&format!("Bearer {bearer}"))
}

fn problem(resolved: Result<CallerIdentity, Failure>) -> String {
    let failure = resolved.err().expect("it is refused");
    assert_eq!(failure.reason(), "UNAUTHENTICATED");
    failure.to_string()
}

#[test]
fn a_key_stands_for_its_principal_until_it_expires_or_is_revoked() {
    let mut stage = IdentityHarness::new();
    let key = stage.key(None);
    assert_eq!(
        stage.resolve(&key.text).unwrap_or_else(|it| panic!("{it}")).principal().name(),
        "ana"
    );
    let wrong = NewApiKey::with_id(key.id.clone());
    assert!(problem(stage.resolve(&wrong.text)).contains("unknown"));
    assert!(problem(stage.resolve(&NewApiKey::random().text)).contains("unknown"));
    let expired = stage.key(Some(1));
    assert!(problem(stage.resolve(&expired.text)).contains("expired"));
    stage.principal(false);
    assert!(problem(stage.resolve(&key.text)).contains("disabled"));
    stage.principal(true);
    stage.revoke(&key);
    assert!(problem(stage.resolve(&key.text)).contains("revoked"));
}

#[test]
fn without_credentials_a_caller_is_anyone_only_while_identity_is_disabled() {
    let mut stage = IdentityHarness::new();
    let certificate = Some(PeerCertificate::new(b"der"));
    let certificate = Presented { certificate, ..Presented::default() };
    for presented in [Presented::default(), certificate.clone()] {
        assert!(CallerIdentity::resolve(&stage.identity, presented).is_err());
    }
    stage.change(&AccessChange::SetIdentity { enabled: false });
    for presented in [Presented::default(), certificate] {
        let caller = CallerIdentity::resolve(&stage.identity, presented);
        assert_eq!(caller.map(|it| it.principal().clone()), Ok(Principal::anyone()));
    }
    assert!(problem(stage.resolve(&NewApiKey::random().text)).contains("unknown"), "also then");
}

#[test]
fn the_local_key_stands_for_the_member_and_no_record_can_take_its_id() {
    let mut stage = IdentityHarness::new();
    let dir = tempfile::tempdir().unwrap();
    let text = |dir: &tempfile::TempDir| {
        let text = std::fs::read_to_string(dir.path().join(local_key::FILE)).unwrap();
        text.trim_end().to_owned()
    };
    let taken = NewApiKey::with_id(local_key::ID.to_owned());
    let (id, hash) = (&*taken.id, taken.hash);
    let new = NewCredential { principal: "ana", id, name: "ci", hash, expires_ms: None };
    stage.change(&AccessChange::PutCredential(new));
    assert!(stage.resolve(&taken.text).is_err());
    stage.identity.open(dir.path()).unwrap();
    let member = stage.resolve(&text(&dir)).map(|it| it.principal().clone());
    assert_eq!(member, Ok(Principal::member()));
    assert!(stage.resolve(&taken.text).is_err());
}

#[test]
fn equal_rules_are_published_once() {
    let identity = Identity::default();
    let machine = Machine::new(Epoch::MAX);
    identity.publish(machine.shared_access());
    let first = identity.published().generation;
    identity.publish(machine.shared_access());
    assert_eq!(identity.published().generation, first);
    identity.publish(Machine::new(Epoch::MAX).shared_access());
    assert_eq!(identity.published().generation, first + 1);
}

#[tokio::test]
async fn the_work_of_a_caller_ends_with_its_credentials() {
    const LONG: Duration = Duration::from_secs(30);
    let mut stage = IdentityHarness::new();
    let (key, other) = (stage.key(None), stage.key(None));
    let (caller, stays) =
        (stage.resolve(&key.text).ok().unwrap(), stage.resolve(&other.text).ok().unwrap());
    let ended = tokio::spawn({
        let caller = caller.clone();
        async move { caller.ended().await }
    });
    stage.revoke(&key);
    let failure = tokio::time::timeout(LONG, ended).await.unwrap().unwrap();
    assert!(failure.to_string().contains("revoked"), "{failure}");
    // A caller that begins to wait after the change is told as well.
    assert_eq!(tokio::time::timeout(LONG, caller.ended()).await, Ok(failure));
    tokio::select! {
        biased;
        failure = stays.ended() => panic!("{failure}"),
        () = tokio::task::yield_now() => {}
    }
    stage.principal(false);
    assert!(
        tokio::time::timeout(LONG, stays.ended()).await.unwrap().to_string().contains("disabled")
    );
    stage.principal(true);
    let expires_ms = os::wall_ms() + 50;
    let soon = stage.key(Some(expires_ms));
    let caller = stage.resolve(&soon.text).ok().unwrap();
    let failure = tokio::time::timeout(LONG, caller.ended()).await.unwrap();
    assert!(failure.to_string().contains("expired") && os::wall_ms() >= expires_ms, "{failure}");
}

/// Signs in. Returns the headers of the requests of that session.
fn sign_in(identity: &Identity, key: &NewApiKey) -> HeaderMap {
    let cookie = identity.console().begin("ana", presented(&key.text).ok().unwrap(), os::now_us());
    let pair = cookie.to_str().unwrap().split_once(';').unwrap().0;
    let mut headers = HeaderMap::new();
    headers.insert(http::header::COOKIE, HeaderValue::from_str(pair).unwrap());
    headers.insert(console::HEADER, HeaderValue::from_static("1"));
    headers
}

#[tokio::test]
async fn the_work_of_a_session_of_the_console_ends_with_it() {
    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(50);
    let mut stage = IdentityHarness::new();
    let key = stage.key(None);
    let caller = |stage: &IdentityHarness, headers: &HeaderMap| {
        let presented = stage.identity.console().presented(headers, os::now_us())?;
        CallerIdentity::resolve(&stage.identity, presented).ok()
    };
    for (life, idle) in [(SHORT, LONG), (LONG, SHORT)] {
        let console = ConsoleSessions::lasting(life, idle);
        stage.identity = Arc::new(Identity { console, ..Identity::default() });
        stage.identity.publish(&Arc::new(stage.access.clone()));
        let began_us = os::now_us();
        // On a busy machine a session may be over before its first request.
        let mut signed_in =
            std::iter::repeat_with(|| caller(&stage, &sign_in(&stage.identity, &key)));
        let caller = signed_in.find_map(|caller| caller).unwrap();
        let failure = tokio::time::timeout(LONG, caller.ended()).await.unwrap();
        assert!(failure.to_string().contains("session of the console has ended"), "{failure}");
        assert!(os::now_us() - began_us >= os::micros(SHORT));
    }
    stage.identity = Arc::default();
    stage.identity.publish(&Arc::new(stage.access.clone()));
    let (leaves, stays) = (sign_in(&stage.identity, &key), sign_in(&stage.identity, &key));
    let ended = tokio::spawn({
        let caller = caller(&stage, &leaves).unwrap();
        async move { caller.ended().await }
    });
    let stays = caller(&stage, &stays).unwrap();
    tokio::task::yield_now().await;
    assert_eq!(stage.identity.waiting(), 1, "it waits before the session ends");
    stage.identity.end_session(&leaves);
    let failure = tokio::time::timeout(LONG, ended).await.unwrap().unwrap();
    assert!(failure.to_string().contains("session of the console has ended"), "{failure}");
    tokio::select! {
        biased;
        failure = stays.ended() => panic!("{failure}"),
        () = tokio::task::yield_now() => {}
    }
}

#[test]
fn the_cache_never_outlives_a_change_and_never_mixes_callers() {
    let mut stage = IdentityHarness::new();
    let key = stage.key(None);
    let (cache, throttle) = (IdentityCache::default(), AuthThrottle::default());
    let with = |texts: &[&str]| {
        let mut headers = HeaderMap::new();
        for text in texts {
            let value = HeaderValue::from_str(&format!("Bearer {text}")).unwrap();
            headers.append(http::header::AUTHORIZATION, value);
        }
        headers
    };
    let ok = |stage: &IdentityHarness, headers: &HeaderMap| {
        let resolved = cache.resolve(&stage.identity, headers, None, &throttle);
        resolved.is_ok_and(|it| it.principal().name() == "ana")
    };
    assert!(ok(&stage, &with(&[&key.text])) && ok(&stage, &with(&[&key.text])));
    assert!(!ok(&stage, &with(&[])));
    assert!(!ok(&stage, &with(&[&key.text, &key.text])), "two headers");
    assert!(!ok(&stage, &with(&[&NewApiKey::random().text])));
    assert!(ok(&stage, &with(&[&key.text])));
    stage.revoke(&key);
    assert!(!ok(&stage, &with(&[&key.text])));
}
