//! Callers without a session keep every grant that they were told of, and nothing stays taken that none was told of.
//!
//! Drives callers from a seed over the real machine and router: answers and commands are late or lost, callers go away
//! at any moment, and repeat their ask with the same key while the first one is being taken back. After every command,
//! each grant that a caller was told of is in force. Without lost messages, every grant in force at the end is one that
//! a caller was told of.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tenure_core::codec::{encode_request, seal_entry};
use tenure_core::outcome::{Answer, Effects, Outcome};
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, Hold, LeaseRef, NewLease, Purpose, Request,
    RequestId,
};
use tenure_core::{LEVEL_MAX, Machine};
use tenure_node::{
    AcquireInput, AcquireOutput, AcquireTerms, NodeFailure, PendingAcquire, PlaceFate, Principal,
    Router, SessionId, SessionMessage,
};
use tenure_types::{Epoch, LeaseId, Mode, Term, Token};

const MS: u64 = 1_000;
const CALLERS: u64 = 5;
const LOCKS: [&str; 2] = ["a", "b"];
const ASK: u64 = 1;
const ABANDON: u64 = 2;
/// Callers begin nothing new after this.
const END_US: u64 = 5_000 * MS;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What a caller wants: a lock, under a key that it repeats.
#[derive(Clone)]
struct Want {
    caller: u64,
    lock: &'static str,
    key: String,
}

/// One call on its way.
struct Call {
    want: Want,
    pending: PendingAcquire,
    /// What the session was sent arrives in order.
    arrives_us: u64,
    gone: bool,
}

enum Event {
    Begin(u64),
    /// A command of a batch of a session reaches the log.
    Apply(SessionId, u64, Bytes),
    Arrive(SessionId, AcquireInput),
    Turn(SessionId),
    /// A caller gives a grant back.
    Release(Want, Token),
}

struct World {
    rng: Rng,
    /// Percent of commands and answers that are lost.
    loss: u64,
    lost: bool,
    now_us: u64,
    events: BTreeMap<(u64, u64), Event>,
    numbers: u64,
    machine: Machine,
    router: Router,
    calls: BTreeMap<SessionId, Call>,
    /// Grants that a caller was told of and has not given back.
    told: BTreeSet<(&'static str, Token)>,
    grants: u64,
    taken_back: u64,
}

fn request(id: RequestId<'_>, command: Command<'_>) -> Bytes {
    let mut bytes = Vec::new();
    encode_request(&Request { principal: "", id, command }, &mut bytes);
    bytes.into()
}

fn lease(caller: u64) -> LeaseRef {
    LeaseRef::Id(LeaseId::new(caller + 1).unwrap())
}

impl World {
    fn new(seed: u64, loss: u64) -> Self {
        let mut world = Self {
            rng: Rng(seed),
            loss,
            lost: false,
            now_us: 0,
            events: BTreeMap::new(),
            numbers: 0,
            machine: Machine::new(Epoch::default()),
            router: Router::default(),
            calls: BTreeMap::new(),
            told: BTreeSet::new(),
            grants: 0,
            taken_back: 0,
        };
        world.apply(&request(RequestId::None, Command::RaiseLevel { level: LEVEL_MAX }));
        for caller in 0..CALLERS {
            let id = LeaseId::new(caller + 1).unwrap();
            let new = NewLease { id, ttl_ms: 600_000, client: "c", metadata: b"" };
            world.apply(&request(RequestId::None, Command::GrantLease(new)));
            world.after(100 * MS, Event::Begin(caller));
        }
        world
    }

    fn after(&mut self, most_us: u64, event: Event) {
        let at_us = self.now_us + self.rng.below(most_us);
        self.at(at_us, event);
    }

    fn at(&mut self, at_us: u64, event: Event) {
        self.numbers += 1;
        self.events.insert((at_us, self.numbers), event);
    }

    fn apply(&mut self, request: &[u8]) -> (Outcome, Effects) {
        let (term, mut effects) = (Term(1), Effects::default());
        let entry = seal_entry(term, self.now_us / MS, [request]);
        self.machine.apply(term, Some(&entry), &mut effects);
        (effects.outcomes.remove(0), effects)
    }

