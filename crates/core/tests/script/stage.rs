//! Keeps the machines and actors of a scenario, and what each actor has been answered.

use std::collections::BTreeMap;

use tenure_core::codec::seal_labelled;
use tenure_core::event::WallClock;
use tenure_core::outcome::{Answer, Effects, Grants, LeaseGrant, Notice};
use tenure_core::request::{LEVEL_RECORDS, LeaseRef};
use tenure_core::{Frozen, Machine, SnapshotReader, StoppedFor};
use tenure_types::{Epoch, Handle, LeaseId, Refusal, Term};

use super::words::Words;
use super::{action, answer, patch, view};

/// A client that has a lease, or requests one.
pub(super) struct Actor {
    pub(super) id: u64,
    pub(super) client: String,
    pub(super) leases: Vec<LeaseGrant>,
}

/// Two machines that apply the same entries, and what the actors were answered.
pub(crate) struct ScriptRun {
    pub(crate) machine: Machine,
    /// Applies the same entries, but is written to a snapshot and read back after every line.
    twin: Machine,
    /// The state before the last line, to be encoded after the machine has gone on.
    frozen: Option<(Frozen, Vec<u8>)>,
    term: u64,
    pub(super) actors: BTreeMap<String, Actor>,
    handles: BTreeMap<Handle, String>,
    tokens: BTreeMap<(String, String), u64>,
    /// The wall clock in the entries, by their count.
    wall: fn(u64) -> u64,
}

impl ScriptRun {
    pub(super) fn new(wall: fn(u64) -> u64) -> Self {
        Self {
            machine: Machine::new(Epoch::default()),
            twin: Machine::new(Epoch::default()),
            frozen: None,
            term: 1,
            actors: BTreeMap::new(),
            handles: BTreeMap::new(),
            tokens: BTreeMap::new(),
            wall,
        }
    }

    /// Executes one line. Returns what it did in words, or the invariant that is broken.
    pub(super) fn step(&mut self, time_ms: u64, action: &str) -> Result<String, String> {
        let words = Words::of(action);
        let said = match words.at(0) {
            "term" => {
                self.term = super::words::number(words.at(1));
                self.apply(None)?
            }
            "tokens" => {
                let left = super::words::number(words.at(2));
                self.machine = patch::with_tokens_left(&self.machine, left);
                self.twin = patch::with_tokens_left(&self.twin, left);
                String::from("-")
            }
            "restore" => {
                let epoch = words.number("epoch").and_then(|epoch| u16::try_from(epoch).ok());
                let epoch = epoch.and_then(Epoch::new).expect("an epoch");
                let stopped = match words.span("stopped") {
                    _ if words.flag("waive") => StoppedFor::ForGood,
                    known => StoppedFor::ForMs(known.unwrap_or(0)),
                };
                let done = self.machine.restore(epoch, stopped);
                if self.twin.restore(epoch, stopped) != done {
                    return Err(String::from("a snapshot in between changes the restore"));
                }
                String::from(if done { "restored" } else { "refused" })
            }
            "unreadable" if words.plain.get(1).is_some_and(|word| word == "entry") => {
                self.apply(Some((vec![9, 9, 9], Vec::new())))?
            }
            _ => match view::question(&self.machine, self, &words) {
                Some(said) => {
                    let again = view::question(&self.twin, self, &words);
                    if again.as_ref() != Some(&said) {
                        return Err(format!(
                            "after a snapshot the answer is {again:?}, not {said}"
                        ));
                    }
                    said
                }
                None => {
                    let entry = self.seal(time_ms, action);
                    self.apply(Some(entry))?
                }
            },
        };
        self.check_both()?;
        Ok(said)
    }

    /// Builds the payload of an entry. Returns the words of each command with it.
    fn seal(&mut self, count_ms: u64, action: &str) -> (Vec<u8>, Vec<Words>) {
        let (term, action) = match action.strip_prefix("in term ") {
            Some(rest) => {
                let (term, action) = rest.split_once(": ").expect("`in term 1: A lock deploy`");
                (super::words::number(term), action)
            }
            None => (self.term, action),
        };
        let actions = action.split(" + ").filter(|action| *action != "-");
        let (requests, words): (Vec<_>, Vec<_>) = actions
            .map(|action| {
                let words = Words::of(action);
                (action::encode(self, &words), words)
            })
            .unzip();
        let labelled = self.machine.level() >= LEVEL_RECORDS;
        let wall = labelled.then(|| WallClock { unix_ms: (self.wall)(count_ms) });
        let requests = requests.iter().map(Vec::as_slice);
        (seal_labelled(Term(term), count_ms, wall, requests), words)
    }

