//! Tests that the bytes of log entries and snapshots stay as released versions wrote them.
//!
//! The golden files are never rewritten: a newer version must read them and write the same bytes.

use tenure_core::access::{
    AccessChange, IssuerKeys, NewCertificateRule, NewCredential, NewIssuer, NewPrincipal, NewRule,
    Replacement,
};
use tenure_core::codec::{decode_request, encode_request, open_entry, seal_entry, seal_labelled};
use tenure_core::event::WallClock;
use tenure_core::request::{
    Abandon, Acquire, Ask, AskId, AskLease, AskWait, Asks, Command, Expect, Hold, LeaseRef,
    NewLease, Purpose, Put, Request, RequestId, Revoker, Urgency, WriteGuard,
};
use tenure_core::{Filter, Machine};
use tenure_types::{
    Handle, LeaseId, Limit, Mode, Name, PlaceNumber, Quota, QuotaSource, Quotas, Revision, Term,
    Token, Verb, VerbSet,
};

use crate::script::play;
use crate::snapshots::EVERYTHING;

#[test]
fn an_entry_with_every_command_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/entry.hex"));
    assert_eq!(hex(&write_entry(&every_command())), hex(&bytes));
    let entry = open_entry(&bytes).expect("the entry can be opened");
    assert_eq!((entry.term, entry.count_ms), (Term(7), 12_345));
    let read: Vec<Request<'_>> =
        entry.map(|request| decode_request(request).expect("every request can be read")).collect();
    assert_eq!(read, every_command());
}

#[test]
fn the_name_of_the_revoker_is_encoded_last_and_only_if_it_is_given() {
    let (reason, urgency) = ("stuck", Urgency::Cooling);
    let force = |by| Command::Force { lock: "deploy", token: token(5), by, reason, urgency };
    let lease = LeaseRef::Id(id(1));
    let revoke = |name| Command::Revoke { lease, by: Revoker::Other { name, reason, urgency } };
    let bytes = |command| {
        let mut bytes = Vec::new();
        encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
        bytes
    };
    for [unnamed, named] in [["", "ops@host"].map(force), ["", "ops@host"].map(revoke)] {
        let with_name = [&bytes(unnamed.clone())[..], &[8], b"ops@host"].concat();
        assert_eq!(hex(&bytes(named.clone())), hex(&with_name));
        assert_eq!(decode_request(&with_name).unwrap().command, named);
        let empty_name = [&bytes(unnamed)[..], &[0]].concat();
        assert!(decode_request(&empty_name).is_err(), "the missing name has one form only");
    }
}

#[test]
fn an_entry_of_those_who_said_who_they_are_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/entry_by.hex"));
    assert_eq!(hex(&write_entry(&commands_by())), hex(&bytes));
    let entry = open_entry(&bytes).expect("the entry can be opened");
    let read: Vec<Request<'_>> =
        entry.map(|request| decode_request(request).expect("every request can be read")).collect();
    assert_eq!(read, commands_by());
}

#[test]
fn a_snapshot_whose_history_tells_who_took_things_away_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_by.hex"));
    assert_eq!(hex(&play(TAKEN_BY).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    let events = machine.events(Revision(1), Filter::All, 100).expect("nothing is cut off");
    let events = events.batches.iter().flat_map(|batch| &batch.events);
    let by: Vec<&str> = events.filter_map(|it| it.by.as_ref()).map(Name::as_str).collect();
    assert_eq!(by, ["ops@host", "eva"]);
}

#[test]
fn an_entry_that_changes_access_rules_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/entry_access.hex"));
    assert_eq!(hex(&write_entry(&commands_of_access())), hex(&bytes));
    let entry = open_entry(&bytes).expect("the entry can be opened");
    let read: Vec<Request<'_>> =
        entry.map(|request| decode_request(request).expect("every request can be read")).collect();
    assert_eq!(read, commands_of_access());
}

