//! Tests that every forgery is refused, each for a reason of its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use tenure_types::Revision;

use super::cache::Cache;
use super::{BadSet, Forged, KeySet, Resource, TICKET_BYTES_MAX, Ticket, Tickets};
use crate::claim::{Claim, Incarnation, Mode};
use crate::reason::TicketReason;
use crate::rule::{Floor, Touch};

const CLUSTER: &str = "5f3a0000000000000000000000000001";
const TOKEN: u64 = (2 << 48) | 1_043;

struct SigningMember {
    id: &'static str,
    pair: Ed25519KeyPair,
}

impl SigningMember {
    fn new(id: &'static str, seed: u8) -> Self {
        Self { id, pair: Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap() }
    }

    fn jwk(&self) -> Value {
        json!({
            "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": self.id,
            "x": encoded(self.pair.public_key().as_ref()),
            "member_id": "7", "epoch": 2, "incarnation": "00000000000000af",
        })
    }

    fn header(&self) -> Value {
        json!({"alg": "EdDSA", "kid": self.id, "typ": "tenure-ticket+jwt"})
    }

    fn sign(&self, claims: &Value) -> String {
        self.sign_under(&self.header(), claims)
    }

    fn sign_under(&self, header: &Value, claims: &Value) -> String {
        let signed = signed(header, claims);
        let signature = self.pair.sign(signed.as_bytes());
        format!("{signed}.{}", encoded(signature.as_ref()))
    }
}

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn signed(header: &Value, claims: &Value) -> String {
    format!("{}.{}", encoded(header.to_string().as_bytes()), encoded(claims.to_string().as_bytes()))
}

fn claims() -> Value {
    json!({
        "iss": CLUSTER, "epoch": 2, "incarnation": "00000000000000af", "lock": "ledger",
        "mode": "exclusive", "token": TOKEN.to_string(), "lease": "77", "holder": "ana",
    })
}

/// The usual claims with some of them replaced.
fn with(changes: &Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

fn set_of(members: &[&SigningMember]) -> KeySet {
    set(members, 2, "00000000000000af")
}

fn set(members: &[&SigningMember], epoch: u16, incarnation: &str) -> KeySet {
    let keys: Vec<Value> = members.iter().map(|member| member.jwk()).collect();
    let set = json!({"cluster": CLUSTER, "epoch": epoch, "incarnation": incarnation, "keys": keys});
    KeySet::parse(&set.to_string()).unwrap()
}

fn ledger() -> Resource<'static> {
    Resource::new("ledger").exclusive().holder("ana")
}

/// A ticket for the lock `ledger`, and keys that verify it.
#[cfg(feature = "http")]
pub(super) fn a_ticket_and_its_keys() -> (String, KeySet) {
    let a = SigningMember::new("a", 1);
    (a.sign(&claims()), set_of(&[&a]))
}

/// Every text that those keys do not prove for that lock, by name and with the reason.
#[cfg(feature = "http")]
pub(super) fn forged_tickets() -> Vec<(&'static str, String, &'static str)> {
    let (a, b) = (SigningMember::new("a", 1), SigningMember::new("b", 2));
    let all = forgeries(&a, &b, &b).into_iter();
    // A layer is for one whole lock and for any holder, and has never seen another key.
    let plain = all.filter(|(_, _, resource, reason)| {
        *resource == Resource::new("ledger") && *reason != "TICKET_KEY_RETIRED"
    });
    // An HTTP header cannot be empty like this.
    plain
        .filter(|(name, ..)| *name != "nothing")
        .map(|(name, text, _, reason)| (name, text, reason))
        .collect()
}

#[test]
fn a_ticket_proves_its_principal_where_it_names_one() {
    let a = SigningMember::new("a", 1);
    let tickets = Tickets::new(set_of(&[&a]));
    let plain = tickets.check(&a.sign(&claims()), &ledger()).unwrap();
    assert_eq!(plain.principal, None);
    let named = a.sign(&with(&json!({"principal": "payments"})));
    let ticket = tickets.check(&named, &ledger().principal("payments")).unwrap();
    assert_eq!(ticket.principal.as_deref(), Some("payments"));
    // The cache holds the ticket now, and the next resource is still compared with it.
    let other = tickets.check(&named, &ledger().principal("ci")).unwrap_err();
    assert_eq!(other.to_string(), "the lease belongs to `payments`, not to `ci`");
}

