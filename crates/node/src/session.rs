//! Decides what one session of a client does: which requests it takes, in which batches they are submitted, which
//! request each answer and notice belongs to, which leases the session hears of, and when it ends.
//!
//! A driver owns the stream of messages and their codec, and feeds a [`Session`]:
//!
//! ```text
//! until `is_over()`:
//!     wait for one of these, or until `wake_us()`
//!         a hello:              greet, then welcome with the leases that its principal sees
//!         requests:             command or question for each while `has_room`, then submit
//!         mail of the router:   mail
//!         a question's end:     question_answered
//!         another leader, the end of its credentials
//!     turn(now_us, outputs)
//!     for each output, in order: do it
//! ```
//!
//! Requests that find no room stay with the driver, which does not read on. So a client that does not read its answers
//! is not read either.

mod attached;
mod deadlines;
mod gather;

use std::collections::{BTreeMap, VecDeque};

use tenure_core::outcome::{Answer, LeaseGrant, Notice, Outcome};
use tenure_core::request::{Command, Request};
use tenure_types::{Handle, PlaceNumber, RENEW_MAX};

use self::attached::Attached;
use self::gather::GatheredBatches;
use crate::admission::Permit;
use crate::failure::NodeFailure;
use crate::in_flight::renewal_linger_us;
use crate::io::CommandBatch;
use crate::router::SessionMessage;

pub use self::deadlines::{GIVE_UP_GRACE_US, session_within_us};

/// The shortest ttl that a lease can have. Assumed for renewals of leases that the session has not seen granted.
pub const TTL_MIN_MS: u64 = 1_000;
/// The most places whose requests are remembered. A client that leaves a queue gets no notice of it, so its place stays
/// until then. The notice of a forgotten place names no request.
const PLACES_MAX: usize = 65_536;

/// What a session takes at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionBounds {
    /// Unanswered requests; waits for locks do not count.
    pub in_flight: usize,
    /// Requests in one message.
    pub requests: usize,
    /// Questions that run at a time. Their answers may be large.
    pub questions: usize,
    /// Leases that a hello may name: as many as a renewal, since clients split by that.
    pub leases: usize,
}

impl Default for SessionBounds {
    fn default() -> Self {
        Self { in_flight: 1_024, requests: 1_024, questions: 16, leases: RENEW_MAX }
    }
}

/// The cluster that a client means, or that a member belongs to. In a hello, a zero means any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionCluster {
    /// The id of the cluster.
    pub cluster_id: u64,
    /// The epoch of its tokens.
    pub epoch: u32,
    /// Its incarnation, which a restore changes.
    pub incarnation: u64,
}

/// Why a session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEnd {
    /// The client said hello a second time.
    GreetedTwice,
    /// The client means another cluster.
    OtherCluster,
    /// The cluster was restored from a backup since the client last heard of it.
    Restored,
    /// The hello names more leases than [`SessionBounds::leases`].
    TooManyLeases,
    /// A message has more requests than [`SessionBounds::requests`].
    TooManyRequests {
        /// This bound.
        bound: usize,
    },
    /// The member ends. This covers every request without an answer.
    Stopping,
    /// Messages of the member were lost, or the member has ended: the client has to begin anew.
    Closed,
    /// The credentials of the client no longer hold.
    Credentials,
}

/// Something that the driver has to do.
pub enum SessionOutput<T, Q> {
    /// Submit these commands. Their answers come as [`SessionMessage::Answers`] with this number.
    Submit {
        /// The session's number for the batch.
        batch: u64,
        /// The commands.
        commands: CommandBatch<()>,
    },
    /// Find out the answer to this question, then call [`Session::question_answered`].
    Ask {
        /// The question.
        question: Q,
        /// When it was taken, by the member's clock.
        asked_at_us: u64,
        /// When it must have an answer, by the member's clock.
        deadline_us: u64,
    },
    /// Give the client the answer to a request. Each request has one.
    Answer {
        /// The client's number for the request.
        id: u64,
        /// What the driver keeps with the request.
        kept: T,
        /// When the request was taken, by the member's clock.
        asked_at_us: u64,
        /// The answer.
        outcome: Result<Outcome, NodeFailure>,
    },
    /// Tell the client of this.
    Notice {
        /// The grant or the loss.
        notice: Notice,
        /// The request that made the place that the notice is about, if it was made in this session; else 0.
        id: u64,
    },
    /// From now on the session has to get the notices of these leases.
    Attach(Vec<Handle>),
    /// The session hears of this lease from now on, although the request that names it was given up.
    Learned(LeaseGrant),
    /// Tell the client who leads.
    TellLeader,
    /// Leave the queues in which these places are: no caller waits for them any more.
    Leave(Vec<(Handle, PlaceNumber)>),
    /// The session is over. Tell the client why.
    End(SessionEnd),
}