#[test]
fn an_entry_with_quotas_of_members_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/entry_quotas.hex"));
    assert_eq!(hex(&write_entry(&commands_with_quotas_of_members())), hex(&bytes));
    let entry = open_entry(&bytes).expect("the entry can be opened");
    let read: Vec<Request<'_>> =
        entry.map(|request| decode_request(request).expect("every request can be read")).collect();
    assert_eq!(read, commands_with_quotas_of_members());
}

#[test]
fn quotas_of_members_begin_at_level_4_and_survive_a_snapshot() {
    let played = play(
        "
         0s  level 3                                       raised
         0s  principal ana sessions=5                      refused malformed
         0s  quotas requests_per_second=100                refused malformed
         0s  quotas leases=100                             done
         0s  level 4                                       raised
         1s  principal ana sessions=5 leases=7             done
         1s  quotas requests_per_second=100                done
    ",
    );
    let bytes = played.machine.encode();
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    let quota = |quota| machine.access().quota("ana", quota).map(|(bound, _)| bound);
    assert_eq!([quota(Quota::Sessions), quota(Quota::Leases)], [Some(5), Some(7)]);
    assert_eq!([quota(Quota::RequestsPerSecond), quota(Quota::Watches)], [Some(100), None]);
}

#[test]
fn a_snapshot_with_access_rules_and_owners_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_access.hex"));
    assert_eq!(hex(&play(OWNED).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    assert!(machine.may("joe", Verb::Acquire, "a/x"));
    assert!(!machine.may("joe", Verb::Force, "a/x"));
    let (principal, credential) = machine.access().find_credential("key-1").expect("it was put");
    assert_eq!((principal.as_str(), credential.hash), ("joe", [7; 32]));
}

#[test]
fn an_entry_of_level_4_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/entry_records.hex"));
    assert_eq!(hex(&write_entry(&commands_of_records())), hex(&bytes));
    let entry = open_entry(&bytes).expect("the entry can be opened");
    let read: Vec<Request<'_>> =
        entry.map(|request| decode_request(request).expect("every request can be read")).collect();
    assert_eq!(read, commands_of_records());
}

#[test]
fn a_snapshot_whose_history_names_principals_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_records.hex"));
    assert_eq!(hex(&play(RECORDED).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    let events = machine.events(Revision(1), Filter::All, 100).expect("nothing is cut off");
    let events = events.batches.iter().flat_map(|batch| &batch.events);
    let named: Vec<&str> = events.filter_map(|it| it.principal.as_deref()).collect();
    assert_eq!(named, ["olga", "olga", "olga", "ruth", "olga", "tenure/member"]);
}

#[test]
fn a_snapshot_that_names_who_set_quotas_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_setters.hex"));
    assert_eq!(hex(&play(QUOTAS_SET).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    let setter = |quota, set_by| {
        let setter = machine.access().quota_setter("ana", quota, set_by)?;
        Some((setter.principal.as_deref(), setter.unix_ms))
    };
    let (own, default) = (QuotaSource::Principal, QuotaSource::Default);
    let at = |seconds: u64| Some(1_772_421_240_000 + seconds * 1_000);
    assert_eq!(setter(Quota::Leases, own), Some((Some("ruth"), at(1))));
    assert_eq!(setter(Quota::Sessions, own), Some((Some("olga"), at(2))));
    assert_eq!(setter(Quota::Keys, default), Some((None, at(1))));
    assert_eq!(setter(Quota::Bytes, default), None, "it was set below the level");
}

#[test]
fn an_entry_that_takes_asks_back_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/entry_abandon.hex"));
    assert_eq!(hex(&write_entry(&commands_that_abandon())), hex(&bytes));
    let entry = open_entry(&bytes).expect("the entry can be opened");
    let read: Vec<Request<'_>> =
        entry.map(|request| decode_request(request).expect("every request can be read")).collect();
    assert_eq!(read, commands_that_abandon());
}

#[test]
fn an_entry_with_the_wall_clock_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/entry_labelled.hex"));
    let requests: Vec<Vec<u8>> = commands_by().iter().map(encoded).collect();
    let wall = Some(WallClock { unix_ms: 1_772_421_247_112 });
    let sealed = seal_labelled(Term(7), 12_345, wall, requests.iter().map(Vec::as_slice));
    assert_eq!(hex(&sealed), hex(&bytes));
    let entry = open_entry(&bytes).expect("the entry can be opened");
    assert_eq!((entry.term, entry.count_ms, entry.wall), (Term(7), 12_345, wall));
    assert_eq!(entry.count(), commands_by().len());
}

