//! What does a member do for a line, and what does it answer?

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use tenure_core::Machine;
use tenure_core::codec::encode_request;
use tenure_core::outcome::{Answer, Notice, Outcome};
use tenure_core::request::{
    Acquire, Ask, AskLease, Asks, Command, Expect, Hold, LeaseRef, NewLease, Purpose, Put, Request,
    RequestId, Revoker, Wait,
};
use tenure_raft::{MemberId, Why};
use tenure_types::{LeaseId, Mode};
use tenure_wire::v1;

use super::line::{Freshness, HELP, Line, Question, once, parse};
use super::show;
use crate::book::{self, Card, Names, Preference};
use crate::edge::Edge;
use crate::member::{Gone, Member, Undone};

/// How long the cluster may take to agree.
const AGREE: Duration = Duration::from_secs(10);
/// How long a renewal may wait for others: a sixtieth of the shortest ttl.
const RENEWAL_PATIENCE: Duration = Duration::from_micros(16_000);
/// A wait with a limit is over by the machine's clock, which may be behind ours by a change of
/// leaders.
const WAIT_GRACE: Duration = Duration::from_secs(10);
/// Locks in one list.
const LIST_MAX: usize = 1_000;

/// Answers a line with a line.
pub(super) fn answer(edge: &Edge, text: &str) -> String {
    let member = edge.member();
    let (key, text) = once(text);
    let id = key.map_or(RequestId::None, RequestId::Key);
    let run = |member: &Member, command: Command<'_>, patience: Duration| {
        run(member, id, command, patience)
    };
    let line = match parse(text) {
        Ok(line) => line,
        Err(why) => return format!("error none bad-line {why}"),
    };
    let lease = LeaseRef::Id;
    match line {
        Line::Help => format!("ok {HELP}"),
        Line::Lease { id, ttl_ms, client } => {
            let new = NewLease { id, ttl_ms, client, metadata: &[] };
            run(member, Command::GrantLease(new), Duration::ZERO)
        }
        Line::Renew(ids) => {
            let leases = ids.iter().copied().map(lease).collect();
            run(member, Command::Renew(leases), RENEWAL_PATIENCE)
        }
        Line::Revoke(id) => {
            run(member, Command::Revoke { lease: lease(id), by: Revoker::Holder }, Duration::ZERO)
        }
        Line::Lock { id, lock, wait } => acquire(member, id, lock, wait),
        Line::Queue { id, lock } => run(member, asked(id, lock, Wait::Unlimited), Duration::ZERO),
        Line::Unlock { id, lock, token } => {
            let hold = Hold { lease: lease(id), lock, token };
            run(member, Command::Release(hold), Duration::ZERO)
        }
        Line::Put { key, .. } if key.starts_with(book::RESERVED) => {
            "refused RESERVED keys below `tenure/` are the cluster's own".to_owned()
        }
        Line::Put { key, value } => {
            let value = value.as_bytes();
            let put = Put { key, value, lease: None, expect: Expect::Any, guard: None };
            run(member, Command::Put(put), Duration::ZERO)
        }
        Line::Ask(question, freshness) => ask(member, question, freshness),
        Line::Status => read(member.status().map(|status| show::status(&status))),
        Line::Members => read(member.look(|replica| {
            show::members(replica.members(), &replica.status(), &book::read(replica.machine()))
        })),
        Line::Hash => read(member.status().map(|status| {
            format!("ok index={} hash={:032x}", status.agreement.applied.index, status.hash)
        })),
        Line::Add { id, address } => changed(edge, edge.add(&card(id, address), AGREE)),
        Line::Promote(id) => changed(edge, edge.promote(id, AGREE)),
        Line::Remove(id) => changed(edge, edge.remove(id, AGREE)),
        Line::Level { level } => run(member, Command::RaiseLevel { level }, Duration::ZERO),
        Line::Transfer(id) => changed(edge, edge.transfer(Some(id), AGREE)),
    }
}

fn read(result: Result<String, Gone>) -> String {
    result.unwrap_or_else(|gone| format!("error none no-quorum {gone}"))
}

fn ask(member: &Member, question: Question, freshness: Freshness) -> String {
    let ask = move |machine: &Machine| match &question {
        Question::Get { key } => show::key(machine.key(key).as_ref()),
        Question::Locks { prefix } => show::locks(&machine.locks(prefix, None, LIST_MAX)),
        Question::Explain { lock } => show::explained(machine.explain(None, lock, 10).as_ref()),
    };
    read(match freshness {
        Freshness::Now => member.read(AGREE, ask),
        Freshness::Stale => member.read_stale(move |machine| {
            let revision = machine.revision();
            format!("{} stale revision={revision}", ask(machine))
        }),
    })
}

