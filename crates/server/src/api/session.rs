//! Handles one session: a stream of requests, answers and notices.
//!
//! The stream of answers drives everything: polling it for the next message makes it take requests, submit them and
//! collect the results. So the session does not read from a client that does not read its answers, and only this one
//! task has to be woken.

mod deadlines;
mod listening;
mod notices;

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt};
use tenure_core::codec::encode_request;
use tenure_core::outcome::{Answer, LeaseGrant, Outcome};
use tenure_core::request::{Command, Request};
use tenure_node::{Lead, Permit};
use tenure_types::{Handle, LeaseId, PlaceNumber, RENEW_MAX, Refusal, Revision};
use tenure_wire::{Failure, Message as _, convert, v1};
use tokio::task::JoinSet;
use tokio::time::Sleep;

use self::listening::Listening;
use super::encode::{self, LeaseInAnswer};
use super::{decode, query};
use crate::dispatch::{self, Caller, Charge, ClientSession, Dispatch, MailboxMessage, Principal};
use crate::identity::{CallerIdentity, CredentialWatch};
use crate::metrics::{Api, Class};
use crate::os;
use crate::traces::{FollowedBatch, RequestSpan, TraceContext};

/// The most unanswered requests on one session, and answers that are not sent; waits for locks do not count.
pub(crate) const IN_FLIGHT_MAX: usize = 1_024;
/// The most requests in one message.
pub(crate) const REQUESTS_MAX: usize = 1_024;
/// The most queries of one session that run at a time, or whose answers are not sent. Answers may be large.
const QUESTIONS_MAX: usize = 16;
/// Leases that a hello may name: as many as a renewal, since clients split by that.
const HELLO_MAX: usize = RENEW_MAX;
/// Requests without a deadline of their own have this one.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest deadline: only a wait for a lock may take longer.
const DEADLINE_MAX: Duration = Duration::from_secs(600);

/// The name of a client that gives none.
pub(crate) const UNNAMED: &str = "unnamed";

/// Leases by handle.
pub(crate) type LeaseNames = BTreeMap<Handle, LeaseId>;

/// The problem with a message that cannot be read; none if the client is gone.
pub(crate) type Unread = Option<Box<v1::Error>>;

/// One session.
pub(crate) struct SessionHandler {
    dispatch: Dispatch,
    api: Api,
    who: Principal,
    /// Watches over the credentials of the client; none if it needs none.
    credentials: Option<CredentialWatch>,
    client: String,
    session: ClientSession,
    newest: u64,
    /// Batches in flight, with their requests.
    batches: BTreeMap<u64, Vec<PendingAnswers>>,
    /// The batches in flight of which requests are traced.
    followed: BTreeMap<u64, FollowedBatch>,
    in_flight: usize,
    /// The request that created each waiting place.
    places: BTreeMap<(Handle, PlaceNumber), u64>,
    /// The shortest ttl seen. It bounds how long renewals may wait to be batched.
    ttl_min_ms: Option<u64>,
    listening: Listening,
    /// The lease of each handle, for APIs that name leases by id.
    names: Option<LeaseNames>,
    /// The leases that have ended since the last message, and whose names are still needed for it.
    ended: Vec<Handle>,
    /// The requests of the last message that are not taken yet.
    rest: std::vec::IntoIter<v1::Request>,
    /// Running queries, each with the time it was received.
    questions: JoinSet<(u64, v1::Answer, Charge)>,
    /// Queries that are to run, each with the time it was received.
    waiting: VecDeque<(u64, v1::Request)>,
    lead: tokio::sync::watch::Receiver<Lead>,
    alarm: Pin<Box<Sleep>>,
    alarmed: bool,
    greeted: bool,
    closing: bool,
}

struct PendingAnswers {
    id: u64,
    told: LeaseInAnswer,
    class: Class,
    asked_at_us: u64,
    deadline_us: u64,
    answered: bool,
    span: Option<RequestSpan>,
}

/// The requests of one turn, encoded one after the other.
#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    pending: Vec<PendingAnswers>,
    permit: Permit,
}