#[test]
fn a_snapshot_whose_history_is_labelled_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_labelled.hex"));
    assert_eq!(hex(&play(crate::labels::TOLD).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    let events = machine.events(Revision(2), Filter::All, 100).expect("nothing is cut off");
    assert!(events.batches.iter().all(|batch| batch.label.is_some()));
}

#[test]
fn a_snapshot_of_a_state_that_counts_asks_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot_asks.hex"));
    assert_eq!(hex(&play(COUNTED).machine.encode()), hex(&bytes));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    assert_eq!(machine.level(), 2);
    let stats = machine.stats();
    assert_eq!((stats.leases, stats.grants, stats.places, stats.requests), (2, 3, 1, 3));
}

/// A hold from before requests were counted, a hold that two requests rely on, and a place that two rely on.
const COUNTED: &str = "
         0s  A lease 10s             granted
         0s  B lease 10s             granted
         1s  A lock first once=a     held token=1
         2s  level 2                 raised
         3s  A lock one two #1/0     held one token=2, two token=3
         3s  A lock one two #1/0     held one token=2, two token=3
         4s  B lock one once=b       queued ahead=0
         5s  B lock one              queued ahead=0
    ";

/// A lock that is forced and a lease that is revoked, both by operators who give their names.
const TAKEN_BY: &str = "
         0s  A lease 10s                                    granted
         0s  B lease 10s                                    granted
         1s  A lock deploy                                  held token=1
         2s  force deploy token=1 by=ops@host reason=stuck  forced, free in 8s;
             .. A lost deploy, forced by ops@host for stuck (token=1)
         3s  revoke B by=eva reason=gone now                revoked; B revoked by eva for gone
    ";

#[test]
fn a_snapshot_with_every_record_is_read_and_written_as_ever() {
    let bytes = unhex(include_str!("../golden/snapshot.hex"));
    let machine = Machine::decode(&bytes).expect("the snapshot can be read");
    assert_eq!(hex(&machine.encode()), hex(&bytes));
    let stats = machine.stats();
    assert_eq!((stats.leases, stats.locks, stats.grants, stats.places), (4, 7, 9, 5));
    assert_eq!((stats.keys, stats.requests, stats.deadlines), (2, 5, 8));
    assert_eq!(machine.lock("pool").expect("a semaphore").slots, Some(2));
    assert_eq!(&*machine.key("free").expect("a key").value, b"w");
    assert_eq!(machine.lease(LeaseRef::Id(id(1))).expect("a lease").holds.len(), 5);
}

#[test]
fn the_same_script_still_gives_the_same_snapshot() {
    let bytes = play(EVERYTHING).machine.encode();
    assert_eq!(hex(&bytes), hex(&unhex(include_str!("../golden/snapshot.hex"))));
}

fn id(number: u64) -> LeaseId {
    LeaseId::new(number).expect("a lease's number")
}

fn token(number: u64) -> Token {
    Token::from_u64(number).expect("a token")
}