    fn apply(&mut self, entry: Option<(Vec<u8>, Vec<Words>)>) -> Result<String, String> {
        let payload = entry.as_ref().map(|(payload, _)| payload.as_slice());
        let (revision, weight) = (self.machine.revision(), self.machine.state_bytes());
        let due_ms = self.machine.next_due_ms();
        let (mut effects, mut again) = (Effects::default(), Effects::default());
        self.machine.apply(Term(self.term), payload, &mut effects);
        self.twin.apply(Term(self.term), payload, &mut again);
        if effects != again {
            return Err(format!("after a snapshot it was {again:?}, not {effects:?}"));
        }
        // A refusal changes neither the revision nor the weight of the state.
        let words = entry.map(|(_, words)| words).unwrap_or_default();
        let plain = words.iter().all(|words| words.seq.is_none());
        let nothing_due = due_ms.is_none_or(|due_ms| due_ms > self.machine.clock_ms());
        // A refused deadlock is recorded, from the level on that has records of it.
        let records = |refusal: &Refusal| {
            matches!(refusal, Refusal::Deadlock { .. }) && self.machine.level() >= LEVEL_RECORDS
        };
        let refused = effects
            .outcomes
            .iter()
            .all(|outcome| outcome.result.as_ref().is_err_and(|refusal| !records(refusal)));
        let same = (revision, weight) == (self.machine.revision(), self.machine.state_bytes());
        if refused && plain && nothing_due && !same {
            return Err(String::from("a refused command changed something"));
        }
        for (words, outcome) in words.iter().zip(&effects.outcomes) {
            if let Ok(answer) = &outcome.result {
                self.note(words, answer);
            }
        }
        effects.notices.iter().for_each(|notice| self.note_notice(notice));
        Ok(answer::show(&effects, |handle| self.name_of(handle)))
    }

    /// Checks the invariants of both machines, and that a snapshot in between changes nothing.
    fn check_both(&mut self) -> Result<(), String> {
        self.machine.check_invariants().map_err(|violation| violation.to_string())?;
        self.twin.check_invariants().map_err(|violation| format!("twin: {violation}"))?;
        if let Some((frozen, bytes)) = self.frozen.take() {
            let mut written = Vec::new();
            frozen.write(&mut |piece| written.extend_from_slice(piece));
            if written != bytes {
                return Err(String::from("a frozen state changed while the machine went on"));
            }
        }
        let bytes = self.machine.encode();
        if bytes != self.twin.encode() || self.machine.full_hash() != self.twin.full_hash() {
            return Err(String::from("a snapshot in between changed the state"));
        }
        if self.machine.next_due_ms() != self.twin.next_due_ms() {
            return Err(String::from("a snapshot in between changed what is due"));
        }
        let mut reader = SnapshotReader::default();
        let piece_bytes = if bytes.len() > 100_000 { 4_096 } else { 61 };
        for piece in bytes.chunks(piece_bytes) {
            reader.push(piece).map_err(|bad| bad.to_string())?;
        }
        self.twin = reader.finish().map_err(|bad| bad.to_string())?;
        self.frozen = Some((self.machine.freeze(), bytes));
        Ok(())
    }

    fn note(&mut self, words: &Words, answer: &Answer) {
        let name = words.at(0).to_owned();
        match answer {
            Answer::LeaseGranted(lease) => self.note_lease(&name, *lease),
            Answer::Acquired(acquired) => {
                self.note_lease(&name, acquired.lease);
                self.note_grants(&name, &acquired.grants);
            }
            Answer::Queued(queued) => self.note_lease(&name, queued.lease),
            Answer::AlreadyHeld(grants) => self.note_grants(&name, grants),
            Answer::Downgraded { token } => self.note_token(&name, words.at(2), token.get()),
            _ => {}
        }
    }

    fn note_notice(&mut self, notice: &Notice) {
        if let Notice::Granted { lease, grants, .. } = notice {
            let name = self.name_of(*lease);
            self.note_grants(&name, grants);
        }
    }

    fn note_lease(&mut self, name: &str, lease: LeaseGrant) {
        self.handles.insert(lease.handle, name.to_owned());
        let leases = &mut self.actor(name).leases;
        if leases.last() != Some(&lease) {
            leases.push(lease);
        }
    }

    fn note_grants(&mut self, name: &str, grants: &Grants) {
        for grant in grants.as_slice() {
            self.note_token(name, &grant.lock, grant.token.get());
        }
    }

    /// Records a token. Tokens only grow, so the largest is the newest.
    fn note_token(&mut self, name: &str, lock: &str, token: u64) {
        let known = self.tokens.entry((name.to_owned(), lock.to_owned())).or_default();
        *known = token.max(*known);
    }

    fn name_of(&self, handle: Handle) -> String {
        self.handles.get(&handle).cloned().unwrap_or_else(|| format!("{handle:?}"))
    }

    /// The newest token that an actor received for a lock; 1 if it never received one.
    pub(super) fn token(&self, name: &str, lock: &str) -> u64 {
        self.tokens.get(&(name.to_owned(), lock.to_owned())).copied().unwrap_or(1)
    }

    /// Returns an actor. Actors are numbered in the order in which they first appear.
    pub(super) fn actor(&mut self, name: &str) -> &mut Actor {
        let id = self.actors.len() as u64 + 1;
        self.actors.entry(name.to_owned()).or_insert_with(|| Actor {
            id,
            client: name.to_owned(),
            leases: Vec::new(),
        })
    }

    /// How an actor refers to its lease: by number, by its newest handle, or by the previous handle.
    pub(super) fn lease_ref(&self, name: &str, words: &Words) -> LeaseRef {
        let actor = self.actors.get(name).unwrap_or_else(|| panic!("`{name}` has no lease yet"));
        let newest = actor.leases.len();
        let handle = |back: usize| LeaseRef::Handle(actor.leases[newest - back].handle);
        if words.flag("old-handle") {
            handle(2)
        } else if words.flag("by-handle") {
            handle(1)
        } else {
            LeaseRef::Id(LeaseId::new(actor.id).expect("an actor's number is a lease's"))
        }
    }
}
