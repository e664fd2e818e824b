//! Renews all leases of a client with few messages.
//!
//! When one lease is due, the client renews every lease that will be due soon with the same command. The first attempt
//! goes to the leader. While it is unanswered, further attempts go to the other member and to the leader in turn, each
//! independently.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tenure_types::{RENEW_MAX, Revision, Token};
use tenure_wire::{convert, v1};
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::clock;
use crate::held_lease::HeldLease;
use crate::lease_state::{AckEffect, Cause};
use crate::response_slot::Response;
use crate::session::Session;
use crate::shared::{ClientShared, RequestIdentity, ms};

/// The maximum time between two checks, even with nothing to do.
const IDLE: Duration = Duration::from_secs(60);

/// A lease in a renewal, and the number of the attempt.
type RenewalPart = (Arc<HeldLease>, u64);

/// Runs until the client is gone.
pub(crate) async fn run(shared: Weak<ClientShared>) {
    let mut turn = 0_usize;
    loop {
        let Some(strong) = shared.upgrade() else { return };
        strong.pause.over().await;
        // A lease that is registered while the time of the next check is not known wakes this task.
        strong.next_beat_us.store(u64::MAX, Ordering::SeqCst);
        let sleep = beat(&strong, &mut turn);
        let rung = async {
            strong.renew.notified().await;
        };
        // Holding the reference for the notification keeps the client alive, so sleep in short steps.
        let step = sleep.min(Duration::from_secs(1));
        let next = clock::boot() + step;
        strong.next_beat_us.store(next.micros(), Ordering::SeqCst);
        tokio::select! {
            () = rung => {}
            () = tokio::time::sleep(step) => {}
        }
    }
}

/// Sends the renewals that are due, and returns how long nothing else will be.
fn beat(shared: &Arc<ClientShared>, turn: &mut usize) -> Duration {
    let leases = shared.held();
    let mut due = false;
    for lease in &leases {
        let now = clock::read();
        due |= lease.with(|state| state.poll(now));
    }
    if due && !shared.mute.load(Ordering::Relaxed) {
        send(shared, &leases, turn);
    } else if due {
        for lease in &leases {
            let now = clock::read();
            lease.with(|state| {
                let number = state.renewing(now);
                state.not_renewed(number);
            });
        }
    }
    let now = clock::boot();
    let next = leases.iter().filter_map(|lease| {
        let now = clock::read();
        lease.with(|state| state.check(now).is_ok().then(|| state.due()))
    });
    next.min().map_or(IDLE, |next| next.since(now)).max(Duration::from_millis(1))
}

fn send(shared: &Arc<ClientShared>, leases: &[Arc<HeldLease>], turn: &mut usize) {
    let sessions = shared.sessions.borrow().clone();
    let again = leases.iter().any(|lease| lease.with(|state| state.is_retrying()));
    *turn = if again { *turn + 1 } else { 0 };
    let alive = |session: &Arc<Session>| !session.is_over();
    let both: Vec<_> =
        [sessions.first, sessions.second].into_iter().flatten().filter(alive).collect();
    let session = both.get(*turn % both.len().max(1)).cloned();
    let mut parts: Vec<RenewalPart> = Vec::new();
    for lease in leases {
        // Read the clock before anything is sent: the renewed lease counts from here.
        let now = clock::read();
        if let Some(number) = lease.with(|state| state.is_soon(now).then(|| state.renewing(now))) {
            parts.push((lease.clone(), number));
        }
    }
    for parts in parts.chunks(RENEW_MAX) {
        match &session {
            Some(session) => {
                shared.runtime.spawn(one(shared.clone(), session.clone(), parts.to_vec()));
            }
            None => failed(parts),
        }
    }
}

fn failed(parts: &[RenewalPart]) {
    for (lease, number) in parts {
        lease.with(|state| state.not_renewed(*number));
    }
}

/// Sends one renewal to one member.
async fn one(shared: Arc<ClientShared>, session: Arc<Session>, parts: Vec<RenewalPart>) {
    let windows = parts.iter().map(|(lease, _)| lease.with(|state| state.timing().window()));
    let answer_timeout = windows.min().unwrap_or_default();
    let command = Command::Renew(v1::RenewRequest {
        generations: parts.iter().map(|(lease, _)| lease.handle.generation).collect(),
        slots: parts.iter().map(|(lease, _)| lease.handle.slot).collect(),
        leases: Vec::new(),
    });
    let mut request = RequestIdentity::Harmless.request(command);
    request.deadline_ms = ms(answer_timeout);
    // Later attempts run independently. This one can still prove something until its window is over.
    let answer = match session.ask(request) {
        Some(mut asked) => tokio::time::timeout(answer_timeout, asked.next()).await,
        None => Ok(Response::Gone),
    };
    let timed_out = answer.is_err();
    let renewed = match answer {
        Ok(Response::Answer(answer)) => answer.result,
        _ => None,
    };
    let Some(Answer::Renewed(renewed)) = renewed else {
        if timed_out {
            session.suspect();
        }
        failed(&parts);
        return;
    };
    for (at, (lease, number)) in parts.iter().enumerate() {
        let ttl = Duration::from_millis(renewed.ttl_ms.get(at).copied().unwrap_or(0));
        let changed = renewed.changed.get(at).copied().and_then(convert::revision_from);
        let changed = changed.unwrap_or(Revision(0));
        let now = clock::read();
        let heard = lease.with(|state| state.renewed(*number, ttl, changed, now));
        if heard == AckEffect::ReadHoldings {
            shared.runtime.spawn(read_holdings(shared.clone(), lease.clone()));
        }
    }
    shared.renew.notify_one();
}

/// Reads what a lease holds, because it lost something that the client may not have been told of.
async fn read_holdings(shared: Arc<ClientShared>, lease: Arc<HeldLease>) {
    let ask = v1::GetLeaseRequest {
        lease_slot: lease.handle.slot,
        lease_generation: lease.handle.generation,
        ..Default::default()
    };
    let window = lease.with(|state| state.timing().window());
    let asked = shared.call_within(Command::GetLease(ask), RequestIdentity::Harmless, window).await;
    let now = clock::read();
    match asked {
        Ok((Answer::Lease(found), revision)) => {
            let Some(view) = found.lease else { return };
            let number = |number| convert::revision_from(number).unwrap_or(Revision(0));
            let holds: Vec<Token> =
                view.holds.iter().filter_map(|it| Token::from_u64(it.token)).collect();
            let (revision, changed) = (number(revision), number(view.changed));
            lease.with(|state| state.holdings(revision, changed, &holds, now));
        }
        Err(crate::Error::Refused(tenure_types::Refusal::LeaseNotFound)) => {
            lease.with(|state| state.ended(Cause::Gone, now));
        }
        // The next acknowledgement triggers another read.
        Ok(_) | Err(_) => {}
    }
}