/// Every command, and every form of its parts, at least once.
fn every_command() -> Vec<Request<'static>> {
    let lease = LeaseRef::Id(id(1));
    let handle = LeaseRef::Handle(Handle { slot: 3, generation: 70_000 });
    let hold = Hold { lease, lock: "deploy", token: token(5) };
    let new = NewLease { id: id(1 << 40), ttl_ms: 10_000, client: "host/1", metadata: b"m" };
    let guard = Some(WriteGuard { lock: "deploy", token: token(1 << 48 | 5) });
    let one = Acquire {
        lease: AskLease::Existing(handle),
        locks: Asks::One(Ask { lock: "deploy", mode: Mode::Exclusive }),
        any: false,
        wait: AskWait::No,
        metadata: b"",
        lock_delay_ms: 0,
        max_hold_ms: None,
        min_hold_ms: 0,
        supersede: None,
        resume: false,
        progress_within_ms: 0,
        priority: 0,
        purpose: Purpose::Lock,
        independent: false,
    };
    let many = Acquire {
        lease: AskLease::New(new),
        locks: Asks::Many(vec![
            Ask { lock: "data", mode: Mode::Shared },
            Ask { lock: "pool", mode: Mode::slot(300) },
        ]),
        any: false,
        wait: AskWait::Limit { ms: 5_000 },
        metadata: b"value",
        lock_delay_ms: 1_000,
        max_hold_ms: Some(60_000),
        min_hold_ms: 0,
        supersede: None,
        resume: false,
        progress_within_ms: 0,
        priority: 0,
        purpose: Purpose::Election,
        independent: true,
    };
    let patient = Acquire { wait: AskWait::Unlimited, ..one.clone() };
    let put = Put { key: "k", value: b"v", lease: Some(lease), expect: Expect::Any, guard };
    let (reason, cooling, now) = ("stuck", Urgency::Cooling, Urgency::Now);
    let commands = vec![
        Command::GrantLease(new),
        Command::Renew(vec![lease, handle]),
        Command::Revoke { lease, by: Revoker::Holder },
        Command::Revoke {
            lease: handle,
            by: Revoker::Other { name: "", reason, urgency: cooling },
        },
        Command::Revoke { lease, by: Revoker::Other { name: "", reason: "", urgency: now } },
        Command::Acquire(one),
        Command::Acquire(many),
        Command::Acquire(patient),
        Command::Release(hold),
        Command::Leave { lease, lock: "deploy" },
        Command::Downgrade(hold),
        Command::Update { hold, metadata: b"new" },
        Command::Force { lock: "deploy", token: token(5), by: "", reason, urgency: cooling },
        Command::Force { lock: "deploy", token: token(5), by: "", reason: "", urgency: now },
        Command::Stopped { lease: id(1), created: Revision(9), lock: "deploy", token: token(5) },
        Command::Put(put),
        Command::Put(Put { lease: None, expect: Expect::Absent, guard: None, ..put }),
        Command::Delete { key: "k", expect: Expect::Modified(Revision(300)), guard: None },
        Command::Delete { key: "k", expect: Expect::Value(b"v"), guard },
        Command::SetLimits(vec![(Limit::Slots, 8), (Limit::EndsPerEntry, 4_096)]),
        Command::Compact { keep: Revision(1 << 33) },
        Command::RaiseLevel { level: 1 },
    ];
    let mut requests: Vec<Request<'_>> = commands
        .into_iter()
        .map(|command| Request { principal: "", id: RequestId::None, command })
        .collect();
    requests[0].id = RequestId::Key("idem");
    requests[0].principal = "ann";
    requests[1].id = RequestId::Seq { lease, seq: 200, done: 128 };
    requests[2].id = RequestId::Seq { lease: handle, seq: 1, done: 0 };
    requests
}

/// Every form of taking something away with the operator's name given.
fn commands_by() -> Vec<Request<'static>> {
    let (lease, reason) = (LeaseRef::Id(id(1)), "stuck");
    let force = |urgency| {
        let (lock, by) = ("deploy", "ops@host");
        Command::Force { lock, token: token(5), by, reason, urgency }
    };
    let revoke = |urgency| {
        let by = Revoker::Other { name: "ops@host", reason, urgency };
        Command::Revoke { lease, by }
    };
    let (cooling, now) = (Urgency::Cooling, Urgency::Now);
    let commands = [force(cooling), force(now), revoke(cooling), revoke(now)];
    let request = |command| Request { principal: "ann", id: RequestId::None, command };
    commands.into_iter().map(request).collect()
}

