//! Applies typed lines to the state machine and reports the outcomes.

use std::collections::BTreeMap;

use tenure_core::codec::{encode_request, seal_entry};
use tenure_core::outcome::{Answer, Effects, LeaseGrant};
use tenure_core::request::{
    Acquire, Ask, AskLease, Asks, Command, Hold, LeaseRef, NewLease, Purpose, Request, RequestId,
};
use tenure_core::{Filter, Machine};
use tenure_types::{Epoch, LeaseId, Refusal, Term, Token};

use super::line::DemoLine;
use super::show;

/// The ttl of every lease in the demo.
const TTL_MS: u64 = 15_000;

/// The demo has one leader for its whole run.
const TERM: Term = Term(1);

/// A state machine with its clock, and what its clients know.
pub(crate) struct DemoMachine {
    machine: Machine,
    clock_ms: u64,
    effects: Effects,
    leases: BTreeMap<String, LeaseGrant>,
    next_lease: u64,
    /// Locks that were taken from a client, by client and lock, with the lease and token that held them.
    taken: BTreeMap<(String, String), (LeaseGrant, Token)>,
}

impl DemoMachine {
    pub(crate) fn new() -> Self {
        Self {
            machine: Machine::new(Epoch::default()),
            clock_ms: 0,
            effects: Effects::default(),
            leases: BTreeMap::new(),
            next_lease: 1,
            taken: BTreeMap::new(),
        }
    }

    pub(crate) fn clock_ms(&self) -> u64 {
        self.clock_ms
    }

    /// Runs a line and returns the text to show.
    pub(crate) fn answer(&mut self, line: &DemoLine) -> String {
        match line {
            DemoLine::Locks => show::locks(&self.machine),
            DemoLine::Explain { lock } => show::explain(&self.machine, lock),
            DemoLine::History => self.history(),
            DemoLine::Wait { ms } => self.wait(*ms),
            DemoLine::Renew { client } => self.renew(client),
            DemoLine::Force { lock, urgency } => {
                let Some(token) = self.token_of(lock) else {
                    return format!("lock `{lock}` is free");
                };
                let reason = "at the table";
                self.run(&Command::Force { lock, token, by: "", reason, urgency: *urgency })
            }
            DemoLine::Lock { client, lock, mode, wait } => {
                let lease = match self.lease(client) {
                    Ok(lease) => lease,
                    Err(why) => return why,
                };
                self.run(&Command::Acquire(Acquire {
                    lease: AskLease::Existing(lease),
                    locks: Asks::One(Ask { lock, mode: *mode }),
                    any: false,
                    wait: *wait,
                    metadata: &[],
                    lock_delay_ms: 0,
                    max_hold_ms: None,
                    min_hold_ms: 0,
                    progress_within_ms: 0,
                    supersede: None,
                    resume: false,
                    priority: 0,
                    purpose: Purpose::Lock,
                    independent: false,
                }))
            }
            DemoLine::Unlock { client, lock } => {
                let (Some(lease), Some(token)) = (self.known(client), self.held(client, lock))
                else {
                    return format!("{client} does not hold lock `{lock}`");
                };
                self.run(&Command::Release(Hold { lease, lock, token }))
            }
            DemoLine::Leave { client, lock } => match self.known(client) {
                Some(lease) => self.run(&Command::Leave { lease, lock }),
                None => format!("{client} has no lease"),
            },
            DemoLine::Stopped { client, lock } => {
                let Some((lease, token)) = self.taken.get(&(client.clone(), lock.clone())) else {
                    return format!("lock `{lock}` was not taken away from {client}");
                };
                let (lease, created, token) = (lease.id, lease.created, *token);
                self.run(&Command::Stopped { lease, created, lock, token })
            }
        }
    }

    /// Applies one command and describes its outcome and its notices.
    fn run(&mut self, command: &Command<'_>) -> String {
        let before = self.machine.revision();
        let result = self.apply(command);
        let told = match result {
            Ok(answer) => show::answer(&answer),
            Err(refusal) => {
                format!("refused: {refusal} ({}); {}", refusal.reason(), refusal.advice())
            }
        };
        let others = self.notices();
        let changed = self.machine.revision() > before;
        let dated =
            if changed { format!(", revision {}", self.machine.revision()) } else { String::new() };
        format!("{told}{dated}{others}")
    }