    fn run(&mut self) {
        while let Some(((at_us, _), event)) = self.events.pop_first() {
            self.now_us = self.now_us.max(at_us);
            match event {
                Event::Begin(caller) => {
                    let lock = LOCKS[usize::try_from(self.rng.below(2)).unwrap()];
                    let key = format!("k{}", self.numbers);
                    self.call(Want { caller, lock, key });
                }
                Event::Apply(session, batch, bytes) => self.commit(Some((session, batch)), &bytes),
                Event::Arrive(session, input) => self.handle(session, Some(input)),
                Event::Turn(session) => self.handle(session, None),
                Event::Release(want, token) => self.release(&want, token),
            }
            self.check();
        }
    }

    /// A caller asks, and may go away at any time.
    fn call(&mut self, want: Want) {
        self.numbers += 1;
        let session = SessionId(self.numbers);
        let terms = AcquireTerms {
            within_us: 50 * MS,
            wait_us: self.rng.below(200) * MS,
            place: PlaceFate::GivenUp,
        };
        let (id, key) = (RequestId::Key(&want.key), want.key.clone());
        let pending = PendingAcquire::new(Principal::anyone(), id, terms, self.now_us);
        let acquire = Acquire {
            lease: AskLease::Existing(lease(want.caller)),
            locks: Asks::One(Ask { lock: want.lock, mode: Mode::Exclusive }),
            any: false,
            wait: AskWait::Unlimited,
            metadata: b"",
            lock_delay_ms: 0,
            max_hold_ms: None,
            min_hold_ms: 0,
            progress_within_ms: 0,
            supersede: None,
            resume: false,
            priority: 0,
            purpose: Purpose::Lock,
            independent: false,
        };
        let command = request(RequestId::Key(&key), Command::Acquire(acquire));
        self.router.open(session);
        let call = Call { want, pending, arrives_us: 0, gone: false };
        self.calls.insert(session, call);
        self.submit(session, ASK, command);
        if self.rng.chance(50) {
            self.after(200 * MS, Event::Arrive(session, AcquireInput::CallerGone));
        }
        self.look_again(session);
    }

    fn submit(&mut self, session: SessionId, batch: u64, command: Bytes) {
        if self.is_lost() {
            return self.answer((session, batch), Err(NodeFailure::Unknown));
        }
        self.after(20 * MS, Event::Apply(session, batch, command));
    }

    fn is_lost(&mut self) -> bool {
        let lost = self.rng.chance(self.loss);
        self.lost |= lost;
        lost
    }

    /// A command is applied: its answer, then what it meant for others, go to their sessions.
    fn commit(&mut self, to: Option<(SessionId, u64)>, bytes: &Bytes) {
        let (outcome, effects) = self.apply(bytes);
        if let Ok(Answer::Abandoned { released: true }) = outcome.result {
            self.taken_back += 1;
        }
        if let Some(to) = to {
            let outcome = if self.is_lost() { Err(NodeFailure::Unknown) } else { Ok(outcome) };
            self.answer(to, outcome);
        }
        let mut mail = Vec::new();
        for notice in effects.notices {
            self.router.notify(notice, &mut |session, it| {
                mail.push((session, it));
                0
            });
        }
        mail.into_iter().for_each(|(session, it)| self.send(session, it));
    }

    fn answer(
        &mut self,
        (session, batch): (SessionId, u64),
        outcome: Result<Outcome, NodeFailure>,
    ) {
        let mut mail = Vec::new();
        let mut deliver = |session, it| {
            mail.push((session, it));
            0
        };
        self.router.answer(session, batch, vec![outcome], &mut deliver);
        mail.into_iter().for_each(|(session, it)| self.send(session, it));
    }

    fn send(&mut self, session: SessionId, mail: SessionMessage) {
        let late_us = self.rng.below(20 * MS);
        let Some(call) = self.calls.get_mut(&session) else { return };
        call.arrives_us = (self.now_us + late_us).max(call.arrives_us);
        let input = match mail {
            SessionMessage::Answers { batch, mut outcomes } => match batch {
                ASK => AcquireInput::Answered(outcomes.remove(0)),
                _ => AcquireInput::Abandoned(outcomes.remove(0)),
            },
            SessionMessage::Notice(notice) => AcquireInput::Notice(notice),
            SessionMessage::Closed => AcquireInput::Closed,
        };
        let at_us = call.arrives_us;
        self.at(at_us, Event::Arrive(session, input));
    }

