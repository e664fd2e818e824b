//! How does a member enter a cluster that exists, and keep its address there true?

use std::time::Duration;

use tenure_node::{AdminRequest, Failure};
use tenure_raft::{Change, Stop, Why};

use crate::error::StartError;
use crate::member::{End, Event, Member, MemberStatus};
use crate::os;
use crate::peer::{Control, Join, Joiner, Wire};
use crate::pen::spawn;
use tenure_node::Lineage;
use tenure_node::directory::{self, Address, Card, Names};

/// From one member to the one it names as leader, at most so often.
const HOPS_MAX: usize = 5;
/// How long a member tries to enter before it says why it cannot.
const ENTER_US: u64 = 30_000_000;
const PAUSE: Duration = Duration::from_millis(500);
/// How often a member looks whether it hears of a leader, and how often in a row it must hear of none before it asks
/// whether it was removed: an election is over by then.
const LOOK: Duration = Duration::from_secs(1);
const ALONE_MIN: u32 = 3;
/// How long the cluster may take to agree on a new member.
const AGREE: Duration = Duration::from_secs(8);

/// Members let in, at most: every one of them is sent every entry by the leader.
const MEMBERS_MAX: usize = 64;

/// A cluster that has let this member in.
pub(crate) struct Entered {
    pub(crate) lineage: Lineage,
    pub(crate) book: Vec<Card>,
}

/// Asks to be let in, first one member, then the one it says is the leader.
pub(crate) fn enter(
    seeds: &[Address],
    card: &Card,
    level_known: u16,
    wire: &Wire,
    stopped: &dyn Fn() -> bool,
) -> Result<Entered, StartError> {
    let until_us = os::now_us() + ENTER_US;
    let join = Join { card: card.clone(), level: level_known, lineage: None };
    loop {
        let mut tried = Vec::new();
        for seed in seeds {
            match knock(seed, &join, wire) {
                Ok(entered) => return Ok(entered),
                Err(why) => tried.push(why),
            }
        }
        if stopped() {
            return Err(StartError::Interrupted);
        }
        if os::now_us() >= until_us {
            return Err(StartError::Unreachable { tried: tried.join("; ") });
        }
        std::thread::sleep(os::jittered(PAUSE));
    }
}

fn knock(seed: &str, join: &Join, wire: &Wire) -> Result<Entered, String> {
    let mut address = seed.to_owned();
    for _ in 0..HOPS_MAX {
        match wire.ask(&address, None, &Control::Join(join.clone())) {
            Ok(Control::Joined { lineage, level, book }) if level <= join.level => {
                return Ok(Entered { lineage, book });
            }
            Ok(Control::Joined { level, .. }) => {
                return Err(format!("{address}: {}", outgrown(level, join.level)));
            }
            Ok(Control::Elsewhere(next)) => address = next,
            Ok(Control::Refused(why)) => return Err(format!("{address}: {why}")),
            Ok(_) => return Err(format!("{address}: speaks another protocol")),
            Err(error) => return Err(format!("{address}: {error}")),
        }
    }
    Err(format!("{seed}: no leader after {HOPS_MAX} members"))
}

/// Answers members that want to be let in, or whose address has changed.
pub(crate) fn joiner(member: Member) -> Joiner {
    Box::new(move |join| match admit(&member, join) {
        Ok((level, book)) => Control::Joined { lineage: member.lineage().clone(), level, book },
        Err(answer) => *answer,
    })
}

fn outgrown(level: u16, known: u16) -> Stop {
    Stop::Outgrown { level, known }
}

