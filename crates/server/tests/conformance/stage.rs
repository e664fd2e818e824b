//! Turns the steps of a scenario into requests, and keeps what they learn.

use std::collections::BTreeMap;

use bytes::Bytes;
use tenure_wire::v1;
use v1::request::Command;

use crate::request::{Ask, Bad, Reported, What};
use crate::script::{Step, ms};

/// The leases, tokens and revisions of a scenario, by the names in it.
pub(crate) struct ScenarioNames {
    /// The prefix of every name, so that scenarios do not affect each other.
    prefix: String,
    leases: BTreeMap<String, (i64, i64)>,
    tokens: BTreeMap<(String, String), u64>,
    written: BTreeMap<String, i64>,
    /// The newest revision when the step began, and the floor of the history.
    pub(crate) newest: i64,
    pub(crate) floor: i64,
    pub(crate) members: Vec<u64>,
}

impl ScenarioNames {
    pub(crate) fn new(prefix: String, members: Vec<u64>) -> Self {
        let (leases, tokens, written) = Default::default();
        Self { prefix, leases, tokens, written, newest: 0, floor: 0, members }
    }

    /// The name in the cluster for a name of the scenario. A name after `=` is used as it is.
    pub(crate) fn name(&self, word: &str) -> String {
        match word.strip_prefix('=') {
            Some("LONG") => "x".repeat(600),
            Some(literal) => literal.to_owned(),
            None => format!("{}/{word}", self.prefix),
        }
    }