    fn handle(&mut self, session: SessionId, input: Option<AcquireInput>) {
        let now_us = self.now_us;
        let Some(call) = self.calls.get_mut(&session) else { return };
        if input == Some(AcquireInput::CallerGone) && !call.gone {
            call.gone = true;
            let want = call.want.clone();
            self.go_on(want);
        }
        let Some(call) = self.calls.get_mut(&session) else { return };
        let output = match input {
            Some(input) => call.pending.handle(now_us, input),
            None => call.pending.turn(now_us),
        };
        self.perform(session, output);
        self.look_again(session);
    }

    fn perform(&mut self, session: SessionId, output: Option<AcquireOutput>) {
        let now_us = self.now_us;
        match output {
            None => {}
            Some(AcquireOutput::Abandon { request, deadline_us }) => {
                assert!(deadline_us > now_us);
                self.submit(session, ABANDON, request);
            }
            Some(AcquireOutput::Reply(reply)) => {
                let taken = !self.rng.chance(20);
                let call = self.calls.get_mut(&session).unwrap();
                assert!(!call.gone, "a caller that is gone gets no reply");
                let want = call.want.clone();
                if taken {
                    assert_eq!(call.pending.handle(now_us, AcquireInput::Told), None);
                    self.take(want, reply);
                } else {
                    call.gone = true;
                    let output = call.pending.handle(now_us, AcquireInput::NotTold);
                    self.go_on(want);
                    self.perform(session, output);
                }
            }
        }
    }

    /// A caller has its reply. It gives a grant back after a while, before the end.
    fn take(&mut self, want: Want, reply: Result<Outcome, NodeFailure>) {
        let acquired = match reply.map(|outcome| outcome.result) {
            Ok(Ok(Answer::Acquired(acquired))) => acquired,
            Ok(Ok(answer)) => panic!("{answer:?}"),
            Ok(Err(_)) | Err(_) => return self.go_on(want),
        };
        let token = acquired.grants.as_slice()[0].token;
        self.grants += 1;
        self.told.insert((want.lock, token));
        if self.now_us < END_US {
            self.after(100 * MS, Event::Release(want, token));
        }
    }

    fn release(&mut self, want: &Want, token: Token) {
        let Want { caller, lock, .. } = *want;
        self.told.remove(&(lock, token));
        let hold = Hold { lease: lease(caller), lock, token };
        let command = request(RequestId::None, Command::Release(hold));
        // It asks again only after that, or it would release what it is told of then.
        self.commit(None, &command);
        self.after(100 * MS, Event::Begin(caller));
    }

    /// A caller that was not told of a grant repeats its ask, or wants something else.
    fn go_on(&mut self, want: Want) {
        if self.now_us >= END_US {
            return;
        }
        if self.rng.chance(70) {
            return self.call(want);
        }
        self.after(100 * MS, Event::Begin(want.caller));
    }

    fn look_again(&mut self, session: SessionId) {
        let Some(call) = self.calls.get(&session) else { return };
        if call.pending.is_over() {
            self.calls.remove(&session);
            return self.router.close(session);
        }
        let wake_us = call.pending.wake_us();
        if wake_us < u64::MAX {
            self.at(wake_us, Event::Turn(session));
        }
    }

    fn is_in_force(&self, lock: &str, token: Token) -> bool {
        let view = self.machine.lock(lock);
        view.is_some_and(|view| view.holders.iter().any(|holder| holder.token == token))
    }

    fn check(&self) {
        for (lock, token) in &self.told {
            assert!(self.is_in_force(lock, *token), "a caller was told of {token:?} of {lock}");
        }
    }

    /// Nothing is on its way any more.
    fn check_end(&self) {
        assert!(self.calls.is_empty(), "every call ends");
        if self.lost {
            return;
        }
        for lock in LOCKS {
            let Some(view) = self.machine.lock(lock) else { continue };
            for holder in &view.holders {
                let told = self.told.contains(&(lock, holder.token));
                assert!(told, "{:?} of {lock} is held for no caller", holder.token);
            }
        }
    }
}

#[test]
fn a_grant_is_kept_if_a_caller_was_told_and_taken_back_if_none_was() {
    let (mut grants, mut taken_back) = (0, 0);
    for seed in 0..400 {
        let mut world = World::new(seed, if seed % 2 == 0 { 0 } else { 5 });
        world.run();
        world.check_end();
        grants += world.grants;
        taken_back += world.taken_back;
    }
    assert!(grants > 1_000 && taken_back > 1_000, "{grants} {taken_back}");
}
