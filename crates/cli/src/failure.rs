//! Describes why a command failed and what the user can type next.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tenure::{Error, LeaseTimingError, Refusal};
use tenure_gate::reason::Effect;
pub(crate) use tenure_server::chain;
use tenure_wire::v1;

use crate::connection_args::LOOPBACK;
use crate::duration;
use crate::exit::Exit;
use crate::output::{self, OutputFormat};
use crate::reason;
use crate::suggest::suggested;
use crate::wall_time;

/// A message, further labelled lines, and an exit code.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) text: String,
    pub(crate) exit: Exit,
    /// Further lines: a label and its text.
    pub(crate) more: Vec<(&'static str, String)>,
    /// The stable reason, for programs.
    pub(crate) reason: String,
    /// Whether the request may have taken effect all the same; `tenure help REASON` says the same.
    effect: Effect,
    /// Structured details for programs: who has the lock, how far the cluster has come.
    pub(crate) details: Map<String, Value>,
}

impl CliError {
    /// An obstacle prevents the command.
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::new(Exit::Refused, "REFUSED", text)
    }

    /// The configuration cannot be used.
    pub(crate) fn config(text: impl Into<String>) -> Self {
        Self::new(Exit::Config, "CONFIG", text)
    }

    /// The arguments are invalid.
    pub(crate) fn arguments(text: impl Into<String>) -> Self {
        Self::new(Exit::Arguments, "ARGUMENTS", text)
    }

    /// The argument parser rejected the arguments, with a message of several lines.
    pub(crate) fn misunderstood(said: &str) -> Self {
        let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
        let first = lines.next().unwrap_or("wrong arguments");
        let failure = Self::arguments(first.strip_prefix("error: ").unwrap_or(first));
        let more: Vec<&str> = lines.collect();
        failure.next(more.join("; "))
    }

    pub(crate) fn new(exit: Exit, reason: &str, text: impl Into<String>) -> Self {
        let (text, reason) = (text.into(), reason.to_owned());
        let (more, details) = (Vec::new(), Map::new());
        Self { text, exit, more, reason, effect: Effect::None, details }
    }

    /// Marks the effect as unknown; `then` says what becomes of a request that took effect.
    pub(crate) fn unknown(mut self, then: impl std::fmt::Display) -> Self {
        self.effect = Effect::Unknown;
        self.with("effect", format!("unknown: {then}"))
    }

    /// Adds a labelled line.
    pub(crate) fn with(mut self, label: &'static str, text: impl Into<String>) -> Self {
        self.more.push((label, text.into()));
        self
    }

    /// Adds a field for programs.
    pub(crate) fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// Adds several fields for programs.
    pub(crate) fn fields(mut self, fields: Value) -> Self {
        if let Value::Object(fields) = fields {
            self.details.extend(fields);
        }
        self
    }

    /// Sets the command to try next, replacing earlier advice.
    pub(crate) fn next(mut self, text: impl Into<String>) -> Self {
        self.more.retain(|(label, _)| *label != "try");
        self.with("try", text)
    }

    /// Prints the failure and returns the exit code.
    pub(crate) fn report_as(&self, output: OutputFormat) -> ExitCode {
        match output {
            OutputFormat::Json => output::tell(&format!("{}\n", self.json())),
            OutputFormat::Text => output::tell(&self.shown()),
        }
        self.exit.into()
    }

    fn json(&self) -> Value {
        let mut error = json!({
            "reason": self.reason,
            "message": self.text,
            "effect": self.effect.word(),
        });
        for (label, text) in &self.more {
            let text = labelled(label, text);
            let field = match *label {
                "try" => "next",
                "effect" => continue,
                "held by" => "held_by",
                label => label,
            };
            if !self.details.contains_key(field) {
                error[field] = json!(text);
            }
        }
        for (field, value) in &self.details {
            error[field.as_str()] = value.clone();
        }
        json!({ "error": error, "exit_code": self.exit.code() })
    }

    fn shown(&self) -> String {
        let mut text = format!("{} {}\n", output::red("error:"), self.text);
        for (label, line) in &self.more {
            text.push_str(&format!("  {label:<8} {}\n", labelled(label, line)));
        }
        text
    }
}