fn encode(id: RequestId<'_>, command: Command<'_>) -> Bytes {
    let mut bytes = Vec::new();
    encode_request(&Request { principal: "", id, command }, &mut bytes);
    bytes.into()
}

fn run(member: &Member, id: RequestId<'_>, command: Command<'_>, patience: Duration) -> String {
    let fate = member.submit(vec![encode(id, command)], patience, AGREE).pop();
    told(member, fate.unwrap_or(Err(Undone::Unknown)))
}

fn told(member: &Member, fate: Result<Outcome, Undone>) -> String {
    match fate {
        Ok(outcome) => show::outcome(&outcome),
        Err(Undone::Unknown) => "error unknown no-answer".to_owned(),
        Err(Undone::NotDone(why)) => not_done(member, why),
        Err(Undone::TooLarge { bound }) => format!("error none too-large bound={bound}"),
    }
}

fn not_done(member: &Member, why: Why) -> String {
    let word = match why {
        Why::NotLeader { leader } => {
            let names = leader.and_then(|leader| names(member, leader));
            let leader = names.map_or("none".to_owned(), |names| names.clients);
            return format!("error none not-leader leader={leader}");
        }
        Why::Transferring => "transferring",
        Why::Busy => "busy",
        Why::DiskFull => "disk-full",
        Why::Replaced => "replaced",
        Why::ChangeUnderWay => "change-under-way",
        Why::Impossible => "impossible",
        Why::Retired => "retired",
        Why::LevelNotKnown { .. } => {
            return format!(
                "refused LEVEL_NOT_KNOWN {why}; upgrade and start it, then raise the level"
            );
        }
        _ => "not-done",
    };
    format!("error none {word} {why}")
}

fn names(member: &Member, id: MemberId) -> Option<Names> {
    member.read_stale(move |machine| book::read(machine).remove(&id)).ok().flatten()
}

fn asked(id: LeaseId, lock: &str, wait: Wait) -> Command<'_> {
    Command::Acquire(Acquire {
        lease: AskLease::Existing(LeaseRef::Id(id)),
        locks: Asks::One(Ask { lock, mode: Mode::Exclusive }),
        wait,
        metadata: &[],
        lock_delay_ms: 0,
        max_hold_ms: None,
        purpose: Purpose::Lock,
        independent: false,
    })
}

/// Asks for a lock and waits for it on this connection.
fn acquire(member: &Member, id: LeaseId, lock: &str, wait: Wait) -> String {
    let command = asked(id, lock, wait);
    let (watch, notices) = channel();
    let (done, fates) = channel();
    member.submit_watched(
        vec![encode(RequestId::None, command)],
        0,
        Some(watch),
        move |mut all| {
            let _ = done.send(all.pop().unwrap_or(Err(Undone::Unknown)));
        },
    );
    let fate = fates.recv_timeout(AGREE).unwrap_or(Err(Undone::Unknown));
    match &fate {
        Ok(Outcome { result: Ok(Answer::Queued(_)), .. }) => turn(&notices, wait),
        _ => told(member, fate),
    }
}

/// Waits for the notice of a place in the queue.
fn turn(notices: &Receiver<Notice>, wait: Wait) -> String {
    let notice = match wait {
        Wait::Limit { ms } => {
            notices.recv_timeout(Duration::from_millis(ms).saturating_add(WAIT_GRACE)).ok()
        }
        _ => notices.recv().ok(),
    };
    match notice {
        Some(notice) => show::notice(&notice),
        None => "error unknown no-answer the place may be in the queue still".to_owned(),
    }
}

/// Changes members or leadership, whoever leads.
fn changed<T>(edge: &Edge, change: impl Future<Output = Result<T, v1::Error>>) -> String {
    match edge.runtime().block_on(change) {
        Ok(_) => "ok".to_owned(),
        Err(error) => {
            let effect = tenure_wire::reason::effect_word(error.effect());
            let word = error.reason.to_lowercase().replace('_', "-");
            format!("error {effect} {word} {}", error.message)
        }
    }
}

fn card(id: MemberId, address: &str) -> Card {
    let (name, members) = (id.to_string(), address.to_owned());
    Card {
        id,
        names: Names { name, members, clients: "-".into(), preference: Preference::default() },
    }
}