impl SessionHandler {
    /// The handler of a new session; fails if the caller has too many.
    pub(crate) fn new(
        dispatch: Dispatch,
        identity: Option<CallerIdentity>,
        api: Api,
    ) -> Result<Self, Failure> {
        let who = identity.as_ref().map(|it| it.principal().clone());
        let who = who.unwrap_or_else(Principal::anyone);
        let (session, lead) = (dispatch.session_of_client()?, dispatch.member().lead());
        Ok(Self {
            dispatch,
            api,
            who,
            credentials: identity.map(|it| it.watch()),
            client: UNNAMED.to_owned(),
            session,
            newest: 0,
            batches: BTreeMap::new(),
            followed: BTreeMap::new(),
            in_flight: 0,
            places: BTreeMap::new(),
            ttl_min_ms: None,
            listening: Listening::default(),
            names: None,
            ended: Vec::new(),
            rest: Vec::new().into_iter(),
            questions: JoinSet::new(),
            waiting: VecDeque::new(),
            lead,
            alarm: Box::pin(tokio::time::sleep(DEADLINE)),
            alarmed: false,
            greeted: false,
            closing: false,
        })
    }

    /// Records from now on which lease each handle is.
    pub(crate) fn remember_names(&mut self) {
        self.names = Some(LeaseNames::new());
    }

    /// The leases seen so far, by handle.
    pub(crate) fn names(&self) -> &LeaseNames {
        static NONE: std::sync::LazyLock<LeaseNames> = std::sync::LazyLock::new(LeaseNames::new);
        self.names.as_ref().unwrap_or(&NONE)
    }

    /// The next message to the client; none when the session is over.
    pub(crate) async fn next<S>(&mut self, from: &mut S) -> Option<v1::SessionResponse>
    where
        S: Stream<Item = Result<v1::SessionRequest, Unread>> + Unpin,
    {
        if self.closing {
            return None;
        }
        self.forget_ended();
        loop {
            let mut out = v1::SessionResponse::default();
            tokio::select! {
                biased;
                failure = ended(self.credentials.as_mut()) => {
                    let places = std::mem::take(&mut self.places).into_keys().collect();
                    self.dispatch.leave_places(self.who.clone(), places);
                    self.close((&failure).into(), &mut out);
                }
                mail = self.session.mail() => self.take_mail(mail, &mut out),
                Some(Ok((asked_at_us, answer, _charge))) = self.questions.join_next(),
                    if !self.questions.is_empty() =>
                {
                    self.in_flight -= 1;
                    self.start_questions();
                    self.served(Class::Read, asked_at_us, self.dispatch.now_us());
                    out.answers.push(answer);
                }
                () = std::future::ready(()),
                    if self.in_flight < IN_FLIGHT_MAX && !self.rest.as_slice().is_empty() =>
                {
                    self.take_requests(v1::SessionRequest::default(), from, &mut out).await;
                }
                request = from.next(), if self.in_flight < IN_FLIGHT_MAX => match request {
                    Some(Ok(request)) => self.take_requests(request, from, &mut out).await,
                    Some(Err(unread)) => self.close(*unread?, &mut out),
                    None => return None,
                },
                () = self.alarm.as_mut(), if self.alarmed => self.give_up(&mut out),
                changed = self.lead.changed(), if self.greeted => {
                    if changed.is_ok() {
                        self.lead.mark_unchanged();
                        out.leader = Some(self.dispatch.leader_hint().await);
                    }
                }
            }
            if !is_empty(&out) {
                self.count_refusals(&out);
                return Some(out);
            }
            if self.closing {
                return None;
            }
        }
    }

    /// The span of a request that is sampled. A session carries the requests of many callers, so each request names its
    /// own.
    fn span(&self, request: &v1::Request) -> Option<RequestSpan> {
        let traces = self.dispatch.traces();
        if !traces.is_on() {
            return None;
        }
        let parent = TraceContext::parse(&request.traceparent);
        traces.begin(parent, self.api.name(), Class::of_request(request).name())
    }

    fn served(&self, class: Class, asked_at_us: u64, now_us: u64) {
        self.dispatch.request_metrics().served(self.api, class, now_us.saturating_sub(asked_at_us));
    }

    fn count_refusals(&self, out: &v1::SessionResponse) {
        for answer in &out.answers {
            if let Some(reason) = reason(answer) {
                self.dispatch.request_metrics().refused(self.api, reason);
            }
        }
        if let Some(error) = &out.closing {
            self.dispatch.request_metrics().refused(self.api, &error.reason);
        }
    }