/// The text of a labelled line. What to type goes to the same cluster.
fn labelled(label: &str, text: &str) -> String {
    match label {
        "try" | "look" => suggested(text),
        _ => text.to_owned(),
    }
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        let exit = Exit::of(&error);
        match &error {
            Error::Refused(refusal) => refused(refusal, exit),
            Error::Unreachable { waited, tried } => {
                let tried = tried.iter().map(|it| (it.address.as_str(), it.outcome.as_str()));
                unreachable(*waited, &tried.collect::<Vec<_>>(), exit)
            }
            Error::Unavailable => Self::new(exit, "UNAVAILABLE", "no member took the request")
                .with("effect", "none: nothing happened")
                .with("try", "tenure cluster status, or the same again later"),
            Error::Unknown { request, waited } => {
                let shown = duration::shown(*waited);
                // Requests without an id are identified by their lease, or are harmless to repeat.
                let again = match request {
                    Some(id) => format!("the same with --request-id {id}: it happens once"),
                    None => "the same again: what was granted unseen is given back, or ends with its lease".to_owned(),
                };
                let failure =
                    Self::new(exit, "UNKNOWN_OUTCOME", format!("no outcome within {shown}"));
                let failure = match request {
                    Some(id) => failure.field("request_id", id.to_string()),
                    None => failure,
                };
                failure.unknown("it may have happened, or may still").with("try", again)
            }
            Error::Lost(lost) => Self::new(exit, "LOST", output::clean(&format!("lost: {lost}"))),
            Error::Compacted { floor } => {
                let text = format!("the oldest retained revision is {floor}");
                Self::new(exit, "COMPACTED", text).with("try", format!("--from {floor}"))
            }
            Error::Failed { reason, message } => {
                let told = reason::find(reason).into_iter().next().map(|(_, told)| told);
                let failure = Self::new(exit, reason, message.clone());
                let failure = match told {
                    Some(told) if told.effect == Effect::Unknown.word() => {
                        failure.unknown("it may have happened")
                    }
                    _ => failure.with("effect", "none"),
                };
                failure.with("try", advice(reason))
            }
            Error::LeaseTiming(LeaseTimingError::Ttl { ttl }) => {
                let text =
                    format!("a ttl of {} is not between 100ms and 1h", duration::shown(*ttl));
                Self::new(exit, "ARGUMENTS", text)
                    .with("effect", "none: nothing was sent")
                    .with("try", "--ttl 15s, or another from 1s to 1h")
            }
            Error::LeaseTiming(timing) => Self::new(exit, "ARGUMENTS", timing.to_string())
                .with("effect", "none: nothing was sent")
                .with("try", "a longer --ttl"),
            Error::Setup(why) => Self::new(exit, "CONFIG", why.clone()),
            other => Self::new(exit, "REFUSED", chain(other)),
        }
    }
}

/// What a user without accepted credentials can do.
const CREDENTIALS_ADVICE: &str = "TENURE_API_KEY, --api-key-file FILE or --token-file FILE; \
    an administrator makes keys: tenure auth key create; the first one: tenure auth init";
/// What a user can do whose credentials do not permit this.
const PERMISSION_ADVICE: &str = "tenure auth status, who you are; \
    tenure auth can - VERB NAME, which says why; an administrator gives roles";

/// What the user can do about a failure with this reason.
pub(crate) fn advice(reason: &str) -> &'static str {
    match reason {
        "UNAUTHENTICATED" => CREDENTIALS_ADVICE,
        "PERMISSION_DENIED" => PERMISSION_ADVICE,
        _ => reason::find(reason).first().map_or("tenure doctor", |(_, told)| told.advice),
    }
}

/// The outcome of an attempt that was not answered in time.
const TIMED_OUT: &str = "timed out";

/// Says that no member could be reached: each address that was tried, and its outcome.
fn unreachable(waited: Duration, tried: &[(&str, &str)], exit: Exit) -> CliError {
    let each =
        |(address, outcome): &(&str, &str)| json!({ "address": address, "outcome": outcome });
    let fields: Vec<Value> = tried.iter().map(each).collect();
    let lines: Vec<String> =
        tried.iter().map(|(address, outcome)| format!("{address} {outcome}")).collect();
    CliError::new(exit, "UNREACHABLE", unreachable_text(waited, tried))
        .with("tried", lines.join(" · "))
        .field("members", fields)
        .with("effect", "none: nothing was asked for")
        .with("try", unreachable_advice(tried))
}