    /// The name in the scenario for a name in the cluster.
    pub(crate) fn short<'a>(&self, name: &'a str) -> &'a str {
        let own = name.strip_prefix(&self.prefix).and_then(|rest| rest.strip_prefix('/'));
        own.unwrap_or(name)
    }

    /// A lock in whose queue a step waits: one that it names with `on`, or its first.
    pub(crate) fn awaited(&self, step: &Step) -> String {
        self.name(step.option("on").unwrap_or_else(|| step.word(0)))
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = i64> {
        self.leases.values().map(|(lease, _)| *lease)
    }

    fn lease(&self, who: &str) -> i64 {
        self.leases.get(who).map_or(7, |(lease, _)| *lease)
    }

    /// A token for a lock: the client's own, another client's, a number, or one that was never issued.
    fn token(&self, step: &Step, lock: &str) -> u64 {
        let whose = step.option("token").unwrap_or(&step.who);
        if let Ok(number) = whose.parse() {
            return number;
        }
        let mine = self.tokens.get(&(whose.to_owned(), lock.to_owned()));
        mine.copied().unwrap_or(1 << 20)
    }

    /// Records the result of a step.
    pub(crate) fn learn(&mut self, step: &Step, told: &Reported) {
        if let Some(lease) = told.lease {
            self.leases.insert(step.who.clone(), lease);
        }
        for (lock, token) in &told.grants {
            let lock = if lock.is_empty() { self.name(step.word(0)) } else { lock.clone() };
            self.tokens.insert((step.who.clone(), lock), *token);
        }
        if told.word == "put" {
            self.written.insert(self.name(step.word(0)), told.revision);
        }
    }

    pub(crate) fn ask(&self, step: &Step) -> Ask {
        let seq = step.option("seq").map_or(0, |it| it.parse().unwrap());
        let deadline_ms = step.option("deadline").map(|it| u32::try_from(ms(it)).unwrap());
        let key = step.option("key").map(|key| format!("{}/{key}", self.prefix));
        Ask { what: self.what(step), key, seq, deadline_ms }
    }

    fn what(&self, step: &Step) -> What {
        let lease = self.lease(step.option("as").unwrap_or(&step.who));
        let name = || self.name(step.word(0));
        let token = || self.token(step, &name());
        let value = || step.words.get(1).cloned().unwrap_or_default();
        let wait_ms = step.option("wait").map(ms);
        let from = || match step.option("from") {
            None => 0,
            Some("future") => self.newest + 1_000,
            Some("floor") => self.floor,
            Some(number) => number.parse().unwrap(),
        };
        match &*step.verb {
            "campaign" => What::Campaign { name: name(), lease, value: value(), wait_ms },
            "proclaim" => What::Proclaim { name: name(), lease, token: token(), value: value() },
            "observe" => What::Observe { name: name() },
            "leader" => What::Leader { name: name() },
            "resign" => What::Resign { name: name(), lease, token: token() },
            "locks" => What::Locks { prefix: name() },
            "keys" => What::Keys { prefix: name() },
            "leases" => What::Leases,
            "queue" => What::Queue { lock: name() },
            "history" => What::History { lock: name(), from: from() },
            "watch" => {
                let events = step.option("events").map_or(1, |it| it.parse().unwrap());
                What::Watch { name: name(), from: from().max(1), events }
            }
            "limits" => {
                let limit =
                    |(name, value): (&String, &String)| (name.clone(), value.parse().unwrap());
                let times = step.words.first().map_or(1, |it| it.parse().unwrap());
                let limits = step.options.iter().map(limit).collect::<Vec<_>>();
                What::Limits(limits.iter().cycle().take(limits.len() * times).cloned().collect())
            }
            "compact" => What::Compact {
                keep: match step.word(0) {
                    "now" => self.newest,
                    "future" => self.newest + 1_000,
                    other => other.parse().unwrap(),
                },
            },
            "level" => What::Level(step.word(0).parse().unwrap()),
            "add" => What::Add {
                member: self.member(step.word(0)),
                name: step
                    .option("name")
                    .map_or_else(|| self.prefix.replace('/', "-"), str::to_owned),
                hops: step.option("hops").map_or(0, |it| it.parse().unwrap()),
            },
            "promote" => What::Promote(self.member(step.word(0))),
            "remove" => What::Remove(self.member(step.word(0))),
            "ticket" => What::Ticket { lock: name(), lease, token: token() },
            "rotate" => What::Rotate { overlap_ms: step.option("overlap").map(ms) },
            "ticket-keys" => What::TicketKeys,
            "send" => What::Bad(match step.word(0) {
                "malformed" => Bad::Malformed,
                "too-large" => Bad::TooLarge,
                "unknown-call" => Bad::UnknownCall,
                "unknown-verb" => Bad::UnknownVerb,
                "other-media" => Bad::Media,
                "long-headers" => Bad::Headers,
                "other-host" => Bad::Host,
                "other-origin" => Bad::Origin,
                "other-cluster" => Bad::OtherCluster,
                "other-epoch" => Bad::Restored,
                "half" => Bad::Half,
                "too-many-watches" => Bad::TooManyWatches,
                other => panic!("{}: `{other}`", step.at),
            }),
            _ => What::Command(self.command(step, lease)),
        }
    }

    /// `m0`, `m1`, … in the order of the initial members, or any number.
    fn member(&self, word: &str) -> u64 {
        let founded = word.strip_prefix('m').and_then(|it| it.parse::<usize>().ok());
        match founded {
            Some(number) => self.members[number],
            // Ids of removed members never come back, so every run has its own.
            None => {
                let own = |sum: u64, byte: u8| (sum * 31 + u64::from(byte)) % 1_000_000_007;
                self.prefix.bytes().fold(0, own) * 1_000 + word.parse::<u64>().unwrap()
            }
        }
    }

    fn command(&self, step: &Step, lease: i64) -> Command {
        let name = || self.name(step.word(0));
        let token = || self.token(step, &name());
        let reason = || "a scenario".to_owned();
        let by = || match step.option("who") {
            Some("LONG") => "x".repeat(600),
            who => who.unwrap_or_default().to_owned(),
        };
        let now = step.words.iter().any(|word| word == "now");
        match &*step.verb {
            "lease" => Command::GrantLease(self.new_lease(step, step.word(0))),
            "lock" | "try" | "asks" => Command::Acquire(self.acquire(step, lease)),
            "renew" => {
                let times = step.words.first().map_or(1, |it| it.parse().unwrap());
                Command::Renew(v1::RenewRequest {
                    leases: vec![lease; times],
                    ..Default::default()
                })
            }
            "revoke" => Command::Revoke(v1::RevokeRequest {
                lease,
                by_other: step.option("by").is_some(),
                reason: step.option("by").map_or(String::new(), |_| reason()),
                now,
                by: by(),
                ..Default::default()
            }),
            "release" => {
                let (lock, token) = (name(), token());
                Command::Release(v1::ReleaseRequest { lock, lease, token, ..Default::default() })
            }
            "leave" => {
                Command::Leave(v1::LeaveRequest { lock: name(), lease, ..Default::default() })
            }
            "downgrade" => {
                let (lock, token) = (name(), token());
                Command::Downgrade(v1::DowngradeRequest {
                    lock,
                    lease,
                    token,
                    ..Default::default()
                })
            }
            "hand" => Command::HandOn(v1::HandOnRequest {
                lock: name(),
                lease,
                token: token(),
                to: step.option("to").map_or(0, |who| self.lease(who)),
                ..Default::default()
            }),
            "progress" => Command::Progress(v1::ProgressRequest {
                lock: name(),
                lease,
                token: token(),
                number: step.option("number").map_or(0, |it| it.parse().unwrap()),
                ..Default::default()
            }),
            "update" => Command::Update(v1::UpdateRequest {
                lock: name(),
                lease,
                token: token(),
                metadata: filled(step.option("metadata")),
                ..Default::default()
            }),
            "drain" => {
                let (prefix, reason, by) = (Some(name()), reason(), by());
                Command::Drain(v1::DrainRequest { prefix, reason, by })
            }
            "resize" => Command::Resize(v1::ResizeRequest {
                lock: name(),
                slots: step.option("slots").map_or(0, |it| it.parse().unwrap()),
                by: by(),
            }),
            "undrain" => Command::Undrain(v1::UndrainRequest { prefix: Some(name()), by: by() }),
            "force" => {
                let (lock, token) = (name(), token());
                Command::Force(v1::ForceRequest { lock, token, reason: reason(), now, by: by() })
            }
            "stopped" => Command::Stopped(v1::StoppedRequest {
                lock: name(),
                lease,
                lease_created: self.leases.get(&step.who).map_or(1, |(_, created)| *created),
                token: token(),
            }),
            "put" => Command::Put(v1::PutRequest {
                key: name(),
                value: step
                    .words
                    .get(1)
                    .map_or_else(|| filled(step.option("bytes")), |it| it.clone().into()),
                lease: step.option("bound").map_or(0, |_| lease),
                expect: self.expect(step),
                guard: self.guard(step),
                ..Default::default()
            }),
            "delete" => Command::Delete(v1::DeleteRequest {
                key: name(),
                expect: self.expect(step),
                guard: self.guard(step),
            }),
            "get" => Command::GetKey(v1::GetKeyRequest { key: name(), stale: false }),
            "show" => Command::GetLock(v1::GetLockRequest { lock: name(), stale: false }),
            "self" => Command::GetLease(v1::GetLeaseRequest { lease, ..Default::default() }),
            "explain" => {
                Command::Explain(v1::ExplainRequest { lock: name(), ..Default::default() })
            }
            other => panic!("{}: `{other}`", step.at),
        }
    }

    fn new_lease(&self, step: &Step, ttl: &str) -> v1::NewLease {
        v1::NewLease {
            ttl_ms: ms(ttl),
            lease: step.option("id").map_or(0, |whose| self.lease(whose)),
            client: step.option("client").map_or_else(
                || step.who.clone(),
                |it| match it {
                    "LONG" => "x".repeat(600),
                    it => it.to_owned(),
                },
            ),
            metadata: step.option("lease_metadata").map_or(Bytes::new(), |it| filled(Some(it))),
        }
    }

    fn acquire(&self, step: &Step, lease: i64) -> v1::AcquireRequest {
        let (mode, slots) = match (step.option("mode"), step.option("slots")) {
            (Some("shared"), None) => (v1::Mode::Shared.into(), 0),
            (None, Some(slots)) => (v1::Mode::Slot.into(), slots.parse().unwrap()),
            _ => (v1::Mode::Exclusive.into(), 0),
        };
        let take = step.option("take").map_or(0, |it| it.parse().unwrap());
        let many = step.option("many").map(|it| it.parse::<usize>().unwrap());
        let several: Vec<_> = match many {
            Some(many) => (0..many).map(|it| self.name(&format!("many-{it}"))).collect(),
            None => step.words.iter().map(|word| self.name(word)).collect(),
        };
        let ask = v1::AcquireRequest {
            wait_ms: match (&*step.verb, step.option("wait")) {
                ("try", _) => Some(0),
                (_, wait) => wait.map(ms),
            },
            metadata: filled(step.option("metadata")),
            lock_delay_ms: step.option("delay").map_or(0, ms),
            max_hold_ms: step.option("max_hold").map(ms),
            min_hold_ms: step.option("min_hold").map_or(0, ms),
            supersede: step.option("supersede").unwrap_or_default().to_owned(),
            resume: step.option("resume").is_some(),
            progress_within_ms: step.option("progress").map_or(0, ms),
            upgrade: step.option("upgrade").is_some(),
            pool: step.option("pool").map(|it| self.name(it)).unwrap_or_default(),
            priority: step.option("priority").map_or(0, |it| it.parse().unwrap()),
            independent: step.option("independent").is_some(),
            election: step.option("election").is_some(),
            ..Default::default()
        };
        let ask = match step.option("new") {
            Some(ttl) => {
                v1::AcquireRequest { new_lease: Some(Box::new(self.new_lease(step, ttl))), ..ask }
            }
            None => v1::AcquireRequest { lease, ..ask },
        };
        match &several[..] {
            [one] => v1::AcquireRequest { lock: one.clone(), mode, slots, take, ..ask },
            [] if !ask.pool.is_empty() => v1::AcquireRequest { mode, slots, take, ..ask },
            _ => {
                let part = |lock: &String| v1::LockAsk { lock: lock.clone(), mode, slots, take };
                let parts = several.iter().map(part).collect();
                match step.option("any") {
                    Some(_) => v1::AcquireRequest { any_of: parts, ..ask },
                    None => v1::AcquireRequest { locks: parts, ..ask },
                }
            }
        }
    }

    fn expect(&self, step: &Step) -> Option<v1::Expect> {
        use v1::expect::How;
        let how = match step.option("if")? {
            "absent" => How::Absent(true),
            "unchanged" => How::Modified(self.written[&self.name(step.word(0))]),
            "old" => How::Modified(1),
            value => How::Value(value.to_owned().into()),
        };
        Some(v1::Expect { how: Some(how) })
    }

    fn guard(&self, step: &Step) -> Option<v1::Guard> {
        let lock = self.name(step.option("guard")?);
        Some(v1::Guard { token: self.token(step, &lock), lock })
    }
}

/// This many bytes.
fn filled(bytes: Option<&str>) -> Bytes {
    bytes.map_or(Bytes::new(), |it| "x".repeat(it.parse().unwrap()).into())
}