/// A state in which leases, keys and cooling grants have owners, and one owner is revoked.
const OWNED: &str = "
         0s  level 3                              raised
         0s  role a acquire,keys,read@a/          done
         0s  role ops all@                        done
         0s  principal ana a leases=5             done
         0s  principal joe a                      done
         0s  principal ruth ops off               done
         0s  credential joe key-1                 done
         0s  quotas keys=100 bytes=4096           done
         0s  A lease 60s                          granted
         0s  identity on                          done
         1s  B lease 60s as=ana                   granted
         1s  B lock a/x meta=m as=ana             held token=1
         1s  C lease 60s as=joe                   granted
         1s  C lock a/x as=joe                    queued ahead=0
         1s  C lock a/y as=joe                    held token=2
         1s  put a/k v as=joe                     written version=1
         2s  principal olga ops as=tenure/member  done
         2s  force a/y token=2 as=olga            forced, free in 59001ms; C lost a/y, forced
         3s  unprincipal ana as=olga              done
";

/// A history in which every kind of administrative act names its principal.
const RECORDED: &str = "
         0s  A lease 60s                           granted
         0s  B lease 60s                           granted
         0s  A lock a                              held token=1
         1s  level 4 as=olga                       raised
         1s  limits slots=9 as=olga                set
         1s  force a token=1 by=ops as=olga        forced, free in 59s; A lost a, forced by ops (token=1)
         2s  revoke B by=eva as=ruth               revoked; B revoked by eva
         2s  put tenure/x w as=tenure/member/olga  written version=1
         2s  delete tenure/x as=tenure/member      deleted
    ";

/// Quotas that were set below the level, by named principals and by one without a name, and a refusal that is kept.
const QUOTAS_SET: &str = "
         0s  level 4                               raised
         0s  quotas bytes=4096                     done
         0s  level 5                               raised
         1s  principal ana a leases=1 as=ruth      done
         1s  quotas bytes=4096 keys=9              done
         2s  principal ana a leases=1 sessions=3 as=tenure/member/olga  done
         3s  A lease 60s as=ana                    granted
         3s  B lease 60s once=k as=ana             refused quota-exceeded: leases 1 by ruth, asked 2
    ";

/// Commands that a member makes for a caller, and changes that depend on what their caller has seen.
fn commands_of_records() -> Vec<Request<'static>> {
    let role = |prefix| {
        let rules = vec![NewRule { verbs: VerbSet::ALL, prefix, priority: 0 }];
        AccessChange::PutRole { name: "worker", rules }
    };
    let (roles, quotas) = (vec!["worker"], Quotas::default());
    let principal =
        AccessChange::PutPrincipal(NewPrincipal { name: "ana", enabled: true, roles, quotas });
    let (no_role, no_principal) = (
        AccessChange::DeleteRole { name: "worker" },
        AccessChange::DeletePrincipal { name: "ana" },
    );
    let pairs = [
        (role("a/"), role("b/")),
        (no_role.clone(), role("")),
        (role("a/"), no_role),
        (principal.clone(), no_principal.clone()),
        (no_principal, principal),
    ];
    let replace = |(seen, change)| {
        Command::SetAccess(AccessChange::Replace(Box::new(Replacement { seen, change })))
    };
    let mut requests: Vec<Request<'_>> = pairs
        .into_iter()
        .map(|pair| Request { principal: "ruth", id: RequestId::None, command: replace(pair) })
        .collect();
    let command = Command::Delete { key: "tenure/x", expect: Expect::Any, guard: None };
    requests.push(Request { principal: "tenure/member/olga", id: RequestId::None, command });
    requests
}