/// The reason in one line, if there is one for all addresses.
fn unreachable_text(waited: Duration, tried: &[(&str, &str)]) -> String {
    match tried {
        [(address, "refused")] => format!("cannot connect to {address}: connection refused"),
        [(address, outcome @ ("accepts only TLS" | "does not accept TLS"))] => {
            format!("cannot connect to {address}: it {outcome}")
        }
        [(address, outcome)] if *outcome != TIMED_OUT => {
            format!("cannot connect to {address}: {outcome}")
        }
        [_, _, ..] if tried.iter().all(|(_, outcome)| *outcome != TIMED_OUT) => {
            "cannot connect to any of these members".to_owned()
        }
        _ => format!("no member answered within {}", duration::shown(waited)),
    }
}

/// What the user can do if no member answers.
fn unreachable_advice(tried: &[(&str, &str)]) -> String {
    // A user on a machine where no member runs is probably just starting.
    if let [(address, "refused")] = tried
        && is_loopback(address)
    {
        let clients = match *address {
            LOOPBACK => String::new(),
            address => format!(" --clients {address}"),
        };
        return format!(
            "tenure dev{clients}, which starts a member here; or --addr with the members of your cluster"
        );
    }
    let any = |words: &str| tried.iter().any(|(_, outcome)| outcome.contains(words));
    let advice = match () {
        _ if any("accepts only TLS") => {
            "--tls-ca FILE with the authority that signed the members' certificates, or TENURE_CA"
        }
        _ if any("does not accept TLS") => {
            "the same without --tls-ca and TENURE_CA, or the port of the member that has TLS"
        }
        _ if any("certificate") => {
            "--tls-ca FILE with the authority that signed the members' certificates, and --addr \
             with a name that the certificate has"
        }
        _ => "tenure doctor, or --wait-for-server 5m to keep trying",
    };
    advice.to_owned()
}