/// A command of a client, before it is admitted.
pub struct SessionCommand<'a> {
    /// The client's number for the request.
    pub id: u64,
    /// How long it may take.
    pub within_us: u64,
    /// The command.
    pub request: Request<'a>,
}

/// One session. `T` is what its driver keeps with each command, `Q` is a question.
pub struct Session<T, Q> {
    bounds: SessionBounds,
    greeted: bool,
    over: bool,
    /// The number of the newest batch.
    newest: u64,
    /// Batches without answers, by number.
    batches: BTreeMap<u64, Vec<PendingAnswer<T>>>,
    /// Requests without an answer.
    in_flight: usize,
    /// Commands that were taken and not submitted: those that must not wait, and renewals.
    urgent: GatheredBatches<T>,
    renewals: GatheredBatches<T>,
    /// The number of commands that it has taken.
    taken: u64,
    /// The request that made each place that waits.
    places: BTreeMap<(Handle, PlaceNumber), PlaceRequest>,
    /// The shortest ttl seen. It bounds how long renewals may wait for others.
    ttl_min_ms: Option<u64>,
    attached: Attached,
    /// Questions that do not run yet.
    questions: VecDeque<SessionQuestion<Q>>,
    /// The number of questions that run.
    asking: usize,
    /// The time at which the first request is given up; it may be too early, never too late.
    give_up_at_us: u64,
}

struct PendingAnswer<T> {
    id: u64,
    /// The number of commands that the session has taken before it.
    before: u64,
    /// None once the request was given up and answered.
    kept: Option<T>,
    asked_at_us: u64,
    deadline_us: u64,
    /// The leases of a renewal that the session is not attached to, by position.
    listens: Vec<(usize, Handle)>,
}

/// The request by which the client knows a place. A client may repeat a request before it is answered, and answers of
/// several batches come in any order. Of the requests whose answers it was sent, the last one that it sent counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PlaceRequest {
    is_told: bool,
    before: u64,
    id: u64,
}

struct SessionQuestion<Q> {
    question: Q,
    asked_at_us: u64,
    deadline_us: u64,
}

