//! Decides from the status of a cluster whether it is healthy, and what is wrong if it is not.

use serde_json::{Value, json};
use tenure_wire::{member_state, v1};

use super::each::MemberAnswer;
use super::status::{self, BEHIND};
use crate::output;
use crate::suggest::suggested;

/// No process listens at the member's address, and the leader has no contact with it.
pub(crate) const DEAD: &str = "dead";
/// The member accepts connections and does not answer.
pub(crate) const HUNG: &str = "hung";
/// The member answers, but the leader has no contact with it.
pub(crate) const CUT_OFF: &str = "cut off";
/// Neither the leader nor this command reaches the member.
pub(crate) const UNREACHABLE: &str = "unreachable";

/// No member leads, although a majority is up.
pub(crate) const NO_LEADER: &str = "no leader";

/// One reason why a cluster is not healthy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    /// The member that it is about; `None` for the whole cluster.
    pub(crate) member: Option<String>,
    /// A fixed word for programs, such as [`DEAD`].
    pub(crate) word: &'static str,
    pub(crate) detail: String,
    /// What to do about it.
    pub(crate) next: String,
}

impl Problem {
    pub(crate) fn json(&self) -> Value {
        json!({ "member": self.member, "problem": self.word, "detail": self.detail, "next": suggested(&self.next) })
    }
}

/// The state of a member, from what the leader and the member itself report.
pub(super) fn state(up: bool, answer: &MemberAnswer, reported: &str) -> String {
    let word = match (up, answer) {
        (_, MemberAnswer::Hung) => HUNG,
        (true, MemberAnswer::Given(own)) if own.state == member_state::OUT_OF_SPACE => &own.state,
        (true, MemberAnswer::Given(own)) if reported.is_empty() => &own.state,
        (true, _) => reported,
        (false, MemberAnswer::Given(_) | MemberAnswer::Rejected) => CUT_OFF,
        (false, MemberAnswer::Refused) => DEAD,
        (false, MemberAnswer::Unreached) => UNREACHABLE,
    };
    word.to_owned()
}

/// Everything that keeps the cluster from being healthy, the worst first. Empty if it is healthy.
pub(crate) fn problems(status: &v1::StatusResponse) -> Vec<Problem> {
    let mut found = Vec::new();
    let whole = |word, detail, next| Problem { member: None, word, detail, next };
    if status::lacking(status) > 0 {
        let detail = "no majority: nothing is granted, renewed or written".to_owned();
        found.push(whole("no majority", detail, status::gather(status)));
    } else if status::leader(status).is_none() {
        let next = "wait a few seconds; if it lasts, the members do not reach each other: look at their logs";
        found.push(whole(NO_LEADER, "no member leads".to_owned(), next.to_owned()));
    }
    found.extend(status.members.iter().flat_map(|it| of_member(status, it)));
    if let Some(quiet) = status::quiet(status) {
        let next = "wait; if you know that all former clients are stopped, restore with --stopped-for TIME";
        found.push(whole("quiet", quiet, next.to_owned()));
    }
    found
}

fn of_member(status: &v1::StatusResponse, it: &v1::MemberStatus) -> Option<Problem> {
    let member = it.member.clone().unwrap_or_default();
    let (name, address) = (output::clean(&member.name), output::clean(&member.client_address));
    // A minority cannot remove a member.
    let or_replace = match status::lacking(status) {
        0 => format!(", or replace it: tenure cluster remove {name}"),
        _ => String::new(),
    };
    let (word, detail, next) = match it.state.as_str() {
        HUNG => (
            HUNG,
            format!("{name} is hung: it accepts connections at {address} and does not answer"),
            format!("look at its process and its disk; restart {name}{or_replace}"),
        ),
        CUT_OFF => (
            CUT_OFF,
            format!("{name} is cut off: it answers at {address}, but not the other members"),
            format!(
                "right after a start, wait some seconds; else look at the network between {name} ({}) and the \
                 other members{or_replace}",
                output::clean(&member.member_address)
            ),
        ),
        DEAD => (
            DEAD,
            format!("{name} is down: nothing listens at {address}"),
            format!("start {name} again{or_replace}"),
        ),
        _ if !it.up => (
            UNREACHABLE,
            format!("{name} is down, or cannot be reached at {address}"),
            format!("start {name} again{or_replace}"),
        ),
        member_state::OUT_OF_SPACE => (
            "out of space",
            format!("{name} is out of space: it takes nothing that makes the state grow"),
            format!("free space on {name} now{or_replace}"),
        ),
        _ => {
            let behind = it.behind.filter(|behind| *behind > BEHIND)?;
            let detail = format!("{name} is {behind} entries behind");
            ("behind", detail, format!("wait; if it lasts, look at {name}'s disk and network"))
        }
    };
    Some(Problem { member: Some(name), word, detail, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(state: &str) -> MemberAnswer {
        MemberAnswer::Given(Box::new(v1::MemberStatus {
            state: state.to_owned(),
            ..Default::default()
        }))
    }

    #[test]
    fn the_state_follows_from_both_reports() {
        let up_to_date = answer(member_state::UP_TO_DATE);
        assert_eq!(state(true, &up_to_date, "behind"), "behind");
        assert_eq!(state(true, &up_to_date, ""), "up to date");
        assert_eq!(state(true, &answer(member_state::OUT_OF_SPACE), "up to date"), "out of space");
        assert_eq!(state(true, &MemberAnswer::Hung, "up to date"), HUNG);
        // That this command cannot reach the member proves nothing, because the leader is in contact with it.
        assert_eq!(state(true, &MemberAnswer::Refused, "up to date"), "up to date");
        assert_eq!(state(false, &MemberAnswer::Refused, "not heard of"), DEAD);
        assert_eq!(state(false, &MemberAnswer::Hung, "not heard of"), HUNG);
        assert_eq!(state(false, &up_to_date, "not heard of"), CUT_OFF);
        assert_eq!(state(false, &MemberAnswer::Unreached, "not heard of"), UNREACHABLE);
    }

    #[test]
    fn a_member_far_behind_is_a_problem_and_a_small_lag_is_none() {
        let member = |behind| v1::MemberStatus {
            member: Some(v1::Member {
                member_id: 1,
                name: "a".to_owned(),
                role: v1::Role::Leader.into(),
                ..Default::default()
            }),
            up: true,
            behind: Some(behind),
            state: member_state::BEHIND.to_owned(),
            ..Default::default()
        };
        let status = |behind| v1::StatusResponse {
            members: vec![member(behind)],
            leader: Some(v1::LeaderHint { member_id: 1, ..Default::default() }),
            ..Default::default()
        };
        assert_eq!(problems(&status(BEHIND)), []);
        assert_eq!(problems(&status(BEHIND + 1))[0].word, "behind");
    }
}