/// Whether an address is one of this machine alone.
fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Describes a refusal to the user, with what to type next.
pub(crate) fn refused(refusal: &Refusal, exit: Exit) -> CliError {
    let mut failure = CliError::new(exit, refusal.reason(), refusal.to_string());
    failure.details = details(refusal);
    match refusal {
        Refusal::Held(held) => {
            let failure = match &held.holder {
                Some(holder) => failure.with("held by", holder_line(holder)),
                None => failure,
            };
            let failure = match held.ahead {
                0 => failure,
                ahead => failure.with("ahead", format!("{ahead} waiting")),
            };
            let lock = quoted(&held.lock);
            failure.with("try", format!("tenure lock {lock} --wait 60s, or: tenure explain {lock}"))
        }
        Refusal::Superseded(_) => failure.with("effect", "none").with("try", refusal.advice()),
        Refusal::Draining(draining) => {
            let lock = quoted(&draining.lock);
            let queue = format!("tenure lock {lock}, which queues until it is opened");
            failure
                .with("effect", "none")
                .with("try", format!("{queue}, or: tenure explain {lock}"))
        }
        Refusal::TokenOutdated { lock, holder } => {
            let failure = match holder {
                Some(holder) => failure.with("held by", holder_line(holder)),
                None => failure.with("held by", "no client"),
            };
            let lock = quoted(lock);
            failure.with("effect", "none").with("try", format!("tenure explain {lock}"))
        }
        Refusal::NotHolder { lock } | Refusal::GuardFailed { lock } => failure
            .with("effect", "none")
            .with("try", format!("stop the work; who has it: tenure explain {}", quoted(lock))),
        Refusal::LeaseNotFound => failure
            .with("effect", "none")
            .with("try", "stop the work, then: tenure lease grant --ttl 60s"),
        Refusal::Deadlock { ring } => {
            let steps = ring.iter().map(|link| format!("{} → {}", link.client, link.lock));
            failure.text = format!("a deadlock: {refusal}");
            failure
                .with("ring", steps.collect::<Vec<_>>().join(" → "))
                .with("try", refusal.advice())
        }
        Refusal::CompareFailed { modified } => {
            let now = match modified {
                Some(revision) => format!("last written at revision {revision}"),
                None => "does not exist".to_owned(),
            };
            failure.with("now", now).with("effect", "none").with("try", "tenure key get KEY")
        }
        Refusal::OtherKind { lock, slots } => {
            let (pasted, lock) = (quoted(lock), output::clean(lock.as_str()));
            let (text, next) = match slots {
                None => (
                    format!("lock `{lock}` has no slots: it is held or awaited as a plain lock"),
                    format!("without --slots, or wait until it is free: tenure explain {pasted}"),
                ),
                Some(slots) => (
                    format!("lock `{lock}` has {}", output::count(u64::from(*slots), "slot")),
                    format!("--slots {slots}; who has them: tenure explain {pasted}"),
                ),
            };
            failure.text = text;
            failure.with("effect", "none").with("try", next)
        }
        Refusal::PoolEmpty { pool } => {
            let slot = quoted(format!("{}0", output::clean(pool.as_str())));
            let next = format!("tenure resize {slot} 1, which adds a slot; or another prefix");
            failure.with("effect", "none").with("try", next)
        }
        Refusal::MaxHoldTooShort { ttl_ms } => {
            let ttl = duration::ms(*ttl_ms);
            failure.text = format!("--max-hold must be more than the ttl of the lease, {ttl}");
            let next = format!("a --max-hold above {ttl}, or a lease with a shorter --ttl");
            failure.with("effect", "none").with("try", next)
        }
        Refusal::FutureRevision { newest, .. } => {
            failure.with("effect", "none").with("try", format!("--from {} at most", newest.next()))
        }
        Refusal::Limit { limit, bound, asked } if limit.name().starts_with("ttl_") => {
            let (asked, bound) = (duration::ms(*asked), duration::ms(*bound));
            let (word, most) = match limit.name() {
                "ttl_min_ms" => ("shorter", "least"),
                _ => ("longer", "most"),
            };
            failure.text = format!("a ttl of {asked} is {word} than this cluster allows");
            failure
                .with("effect", "none")
                .with("try", format!("--ttl {bound}, which is the {most} it allows"))
        }
        Refusal::Forbidden { verb } => {
            let verb = verb.name();
            let next = format!(
                "tenure auth can - {verb} NAME, which says why; an administrator gives roles"
            );
            failure.with("effect", "none").with("try", next)
        }
        Refusal::PriorityForbidden { most, .. } => {
            let next = match most {
                0 => "without --priority; an administrator gives roles that permit priorities"
                    .to_owned(),
                most => format!("--priority {most}; an administrator gives roles that permit more"),
            };
            failure.with("effect", "none").with("try", next)
        }
        Refusal::Quota { quota, bound, asked, setter, .. } => {
            let failure = match setter.as_deref().and_then(|it| Some((it, it.unix_ms?))) {
                Some((setter, unix_ms)) => {
                    let by = setter.principal.as_ref();
                    let by = by
                        .map_or(String::new(), |by| format!(" by {}", output::clean(by.as_str())));
                    failure.with("set", format!("{}{by}", wall_time::local(unix_ms)))
                }
                None => failure,
            };
            let over = asked.saturating_sub(*bound);
            failure
                .with("over", format!("by {over}: {asked} of {bound} {}", quota.name()))
                .with("effect", "none")
                .with("try", refusal.advice())
        }
        other => failure.with("effect", "none").with("try", other.advice()),
    }
}

/// The structured fields of the wire error, under their wire names: `lock`, `holder`, `ahead`, `bound`, `revision` and
/// so on.
fn details(refusal: &Refusal) -> Map<String, Value> {
    let error = tenure_wire::json::error::Error::from(v1::Error::from(refusal));
    let Ok(Value::Object(mut fields)) = serde_json::to_value(error) else { return Map::new() };
    for said in ["reason", "message", "effect", "next"] {
        fields.remove(said);
    }
    fields
}

fn holder_line(holder: &tenure_types::Holder) -> String {
    let held = duration::ms(holder.held_ms);
    format!("{} for {held}, token {}", holder.client, holder.token)
}

