//! Tests that small requests for slots do not starve large ones: no request is granted before one that came earlier.

use std::collections::BTreeMap;

use tenure_core::Machine;
use tenure_core::codec::{encode_request, seal_entry};
use tenure_core::outcome::{Acquired, Answer, Effects, Grants, Notice};
use tenure_core::request::{
    Acquire, Ask, AskLease, AskWait, Asks, Command, Hold, LEVEL_SHARES, LeaseRef, NewLease,
    Purpose, Request, RequestId,
};
use tenure_types::{Epoch, LeaseId, Mode, PlaceNumber, Term, Token};

const SLOTS: u32 = 8;
const CLIENTS: u64 = 24;
const ROUNDS: u64 = 20_000;

/// The state of one client.
enum ClientState {
    Nothing,
    Waits { place: PlaceNumber, take: u32, since: u64 },
    Holds(Vec<Token>),
}

#[test]
fn a_large_request_waits_for_those_before_it_only() {
    let mut pool = Pool::new();
    let mut longest = BTreeMap::new();
    for round in 0..ROUNDS {
        let client = pool.random(CLIENTS) + 1;
        match pool.clients.remove(&client).unwrap() {
            ClientState::Nothing => {
                // Mostly one slot, so that there is always a small request which would fit.
                let large = pool.random(4) == 0;
                let take = if large { u32::try_from(pool.random(8) + 1).unwrap() } else { 1 };
                pool.ask(client, take, round);
            }
            // Once half of them wait, the others go on: otherwise no client would hold anything for long.
            waits @ ClientState::Waits { .. } => drop(pool.clients.insert(client, waits)),
            ClientState::Holds(tokens) => pool.release(client, &tokens, round, &mut longest),
        }
        pool.check();
    }
    assert!(longest.contains_key(&SLOTS), "the largest requests were granted: {longest:?}");
    // The first in the queue waits until at most 8 slots are given back, and a client is drawn once in 24 rounds on
    // average: with at most 24 before it, no wait comes near this bound, and without the order the large ones would
    // pass it.
    assert!(longest.values().all(|rounds| *rounds < 24 * 24 * 8), "{longest:?}");
}

struct Pool {
    machine: Machine,
    clients: BTreeMap<u64, ClientState>,
    /// The newest request that was granted.
    newest: PlaceNumber,
    seed: u64,
}

impl Pool {
    fn new() -> Self {
        let (machine, newest) = (Machine::new(Epoch::default()), PlaceNumber(0));
        let mut pool = Pool { machine, clients: BTreeMap::new(), newest, seed: 1 };
        pool.run(Command::RaiseLevel { level: LEVEL_SHARES });
        for client in 1..=CLIENTS {
            let id = LeaseId::new(client).unwrap();
            let new = NewLease { id, ttl_ms: 3_600_000, client: "ci", metadata: b"" };
            pool.run(Command::GrantLease(new));
            pool.clients.insert(client, ClientState::Nothing);
        }
        pool
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % below
    }

    fn ask(&mut self, client: u64, take: u32, since: u64) {
        let acquire = Acquire {
            lease: AskLease::Existing(lease(client)),
            locks: Asks::One(Ask { lock: "pool", mode: Mode::Slot { of: SLOTS, take } }),
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
        let effects = self.run(Command::Acquire(acquire));
        let doing = match effects.outcomes[0].result.clone().expect("nothing refuses it") {
            Answer::Acquired(Acquired { place, grants, .. }) => {
                assert!(self.waiting().next().is_none(), "it passed those who wait");
                self.grant(place, take, &grants)
            }
            Answer::Queued(queued) => ClientState::Waits { place: queued.place, take, since },
            other => panic!("{other:?}"),
        };
        self.clients.insert(client, doing);
    }

    fn release(
        &mut self,
        client: u64,
        tokens: &[Token],
        round: u64,
        longest: &mut BTreeMap<u32, u64>,
    ) {
        self.clients.insert(client, ClientState::Nothing);
        for token in tokens {
            let hold = Hold { lease: lease(client), lock: "pool", token: *token };
            let effects = self.run(Command::Release(hold));
            for notice in effects.notices {
                let Notice::Granted { place, grants, .. } = notice else { continue };
                let (&who, &ClientState::Waits { take, since, .. }) = self
                    .clients
                    .iter()
                    .find(|(_, it)| matches!(it, ClientState::Waits { place: it, .. } if *it == place))
                    .expect("a waiter is granted")
                else {
                    unreachable!()
                };
                let most = longest.entry(take).or_insert(0);
                *most = round.saturating_sub(since).max(*most);
                let doing = self.grant(place, take, &grants);
                self.clients.insert(who, doing);
            }
        }
    }

    /// Checks the order and the number of a grant.
    fn grant(&mut self, place: PlaceNumber, take: u32, grants: &Grants) -> ClientState {
        assert!(place > self.newest, "{place:?} was passed by {:?}", self.newest);
        self.newest = place;
        assert_eq!(grants.as_slice().len(), take as usize, "all slots or none");
        ClientState::Holds(grants.as_slice().iter().map(|grant| grant.token).collect())
    }

    fn waiting(&self) -> impl Iterator<Item = (PlaceNumber, u32)> {
        self.clients.values().filter_map(|it| match it {
            ClientState::Waits { place, take, .. } => Some((*place, *take)),
            ClientState::Nothing | ClientState::Holds(_) => None,
        })
    }

    /// Checks that no share is lost: what is not held is free, and too little for the first who waits.
    fn check(&self) {
        let held: usize = self
            .clients
            .values()
            .map(|it| match it {
                ClientState::Holds(tokens) => tokens.len(),
                ClientState::Nothing | ClientState::Waits { .. } => 0,
            })
            .sum();
        let shown = self.machine.lock("pool").map_or(0, |lock| lock.holders.len());
        assert_eq!(held, shown);
        if let Some((_, take)) = self.waiting().min() {
            assert!(
                held + take as usize > SLOTS as usize,
                "the first waits although {take} are free"
            );
        }
    }

    fn run(&mut self, command: Command<'_>) -> Effects {
        let mut bytes = Vec::new();
        encode_request(&Request { principal: "", id: RequestId::None, command }, &mut bytes);
        let payload = seal_entry(Term(1), 0, [bytes.as_slice()]);
        let mut effects = Effects::default();
        self.machine.apply(Term(1), Some(&payload), &mut effects);
        effects
    }
}

fn lease(client: u64) -> LeaseRef {
    LeaseRef::Id(LeaseId::new(client).unwrap())
}
