//! How do members that have nothing found a cluster together?
//!
//! Each asks all the others who they are until every one has answered with its id and that it holds
//! nothing. Ids are drawn once and kept before they are told, so everyone finds the same set, and
//! from it the same cluster and the same first state.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::time::Duration;

use tenure_raft::MemberId;
use tenure_store::IdentityError;

use crate::error::StartError;
use crate::os;
use crate::peer::{Control, Me, Wire};
use crate::pen::spawn;
use crate::start::Entrance;
use tenure_node::directory::{Address, Card};

/// Between two rounds of questions, before jitter.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a restart waits to hear of another cluster.
const WHO_US: u64 = 500_000;
/// How often a member that waits says for whom.
const SAY_EVERY_US: u64 = 10_000_000;

/// The founders, in the order of their ids.
pub(crate) fn agree(
    listed: &[(String, Address)],
    me: &Card,
    wire: &Wire,
    stopped: &dyn Fn() -> bool,
) -> Result<Vec<Card>, StartError> {
    let name = &me.names.name;
    if !listed.iter().any(|(listed, _)| listed == name) {
        return Err(StartError::NotListed { name: name.clone() });
    }
    let others: Vec<_> = listed.iter().filter(|(listed, _)| listed != name).collect();
    let mut next_words_us = 0;
    while !stopped() {
        let mut cards: BTreeMap<MemberId, Card> = BTreeMap::from([(me.id, me.clone())]);
        let mut missing = Vec::new();
        // All of them in one round, so that one that lost its disk in between is asked again.
        for (name, address) in &others {
            match wire.ask(address, Some(name), &Control::Who) {
                Ok(Control::IAm(them)) => match answer(them, name, address, me.id)? {
                    Answer::Founder(card) => drop(cards.insert(card.id, card)),
                    Answer::Founded(founders) => return Ok(founders),
                    Answer::Other(found) => missing.push(format!("{address} is `{found}`")),
                },
                Ok(_) => missing.push(format!("{name} speaks another protocol")),
                Err(error) => missing.push(format!("{name} at {address}: {error}")),
            }
        }
        if missing.is_empty() && cards.len() == listed.len() {
            return Ok(cards.into_values().collect());
        }
        let now_us = os::now_us();
        if now_us >= next_words_us {
            next_words_us = now_us + SAY_EVERY_US;
            let missing = missing.join("; ");
            tracing::info!(missing, "waiting for the other founders");
        }
        std::thread::sleep(os::jittered(PAUSE));
    }
    Err(StartError::Interrupted)
}

/// Refuses a directory of one cluster when the members listed belong to another. Those who do not
/// answer soon are not waited for: their messages would be refused anyway.
pub(crate) fn check_cluster(
    cluster: &str,
    entrance: &Entrance,
    me: &str,
    wire: &Wire,
) -> Result<(), StartError> {
    let listed: Vec<Address> = match entrance {
        Entrance::Bootstrap(listed) => {
            listed.iter().filter(|(name, _)| name != me).map(|(_, at)| at.clone()).collect()
        }
        Entrance::Join(seeds) => seeds.clone(),
        Entrance::Alone | Entrance::None => return Ok(()),
    };
    let (sender, answers) = channel();
    for address in listed {
        let (sender, wire) = (sender.clone(), wire.clone());
        spawn("tenure-who", move || {
            if let Ok(Control::IAm(them)) = wire.ask(&address, None, &Control::Who) {
                let _ = sender.send(them.cluster);
            }
        });
    }
    drop(sender);
    let until_us = os::now_us() + WHO_US;
    while let Ok(theirs) = answers.recv_timeout(os::until(until_us)) {
        if let Some(expected) = theirs.filter(|theirs| theirs != cluster) {
            let found = cluster.to_owned();
            return Err(IdentityError::OtherCluster { found, expected }.into());
        }
    }
    Ok(())
}

enum Answer {
    Founder(Card),
    Founded(Vec<Card>),
    Other(String),
}

fn answer(them: Me, name: &str, address: &str, me: MemberId) -> Result<Answer, StartError> {
    if let Some(cluster) = them.cluster {
        // They were faster; if this member is one of them, they had its answer.
        return if them.founders.iter().any(|card| card.id == me) {
            Ok(Answer::Founded(them.founders))
        } else {
            Err(StartError::Founded { peer: address.to_owned(), cluster })
        };
    }
    if them.card.names.name != name {
        return Ok(Answer::Other(them.card.names.name));
    }
    Ok(Answer::Founder(them.card))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_node::directory::Names;

    fn card(number: u64) -> Card {
        let names = Names {
            name: "a".into(),
            members: "h:1".into(),
            clients: "h:2".into(),
            preference: tenure_node::directory::Preference::default(),
        };
        Card { id: MemberId::new(number).unwrap(), names }
    }

    #[test]
    fn a_cluster_that_was_founded_without_this_member_is_no_place_for_it() {
        let id = |number| MemberId::new(number).unwrap();
        let founders = vec![card(1), card(2)];
        let them = Me { card: card(1), cluster: Some("c".into()), founders: founders.clone() };
        let founded = answer(them.clone(), "a", "h:1", id(2)).unwrap();
        assert!(matches!(founded, Answer::Founded(found) if found == founders));
        let refused = answer(them, "a", "h:1", id(3));
        assert!(matches!(refused, Err(StartError::Founded { .. })));
        let new = Me { card: card(1), cluster: None, founders: vec![] };
        assert!(matches!(answer(new.clone(), "a", "h:1", id(3)), Ok(Answer::Founder(_))));
        assert!(matches!(answer(new, "b", "h:1", id(3)), Ok(Answer::Other(_))));
    }
}