    /// Takes what is left of the last message, then a message and those that have arrived behind it, up to the limit
    /// of requests in flight. Errors count too: a client that sends invalid requests waits for them like any other.
    async fn take_requests<S>(
        &mut self,
        first: v1::SessionRequest,
        from: &mut S,
        out: &mut v1::SessionResponse,
    ) where
        S: Stream<Item = Result<v1::SessionRequest, Unread>> + Unpin,
    {
        let (mut urgent, mut renewals) = (Gathered::default(), Gathered::default());
        let now_us = self.dispatch.now_us();
        let mut message = first;
        loop {
            if let Some(hello) = message.hello.take()
                && let Err(failure) = self.greet(&hello, out).await
            {
                out.closing = Some((&failure).into());
                self.closing = true;
                return;
            }
            if message.requests.len() > REQUESTS_MAX {
                let bound = REQUESTS_MAX as u64;
                out.closing = Some((&Failure::TooLarge { bound }).into());
                self.closing = true;
                return;
            }
            if !message.requests.is_empty() {
                self.rest = std::mem::take(&mut message.requests).into_iter();
            }
            while self.in_flight + out.answers.len() < IN_FLIGHT_MAX {
                let Some(mut request) = self.rest.next() else { break };
                decode::number_leases(&mut request, self.who.name());
                let error = match too_many(&request) {
                    Some(refusal) => v1::Error::from(&refusal),
                    None => match self.take(&request, now_us, &mut urgent, &mut renewals) {
                        Ok(()) => continue,
                        Err(failure) => (&failure).into(),
                    },
                };
                out.answers.push(answer(request.id, None, v1::answer::Result::Error(error)));
            }
            if self.in_flight + out.answers.len() >= IN_FLIGHT_MAX {
                break;
            }
            match from.next().now_or_never() {
                Some(Some(Ok(next))) => message = next,
                Some(Some(Err(Some(error)))) => {
                    self.close(*error, out);
                    break;
                }
                _ => break,
            }
        }
        let gather_us = dispatch::linger_us(&Command::Renew(Vec::new()), self.ttl_min_ms());
        self.send(urgent, 0);
        self.send(renewals, gather_us);
    }

    /// Closes the session with an error.
    fn close(&mut self, error: v1::Error, out: &mut v1::SessionResponse) {
        out.closing = Some(error);
        self.closing = true;
    }

    /// Answers the hello; a session has one.
    async fn greet(
        &mut self,
        hello: &v1::Hello,
        out: &mut v1::SessionResponse,
    ) -> Result<(), Failure> {
        if self.greeted {
            return Err(decode::invalid("hello", "was said before"));
        }
        let cluster_id = super::header::cluster_id(self.dispatch.cluster());
        if hello.cluster_id != 0 && hello.cluster_id != cluster_id {
            return Err(Failure::OtherCluster { cluster_id });
        }
        let lineage = self.dispatch.member().lineage();
        let other_epoch = hello.epoch != 0 && hello.epoch != u32::from(lineage.epoch.get());
        let incarnation = lineage.incarnation.0;
        if other_epoch || hello.incarnation != 0 && hello.incarnation != incarnation {
            return Err(Failure::Restored);
        }
        if hello.leases.len() > HELLO_MAX {
            return Err(decode::invalid("leases", "are too many"));
        }
        self.greeted = true;
        if !hello.client.is_empty() {
            self.client.clone_from(&hello.client);
        }
        let welcome = query::welcome(&self.dispatch, &self.who, hello).await?;
        let mut handles = Vec::with_capacity(welcome.leases.len());
        for lease in &welcome.leases {
            if let (Some(handle), Some(id)) = (
                convert::handle_from(lease.lease_slot, lease.lease_generation),
                convert::lease_from(lease.lease),
            ) {
                self.heed(handle, id, lease.ttl_ms);
                handles.push(handle);
            }
        }
        self.session.attach(handles);
        out.revision = welcome.header.as_ref().map_or(0, |header| header.revision);
        out.welcome = Some(welcome);
        Ok(())
    }

