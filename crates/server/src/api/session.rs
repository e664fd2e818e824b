//! Serves one session: a stream of requests, answers and notices.
//!
//! The stream of answers drives everything: polling it for the next message makes it take requests, submit them and
//! collect the results. So the session does not read from a client that does not read its answers, and only this one
//! task has to be woken. What the session takes, submits and answers is decided by [`tenure_node::Session`]; this file
//! has its codec, its clock and its queues.

mod notices;
mod perform;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt};
use tenure_core::request::{Command, Request};
use tenure_node::{
    KnownLeader, Session, SessionBounds, SessionCluster, SessionCommand, SessionOutput,
    session_within_us,
};
use tenure_types::{Handle, LeaseId, RENEW_MAX, Refusal};
use tenure_wire::{Failure, convert, v1};
use tokio::task::JoinSet;
use tokio::time::Sleep;

use super::encode::AnswerForm;
use super::{decode, query};
use crate::dispatch::{Charge, ClientSession, Dispatch, Principal};
use crate::identity::{CallerIdentity, CredentialWatch};
use crate::metrics::{Api, RequestClass};
use crate::traces::{FollowedBatch, RequestSpan, TraceContext};

/// The name of a client that gives none.
pub(crate) const UNNAMED: &str = "unnamed";

/// Leases by handle.
pub(crate) type LeaseNames = BTreeMap<Handle, LeaseId>;
/// The most names that are remembered. A lease that its own client revokes ends without a notice.
const NAMES_MAX: usize = 65_536;

/// The problem with a message that cannot be read; none if the client is gone.
pub(crate) type Unread = Option<Box<v1::Error>>;

/// One session.
pub(crate) struct SessionHandler {
    dispatch: Dispatch,
    api: Api,
    who: Principal,
    /// Watches over the credentials of the client.
    credentials: CredentialWatch,
    /// What became of these credentials, once they do not hold.
    ended_credentials: Option<Failure>,
    client: String,
    mailbox: ClientSession,
    session: Session<KeptRequest, v1::Request>,
    outputs: Vec<SessionOutput<KeptRequest, v1::Request>>,
    /// The batches in flight of which requests are traced.
    followed: BTreeMap<u64, FollowedBatch>,
    /// The lease of each handle, for APIs that name leases by id.
    names: Option<LeaseNames>,
    /// The leases that have ended since the last message, and whose names are still needed for it.
    ended: Vec<Handle>,
    /// The requests of the last message that are not taken yet.
    rest: std::vec::IntoIter<v1::Request>,
    /// Running queries, each with the time it was received.
    questions: JoinSet<(u64, v1::Answer, Charge)>,
    lead: tokio::sync::watch::Receiver<KnownLeader>,
    alarm: Pin<Box<Sleep>>,
    /// The moment of the member's clock that the alarm is set to.
    alarm_us: u64,
    /// Whether it was closed because of a message that cannot be accepted.
    closed: bool,
}

/// What is kept with a command until it is answered.
struct KeptRequest {
    form: AnswerForm,
    class: RequestClass,
    span: Option<RequestSpan>,
}

