//! How does an answer look as one line?

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tenure_core::outcome::{Answer, Grants, Notice, Outcome};
use tenure_core::view::{KeyView, LockView};
use tenure_core::{Explained, Freed};
use tenure_raft::{MemberId, Membership, Status};
use tenure_types::HolderState;

use crate::book::Names;
use crate::figures::Figures;
use crate::member::MemberStatus;

pub(super) fn outcome(outcome: &Outcome) -> String {
    let revision = outcome.revision;
    match &outcome.result {
        Ok(answer) => format!("ok {} revision={revision}", self::answer(answer)),
        Err(refusal) => {
            let reason = refusal.reason();
            format!("refused {reason} {refusal}; {} revision={revision}", refusal.advice())
        }
    }
}

fn answer(answer: &Answer) -> String {
    match answer {
        Answer::LeaseGranted(lease) => {
            format!("lease={} ttl_ms={} created={}", lease.id, lease.ttl_ms, lease.created)
        }
        Answer::Renewed(renewals) => {
            let shown = renewals.iter().map(|renewal| match renewal {
                Some(renewal) => format!("ttl_ms={}", renewal.ttl_ms),
                None => "ended".to_owned(),
            });
            shown.collect::<Vec<_>>().join(" ")
        }
        Answer::Acquired(acquired) => {
            format!("{} place={}", grants(&acquired.grants), acquired.place)
        }
        Answer::Queued(queued) => format!("queued ahead={} place={}", queued.ahead, queued.place),
        Answer::AlreadyHeld(held) => grants(held),
        Answer::Put(written) => format!("version={}", written.version),
        Answer::Revoked => "revoked".to_owned(),
        Answer::LevelRaised => "raised".to_owned(),
        Answer::Released => "released".to_owned(),
        other => format!("{other:?}"),
    }
}

fn grants(grants: &Grants) -> String {
    let shown = grants.as_slice().iter().map(|grant| {
        let slot = grant.slot.map(|slot| format!(" slot={slot}")).unwrap_or_default();
        format!("lock={} token={}{slot}", word(&grant.lock), grant.token)
    });
    shown.collect::<Vec<_>>().join(" ")
}

pub(super) fn notice(notice: &Notice) -> String {
    match notice {
        Notice::Granted { grants: granted, revision, .. } => {
            format!("ok {} revision={revision}", grants(granted))
        }
        Notice::WaitEnded { revision, .. } => {
            format!("refused WAIT_TIMEOUT the wait is over revision={revision}")
        }
        Notice::LeaseEnded { revision, cause, .. } => {
            let cause = cause.word();
            format!("refused LEASE_NOT_FOUND the lease has ended: {cause} revision={revision}")
        }
        Notice::Lost { revision, .. } => format!("refused LOST revision={revision}"),
    }
}

pub(super) fn key(key: Option<&KeyView>) -> String {
    let Some(key) = key else { return "ok absent".to_owned() };
    let value = String::from_utf8_lossy(&key.value);
    format!("ok version={} modified={} value={}", key.version, key.modified, word(&value))
}

pub(super) fn locks(locks: &[LockView]) -> String {
    let mut line = format!("ok count={}", locks.len());
    for view in locks {
        let _ = write!(line, " [{}]", lock(view));
    }
    line
}

fn lock(view: &LockView) -> String {
    let mut line = word(&view.lock);
    for holder in &view.holders {
        let state = match holder.state {
            HolderState::Held => "held",
            HolderState::Cooling { .. } => "cooling",
            HolderState::Delayed { .. } => "delayed",
        };
        let (client, lease) = (word(&holder.client), holder.lease);
        let (token, held_ms) = (holder.token, holder.held_ms);
        let _ =
            write!(line, " {state} client={client} lease={lease} token={token} held_ms={held_ms}");
    }
    let _ = write!(line, " waiting={}", view.waiting);
    line
}

pub(super) fn explained(explained: Option<&Explained>) -> String {
    let Some(explained) = explained else { return "ok free".to_owned() };
    let mut line = format!("ok [{}]", lock(&explained.lock));
    for waiter in &explained.ahead {
        let (ahead, client) = (waiter.ahead, word(&waiter.client));
        let _ = write!(line, " [ahead={ahead} client={client} lease={}]", waiter.lease);
    }
    let _ = match explained.freed {
        Freed::Now => write!(line, " free=now"),
        Freed::IfSilentMs(ms) => write!(line, " free_if_silent_ms={ms}"),
        Freed::AtLatestMs(ms) => write!(line, " free_at_latest_ms={ms}"),
    };
    line
}

pub(super) fn status(status: &MemberStatus) -> String {
    let MemberStatus {
        id,
        agreement,
        members,
        lineage,
        level,
        revision,
        hash,
        clock_ms,
        figures,
        state_bytes,
    } = status;
    let (epoch, incarnation) = (lineage.epoch.get(), lineage.incarnation);
    let (cluster, (level, level_known)) = (&lineage.cluster, level);
    let role = role(*id, agreement.leader, members);
    let leader = agreement.leader.map_or("none".to_owned(), |leader| leader.to_string());
    let (term, applied) = (agreement.term, agreement.applied.index);
    let (committed, last) = (agreement.committed, agreement.last.index);
    let (serving, base) = (agreement.serving, agreement.base.index);
    format!(
        "ok member={id} role={role} leader={leader} serving={serving} term={term} \
         applied={applied} committed={committed} last={last} base={base} revision={revision} \
         clock_ms={clock_ms} {} state_bytes={state_bytes} apply_lag_entries={} cluster={cluster} \
         epoch={epoch} incarnation={incarnation} level={level} level_known={level_known} \
         hash={hash:032x}",
        self::figures(figures),
        committed.saturating_sub(applied)
    )
}

fn figures(figures: &Figures) -> String {
    let Figures {
        disk_free_bytes, data_bytes, log_bytes, syncs, sync_last_us, sync_p99_us, ..
    } = figures;
    let disk = if figures.disk_short { "short" } else { "enough" };
    format!(
        "disk={disk} disk_free_bytes={disk_free_bytes} data_bytes={data_bytes} \
         log_bytes={log_bytes} syncs={syncs} fsync_last_us={sync_last_us} fsync_p99_us={sync_p99_us}"
    )
}

pub(super) fn members(
    members: &Membership,
    status: &Status,
    book: &BTreeMap<MemberId, Names>,
) -> String {
    let mut line = format!("ok count={}", members.all().len());
    for id in members.all() {
        let role = role(id, status.leader, members);
        let names = book.get(&id);
        let names = names.map_or("name=- members=- clients=-".to_owned(), |names| {
            let Names { name, members, clients, preference } = names;
            let preference = preference.get();
            format!("name={name} members={members} clients={clients} preference={preference}")
        });
        let behind = status
            .matched
            .get(&id)
            .map(|matched| format!(" behind={}", status.last.index.saturating_sub(*matched)));
        let _ = write!(line, " [{id} {role} {names}{}]", behind.unwrap_or_default());
    }
    line
}

fn role(id: MemberId, leader: Option<MemberId>, members: &Membership) -> &'static str {
    if leader == Some(id) {
        "leader"
    } else if members.voters.contains(&id) {
        "follower"
    } else if members.learners.contains(&id) {
        "learner"
    } else {
        "outside"
    }
}

/// A text as it is, or in quotes if it could be taken for something else.
fn word(text: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && !"\"[]".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("{text:?}") }
}