    fn apply(&mut self, command: &Command<'_>) -> Result<Answer, Refusal> {
        let mut bytes = Vec::new();
        let request = Request { principal: "", id: RequestId::None, command: command.clone() };
        encode_request(&request, &mut bytes);
        let entry = seal_entry(TERM, self.clock_ms, [bytes.as_slice()]);
        self.machine.apply(TERM, Some(&entry), &mut self.effects);
        let outcome = self.effects.outcomes.pop();
        outcome.expect("an entry of one command has one outcome").result
    }

    /// Lets time pass as a leader does: applies an empty entry whenever something is due.
    fn wait(&mut self, ms: u64) -> String {
        let until = self.clock_ms.saturating_add(ms);
        let mut told = String::new();
        while let Some(due) = self.machine.next_due_ms().filter(|due| *due <= until) {
            self.clock_ms = self.clock_ms.max(due);
            let tick = seal_entry(TERM, self.clock_ms, []);
            self.machine.apply(TERM, Some(&tick), &mut self.effects);
            let notices = self.notices();
            if !notices.is_empty() {
                told.push_str(&format!(
                    "\n{:>6}{}",
                    show::time(self.clock_ms),
                    notices.replacen('\n', "", 1)
                ));
            }
        }
        self.clock_ms = until;
        if told.is_empty() {
            "nothing happened".to_owned()
        } else {
            told.trim_start_matches('\n').to_owned()
        }
    }

    fn renew(&mut self, client: &str) -> String {
        let Some(lease) = self.known(client) else { return format!("{client} has no lease") };
        match self.apply(&Command::Renew(vec![lease])) {
            Ok(Answer::Renewed(renewals)) if renewals == [None] => {
                self.leases.remove(client);
                format!("{client}'s lease has ended; whatever it held is not {client}'s any more")
            }
            Ok(_) => format!("{client}'s lease lives for another {}", show::time(TTL_MS)),
            Err(refusal) => format!("refused: {refusal}"),
        }
    }

    /// The live lease of a client; grants one if there is none.
    fn lease(&mut self, client: &str) -> Result<LeaseRef, String> {
        if let Some(lease) = self.known(client)
            && self.machine.lease(lease).is_some_and(|lease| lease.left_ms > 0)
        {
            return Ok(lease);
        }
        let id = LeaseId::new(self.next_lease).expect("counted from 1");
        let new = NewLease { id, ttl_ms: TTL_MS, client, metadata: &[] };
        match self.apply(&Command::GrantLease(new)) {
            Ok(Answer::LeaseGranted(lease)) => {
                self.next_lease += 1;
                self.leases.insert(client.to_owned(), lease);
                Ok(LeaseRef::Handle(lease.handle))
            }
            Ok(other) => Err(show::answer(&other)),
            Err(refusal) => Err(format!("refused: {refusal}")),
        }
    }

    fn known(&self, client: &str) -> Option<LeaseRef> {
        self.leases.get(client).map(|lease| LeaseRef::Handle(lease.handle))
    }

    fn held(&self, client: &str, lock: &str) -> Option<Token> {
        let holds = self.machine.lease(self.known(client)?)?.holds;
        holds.into_iter().find(|(name, _)| name.as_str() == lock).map(|(_, token)| token)
    }

    fn token_of(&self, lock: &str) -> Option<Token> {
        self.machine.lock(lock)?.holders.first().map(|holder| holder.token)
    }

    /// The notices for all clients, one line each.
    fn notices(&mut self) -> String {
        let name = |slot: tenure_types::Handle| {
            let known = self.leases.iter().find(|(_, lease)| lease.handle == slot);
            known.map_or_else(|| "another client".to_owned(), |(client, _)| client.clone())
        };
        let mut told = String::new();
        for notice in &self.effects.notices {
            told.push_str("\n       ");
            told.push_str(&show::notice(notice, &name));
            if let tenure_core::outcome::Notice::Lost { lease, lock, token, .. } = notice
                && let Some((client, lease)) = self.leases.iter().find(|(_, l)| l.handle == *lease)
            {
                self.taken.insert((client.clone(), lock.to_string()), (*lease, *token));
            }
        }
        told
    }

    fn history(&self) -> String {
        let Ok(events) = self.machine.events(self.machine.floor(), Filter::All, usize::MAX) else {
            return "the history is gone".to_owned();
        };
        if events.batches.is_empty() {
            return "nothing has happened yet".to_owned();
        }
        let lines: Vec<String> = events.batches.iter().map(show::batch).collect();
        lines.join("\n")
    }
}