impl<T, Q> Session<T, Q> {
    /// A new session, within these bounds.
    pub fn new(bounds: SessionBounds) -> Self {
        Self {
            bounds,
            greeted: false,
            over: false,
            newest: 0,
            batches: BTreeMap::new(),
            in_flight: 0,
            urgent: GatheredBatches::default(),
            renewals: GatheredBatches::default(),
            taken: 0,
            places: BTreeMap::new(),
            ttl_min_ms: None,
            attached: Attached::default(),
            questions: VecDeque::new(),
            asking: 0,
            give_up_at_us: u64::MAX,
        }
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the client has said hello.
    pub fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// The number of requests without an answer.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether it may take one more request, if the next message has this many refusals already.
    pub fn has_room(&self, refused: usize) -> bool {
        !self.over && self.in_flight + refused < self.bounds.in_flight
    }

    /// The time at which it wants a turn, by the member's clock.
    pub fn wake_us(&self) -> u64 {
        self.give_up_at_us
    }

    /// Takes a hello that names this many leases. If it is accepted, [`Session::welcome`] must follow.
    pub fn greet(
        &mut self,
        meant: SessionCluster,
        here: SessionCluster,
        leases: usize,
    ) -> Result<(), SessionEnd> {
        let differs = |meant: u64, here: u64| meant != 0 && meant != here;
        let problem = if self.greeted {
            SessionEnd::GreetedTwice
        } else if differs(meant.cluster_id, here.cluster_id) {
            SessionEnd::OtherCluster
        } else if differs(meant.epoch.into(), here.epoch.into())
            || differs(meant.incarnation, here.incarnation)
        {
            SessionEnd::Restored
        } else if leases > self.bounds.leases {
            SessionEnd::TooManyLeases
        } else {
            self.greeted = true;
            return Ok(());
        };
        self.over = true;
        Err(problem)
    }

    /// Attaches the session to the leases of its hello that its principal sees, each with its ttl.
    pub fn welcome(
        &mut self,
        leases: impl IntoIterator<Item = (Handle, u64)>,
        outputs: &mut Vec<SessionOutput<T, Q>>,
    ) {
        let mut handles = Vec::new();
        for (handle, ttl_ms) in leases {
            self.heed(ttl_ms);
            self.attached.add(handle);
            handles.push(handle);
        }
        if mutant!("welcome_attaches_nothing") {
            return;
        }
        if !handles.is_empty() {
            outputs.push(SessionOutput::Attach(handles));
        }
    }

    /// Checks the number of requests in a message.
    pub fn check_message(&mut self, requests: usize) -> Result<(), SessionEnd> {
        if requests <= self.bounds.requests {
            return Ok(());
        }
        self.over = true;
        Err(SessionEnd::TooManyRequests { bound: self.bounds.requests })
    }

    /// Takes a command, if `admit` admits it with its length in the log. [`Session::submit`] submits it.
    pub fn command<E>(
        &mut self,
        now_us: u64,
        command: &SessionCommand<'_>,
        admit: impl FnOnce(&Command<'_>, usize) -> Result<Permit, E>,
        keep: impl FnOnce() -> T,
    ) -> Result<(), E> {
        let SessionCommand { id, within_us, request } = command;
        let mut listens = Vec::new();
        let heap = match &request.command {
            Command::Renew(leases) => {
                listens = self.attached.missing(leases);
                &mut self.renewals
            }
            _ => &mut self.urgent,
        };
        let (id, before) = (*id, self.taken);
        let deadline_us = now_us.saturating_add(*within_us);
        heap.with_deadline(deadline_us).add(request, admit, || {
            let kept = Some(keep());
            PendingAnswer { id, before, kept, asked_at_us: now_us, deadline_us, listens }
        })?;
        self.taken += 1;
        self.in_flight += 1;
        Ok(())
    }

    /// Takes a question.
    pub fn question(
        &mut self,
        now_us: u64,
        within_us: u64,
        question: Q,
        outputs: &mut Vec<SessionOutput<T, Q>>,
    ) {
        self.in_flight += 1;
        // Its time counts from when it was taken.
        let deadline_us = now_us.saturating_add(within_us);
        self.questions.push_back(SessionQuestion { question, asked_at_us: now_us, deadline_us });
        self.start_questions(outputs);
    }

    /// A question has its answer, which the driver gives to the client.
    pub fn question_answered(&mut self, outputs: &mut Vec<SessionOutput<T, Q>>) {
        self.in_flight -= 1;
        self.asking -= 1;
        self.start_questions(outputs);
    }

    fn start_questions(&mut self, outputs: &mut Vec<SessionOutput<T, Q>>) {
        while self.asking < self.bounds.questions {
            let Some(next) = self.questions.pop_front() else { return };
            self.asking += 1;
            let SessionQuestion { question, asked_at_us, deadline_us } = next;
            outputs.push(SessionOutput::Ask { question, asked_at_us, deadline_us });
        }
    }

    /// Submits the commands that were taken: renewals in batches of their own, which may wait for others.
    pub fn submit(&mut self, now_us: u64, outputs: &mut Vec<SessionOutput<T, Q>>) {
        let linger_us = renewal_linger_us(self.ttl_min_ms.unwrap_or(TTL_MIN_MS));
        let urgent = self.urgent.take().map(|gathered| (gathered, 0));
        let renewals = self.renewals.take().map(|gathered| (gathered, linger_us));
        for (gathered, linger_us) in urgent.chain(renewals) {
            let Some((commands, pending)) = gathered.into_batch(now_us, linger_us) else {
                continue;
            };
            self.newest += 1;
            self.watch_deadlines(&pending);
            self.batches.insert(self.newest, pending);
            outputs.push(SessionOutput::Submit { batch: self.newest, commands });
        }
    }

    /// What the driver keeps with the commands of a batch that have no answer.
    pub fn kept(&self, batch: u64) -> impl Iterator<Item = &T> {
        self.batches.get(&batch).into_iter().flatten().filter_map(|it| it.kept.as_ref())
    }

    /// Takes a message of the router.
    pub fn mail(&mut self, mail: SessionMessage, outputs: &mut Vec<SessionOutput<T, Q>>) {
        if self.over {
            return;
        }
        match mail {
            SessionMessage::Answers { batch, mut outcomes } => {
                let pending = self.batches.remove(&batch).unwrap_or_default();
                if mutant!("answers_in_another_order") {
                    outcomes.reverse();
                }
                for (pending, outcome) in pending.into_iter().zip(outcomes) {
                    self.answered(pending, outcome, outputs);
                }
            }
            SessionMessage::Notice(notice) => self.noticed(notice, outputs),
            SessionMessage::Closed => self.end(SessionEnd::Closed, outputs),
        }
    }

    fn answered(
        &mut self,
        pending: PendingAnswer<T>,
        outcome: Result<Outcome, NodeFailure>,
        outputs: &mut Vec<SessionOutput<T, Q>>,
    ) {
        let PendingAnswer { id, before, kept, asked_at_us, listens, .. } = pending;
        let mut named = None;
        if let Ok(Outcome { result: Ok(answer), .. }) = &outcome {
            match answer {
                Answer::Queued(queued) => {
                    let place = (queued.lease.handle, queued.place);
                    // The client knows nothing of the place by a request that was given up.
                    if self.places.len() >= PLACES_MAX {
                        self.places.pop_first();
                    }
                    let request = PlaceRequest { is_told: kept.is_some(), before, id };
                    let known = self.places.entry(place).or_insert(request);
                    *known = request.max(*known);
                    named = Some(queued.lease);
                }
                Answer::Acquired(acquired) => named = Some(acquired.lease),
                Answer::LeaseGranted(lease) => named = Some(*lease),
                // Only an owner renews, so a session that renewed a lease may hear of it.
                Answer::Renewed(renewed) if !listens.is_empty() => {
                    let live = |at: usize| renewed.get(at).is_some_and(Option::is_some);
                    let live = listens.iter().filter(|(at, _)| live(*at));
                    let live: Vec<Handle> = live.map(|(_, handle)| *handle).collect();
                    live.iter().for_each(|handle| self.attached.add(*handle));
                    if !live.is_empty() {
                        outputs.push(SessionOutput::Attach(live));
                    }
                }
                _ => {}
            }
        }
        if let Some(lease) = &named {
            // The router has attached the session to it.
            self.heed(lease.ttl_ms);
            self.attached.add(lease.handle);
        }
        if self.over {
            return;
        }
        let Some(kept) = kept else {
            // The request was given up, and the client was told so.
            outputs.extend(named.map(SessionOutput::Learned));
            return;
        };
        if outcome == Err(NodeFailure::Stopping) {
            return self.end(SessionEnd::Stopping, outputs);
        }
        if !mutant!("session_room_leaked") {
            self.in_flight -= 1;
        }
        outputs.push(SessionOutput::Answer { id, kept, asked_at_us, outcome });
    }

    fn heed(&mut self, ttl_ms: u64) {
        self.ttl_min_ms = Some(self.ttl_min_ms.map_or(ttl_ms, |it| it.min(ttl_ms)));
    }

    fn noticed(&mut self, notice: Notice, outputs: &mut Vec<SessionOutput<T, Q>>) {
        let id = match &notice {
            Notice::Granted { lease, place, .. } | Notice::WaitEnded { lease, place, .. } => {
                self.places.remove(&(*lease, *place)).map_or(0, |request| request.id)
            }
            Notice::LeaseEnded { lease, .. } => {
                let all = (*lease, PlaceNumber(0))..=(*lease, PlaceNumber(u64::MAX));
                let ended: Vec<_> = self.places.range(all).map(|(place, _)| *place).collect();
                for place in ended {
                    self.places.remove(&place);
                }
                self.attached.remove(*lease);
                0
            }
            Notice::Lost { .. } => 0,
        };
        outputs.push(SessionOutput::Notice { notice, id });
    }

    /// Another member leads, or none.
    pub fn lead_changed(&self, outputs: &mut Vec<SessionOutput<T, Q>>) {
        if self.greeted && !self.over {
            outputs.push(SessionOutput::TellLeader);
        }
    }

    /// The credentials of the client no longer hold: it leaves every queue that it waits in.
    pub fn credentials_ended(&mut self, outputs: &mut Vec<SessionOutput<T, Q>>) {
        let places = std::mem::take(&mut self.places);
        outputs.push(SessionOutput::Leave(places.into_keys().collect()));
        self.end(SessionEnd::Credentials, outputs);
    }

    fn end(&mut self, why: SessionEnd, outputs: &mut Vec<SessionOutput<T, Q>>) {
        if !std::mem::replace(&mut self.over, true) {
            outputs.push(SessionOutput::End(why));
        }
    }
}
