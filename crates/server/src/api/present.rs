//! Brings the durations of holds and waits up to the present.
//!
//! A view counts them by the machine's clock, which an idle cluster moves once a second. What lies ahead, such as the
//! time that a lease has left, stays as it is: those are bounds by the machine's clock.

use tenure_wire::v1;

use crate::dispatch::Dispatch;
use crate::os;

/// How long the machine's clock has been where it is.
pub(crate) fn clock_age_ms(dispatch: &Dispatch) -> u64 {
    dispatch.member().meters().clock_age_ms(os::now_us())
}

/// Moves the holders of a lock.
pub(crate) fn lock(lock: &mut v1::LockView, age_ms: u64) {
    for holder in &mut lock.holders {
        holder.held_ms += age_ms;
        holder.renewed_ms = holder.renewed_ms.map(|renewed_ms| renewed_ms + age_ms);
    }
}

/// Moves everything in an explanation.
pub(crate) fn explained(explained: &mut v1::ExplainResponse, age_ms: u64) {
    explained.lock.iter_mut().for_each(|it| lock(it, age_ms));
    let waiters = explained.ahead.iter_mut().chain(&mut explained.own);
    waiters.for_each(|waiter| waiter.waiting_ms += age_ms);
}