#[test]
fn a_ticket_proves_what_it_says() {
    let a = SigningMember::new("a", 1);
    let tickets = Tickets::new(set_of(&[&a]));
    let text = a.sign(&claims());
    for _ in 0..2 {
        let ticket = tickets.check(&text, &ledger()).unwrap();
        let Ticket { lock, slot, mode, lease, holder, key, .. } = &*ticket;
        assert_eq!(
            (&**lock, *slot, *mode, *lease, &**holder, &**key),
            ("ledger", None, Mode::Exclusive, 77, "ana", "a")
        );
        let claim = ticket.claim();
        assert_eq!(claim, Claim::new(ticket.token).incarnation(Incarnation(0xaf)));
        assert!(Floor::default().admit(claim, Touch::Write).is_ok());
    }
    let shared = a.sign(&with(&json!({"mode": "shared"})));
    let ticket = tickets.check(&shared, &Resource::new("ledger")).unwrap();
    assert_eq!(ticket.claim().mode, Mode::Shared);
    let slot = a.sign(&with(&json!({"mode": "slot", "slot": 3})));
    assert_eq!(
        tickets.check(&slot, &Resource::new(("ledger", 3)).exclusive()).unwrap().slot,
        Some(3)
    );
    // Unknown claims, which a later version may add, are ignored.
    let more = a.sign(&with(&json!({"more": [1]})));
    assert!(tickets.check(&more, &ledger()).is_ok());
}

