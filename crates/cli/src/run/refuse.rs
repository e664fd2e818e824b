//! Reports why the lock was not acquired, with the effect and what to try next.

use std::time::Duration;

use serde_json::json;
use tenure::{Cause, Error, Holder, Refusal};

use crate::duration::{self, shown};
use crate::exit::Exit;
use crate::failure::{self, CliError, chain, quoted};
use crate::lease;
use crate::output;
use crate::waiting::labelled;

use super::messages::Messages;
use super::waiting::QueueView;
use super::{RunArgs, codes, named};

/// Reports why there is no lock and returns the exit code. The command did not start in any of these cases.
pub(super) fn refuse(
    messages: &mut Messages,
    flags: &RunArgs,
    error: &Error,
    view: Option<&QueueView>,
) -> u8 {
    let locks = flags.named();
    let look = match flags.pool {
        true => format!("tenure locks {}", quoted(flags.first())),
        false => format!("tenure explain {}", quoted(flags.first())),
    };
    let unseen = format!(
        "the command did not start; what was granted unseen is given back, or free after {}",
        shown(flags.ttl)
    );
    if let Error::Refused(Refusal::Held(held)) = error
        && let Some(holder) = held.holder.as_ref().filter(|it| has_begun(flags, it.held_ms))
    {
        return skip(messages, flags, holder);
    }
    if let Error::Refused(refusal @ (Refusal::Held(_) | Refusal::WaitTimeout)) = error
        && flags.held_code == 0
    {
        return skip_held(messages, flags, refusal, view);
    }
    let (outcome, code) = match error {
        Error::Refused(Refusal::Held(_)) => {
            messages.error(&format!("{locks} {} held", are(flags)));
            ("held", flags.held_code)
        }
        Error::Refused(Refusal::WaitTimeout) => {
            let waited = shown(flags.wait().unwrap_or_default());
            messages.error(&format!("timed out after {waited} waiting for {locks}"));
            ("wait_timeout", flags.held_code)
        }
        Error::Refused(Refusal::Superseded(by)) => {
            let client = output::clean(&by.client);
            let lease = lease::short(tenure_wire::convert::lease(by.lease));
            messages
                .error(&format!("{locks}: superseded by a newer run of {client}, lease {lease}"));
            messages.detail("effect", "none: the command did not start");
            ("superseded", flags.held_code)
        }
        Error::Refused(Refusal::Draining(draining)) => {
            messages.error(&output::clean(&draining.to_string()));
            messages.detail("effect", "none: the command did not start");
            messages.detail("try", "the same without --wait 0 to queue until it is opened");
            ("not_acquired", flags.held_code)
        }
        Error::Lost(lost) if matches!(lost.cause(), Cause::Unreachable { .. }) => {
            let lost = output::clean(&lost.to_string());
            messages.error(&format!("{locks} {} not acquired: {lost}", were(flags)));
            messages.detail("effect", &unseen);
            messages.detail("try", "tenure doctor, or the same again later");
            ("unreachable", Exit::Unreachable.code())
        }
        Error::Lost(lost) => {
            let lost = output::clean(&lost.to_string());
            messages.error(&format!("{locks} {} not acquired: {lost}", were(flags)));
            messages.detail("effect", "none: the command did not start");
            messages.detail("try", &format!("the same again; who has it: {look}"));
            ("not_acquired", flags.held_code)
        }
        Error::Refused(refusal) => {
            let refused = failure::refused(refusal, Exit::Refused);
            // Most refusals name their lock.
            let about = &locks;
            messages.error(&match refused.text.contains(about.as_str()) {
                true => refused.text,
                false => format!("{about}: {}", refused.text),
            });
            for (word, text) in refused.more {
                messages.detail(word, &text);
            }
            ("refused", Exit::of(error).code())
        }
        Error::Unavailable => {
            messages.error(&format!("{locks}: no member took the request"));
            messages.detail("effect", "none: no lock was asked for, the command did not start");
            messages.detail("try", "tenure cluster status, or --wait-for-server 5m to keep trying");
            ("unreachable", Exit::Unreachable.code())
        }
        Error::Unknown { waited, .. } => {
            let waited = shown(*waited);
            messages.error(&format!("{locks}: no member could answer within {waited}"));
            messages.detail("effect", &unseen);
            messages
                .detail("try", &format!("tenure doctor, or the same again; who has it: {look}"));
            ("unreachable", Exit::Unreachable.code())
        }
        Error::LeaseTiming(wrong) => {
            messages.error(&wrong.to_string());
            ("usage", codes::USAGE)
        }
        other => {
            messages.error(&format!("{locks}: {}", chain(other)));
            messages.detail("effect", "none: the command did not start");
            let advice = match other {
                Error::Failed { reason, .. } => failure::advice(reason),
                _ => "tenure doctor",
            };
            messages.detail("try", advice);
            ("refused", Exit::of(other).code())
        }
    };
    if let Some(view) = view.filter(|_| matches!(outcome, "held" | "wait_timeout")) {
        for (label, text) in view.facts() {
            messages.further(&labelled(label, &text));
        }
        messages.event("held", &view.event());
    }
    if outcome == "held" {
        let advice = match flags.once_per {
            Some(_) => {
                "the run of an earlier period still works: choose a longer period, or --wait 2h to wait for its end"
            }
            None => "the same with --wait 30s, or without --wait to queue for as long as it takes",
        };
        messages.detail("try", advice);
    }
    if let Error::Refused(refusal) = error {
        messages.event("refused", &json!({ "message": refusal.to_string() }));
    }
    messages.ended(outcome, code)
}