impl SessionHandler {
    /// The handler of a new session; fails if the caller has too many.
    pub(crate) fn new(
        dispatch: Dispatch,
        identity: CallerIdentity,
        api: Api,
    ) -> Result<Self, Failure> {
        let (mailbox, lead) = (dispatch.session_of_client()?, dispatch.member().lead());
        Ok(Self {
            dispatch,
            api,
            who: identity.principal().clone(),
            credentials: identity.watch(),
            ended_credentials: None,
            client: UNNAMED.to_owned(),
            mailbox,
            session: Session::new(SessionBounds::default()),
            outputs: Vec::new(),
            followed: BTreeMap::new(),
            names: None,
            ended: Vec::new(),
            rest: Vec::new().into_iter(),
            questions: JoinSet::new(),
            lead,
            alarm: Box::pin(tokio::time::sleep(Duration::ZERO)),
            alarm_us: u64::MAX,
            closed: false,
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

    fn is_over(&self) -> bool {
        self.closed || self.session.is_over()
    }

    /// The next message to the client; none when the session is over.
    pub(crate) async fn next<S>(&mut self, from: &mut S) -> Option<v1::SessionResponse>
    where
        S: Stream<Item = Result<v1::SessionRequest, Unread>> + Unpin,
    {
        if self.is_over() {
            return None;
        }
        self.forget_ended();
        loop {
            let mut out = v1::SessionResponse::default();
            let has_room = self.session.has_room(0);
            tokio::select! {
                biased;
                failure = self.credentials.ended() => {
                    self.ended_credentials = Some(failure);
                    self.session.credentials_ended(&mut self.outputs);
                }
                mail = self.mailbox.mail() => self.take_mail(mail),
                Some(Ok((asked_at_us, answer, _charge))) = self.questions.join_next(),
                    if !self.questions.is_empty() =>
                {
                    self.session.question_answered(&mut self.outputs);
                    self.served(RequestClass::Read, asked_at_us, self.dispatch.now_us());
                    out.answers.push(answer);
                }
                () = std::future::ready(()), if has_room && !self.rest.as_slice().is_empty() => {
                    self.take_requests(v1::SessionRequest::default(), from, &mut out).await;
                }
                request = from.next(), if has_room => match request {
                    Some(Ok(request)) => self.take_requests(request, from, &mut out).await,
                    Some(Err(unread)) => self.close(*unread?, &mut out),
                    None => return None,
                },
                () = self.alarm.as_mut(), if self.alarm_us < u64::MAX => {
                    self.alarm_us = u64::MAX;
                    self.session.turn(self.dispatch.now_us(), &mut self.outputs);
                }
                changed = self.lead.changed(), if self.session.is_greeted() => {
                    if changed.is_ok() {
                        self.lead.mark_unchanged();
                        self.session.lead_changed(&mut self.outputs);
                    }
                }
            }
            self.perform(&mut out).await;
            if !is_empty(&out) {
                self.count_refusals(&out);
                return Some(out);
            }
            if self.is_over() {
                return None;
            }
        }
    }

    /// The span of a request that is sampled. A session carries the requests of many callers, so each request names its
    /// own.
    fn span(dispatch: &Dispatch, api: Api, request: &v1::Request) -> Option<RequestSpan> {
        let traces = dispatch.traces();
        if !traces.is_on() {
            return None;
        }
        let parent = TraceContext::parse(&request.traceparent);
        traces.begin(parent, api.name(), RequestClass::of_request(request).name())
    }

    fn served(&self, class: RequestClass, asked_at_us: u64, now_us: u64) {
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
        let now_us = self.dispatch.now_us();
        let mut message = first;
        loop {
            if let Some(hello) = message.hello.take()
                && let Err(failure) = self.greet(&hello, out).await
            {
                return self.close((&failure).into(), out);
            }
            if let Err(end) = self.session.check_message(message.requests.len()) {
                return out.closing = Some((&self.farewell(end)).into());
            }
            if !message.requests.is_empty() {
                self.rest = std::mem::take(&mut message.requests).into_iter();
            }
            while self.session.has_room(out.answers.len()) {
                let Some(mut request) = self.rest.next() else { break };
                decode::number_leases(&mut request, self.who.name());
                let error = match too_many(&request) {
                    Some(refusal) => v1::Error::from(&refusal),
                    None => match self.take(&request, now_us) {
                        Ok(()) => continue,
                        Err(failure) => (&failure).into(),
                    },
                };
                out.answers.push(answer(
                    request.id,
                    None,
                    v1::answer::Result::Error(Box::new(error)),
                ));
            }
            if !self.session.has_room(out.answers.len()) {
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
        self.session.submit(self.dispatch.now_us(), &mut self.outputs);
    }

    /// Closes the session with an error of the client's message.
    fn close(&mut self, error: v1::Error, out: &mut v1::SessionResponse) {
        out.closing = Some(error);
        self.closed = true;
    }

    /// Answers the hello; a session has one.
    async fn greet(
        &mut self,
        hello: &v1::Hello,
        out: &mut v1::SessionResponse,
    ) -> Result<(), Failure> {
        let meant = SessionCluster {
            cluster_id: hello.cluster_id,
            epoch: hello.epoch,
            incarnation: hello.incarnation,
        };
        let greeted = self.session.greet(meant, self.cluster(), hello.leases.len());
        greeted.map_err(|end| self.farewell(end))?;
        if !hello.client.is_empty() {
            self.client.clone_from(&hello.client);
        }
        let welcome = query::welcome(&self.dispatch, &self.who, hello).await?;
        let mut seen = Vec::with_capacity(welcome.leases.len());
        for lease in &welcome.leases {
            if let (Some(handle), Some(id)) = (
                convert::handle_from(lease.lease_slot, lease.lease_generation),
                convert::lease_from(lease.lease),
            ) {
                self.name(handle, id);
                seen.push((handle, lease.ttl_ms));
            }
        }
        self.session.welcome(seen, &mut self.outputs);
        out.revision = welcome.header.as_ref().map_or(0, |header| header.revision);
        out.welcome = Some(welcome);
        Ok(())
    }

    /// The cluster of this member.
    fn cluster(&self) -> SessionCluster {
        let lineage = self.dispatch.member().lineage();
        SessionCluster {
            cluster_id: super::header::cluster_id(self.dispatch.cluster()),
            epoch: lineage.epoch.get().into(),
            incarnation: lineage.incarnation.0,
        }
    }

    /// Takes one request: a command or a query.
    fn take(&mut self, request: &v1::Request, now_us: u64) -> Result<(), Failure> {
        let within_us = session_within_us(request.deadline_ms);
        if query::is_question(request) {
            let question = request.clone();
            self.session.question(now_us, within_us, question, &mut self.outputs);
            return Ok(());
        }
        let command = decode::command(request, &self.client)?;
        let id = decode::request_id(request, &command)?;
        let form = match &request.command {
            Some(v1::request::Command::Acquire(ask)) => AnswerForm::of(ask),
            _ => AnswerForm::default(),
        };
        let (dispatch, who, api) = (&self.dispatch, &self.who, self.api);
        let admit = |command: &Command<'_>, bytes| dispatch.admit(who, command, bytes);
        let class = RequestClass::of_request(request);
        let keep = || KeptRequest { form, class, span: Self::span(dispatch, api, request) };
        let whole = Request { principal: who.name(), id, command };
        let command = SessionCommand { id: request.id, within_us, request: whole };
        self.session.command(now_us, &command, admit, keep)
    }

    /// Forgets the names of leases that the last message reported as ended.
    fn forget_ended(&mut self) {
        for lease in self.ended.drain(..) {
            if let Some(names) = &mut self.names {
                names.remove(&lease);
            }
        }
    }

    fn name(&mut self, handle: Handle, id: LeaseId) {
        if let Some(names) = &mut self.names {
            if names.len() >= NAMES_MAX {
                names.pop_first();
            }
            names.insert(handle, id);
        }
    }
}

/// A session whose client does not read is not polled, so the end of its credentials may come to it only now.
impl Drop for SessionHandler {
    fn drop(&mut self) {
        if self.ended_credentials.is_some() || self.credentials.check().is_ok() {
            return;
        }
        self.session.credentials_ended(&mut self.outputs);
        for output in self.outputs.drain(..) {
            if let SessionOutput::Leave(places) = output {
                self.dispatch.leave_places(self.who.clone(), places);
            }
        }
    }
}

/// The refusal for a renewal with too many leases; the machine would refuse it too.
fn too_many(request: &v1::Request) -> Option<Refusal> {
    let Some(v1::request::Command::Renew(it)) = &request.command else { return None };
    let named = it.slots.len() + it.leases.len();
    (named > RENEW_MAX).then_some(Refusal::TooManyInCommand { max: RENEW_MAX as u64 })
}

fn answer(
    id: u64,
    revision: Option<tenure_types::Revision>,
    result: v1::answer::Result,
) -> v1::Answer {
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
