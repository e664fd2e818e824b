//! Encodes the command that an action of a script stands for.

use tenure_core::codec::encode_request;
use tenure_core::request::{
    Abandon, Acquire, Ask, AskId, AskLease, AskWait, Asks, Command, Expect, Hold, LeaseRef,
    NewLease, Purpose, Put, Request, RequestId, Revoker, Upgrade, Urgency, WriteGuard,
};
use tenure_types::{LeaseId, Limit, Mode, PlaceNumber, Revision, Token};

use super::access;
use super::stage::ScriptRun;
use super::words::{Words, number, span};

/// Encodes the request.
pub(super) fn encode(stage: &mut ScriptRun, words: &Words) -> Vec<u8> {
    let mut out = Vec::new();
    let mut send = |id: RequestId<'_>, command: Command<'_>| {
        let principal = words.option("as").unwrap_or("");
        encode_request(&Request { principal, id, command }, &mut out);
    };
    let first = words.at(0);
    let once = words.option("once").map_or(RequestId::None, RequestId::Key);
    match first {
        "unreadable" => return vec![255, 255],
        "renew" => {
            let times = words.number("times").and_then(|n| usize::try_from(n).ok()).unwrap_or(1);
            let leases = words.plain[1..].iter().map(|name| stage.lease_ref(name, words));
            let leases: Vec<LeaseRef> = leases.collect();
            send(once, Command::Renew(leases.repeat(times)));
        }
        "revoke" => {
            let lease = stage.lease_ref(words.at(1), words);
            let reason = words.option("reason").unwrap_or("");
            let name = words.option("by").unwrap_or("");
            let by = Revoker::Other { name, reason, urgency: urgency(words) };
            send(once, Command::Revoke { lease, by });
        }
        "force" => {
            let lock = words.at(1);
            let token = token(words.number("token").expect("force names a token"));
            let reason = words.option("reason").unwrap_or("");
            let by = words.option("by").unwrap_or("");
            send(once, Command::Force { lock, token, by, reason, urgency: urgency(words) });
        }
        "put" => send(once, put(words.at(1), words.at(2), None, words)),
        "delete" => send(once, delete(words.at(1), words)),
        "limits" => {
            let times = words.number("times").and_then(|n| usize::try_from(n).ok()).unwrap_or(1);
            let limits: Vec<(Limit, u64)> = words
                .options()
                .filter_map(|(name, value)| Some((Limit::from_name(name)?, number(value))))
                .collect();
            send(once, Command::SetLimits(limits.repeat(times)));
        }
        "drain" => {
            let (by, reason) =
                (words.option("by").unwrap_or(""), words.option("reason").unwrap_or(""));
            send(once, Command::Drain { prefix: words.at(1), by, reason });
        }
        "resize" => {
            let slots = match words.at(2) {
                "any" => None,
                slots => Some(slots.parse().expect("a number of slots")),
            };
            let by = words.option("by").unwrap_or("");
            send(once, Command::Resize { lock: words.at(1), slots, by });
        }
        "undrain" => {
            let by = words.option("by").unwrap_or("");
            send(once, Command::Undrain { prefix: words.at(1), by });
        }
        "compact" => send(once, Command::Compact { keep: Revision(number(words.at(1))) }),
        "level" => {
            let level = number(words.at(1)).try_into().expect("a level");
            send(once, Command::RaiseLevel { level });
        }
        "role" | "unrole" | "principal" | "unprincipal" | "credential" | "uncredential"
        | "identity" | "quotas" => send(once, Command::SetAccess(access::change(words))),
        name => {
            actor_command(stage, name, words, &mut send);
            // Token 0 means no token, and no request can be built with it, so the byte is overwritten here.
            if words.number("token") == Some(0) {
                *out.last_mut().expect("a request has bytes") = 0;
            }
        }
    }
    out
}