/// Every change of the access rules.
fn commands_of_access() -> Vec<Request<'static>> {
    let mut quotas = Quotas::default();
    quotas.set(Quota::Leases, Some(300));
    quotas.set(Quota::Bytes, Some(0));
    let rules = vec![
        NewRule { verbs: VerbSet::ALL, prefix: "", priority: 0 },
        NewRule { verbs: VerbSet::default().with(Verb::Administer), prefix: "a/", priority: 0 },
    ];
    let roles = vec!["worker", "reader"];
    let credential = NewCredential {
        principal: "ana",
        id: "key-1",
        name: "for ci",
        hash: [7; 32],
        expires_ms: Some(1 << 40),
    };
    let certificate = NewCertificateRule { name: "team", pattern: "CN=*", principal: "ana" };
    let issuer = NewIssuer {
        issuer: "https://ci",
        audience: "tenure",
        keys: IssuerKeys::Jwks("{}"),
        claim: "sub",
        prefix: "ci/",
    };
    let changes = [
        AccessChange::PutRole { name: "worker", rules },
        AccessChange::DeleteRole { name: "worker" },
        AccessChange::PutPrincipal(NewPrincipal { name: "ana", enabled: true, roles, quotas }),
        AccessChange::DeletePrincipal { name: "ana" },
        AccessChange::PutCredential(credential),
        AccessChange::PutCredential(NewCredential { expires_ms: None, ..credential }),
        AccessChange::DeleteCredential { id: "key-1" },
        AccessChange::PutCertificateRule(certificate),
        AccessChange::DeleteCertificateRule { name: "team" },
        AccessChange::PutIssuer(issuer),
        AccessChange::PutIssuer(NewIssuer { keys: IssuerKeys::Url("https://ci/keys"), ..issuer }),
        AccessChange::DeleteIssuer { issuer: "https://ci" },
        AccessChange::SetIdentity { enabled: true },
        AccessChange::SetIdentity { enabled: false },
        AccessChange::SetDefaultQuotas(quotas),
    ];
    let request = |change| Request {
        principal: "ruth",
        id: RequestId::None,
        command: Command::SetAccess(change),
    };
    changes.into_iter().map(request).collect()
}

/// Both changes that set quotas which members count.
fn commands_with_quotas_of_members() -> Vec<Request<'static>> {
    let mut some = Quotas::default();
    some.set(Quota::Leases, Some(300));
    some.set(Quota::Watches, Some(0));
    let mut all = Quotas::default();
    for (value, quota) in (1..).zip(Quota::ALL) {
        all.set(quota, Some(value << 7));
    }
    let ana = NewPrincipal { name: "ana", enabled: true, roles: vec!["worker"], quotas: some };
    let changes = [AccessChange::PutPrincipal(ana), AccessChange::SetDefaultQuotas(all)];
    let request = |change| Request {
        principal: "ruth",
        id: RequestId::None,
        command: Command::SetAccess(change),
    };
    changes.into_iter().map(request).collect()
}

/// Abandoned acquire requests with every kind of request id.
fn commands_that_abandon() -> Vec<Request<'static>> {
    let lease = LeaseRef::Id(id(1));
    let handle = LeaseRef::Handle(Handle { slot: 3, generation: 70_000 });
    let abandon =
        |ask, lease, place| Command::Abandon(Abandon { ask, lease, place: PlaceNumber(place) });
    let commands = [
        abandon(AskId::None, handle, 1),
        abandon(AskId::Seq { lease: handle, seq: 300 }, lease, 1 << 40),
        abandon(AskId::Key("idem"), handle, 2),
    ];
    let request = |command| Request { principal: "ann", id: RequestId::None, command };
    commands.into_iter().map(request).collect()
}

fn encoded(request: &Request<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_request(request, &mut out);
    out
}

pub(crate) fn write_entry(requests: &[Request<'_>]) -> Vec<u8> {
    let bytes: Vec<Vec<u8>> = requests.iter().map(encoded).collect();
    seal_entry(Term(7), 12_345, bytes.iter().map(Vec::as_slice))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for line in bytes.chunks(32) {
        line.iter().for_each(|byte| out += &format!("{byte:02x}"));
        out.push('\n');
    }
    out
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).expect("two digits")).collect()
}