/// Every forgery, by name: the text, the resource it is presented to, and the reason.
fn forgeries(
    a: &SigningMember,
    b: &SigningMember,
    gone: &SigningMember,
) -> Vec<(&'static str, String, Resource<'static>, &'static str)> {
    let good = a.sign(&claims());
    let (head, signature) = good.rsplit_once('.').unwrap();
    let rest = head.split_once('.').unwrap().1;
    let altered = signed(&a.header(), &with(&json!({"token": (TOKEN + 1).to_string()})));
    let unsigned =
        signed(&json!({"alg": "none", "kid": "a", "typ": "tenure-ticket+jwt"}), &claims());
    // The public key, which is known to all, used as an HMAC secret.
    let secret = hmac::Key::new(hmac::HMAC_SHA256, a.pair.public_key().as_ref());
    let confused =
        signed(&json!({"alg": "HS256", "kid": "a", "typ": "tenure-ticket+jwt"}), &claims());
    let confused_by = hmac::sign(&secret, confused.as_bytes());
    // The same under the name of the right algorithm.
    let disguised = hmac::sign(&secret, head.as_bytes());
    let mut flipped = URL_SAFE_NO_PAD.decode(signature).unwrap();
    flipped[10] ^= 1;
    let jwk = json!({"alg": "EdDSA", "kid": "mine", "typ": "tenure-ticket+jwt", "jwk": b.jwk()});
    let other_typ = json!({"alg": "EdDSA", "kid": "a", "typ": "JWT"});
    let sign = |changes: Value| a.sign(&with(&changes));
    let any = Resource::new("ledger");
    vec![
        ("altered token", format!("{altered}.{signature}"), any, "TICKET_SIGNATURE"),
        (
            "a bit of the signature flipped",
            format!("{head}.{}", encoded(&flipped)),
            any,
            "TICKET_SIGNATURE",
        ),
        (
            "half a signature",
            format!("{head}.{}", encoded(&flipped[..32])),
            any,
            "TICKET_SIGNATURE",
        ),
        (
            "signed by another key under this name",
            b.sign_under(&a.header(), &claims()),
            any,
            "TICKET_SIGNATURE",
        ),
        (
            "a MAC with the public key, called EdDSA",
            format!("{head}.{}", encoded(disguised.as_ref())),
            any,
            "TICKET_SIGNATURE",
        ),
        (
            "a MAC with the public key",
            format!("{confused}.{}", encoded(confused_by.as_ref())),
            any,
            "TICKET_ALGORITHM",
        ),
        ("no algorithm", format!("{unsigned}."), any, "TICKET_ALGORITHM"),
        ("stripped signature", format!("{head}."), any, "TICKET_UNSIGNED"),
        ("unknown key", b.sign(&claims()), any, "TICKET_KEY_UNKNOWN"),
        ("retired key", gone.sign(&claims()), any, "TICKET_KEY_RETIRED"),
        ("a key of its own in the header", b.sign_under(&jwk, &claims()), any, "NOT_A_TICKET"),
        ("another kind of token", a.sign_under(&other_typ, &claims()), any, "NOT_A_TICKET"),
        ("other cluster", sign(json!({"iss": "another"})), any, "TICKET_OTHER_CLUSTER"),
        (
            "old epoch",
            sign(json!({"epoch": 1, "token": ((1_u64 << 48) | 9).to_string()})),
            any,
            "TICKET_OLD_EPOCH",
        ),
        (
            "newer epoch",
            sign(json!({"epoch": 3, "token": ((3_u64 << 48) | 9).to_string()})),
            any,
            "TICKET_NEWER_EPOCH",
        ),
        (
            "other incarnation",
            sign(json!({"incarnation": "00000000000000ae"})),
            any,
            "TICKET_OTHER_INCARNATION",
        ),
        ("other lock", sign(json!({"lock": "ledger2"})), any, "TICKET_OTHER_LOCK"),
        (
            "no slot where there is one",
            good.clone(),
            Resource::new(("ledger", 0)),
            "TICKET_OTHER_SLOT",
        ),
        (
            "a slot where there is none",
            sign(json!({"mode": "slot", "slot": 0})),
            any,
            "TICKET_OTHER_SLOT",
        ),
        (
            "other slot",
            sign(json!({"mode": "slot", "slot": 1})),
            Resource::new(("ledger", 0)),
            "TICKET_OTHER_SLOT",
        ),
        ("wrong mode", sign(json!({"mode": "shared"})), any.exclusive(), "TICKET_SHARED"),
        (
            "other principal",
            sign(json!({"principal": "ci"})),
            any.principal("payments"),
            "TICKET_OTHER_PRINCIPAL",
        ),
        ("no principal", sign(json!({})), any.principal("payments"), "TICKET_OTHER_PRINCIPAL"),
        ("an empty principal", sign(json!({"principal": ""})), any, "NOT_A_TICKET"),
        ("other holder", sign(json!({"holder": "ben"})), any.holder("ana"), "TICKET_OTHER_HOLDER"),
        ("token of another epoch", sign(json!({"token": "9"})), any, "NOT_A_TICKET"),
        ("token as a number", sign(json!({"token": TOKEN})), any, "NOT_A_TICKET"),
        ("no token", sign(json!({"token": null})), any, "NOT_A_TICKET"),
        ("a slot without its mode", sign(json!({"slot": 3})), any, "NOT_A_TICKET"),
        ("an impossible lock", sign(json!({"lock": "a\nb"})), any, "NOT_A_TICKET"),
        ("a bare number", TOKEN.to_string(), any, "NOT_A_TICKET"),
        ("nothing", String::new(), any, "NOT_A_TICKET"),
        ("garbage", "ey.ey.ey".to_owned(), any, "NOT_A_TICKET"),
        ("four parts", format!("{good}.{signature}"), any, "NOT_A_TICKET"),
        (
            "padded",
            format!("{}=.{rest}.{signature}", head.split_once('.').unwrap().0),
            any,
            "NOT_A_TICKET",
        ),
        ("no base64", format!("{head}.***"), any, "NOT_A_TICKET"),
        ("far too long", format!("{good}{}", "A".repeat(TICKET_BYTES_MAX)), any, "TICKET_TOO_LONG"),
    ]
}