    /// Takes one request: encodes a command into one of the two batches, or starts a query.
    fn take(
        &mut self,
        request: &v1::Request,
        now_us: u64,
        urgent: &mut Gathered,
        renewals: &mut Gathered,
    ) -> Result<(), Failure> {
        if query::is_question(request) {
            self.in_flight += 1;
            self.waiting.push_back((now_us, request.clone()));
            self.start_questions();
            return Ok(());
        }
        let command = decode::command(request, &self.client)?;
        let id = decode::request_id(request, &command)?;
        let told = match &command {
            Command::Acquire(ask)
                if matches!(ask.lease, tenure_core::request::AskLease::New(_)) =>
            {
                LeaseInAnswer::LeaseToo
            }
            _ => LeaseInAnswer::Grant,
        };
        let heap = match &command {
            Command::Renew(leases) => {
                self.listen(leases);
                renewals
            }
            _ => urgent,
        };
        let before = heap.bytes.len();
        let whole = Request { principal: self.who.name(), id, command };
        encode_request(&whole, &mut heap.bytes);
        match self.dispatch.admit(&self.who, &whole.command, heap.bytes.len() - before) {
            Ok(permit) => heap.permit.join(permit),
            Err(failure) => {
                heap.bytes.truncate(before);
                return Err(failure);
            }
        }
        heap.ends.push(heap.bytes.len());
        self.in_flight += 1;
        let within_us = u64::try_from(within(request.deadline_ms).as_micros()).unwrap_or(u64::MAX);
        heap.pending.push(PendingAnswers {
            id: request.id,
            told,
            class: Class::of_request(request),
            asked_at_us: now_us,
            deadline_us: now_us.saturating_add(within_us),
            answered: false,
            span: self.span(request),
        });
        Ok(())
    }

    /// Starts the queries that wait, as far as there is room for them.
    fn start_questions(&mut self) {
        while self.questions.len() < QUESTIONS_MAX {
            let Some((asked_at_us, request)) = self.waiting.pop_front() else { return };
            let (dispatch, who) = (self.dispatch.clone(), self.who.clone());
            // Its time counts from when it was received.
            let deadline_us = asked_at_us.saturating_add(os::micros(within(request.deadline_ms)));
            let memory = Caller::present_memory();
            let asked = async move {
                let within = dispatch.until(deadline_us);
                let answer = query::session(&dispatch, &who, &request, within).await;
                let charge = memory.charge(answer.encoded_len());
                (asked_at_us, answer, charge)
            };
            match Caller::current() {
                Some(caller) => self.questions.spawn(caller.run(asked)),
                None => self.questions.spawn(asked),
            };
        }
    }

    /// Forgets the names of leases that the last message reported as ended.
    fn forget_ended(&mut self) {
        for lease in self.ended.drain(..) {
            self.listening.remove(lease);
            if let Some(names) = &mut self.names {
                names.remove(&lease);
            }
        }
    }

    fn send(&mut self, gathered: Gathered, linger_us: u64) {
        let Gathered { bytes, ends, pending, permit } = gathered;
        let Some(last_us) = pending.iter().map(|it| it.deadline_us).max() else { return };
        let bytes = Bytes::from(bytes);
        let mut start = 0;
        let requests =
            ends.iter().map(|end| bytes.slice(std::mem::replace(&mut start, *end)..*end));
        let requests = requests.collect();
        self.newest += 1;
        self.set_alarm(&pending);
        let spans = pending.iter().filter_map(|pending| pending.span.as_ref());
        let reply = self.session.reply_to(self.newest);
        let followed = self.dispatch.follow(reply, spans.map(RequestSpan::steps));
        self.followed.extend(followed.map(|followed| (self.newest, followed)));
        self.batches.insert(self.newest, pending);
        self.session.submit(self.newest, requests, linger_us, last_us, permit);
    }

