//! Reports why the lock was not acquired, with the effect and what to try next.

use serde_json::json;
use tenure::{Cause, Error, Refusal};

use crate::duration::shown;
use crate::exit::Exit;
use crate::failure::{self, chain, quoted};
use crate::output::{self, shortened};
use crate::waiting::labelled;

use super::messages::Messages;
use super::waiting::QueueView;
use super::{RunArgs, codes};

/// Reports why there is no lock and returns the exit code. The command did not start in any of these cases.
pub(super) fn refuse(
    messages: &mut Messages,
    flags: &RunArgs,
    error: &Error,
    view: Option<&QueueView>,
) -> u8 {
    let lock = &shortened(&flags.lock);
    let look = format!("tenure explain {}", quoted(&flags.lock));
    let unseen = format!(
        "the command did not start; what was granted unseen is given back, or free after {}",
        shown(flags.ttl)
    );
    let (outcome, code) = match error {
        Error::Refused(Refusal::Held(_)) => {
            messages.error(&format!("lock `{lock}` is held"));
            ("held", flags.held_code)
        }
        Error::Refused(Refusal::WaitTimeout) => {
            let waited = shown(flags.wait.unwrap_or_default());
            messages.error(&format!("lock `{lock}` is held; waited {waited}"));
            ("wait_timeout", flags.held_code)
        }
        Error::Lost(lost) if matches!(lost.cause(), Cause::Unreachable { .. }) => {
            let lost = output::clean(&lost.to_string());
            messages.error(&format!("lock `{lock}` was not acquired: {lost}"));
            messages.detail("effect", &unseen);
            messages.detail("try", "tenure doctor, or the same again later");
            ("unreachable", Exit::Unreachable.code())
        }
        Error::Lost(lost) => {
            let lost = output::clean(&lost.to_string());
            messages.error(&format!("lock `{lock}` was not acquired: {lost}"));
            messages.detail("effect", "none: the command did not start");
            messages.detail("try", &format!("the same again; who has it: {look}"));
            ("not_acquired", flags.held_code)
        }
        Error::Refused(refusal) => {
            messages.error(&format!("lock `{lock}`: {refusal}"));
            for (word, text) in failure::refused(refusal, Exit::Refused).more {
                messages.detail(word, &text);
            }
            ("refused", Exit::of(error).code())
        }
        Error::Unavailable | Error::Unreachable { .. } => {
            unreachable(messages, error);
            ("unreachable", Exit::Unreachable.code())
        }
        Error::Unknown { waited, .. } => {
            let waited = shown(*waited);
            messages.error(&format!("lock `{lock}`: no member could answer within {waited}"));
            messages.detail("effect", &unseen);
            messages
                .detail("try", &format!("tenure doctor, or the same again; who has it: {look}"));
            ("unreachable", Exit::Unreachable.code())
        }
        Error::Pace(wrong) => {
            messages.error(&wrong.to_string());
            ("usage", codes::USAGE)
        }
        other => {
            messages.error(&format!("lock `{lock}`: {}", chain(other)));
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
        messages.detail(
            "try",
            "the same with --wait 30s, or without --wait to queue for as long as it takes",
        );
    }
    if let Error::Refused(refusal) = error {
        messages.event("refused", &json!({ "message": refusal.to_string() }));
    }
    messages.ended(outcome, code)
}

fn unreachable(messages: &mut Messages, error: &Error) {
    match error {
        Error::Unreachable { waited, .. } => {
            messages.error(&format!("no member answered within {}", shown(*waited)));
        }
        _ => messages.error(&error.to_string()),
    }
    if let Error::Unreachable { tried, .. } = error {
        let tried: Vec<String> =
            tried.iter().map(|it| format!("{} {}", it.address, it.outcome)).collect();
        messages.detail("tried", &tried.join(" · "));
    }
    messages.detail("effect", "none: no lock was asked for, the command did not start");
    let advice = match error {
        Error::Unreachable { tried, .. } => failure::unreachable_advice(tried),
        _ => failure::unreachable_advice(&[]),
    };
    messages.detail("try", advice);
}