/// A name quoted for pasting into a shell.
pub(crate) fn quoted(name: impl std::fmt::Display) -> String {
    let name = name.to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-:@+,=".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        return name;
    }
    format!("'{}'", name.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_a_shell_wants_them() {
        assert_eq!(quoted("jobs/7"), "jobs/7");
        assert_eq!(quoted("it's mine"), r"'it'\''s mine'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn what_the_parser_says_in_lines_is_one_object() {
        let said = "error: unexpected argument '--wiat' found\n\n  tip: '--wait' exists\n\nUsage: tenure lock\n";
        let error = &CliError::misunderstood(said).json()["error"];
        assert_eq!(error["message"], "unexpected argument '--wiat' found");
        assert_eq!(error["next"], "tip: '--wait' exists; Usage: tenure lock");
    }

    #[test]
    fn programs_are_told_who_has_a_lock_without_reading_prose() {
        let name = |text| tenure_types::Name::new(text).unwrap();
        let holder = tenure_types::Holder {
            lease: tenure_types::LeaseId::new(68_629_145).unwrap(),
            client: name("ci-7/4121"),
            token: tenure_types::Token::from_u64(1042).unwrap(),
            held_ms: 252_000,
            state: tenure_types::HolderState::Held,
        };
        let held = tenure_types::Held { lock: name("deploy"), holder: Some(holder), ahead: 2 };
        let failure = refused(&Refusal::Held(Box::new(held)), Exit::NotAcquired);
        let error = &failure.json()["error"];
        let expected = json!({
            "client": "ci-7/4121", "token": "1042", "lease": "68629145", "held_ms": 252_000,
        });
        assert_eq!((&error["lock"], &error["holder"]), (&"deploy".into(), &expected), "{error}");
        assert_eq!(error["ahead"], 2, "{error}");
        assert_eq!(error["held_by"], "ci-7/4121 for 4m12s, token 1042");
    }

    #[test]
    fn a_member_that_answered_with_an_error_is_not_called_silent() {
        let shown = |tried: &[(&str, &str)]| {
            unreachable(Duration::from_secs(2), tried, Exit::Unreachable).shown()
        };
        let unknown = shown(&[("h:1", "invalid peer certificate: UnknownIssuer")]);
        assert!(unknown.contains("connect to h:1: invalid peer certificate"), "{unknown}");
        assert!(unknown.contains("try      --tls-ca FILE"), "{unknown}");
        let refused = shown(&[("h:1", "refused"), ("h:2", "refused")]);
        assert!(refused.contains("cannot connect to any of these members"), "{refused}");
        let silent = shown(&[("h:1", "refused"), ("h:2", "timed out")]);
        assert!(silent.contains("no member answered within 2s"), "{silent}");
    }

    #[test]
    fn the_json_form_says_what_may_be_concluded() {
        let failure = CliError::from(Error::Unavailable);
        assert_eq!(failure.json()["exit_code"], 69);
        assert_eq!(failure.json()["error"]["effect"], "none");
        let unknown = |id: Option<&str>| {
            let request = id.map(|id| tenure::RequestId::from(id.to_owned()));
            let waited = std::time::Duration::from_secs(10);
            CliError::from(Error::Unknown { request, waited })
        };
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(unknown(Some(id)).json()["error"]["effect"], "unknown");
        let shown = unknown(Some(id)).shown();
        assert!(shown.contains(&format!("--request-id {id}")), "{shown}");
        let shown = unknown(None).shown();
        assert!(!shown.contains("--request-id"), "{shown}");
    }

    #[test]
    fn a_client_that_got_no_answer_under_its_own_lease_may_have_been_granted_the_lock() {
        let unanswered =
            |error| crate::lock::unanswered("lock `l`", std::time::Duration::from_secs(15), error);
        let waited = std::time::Duration::from_secs(2);
        let failure = unanswered(Error::Unknown { request: None, waited });
        let json = failure.json();
        assert_eq!((&json["exit_code"], &json["error"]["effect"]), (&69.into(), &"unknown".into()));
        assert_eq!(json["error"]["reason"], "UNANSWERED");
        assert_eq!(json["error"]["message"], "lock `l`: no member could answer within 2s");
        assert!(
            failure
                .shown()
                .contains("  effect   unknown: what was granted unseen is given back, or")
        );
        assert_eq!(unanswered(Error::Unavailable).json()["error"]["effect"], "none");
        let (reason, message) = ("STRANGE_ANSWER".to_owned(), String::new());
        let json = CliError::from(Error::Failed { reason, message }).json();
        assert_eq!((&json["exit_code"], &json["error"]["effect"]), (&74.into(), &"unknown".into()));
    }
}