#[test]
fn every_forgery_is_refused_for_its_own_reason() {
    let (a, b, gone) =
        (SigningMember::new("a", 1), SigningMember::new("b", 2), SigningMember::new("gone", 3));
    let tickets = Tickets::new(set_of(&[&a, &gone]));
    // Also after the honest ticket was cached.
    for _ in 0..2 {
        tickets.check(&gone.sign(&claims()), &ledger()).unwrap();
        tickets.check(&a.sign(&claims()), &ledger()).unwrap();
        tickets.update(set_of(&[&a])).unwrap();
        let mut reasons = BTreeSet::new();
        for (name, text, resource, reason) in forgeries(&a, &b, &gone) {
            let forged = tickets.check(&text, &resource).expect_err(name);
            assert_eq!(forged.reason(), reason, "{name}: {forged}");
            reasons.insert(reason);
        }
        let every: BTreeSet<_> = TicketReason::ALL.iter().map(|it| it.row().reason).collect();
        assert_eq!(reasons, every, "every row of the table is said");
        // If sets carry no revision, a key that comes back is not retired.
        tickets.update(set_of(&[&a, &gone])).unwrap();
    }
}

#[test]
fn a_claim_that_stands_twice_is_refused() {
    let a = SigningMember::new("a", 1);
    let twice = claims().to_string().replacen('{', r#"{"token":"1","#, 1);
    let signed =
        format!("{}.{}", encoded(a.header().to_string().as_bytes()), encoded(twice.as_bytes()));
    let text = format!("{signed}.{}", encoded(a.pair.sign(signed.as_bytes()).as_ref()));
    let forged = Tickets::new(set_of(&[&a])).check(&text, &ledger()).unwrap_err();
    assert_eq!(forged, Forged::NotATicket("its claims are not those of a ticket"));
}

#[test]
fn after_a_restore_nothing_of_before_is_believed() {
    let a = SigningMember::new("a", 1);
    let tickets = Tickets::new(set_of(&[&a]));
    let text = a.sign(&claims());
    tickets.check(&text, &ledger()).unwrap();
    tickets.update(set(&[], 3, "00000000000000b0")).unwrap();
    assert_eq!(tickets.check(&text, &ledger()).unwrap_err().reason(), "TICKET_OLD_EPOCH");
    // Old keys are not accepted either: from before the restore, or from another restore.
    assert!(matches!(tickets.update(set_of(&[&a])), Err(BadSet::OldEpoch { .. })));
    assert!(matches!(
        tickets.update(set(&[], 3, "00000000000000b1")),
        Err(BadSet::OtherIncarnation { .. })
    ));
    let other = r#"{"cluster":"x","epoch":9,"incarnation":"0000000000000000","keys":[]}"#;
    assert!(matches!(
        tickets.update(KeySet::parse(other).unwrap()),
        Err(BadSet::OtherCluster { .. })
    ));
}

#[test]
fn a_key_that_was_rotated_away_does_not_come_back_with_an_older_set() {
    let (a, gone) = (SigningMember::new("a", 1), SigningMember::new("gone", 3));
    let at = |members: &[&SigningMember], revision: u64| KeySet {
        revision: Some(Revision(revision)),
        ..set_of(members)
    };
    let tickets = Tickets::new(at(&[&a, &gone], 9));
    let text = gone.sign(&claims());
    tickets.check(&text, &ledger()).unwrap();
    tickets.update(at(&[&a], 10)).unwrap();
    let stays_away = || {
        let stale = tickets.update(at(&[&a, &gone], 9)).unwrap_err();
        let (said, known) = (Revision(9), Revision(10));
        assert_eq!(stale, BadSet::OldRevision { said, known });
        assert_eq!(tickets.check(&text, &ledger()).unwrap_err().reason(), "TICKET_KEY_RETIRED");
    };
    stays_away();
    // Repeating the same set is harmless; a set without a revision might be old.
    tickets.update(at(&[&a], 10)).unwrap();
    tickets.update(set_of(&[&a])).unwrap_err();
    stays_away();
    // The revisions of another life start again.
    let restored = KeySet { revision: Some(Revision(1)), ..set(&[], 3, "00000000000000b0") };
    tickets.update(restored).unwrap();
}

#[test]
fn a_key_whose_time_is_over_does_not_come_back_at_the_same_revision() {
    let (a, gone) = (SigningMember::new("a", 1), SigningMember::new("gone", 3));
    let at = |members: &[&SigningMember], revision: Option<u64>| KeySet {
        revision: revision.map(Revision),
        ..set_of(members)
    };
    let tickets = Tickets::new(at(&[&a, &gone], Some(9)));
    let text = gone.sign(&claims());
    tickets.check(&text, &ledger()).unwrap();
    // The overlap of the key runs out. Nothing is written to the log, so the revision stays.
    tickets.update(at(&[&a], Some(9))).unwrap();
    let over = Err(BadSet::RetiredKey { key: gone.id.into() });
    assert_eq!(tickets.update(at(&[&a, &gone], Some(9))), over, "of a member that is behind");
    let none = Err(BadSet::NoRevision { known: Revision(9) });
    assert_eq!(tickets.update(at(&[&a, &gone], None)), none);
    assert_eq!(tickets.check(&text, &ledger()).unwrap_err().reason(), "TICKET_KEY_RETIRED");
    // Not after a restart either, with the set that was used last.
    let tickets = Tickets::new(at(&[&a], Some(9)));
    assert_eq!(tickets.update(at(&[&a, &gone], Some(9))), over);
    assert_eq!(tickets.check(&text, &ledger()).unwrap_err().reason(), "TICKET_KEY_UNKNOWN");
    // A set of a later revision is accepted.
    let new = SigningMember::new("new", 5);
    tickets.update(at(&[&a, &new], Some(10))).unwrap();
    tickets.check(&new.sign(&claims()), &ledger()).unwrap();
}

#[test]
fn keys_of_another_life_or_kind_are_left_out_and_bad_ones_refused() {
    let a = SigningMember::new("a", 1);
    assert_eq!(set_of(&[&a]).len(), 1);
    assert!(set(&[&a], 3, "00000000000000af").is_empty());
    assert!(set(&[&a], 2, "00000000000000a0").is_empty());
    let parse = |keys: Value| {
        let set = json!({"cluster": CLUSTER, "epoch": 2, "incarnation": "00000000000000af", "keys": keys});
        KeySet::parse(&set.to_string())
    };
    let changed = |name: &str, value: Value| {
        let mut jwk = a.jwk();
        jwk[name] = value;
        jwk
    };
    assert!(parse(json!([{"kty": "RSA", "n": "AQ", "e": "AQAB"}])).unwrap().is_empty());
    assert!(parse(json!([changed("x", json!("AQ"))])).is_err());
    assert!(parse(json!([changed("kid", json!(""))])).is_err());
    assert!(parse(json!([a.jwk(), a.jwk()])).is_err());
    assert!(KeySet::parse("{}").is_err());
    let at = |revision: Value| {
        let set = json!({
            "cluster": CLUSTER, "epoch": 2, "incarnation": "00000000000000af",
            "revision": revision, "keys": [],
        });
        KeySet::parse(&set.to_string()).map(|set| set.revision)
    };
    assert_eq!(at(json!("8850")), Ok(Some(Revision(8_850))));
    assert_eq!(at(Value::Null), Ok(None));
    for none in [json!(8_850), json!(""), json!("x"), json!("-1")] {
        assert!(at(none).is_err());
    }
}

#[test]
fn what_is_remembered_is_bounded() {
    let a = SigningMember::new("a", 1);
    let ticket = Tickets::new(set_of(&[&a])).check(&a.sign(&claims()), &ledger()).unwrap();
    let mut cache = Cache::default();
    for number in 0..3 * Cache::MAX {
        cache.insert(number.to_string().into(), Arc::clone(&ticket));
        // A ticket that is used often stays.
        assert!(number == 0 || cache.get("0").is_some());
        assert!(cache.len() <= Cache::MAX);
    }
    assert!(cache.get("1").is_none());
}
