//! Answers whether a principal may do something, and why.

use tenure_core::Machine;
use tenure_core::access::{Access, MEMBER, Rule};
use tenure_core::request::PRIORITY_MAX;
use tenure_types::Verb;
use tenure_wire::v1;

use super::{AccessAnswer, AccessCall, administer, check};
use crate::dispatch::ReadScope;

/// The most prefixes that an explanation names.
const NAMED_MAX: usize = 5;

impl AccessCall<'_> {
    /// Tells whether a principal may do something with a name. Every principal may ask this about itself.
    pub(crate) async fn can(&self, it: v1::CanRequest) -> AccessAnswer<v1::CanResponse> {
        let verb = check::verb(&it.verb)?;
        let priority = check::priority(it.priority, "priority")?;
        if priority > 0 && !is_urgent(verb) {
            let problem = format!("belongs to acquire and elect, not to {}", verb.name());
            return Err(check::wrong("priority", problem).into());
        }
        let who = self.who.name();
        let own = it.principal.is_empty() || it.principal == who;
        let scope = if own { ReadScope::Known } else { administer() };
        let principal = if own { who.to_owned() } else { it.principal };
        let ask = move |machine: &Machine| {
            explain(machine.access(), &principal, (verb, priority), &it.name)
        };
        let (header, answer) = self.read_machine(scope, ask).await?;
        Ok(v1::CanResponse { header: Some(header), ..answer })
    }
}

/// The decision as if identity were enabled, and the reason for it.
fn explain(
    access: &Access,
    principal: &str,
    (verb, priority): (Verb, u8),
    name: &str,
) -> v1::CanResponse {
    let permission = access.permission(principal, verb, name);
    let urgent = |priority: &u8| {
        let urgent = access.priority_permission(principal, verb, name, *priority);
        permission.and(urgent).filter(|_| is_urgent(verb))
    };
    let most = (1..=PRIORITY_MAX).rev().find(|priority| urgent(priority).is_some()).unwrap_or(0);
    // The rule that permits the priority tells more than the one that permits the verb.
    let permission = match urgent(&priority.max(1)) {
        Some(urgent) if priority > 0 => Some(urgent),
        _ => permission.filter(|_| priority <= most),
    };
    let role = permission.map(|(role, _)| role.to_string()).unwrap_or_default();
    let (allowed, why) = match permission {
        _ if principal == MEMBER => (false, "a member does only its own work".to_owned()),
        Some((role, rule)) if priority > 0 => {
            (true, format!("role `{role}` permits {}", how_urgent(verb, priority, rule, name)))
        }
        Some((role, rule)) => (true, format!("role `{role}` permits {}", what(verb, &rule.prefix))),
        None if access.permission(principal, verb, name).is_some() => {
            (false, too_urgent(verb, priority, most))
        }
        None => (false, missing(access, principal, verb, name)),
    };
    let enabled = access.is_enabled();
    let (principal, priority_max) = (principal.to_owned(), most.into());
    v1::CanResponse { header: None, principal, allowed, role, why, enabled, priority_max }
}

/// Whether requests that need this verb have a priority.
fn is_urgent(verb: Verb) -> bool {
    check::URGENT.contains(verb)
}

/// What a rule permits that permits a priority.
fn how_urgent(verb: Verb, priority: u8, rule: &Rule, name: &str) -> String {
    let permits = rule.verbs.contains(verb) && name.starts_with(&*rule.prefix);
    let (most, verb) = match permits && rule.priority >= priority {
        true => (rule.priority, verb),
        // Who may take a lock away may pass those that wait for it, too.
        false => (PRIORITY_MAX, Verb::Force),
    };
    format!("{}, and so priorities up to {most}", what(verb, &rule.prefix))
}

/// What keeps a principal from using a priority.
fn too_urgent(verb: Verb, priority: u8, most: u8) -> String {
    let verb = verb.name();
    match most {
        0 => format!("none of its roles permits `{verb}` with a priority for this name"),
        _ => format!(
            "its roles permit `{verb}` with priorities up to {most} for this name, not {priority}"
        ),
    }
}

/// What keeps a principal from doing something.
fn missing(access: &Access, principal: &str, verb: Verb, name: &str) -> String {
    if principal.is_empty() {
        return "a caller without credentials may do nothing".to_owned();
    }
    let Some(record) = access.principal(principal) else {
        return format!("there is no principal `{principal}`");
    };
    if !record.enabled {
        return format!("principal `{principal}` is disabled");
    }
    if record.roles.is_empty() {
        return format!("principal `{principal}` has no role");
    }
    if verb == Verb::Keys && name.starts_with("tenure/") {
        return "only members write keys that begin with `tenure/`".to_owned();
    }
    let rules = record.roles.iter().filter_map(|role| access.role(role)).flatten();
    let with_verb = |rule: &&Rule| rule.verbs.contains(verb);
    let prefixes: Vec<String> =
        rules.filter(with_verb).take(NAMED_MAX).map(|it| format!("`{}`", it.prefix)).collect();
    let verb = verb.name();
    if prefixes.is_empty() {
        let roles: Vec<&str> = record.roles.iter().map(|role| &**role).collect();
        return format!("none of its roles permits `{verb}`: {}", roles.join(", "));
    }
    let prefixes = prefixes.join(", ");
    match name {
        "" => format!(
            "its roles permit `{verb}` for names that begin with {prefixes}, not for the cluster"
        ),
        _ => format!("its roles permit `{verb}` only for names that begin with {prefixes}"),
    }
}

fn what(verb: Verb, prefix: &str) -> String {
    match prefix {
        "" => format!("`{}` for every name", verb.name()),
        _ => format!("`{}` for names that begin with `{prefix}`", verb.name()),
    }
}
