//! Tests that a program that asks to join takes over no member, fills no limit, and learns no cluster id.
//!
//! A program that reaches the members' ports can join as a new member only with an invitation that an operator made,
//! in plaintext as under TLS.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tenure_raft::{Message, Step, StepKind};
use tenure_server::os;

use crate::common::http::{Call, Connection};
use crate::common::{Cluster, field, free_port, wait};
use crate::stage::{ClusterAndStranger, STRANGER, UNKNOWN_ID, in_plaintext_and_under_tls};
use crate::stranger::{Claim, Link, step};

/// The number of joins that fills a cluster of three up to the limit on members.
const JOINS: u64 = 61;
/// How long a write that must not be acknowledged may take.
const TIMEOUT: Duration = Duration::from_secs(3);
/// How long members may take to learn of a change in the directory.
const LEARN_US: u64 = 2_000_000;

in_plaintext_and_under_tls! {
    a_join_under_a_voters_id_does_not_change_the_directory;
    many_joins_of_a_stranger_keep_no_member_out;
    a_new_member_joins_once_with_an_invitation_and_never_without;
}

/// The text of a request to join, or to change a member's addresses if it claims to belong to the cluster.
fn join(id: u64, name: &str, port: u16, claim: Option<&Claim>) -> String {
    let level = tenure_core::LEVEL_MAX;
    let lines = claim.map(|claim| format!("\n{}", claim.lines())).unwrap_or_default();
    format!("join {id:x} {name} 127.0.0.1:{port} 127.0.0.1:{port}\nlevel {level}{lines}")
}

/// The id, name and addresses of every member, as a member reports them to clients.
fn directory(cluster: &Cluster, at: usize) -> Vec<[String; 4]> {
    let call = Call { verb: "GET", path: "/v1/cluster".to_owned(), key: None, body: None };
    wait("it tells who the members are", || {
        let trust = cluster.trust.as_ref();
        let mut connection = Connection::open(cluster.address(at), trust, TIMEOUT).ok()?;
        let answer = connection.call(&call).ok().filter(|answer| answer.status == 200)?;
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        let fields = ["member_id", "name", "client_address", "member_address"];
        let members = body["members"].as_array()?;
        Some(members.iter().map(|one| fields.map(|field| one[field].to_string())).collect())
    })
}

fn a_join_under_a_voters_id_does_not_change_the_directory(mut stage: ClusterAndStranger) {
    let (leader, [victim, _]) = stage.roles();
    let before: Vec<_> = (0..3).map(|at| directory(&stage.cluster, at)).collect();
    let (id, claim) = (stage.id(victim), stage.claim());
    let name = if stage.is_secured() { STRANGER } else { &*stage.cluster.members[victim].name };
    // With the cluster's id in it, the same message announces a new address. In plaintext a program that claims a
    // member's id cannot be distinguished from that member.
    let forms = if stage.is_secured() { vec![None, Some(&claim)] } else { vec![None] };
    for claim in forms {
        let said = stage.stranger.ask(stage.port(leader), &join(id, name, free_port(), claim));
        assert!(!said.as_ref().is_ok_and(|said| said.starts_with("joined")), "{said:?}");
    }
    stage.assert_all_serve();
    let after: Vec<_> = (0..3).map(|at| directory(&stage.cluster, at)).collect();
    assert_eq!(before, after);
    // The stranger's certificate does not authorise the id either.
    if stage.is_secured() {
        let said = stage.stranger.hello(stage.port(leader), &claim, id, stage.id(leader));
        assert!(said.is_err(), "the stranger got a link as m{victim}");
    }
}

fn many_joins_of_a_stranger_keep_no_member_out(mut stage: ClusterAndStranger) {
    let (leader, _) = stage.roles();
    let secured = stage.is_secured();
    let said: Vec<_> = (0..JOINS)
        .map(|number| {
            // A certificate has one name; in plaintext each join may have its own.
            let name = if secured { STRANGER.to_owned() } else { format!("{STRANGER}{number}") };
            let text = join(UNKNOWN_ID + number, &name, 1, None);
            stage.stranger.ask(stage.port(leader), &text).unwrap_or_default()
        })
        .collect();
    let joined = said.iter().filter(|said| said.starts_with("joined")).count();
    assert_eq!(joined, 0, "a stranger has joined without an invitation: {said:?}");
    let needed = |said: &&String| said.starts_with("refused joining needs an invitation");
    assert_eq!(said.iter().filter(needed).count() as u64, JOINS, "{said:?}");
    let new = stage.start_new();
    let process = stage.cluster.members[new].process.as_mut().unwrap();
    wait("the new member serves or says why not", || {
        let words = process.words();
        let refused = words.lines().find(|line| line.contains("the cluster has 64 members"));
        assert!(refused.is_none(), "fake members keep a real one out: {refused:?}");
        assert!(process.try_ended().is_none(), "{words}");
        words.contains("serving").then_some(())
    });
    stage.assert_all_serve();
}