    fn take_mail(&mut self, mail: Vec<MailboxMessage>, out: &mut v1::SessionResponse) {
        let now_us = self.dispatch.now_us();
        for letter in mail {
            match letter {
                MailboxMessage::Answers { batch, outcomes } => {
                    let pending = self.batches.remove(&batch).unwrap_or_default();
                    self.followed.remove(&batch);
                    for (mut pending, outcome) in pending.into_iter().zip(outcomes) {
                        self.served(pending.class, pending.asked_at_us, now_us);
                        self.answered(&pending, outcome, out);
                        if let Some(span) = pending.span.take() {
                            let newest = out.answers.last().filter(|it| it.id == pending.id);
                            span.finish(newest.and_then(reason));
                        }
                    }
                }
                MailboxMessage::Notice(notice) => self.noticed(notice, out),
                MailboxMessage::Closed => {
                    out.closing = Some((&self.dispatch.farewell()).into());
                    self.closing = true;
                }
            }
        }
    }

    fn answered(
        &mut self,
        pending: &PendingAnswers,
        outcome: Result<Outcome, tenure_node::NodeFailure>,
        out: &mut v1::SessionResponse,
    ) {
        if let Ok(Outcome { result: Ok(result), .. }) = &outcome {
            match result {
                Answer::Queued(queued) => {
                    self.places.insert((queued.lease.handle, queued.place), pending.id);
                    self.heed_grant(&queued.lease);
                }
                Answer::Acquired(acquired) => self.heed_grant(&acquired.lease),
                Answer::LeaseGranted(lease) => self.heed_grant(lease),
                _ => {}
            }
        }
        if pending.answered {
            return;
        }
        self.in_flight -= 1;
        out.answers.push(match outcome {
            Ok(outcome) => {
                out.revision = out.revision.max(convert::revision(outcome.revision));
                let result = encode::answer(&outcome, pending.told);
                answer(pending.id, Some(outcome.revision), result)
            }
            Err(failure) => {
                let waited_us = self.dispatch.now_us().saturating_sub(pending.asked_at_us);
                let failure = self.dispatch.failure(failure, Duration::from_micros(waited_us));
                if matches!(failure, Failure::ShuttingDown | Failure::Corrupt) {
                    // The session ends with this error, which covers every unanswered request.
                    return self.close((&failure).into(), out);
                }
                answer(pending.id, None, v1::answer::Result::Error((&failure).into()))
            }
        });
    }

    fn heed_grant(&mut self, lease: &LeaseGrant) {
        self.heed(lease.handle, lease.id, lease.ttl_ms);
    }

    fn heed(&mut self, handle: Handle, id: LeaseId, ttl_ms: u64) {
        if let Some(names) = &mut self.names {
            names.insert(handle, id);
        }
        self.ttl_min_ms = Some(self.ttl_min_ms.map_or(ttl_ms, |it| it.min(ttl_ms)));
    }

    fn ttl_min_ms(&self) -> u64 {
        self.ttl_min_ms.unwrap_or(dispatch::TTL_MIN_MS)
    }
}

/// Waits until the credentials of a client no longer hold.
async fn ended(credentials: Option<&mut CredentialWatch>) -> Failure {
    match credentials {
        Some(credentials) => credentials.ended().await,
        None => std::future::pending().await,
    }
}

/// The refusal for a renewal with too many leases; the machine would refuse it too.
fn too_many(request: &v1::Request) -> Option<Refusal> {
    let Some(v1::request::Command::Renew(it)) = &request.command else { return None };
    let named = it.slots.len() + it.leases.len();
    (named > RENEW_MAX).then_some(Refusal::TooManyInCommand { max: RENEW_MAX as u64 })
}

fn within(deadline_ms: u32) -> Duration {
    match deadline_ms {
        0 => DEADLINE,
        ms => Duration::from_millis(ms.into()).min(DEADLINE_MAX),
    }
}

fn answer(id: u64, revision: Option<Revision>, result: v1::answer::Result) -> v1::Answer {
    let revision = revision.map_or(0, convert::revision);
    v1::Answer { id, revision, result: Some(result) }
}

/// The reason of an answer that is not success.
fn reason(answer: &v1::Answer) -> Option<&str> {
    match &answer.result {
        Some(v1::answer::Result::Error(error)) => Some(&error.reason),
        _ => None,
    }
}

fn is_empty(out: &v1::SessionResponse) -> bool {
    out.answers.is_empty()
        && out.grants.is_empty()
        && out.losses.is_empty()
        && out.waits_ended.is_empty()
        && out.leases_ended.is_empty()
        && out.welcome.is_none()
        && out.leader.is_none()
        && out.closing.is_none()
}