fn actor_command(
    stage: &mut ScriptRun,
    name: &str,
    words: &Words,
    send: &mut dyn FnMut(RequestId<'_>, Command<'_>),
) {
    stage.actor(name);
    if let Some(id) = words.number("id") {
        stage.actor(name).id = id;
    }
    if let Some(client) = words.option("client") {
        client.clone_into(&mut stage.actor(name).client);
    }
    let lease = stage.lease_ref(name, words);
    let request = match (words.seq, words.option("once")) {
        (Some((seq, done)), _) => RequestId::Seq { lease, seq, done },
        (None, Some(key)) => RequestId::Key(key),
        (None, None) => RequestId::None,
    };
    let id = LeaseId::new(stage.actor(name).id).expect("a lease's number");
    let client = stage.actor(name).client.clone();
    let new_lease = |ttl_ms: u64| {
        let metadata = words.option("lease-meta").unwrap_or("").as_bytes();
        NewLease { id, ttl_ms, client: &client, metadata }
    };
    let current = |lock: &str| match words.number("token") {
        Some(0) => token(1),
        Some(number) => token(number),
        None => token(stage.token(name, lock)),
    };
    match words.at(1) {
        "lease" => {
            let new = NewLease { metadata: meta(words), ..new_lease(span(words.at(2))) };
            send(request, Command::GrantLease(new));
        }
        "renew" => {
            let times = words.number("times").and_then(|n| usize::try_from(n).ok()).unwrap_or(1);
            send(request, Command::Renew(vec![lease; times]));
        }
        "revoke" => send(request, Command::Revoke { lease, by: Revoker::Holder }),
        verb @ ("lock" | "campaign") => {
            let lease = match words.span("lease") {
                Some(ttl_ms) => AskLease::New(new_lease(ttl_ms)),
                None => AskLease::Existing(lease),
            };
            let metadata = words.option("value").unwrap_or_else(|| meta_text(words)).as_bytes();
            let acquire = Acquire {
                lease,
                locks: asks(words),
                any: words.flag("any-of"),
                wait: wait(words),
                metadata,
                lock_delay_ms: words.span("delay").unwrap_or(0),
                max_hold_ms: words.span("max"),
                min_hold_ms: words.span("min").unwrap_or(0),
                supersede: words.option("supersede"),
                resume: words.flag("resume"),
                progress_within_ms: words.span("progress").unwrap_or(0),
                priority: words
                    .number("priority")
                    .map_or(0, |it| it.try_into().expect("a priority")),
                purpose: if verb == "lock" { Purpose::Lock } else { Purpose::Election },
                independent: words.flag("independent"),
            };
            send(request, Command::Acquire(acquire));
        }
        "unlock" | "resign" => {
            let lock = words.at(2);
            send(request, Command::Release(Hold { lease, lock, token: current(lock) }));
        }
        // Abandons the acquire request of that place that came with idempotency key `of` or number `of-seq`.
        "abandon" => {
            let ask = match (words.option("of"), words.number("of-seq")) {
                (Some(key), _) => AskId::Key(key),
                (None, Some(seq)) => AskId::Seq { lease, seq },
                (None, None) => AskId::None,
            };
            let place = PlaceNumber(words.number("place").expect("an ask has a place"));
            send(request, Command::Abandon(Abandon { ask, lease, place }));
        }
        "leave" => send(request, Command::Leave { lease, lock: words.at(2) }),
        "downgrade" => {
            let lock = words.at(2);
            send(request, Command::Downgrade(Hold { lease, lock, token: current(lock) }));
        }
        "upgrade" => {
            let (lock, wait, resume) = (words.at(2), wait(words), words.flag("resume"));
            let independent = words.flag("independent");
            send(request, Command::Upgrade(Upgrade { lease, lock, wait, resume, independent }));
        }
        // Gives the hold to the lease of another actor.
        "hand" => {
            let lock = words.at(2);
            let to = LeaseId::new(stage.actors[words.at(4)].id).expect("a lease's number");
            let hold = Hold { lease, lock, token: current(lock) };
            send(request, Command::HandOn { hold, to });
        }
        "progress" => {
            let (lock, number) = (words.at(2), number(words.at(3)));
            let hold = Hold { lease, lock, token: current(lock) };
            send(request, Command::Progress { hold, number });
        }
        "update" | "proclaim" => {
            let (lock, metadata) = (words.at(2), words.at(3).as_bytes());
            let hold = Hold { lease, lock, token: current(lock) };
            send(request, Command::Update { hold, metadata });
        }
        "stopped" => {
            let lock = words.at(2);
            let newest = stage.actors[name].leases.last().expect("one who had a lease");
            let created = words.number("created").map_or(newest.created, Revision);
            let (lease, token) = (newest.id, current(lock));
            send(request, Command::Stopped { lease, created, lock, token });
        }
        "put" => send(request, put(words.at(2), words.at(3), Some(lease), words)),
        // Numbered by the lease, but not bound to it.
        "put-free" => send(request, put(words.at(2), words.at(3), None, words)),
        "delete" => send(request, delete(words.at(2), words)),
        verb => panic!("unknown verb `{verb}`"),
    }
}