/// Whether a run of the present period has begun. A run of an earlier period that still holds the lock is none.
fn has_begun(flags: &RunArgs, held_ms: u64) -> bool {
    Duration::from_millis(held_ms) < flags.min_hold()
}

/// Reports that another run of this period has begun, and returns the exit code of success: the work of the period is
/// being done, or was done.
fn skip(messages: &mut Messages, flags: &RunArgs, holder: &Holder) -> u8 {
    let (locks, ago) = (flags.named(), duration::ms(holder.held_ms));
    let client = output::clean(&holder.client);
    let period = shown(flags.once_per.unwrap_or_default());
    messages.usual(&format!(
        "skipped: {locks} was acquired {ago} ago by {client}, and the command runs once per {period}"
    ));
    messages
        .event("skipped", &json!({ "client": holder.client.as_str(), "held_ms": holder.held_ms }));
    messages.ended("skipped", 0)
}

/// Reports that the command is skipped because the lock is held, which `--held-code 0` makes a success. Without a
/// terminal nothing is printed, so that cron sends no mail.
fn skip_held(
    messages: &mut Messages,
    flags: &RunArgs,
    refusal: &Refusal,
    view: Option<&QueueView>,
) -> u8 {
    if flags.is_choice() {
        messages.skipped(&format!("{}: none is free", flags.named()));
    } else {
        let by = view.and_then(QueueView::holder).unwrap_or_else(|| "another client".to_owned());
        let lock = match view {
            Some(view) => named(&[view.lock().to_owned()]),
            None => flags.named(),
        };
        messages.skipped(&format!("{lock} is held by {by}"));
    }
    if let Some(view) = view {
        messages.event("held", &view.event());
    }
    messages.event("refused", &json!({ "message": refusal.to_string() }));
    messages.ended(if matches!(refusal, Refusal::Held(_)) { "held" } else { "wait_timeout" }, 0)
}

fn are(flags: &RunArgs) -> &'static str {
    if flags.locks.len() == 1 || flags.any { "is" } else { "are" }
}

fn were(flags: &RunArgs) -> &'static str {
    if flags.locks.len() == 1 || flags.any { "was" } else { "were" }
}

/// Reports that a run around this one holds the lock, and returns the exit code: waiting for it would never end.
pub(super) fn already_held(messages: &mut Messages, lock: &str) -> u8 {
    messages.error(&format!("lock `{}` is already held by this run", output::shortened(lock)));
    messages.detail("effect", "none: the command did not start");
    messages.detail(
        "try",
        "the command alone: it already runs under the lock, whose token is in TENURE_LOCKS",
    );
    messages.ended("refused", codes::REFUSED)
}

/// Reports why there is no connection and returns the exit code. The command did not start.
pub(super) fn unconnected(messages: &mut Messages, failure: &CliError) -> u8 {
    messages.error(&failure.text);
    for (label, text) in &failure.more {
        match *label {
            "effect" => {
                messages.detail("effect", "none: no lock was asked for, the command did not start");
            }
            label => messages.detail(label, text),
        }
    }
    let outcome = if failure.exit == Exit::Unreachable { "unreachable" } else { "refused" };
    messages.ended(outcome, failure.exit.code())
}