/// Real members join with no invitation, with one that was never made, with a valid one, with the same once more, and
/// with one that has expired.
fn a_new_member_joins_once_with_an_invitation_and_never_without(mut stage: ClusterAndStranger) {
    let seed = stage.cluster.advertised(0);
    let invitation = stage.cluster.invite("{}");
    let mut guessed = invitation.clone();
    let last = if guessed.pop() == Some('0') { '1' } else { '0' };
    guessed.push(last);
    let refused = |stage: &mut ClusterAndStranger, more: &[&str], why: &str| {
        let joining: [&str; 2] = ["--join", &seed];
        let at = stage.start_new_with(&[&joining[..], more].concat());
        let process = stage.cluster.members[at].process.as_mut().unwrap();
        assert_eq!(process.ended().code(), Some(78), "{}", process.words());
        let words = process.words();
        assert!(words.contains(why) && words.contains("`tenure cluster invite`"), "{words}");
        assert!(!words.contains(&invitation), "a secret is logged: {words}");
        stage.cluster.members[at].process = None;
    };
    refused(&mut stage, &[], "joining needs an invitation");
    refused(&mut stage, &["--invitation", &guessed], "no such invitation");

    let first = stage.start_new_with(&["--join", &seed, "--invitation", &invitation]);
    wait("it follows", || {
        let status = stage.cluster.ask(first, "status").unwrap_or_default();
        status.contains("role=learner").then_some(())
    });
    refused(&mut stage, &["--invitation", &invitation], "another member has used the invitation");
    // Started again, the member that used it needs none.
    stage.cluster.kill(first);
    stage.start(first);
    wait("it follows again", || {
        let status = stage.cluster.ask(first, "status").unwrap_or_default();
        status.contains("role=learner").then_some(())
    });

    let short = stage.cluster.invite("{\"expires_ms\":1000}");
    let key = format!("get tenure/invitations/{}", short.split('_').nth(1).unwrap());
    // The machine's clock advances with writes.
    wait("it has expired", || {
        stage.cluster.ok("put tick tock");
        let kept = stage.cluster.ask(0, &key)?;
        (!kept.contains("value=")).then_some(())
    });
    refused(&mut stage, &["--invitation", &short], "no such invitation, or it has expired");
    let other = stage.cluster.invite("{\"member_id\":\"7\"}");
    refused(&mut stage, &["--invitation", &other], "the invitation is for another member");
    stage.assert_all_serve();
}

/// The stranger takes over a voter's address, then acknowledges everything in its place. Only under TLS: in plaintext
/// a program that claims the voter's id needs no directory for that.
#[test]
fn acknowledgements_under_a_taken_id_make_no_write_acknowledged() {
    let mut stage = ClusterAndStranger::secured();
    let (leader, [taken, other]) = stage.roles();
    let (id, leader_id, claim) = (stage.id(taken), stage.id(leader), stage.claim());
    for claim in [None, Some(&claim)] {
        let _ = stage.stranger.ask(stage.port(leader), &join(id, STRANGER, 1, claim));
    }
    stage.cluster.kill(taken);
    let term = stage.number(leader, "term");
    // Members may take a moment to learn of a change in the directory.
    let until_us = os::now_us() + LEARN_US;
    let link = wait("it is linked, or kept out", || {
        match stage.stranger.hello(stage.port(leader), &claim, id, leader_id) {
            Ok(link) => Some(Some(link)),
            Err(_) => (os::now_us() >= until_us).then_some(None),
        }
    });
    let Some(link) = link else {
        stage.start(taken);
        return stage.assert_all_serve();
    };
    let stop = AtomicBool::new(false);
    stage.cluster.members[other].process = None;
    let said = std::thread::scope(|scope| {
        scope.spawn(|| acknowledge_everything(link, term, &stage, leader, &stop));
        let said = stage.cluster.ask_within(TIMEOUT, leader, "put lost value");
        stop.store(true, Ordering::Release);
        said
    });
    let acknowledged = said.as_ref().is_some_and(|said| said.starts_with("ok"));
    assert!(!acknowledged, "acknowledged a write that no other member has: {said:?}");
    stage.start(taken);
    stage.start(other);
    stage.assert_all_serve();
}

/// Acknowledges whatever the leader has, without having it, as often as the leader says what that is.
fn acknowledge_everything(
    mut link: Link,
    term: u64,
    stage: &ClusterAndStranger,
    leader: usize,
    stop: &AtomicBool,
) {
    while !stop.load(Ordering::Acquire) {
        let answer = stage.cluster.ask_within(Duration::from_secs(1), leader, "status");
        let last = answer.and_then(|status| field(&status, "last")?.parse().ok()).unwrap_or(0);
        let beat = Message::Step(Box::new(step(StepKind::HeartbeatAnswer, term)));
        let taken = Step { index: last, ..step(StepKind::AppendAnswer, term) };
        if link.send(&beat).is_err() || link.send(&Message::Step(Box::new(taken))).is_err() {
            return;
        }
    }
}

/// In plaintext any program that reaches the port may ask; that cannot be prevented.
#[test]
fn the_cluster_id_is_not_told_to_a_stranger_under_tls() {
    let mut stage = ClusterAndStranger::secured();
    let claim = stage.claim();
    let wrong = Claim { cluster: "other".to_owned(), ..claim.clone() };
    for at in 0..3 {
        let (port, to) = (stage.port(at), stage.id(at));
        let asked = stage.stranger.ask(port, "who 1").unwrap_or_default();
        assert!(!asked.contains(&claim.cluster), "m{at} tells a stranger: {asked}");
        for from in [UNKNOWN_ID, stage.id((at + 1) % 3)] {
            let refused = stage.stranger.hello(port, &wrong, from, to).err().unwrap_or_default();
            assert!(!refused.contains(&claim.cluster), "m{at} tells a stranger: {refused}");
        }
        let text = join(UNKNOWN_ID, STRANGER, 1, Some(&wrong));
        let refused = stage.stranger.ask(port, &text).unwrap_or_default();
        assert!(!refused.contains(&claim.cluster), "m{at} tells a stranger: {refused}");
    }
    stage.assert_all_serve();
}