fn meta_text(words: &Words) -> &str {
    words.option("meta").unwrap_or("")
}

fn meta(words: &Words) -> &[u8] {
    meta_text(words).as_bytes()
}

fn urgency(words: &Words) -> Urgency {
    if words.flag("now") { Urgency::Now } else { Urgency::Cooling }
}

fn token(number: u64) -> Token {
    Token::from_u64(number).expect("a token")
}

fn wait(words: &Words) -> AskWait {
    match words.span("wait") {
        Some(ms) => AskWait::Limit { ms },
        None if words.flag("try") => AskWait::No,
        None => AskWait::Unlimited,
    }
}

/// The requested locks: `a b:shared c:slots-3`, or `c:slots-2of3`; a flag or option applies to those without a mode of
/// their own. Instead of locks, `pool=gpu/`, or `pool=gpu/ take=2`.
fn asks(words: &Words) -> Asks<'_> {
    let number = |text: &str| text.parse().expect("a number of slots");
    let slots = |slots: &str| match slots.split_once("of") {
        Some((take, of)) => Mode::Slot { of: number(of), take: number(take) },
        None => Mode::slot(number(slots)),
    };
    let usual = match words.option("slots") {
        Some(of) => slots(of),
        None if words.flag("shared") => Mode::Shared,
        None => Mode::Exclusive,
    };
    let ask = |word: &'_ String| -> (usize, Mode) {
        match word.rsplit_once(':') {
            Some((lock, "shared")) => (lock.len(), Mode::Shared),
            Some((lock, "exclusive")) => (lock.len(), Mode::Exclusive),
            Some((lock, of)) if of.starts_with("slots-") => (lock.len(), slots(&of[6..])),
            _ => (word.len(), usual),
        }
    };
    let mut asks: Vec<Ask<'_>> = words.plain[2..]
        .iter()
        .map(|word| {
            let (len, mode) = ask(word);
            Ask { lock: &word[..len], mode }
        })
        .collect();
    match (words.option("pool"), asks.len()) {
        (Some(prefix), _) => {
            let take = words.number("take").map_or(1, |take| take.try_into().expect("a few"));
            Asks::Pool(Ask { lock: prefix, mode: Mode::Slot { of: 1, take } })
        }
        (None, 1) => Asks::One(asks.remove(0)),
        (None, _) => Asks::Many(asks),
    }
}

fn put<'a>(key: &'a str, value: &'a str, lease: Option<LeaseRef>, words: &'a Words) -> Command<'a> {
    let (expect, guard) = (expect(words), guard(words));
    Command::Put(Put { key, value: value.as_bytes(), lease, expect, guard })
}

fn delete<'a>(key: &'a str, words: &'a Words) -> Command<'a> {
    Command::Delete { key, expect: expect(words), guard: guard(words) }
}

/// Parses the precondition: `if=absent`, `if=modified:5`, `if=value:x`.
fn expect(words: &Words) -> Expect<'_> {
    match words.option("if").map(|word| word.split_once(':').unwrap_or((word, ""))) {
        None => Expect::Any,
        Some(("absent", _)) => Expect::Absent,
        Some(("modified", revision)) => Expect::Modified(Revision(number(revision))),
        Some(("value", value)) => Expect::Value(value.as_bytes()),
        Some((word, _)) => panic!("`if={word}` is no condition"),
    }
}

/// Parses the guard: `guard=deploy:1`.
fn guard(words: &Words) -> Option<WriteGuard<'_>> {
    let (lock, number_) = words.option("guard")?.rsplit_once(':').expect("`guard=lock:token`");
    Some(WriteGuard { lock, token: token(number(number_)) })
}
