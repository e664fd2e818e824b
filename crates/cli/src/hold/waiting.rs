//! What does somebody see who waits for a lock?

use serde_json::{Value, json};
use tenure::Explanation;

use crate::failure::quoted;
use crate::output::{bytes, clean, quiet};
use crate::span::ms;

use super::voice::detail;

/// Places before ours that are worth a line each.
const SHOWN: usize = 3;

/// Where an ask stands.
#[derive(Clone, Debug)]
pub(super) struct View {
    lock: String,
    ahead: u64,
    told: Explanation,
}

impl View {
    /// What the cluster told about a lock, for the client of this name.
    pub(super) fn new(lock: &str, own: &str, ahead: u64, mut told: Explanation) -> Self {
        // Nobody asked for a place of theirs: the queue is everybody's, and ends before us.
        let at = told.ahead.iter().position(|it| it.client == own);
        if let Some(at) = at {
            told.ahead.truncate(at);
        }
        let ahead = at.map_or(ahead, |at| u64::try_from(at).unwrap_or(u64::MAX));
        Self { lock: lock.to_owned(), ahead, told }
    }

    /// What has to change for a log to say something again.
    pub(super) fn key(&self) -> (u64, Option<u64>) {
        (self.ahead, self.told.lock.as_ref().and_then(|it| it.holders.first()).map(|it| it.token))
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let (lock, ahead) = (&self.lock, self.ahead);
        let mut lines = vec![match ahead {
            0 => format!("tenure: waiting for lock `{lock}`, you are next"),
            _ => format!("tenure: waiting for lock `{lock}`, {ahead} ahead of you"),
        }];
        lines.extend(self.block());
        lines
    }

    /// Who has it, who is before us, and when that can end.
    pub(super) fn block(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let holders = self.told.lock.as_ref().map(|it| &it.holders[..]).unwrap_or_default();
        if let Some(holder) = holders.first() {
            let mut text = format!(
                "{} for {}, token {}",
                clean(&holder.client),
                ms(holder.held_ms),
                holder.token
            );
            if let Some(renewed) = holder.renewed_ms {
                text.push_str(&format!(", renewed {} ago", ms(renewed)));
            }
            if !holder.metadata.is_empty() {
                text.push_str(&format!(": \"{}\"", bytes(&holder.metadata)));
            }
            if holders.len() > 1 {
                text.push_str(&format!(", and {} more", holders.len() - 1));
            }
            lines.push(detail("held by", &text));
        }
        for (at, waiter) in self.told.ahead.iter().take(SHOWN).enumerate() {
            let word = if at == 0 { "ahead" } else { "" };
            let text = format!("{}, waiting {}", clean(&waiter.client), ms(waiter.waiting_ms));
            lines.push(detail(word, &text));
        }
        if let Some(quiet_ms) = self.told.quiet_ms {
            lines.push(detail("restored", &quiet(quiet_ms)));
        }
        if let Some(freed) = &self.told.freed {
            let left = ms(freed.in_ms);
            let silent = holders.first();
            let silent = silent.map_or_else(|| "its holder".to_owned(), |it| clean(&it.client));
            lines.push(detail(
                "free",
                &match freed.at_latest {
                    true => format!("in {left} at the latest"),
                    false => format!("when released, or in {left} if {silent} falls silent now"),
                },
            ));
        }
        lines.push(detail("look", &format!("tenure explain {}", quoted(&self.lock))));
        lines
    }

    pub(super) fn event(&self) -> Value {
        let revision = self.told.header.as_ref().map_or(0, |it| it.revision).to_string();
        let holder = self.told.lock.as_ref().and_then(|it| it.holders.first());
        let holder = holder.map(|it| {
            json!({
                "client": it.client, "token": it.token.to_string(), "held_ms": it.held_ms,
                "lease": it.lease.to_string(),
            })
        });
        let mut event = json!({ "revision": revision, "ahead": self.ahead, "holder": holder });
        if let Some(quiet_ms) = self.told.quiet_ms {
            event["quiet_ms"] = quiet_ms.into();
        }
        event
    }
}
