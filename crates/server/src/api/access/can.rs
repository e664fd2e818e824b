//! Answers whether a principal may do something, and why.

use tenure_core::Machine;
use tenure_core::access::{Access, MEMBER, Rule};
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
        let who = self.who.name();
        let own = it.principal.is_empty() || it.principal == who;
        let scope = if own { ReadScope::Known } else { administer() };
        let principal = if own { who.to_owned() } else { it.principal };
        let ask = move |machine: &Machine| explain(machine.access(), &principal, verb, &it.name);
        let (header, answer) = self.read_machine(scope, ask).await?;
        Ok(v1::CanResponse { header: Some(header), ..answer })
    }
}

/// The decision as if identity were enabled, and the reason for it.
fn explain(access: &Access, principal: &str, verb: Verb, name: &str) -> v1::CanResponse {
    let permission = access.permission(principal, verb, name);
    let role = permission.map(|(role, _)| role.to_string()).unwrap_or_default();
    let (allowed, why) = match permission {
        _ if principal == MEMBER => (false, "a member does only its own work".to_owned()),
        Some((role, rule)) => (true, format!("role `{role}` permits {}", what(verb, &rule.prefix))),
        None => (false, missing(access, principal, verb, name)),
    };
    let enabled = access.is_enabled();
    let principal = principal.to_owned();
    v1::CanResponse { header: None, principal, allowed, role, why, enabled }
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