fn admit(member: &Member, join: &Join) -> Result<(u16, Vec<Card>), Box<Control>> {
    let refused = |why: &dyn std::fmt::Display| Box::new(Control::Refused(why.to_string()));
    let card = &join.card;
    let theirs = join.lineage.as_ref();
    if let Some(why) = theirs.and_then(|theirs| member.lineage().objection(theirs)) {
        return Err(refused(&why));
    }
    let (status, book) = member
        .look(|replica| (replica.status(), directory::read(replica.machine())))
        .map_err(|gone| refused(&gone))?;
    if !status.leading {
        let leader = status.leader.and_then(|leader| book.get(&leader));
        let elsewhere = leader.map(|names| Box::new(Control::Elsewhere(names.members.clone())));
        return Err(elsewhere.unwrap_or_else(|| refused(&"nobody leads")));
    }
    let id = card.id;
    let MemberStatus { members, level: (level, _), .. } =
        member.status().map_err(|gone| refused(&gone))?;
    if join.level < level {
        return Err(refused(&outgrown(level, join.level)));
    }
    if members.retired.contains(&id) {
        return Err(refused(&Why::Retired));
    }
    if !members.contains(id) && members.all().len() >= MEMBERS_MAX {
        return Err(refused(&format!("the cluster has {MEMBERS_MAX} members")));
    }
    if book.get(&id) != Some(&card.names) {
        let put = directory::put(&directory::key(id), &card.names.to_string());
        match member.submit(vec![put.into()], Duration::ZERO, AGREE).pop() {
            Some(Ok(outcome)) => drop(outcome.result.map_err(|refusal| refused(&refusal))?),
            Some(Err(failure)) => return Err(refused(&failure)),
            None => return Err(refused(&Failure::Unknown)),
        }
    }
    if !members.contains(id) {
        let request = AdminRequest::Change(vec![Change::AddLearner(id)]);
        member.admin(request, AGREE).map_err(|failure| refused(&failure))?;
        tracing::info!(member = %id, card = %card.names, "a member was added");
    }
    let book = member.read_stale(directory::read).map_err(|gone| refused(&gone))?;
    Ok((level, book.into_iter().map(|(id, names)| Card { id, names }).collect()))
}

/// Sees to it that the book has this member's card as it is now, and that it ends once it does not belong to the
/// others any more.
pub(crate) fn announce(member: Member, card: Card, level_known: u16, wire: Wire) {
    let join = Join { card, level: level_known, lineage: Some(member.lineage().clone()) };
    spawn("tenure-card", move || {
        while member.ended().is_none() && !is_known(&member, &join, &wire) {
            std::thread::sleep(os::jittered(PAUSE));
        }
        belong(&member, &join, &wire);
    });
}

/// The entry that removes a member is not sent to one that was behind when the others agreed on it: it hears nothing
/// any more, and asks them why.
fn belong(member: &Member, join: &Join, wire: &Wire) {
    let mut alone = 0;
    while member.ended().is_none() {
        std::thread::sleep(os::jittered(LOOK));
        alone = if member.lead().borrow().by.is_none() { alone + 1 } else { 0 };
        if alone >= ALONE_MIN && is_retired(member, join, wire) {
            return member.tell(Event::Die(End::Cluster(Stop::Removed)));
        }
    }
}

fn is_retired(member: &Member, join: &Join, wire: &Wire) -> bool {
    let Ok(book) = member.look(|replica| directory::read(replica.machine())) else { return false };
    let others = book.iter().filter(|(id, _)| **id != join.card.id);
    let retired = Why::Retired.to_string();
    let says_so = |(_, names): (_, &Names)| {
        knock(&names.members, join, wire).err().is_some_and(|why| why.ends_with(&retired))
    };
    others.into_iter().any(says_so)
}

fn is_known(member: &Member, join: &Join, wire: &Wire) -> bool {
    let card = &join.card;
    let id = card.id;
    let Ok((known, belongs)) = member.look(move |replica| {
        (directory::read(replica.machine()).remove(&id), replica.members().contains(id))
    }) else {
        return true;
    };
    if known.as_ref() == Some(&card.names) {
        return true;
    }
    if belongs
        && let Err(answer) = admit(member, join)
        && let Control::Elsewhere(leader) = *answer
    {
        let _ = wire.ask(&leader, None, &Control::Join(join.clone()));
    }
    false
}
