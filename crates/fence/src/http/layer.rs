//! Implements the tower layer that puts a service behind a fence.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use tower::{Layer, Service};

use crate::claim::{Claim, LockSlot, Times};
use crate::rule::Touch;

use super::answer::{self, FENCING_TOKEN, RefusalDraft};
use super::body::FencedBody;
use super::keep::Keep;
use super::turnstile::Turnstile;
use super::verify::{BareTokens, Unproven, Verify};

/// The path at which the floor is read (`GET`) and raised (`PUT`). The service behind the fence never sees it.
pub const WELL_KNOWN: &str = "/.well-known/tenure-fence";

/// The default bound on how long a request waits for requests with lower tokens: a third of the default ttl.
const WAIT: Duration = Duration::from_secs(5);

/// Whether requests that change nothing need a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Reads {
    /// They need one, like all others.
    #[default]
    Fenced,
    /// `GET`, `HEAD`, `OPTIONS` and `TRACE` without a token bypass the fence. Only for services in which these methods
    /// change nothing.
    Open,
}

/// Puts services behind the fence of one lock and slot.
#[derive(Clone)]
pub struct FenceLayer {
    fence: Arc<LayerFence>,
}

/// A service behind a fence. Handlers find the [`Claim`] among the request's extensions.
#[derive(Clone)]
pub struct FenceService<S> {
    service: S,
    fence: Arc<LayerFence>,
}

#[derive(Clone)]
struct LayerFence {
    lock: String,
    slot: Option<u32>,
    turnstile: Turnstile,
    verify: Arc<dyn Verify>,
    times: Times,
    reads: Reads,
}

impl FenceLayer {
    /// Creates a fence that accepts bare numbers, waits at most five seconds, and always requires a token.
    pub fn new<'a>(at: impl Into<LockSlot<'a>>, keep: impl Keep) -> io::Result<Self> {
        Self::waiting(at, keep, WAIT)
    }

    /// Creates the same fence with another bound on waiting. A request that reaches the bound gets a 503.
    pub fn waiting<'a>(
        at: impl Into<LockSlot<'a>>,
        keep: impl Keep,
        wait: Duration,
    ) -> io::Result<Self> {
        let at = at.into();
        at.check().map_err(io::Error::other)?;
        let fence = LayerFence {
            lock: at.lock.to_owned(),
            slot: at.slot,
            turnstile: Turnstile::new(keep, wait)?,
            verify: Arc::new(BareTokens),
            times: Times::Many,
            reads: Reads::Fenced,
        };
        Ok(Self { fence: Arc::new(fence) })
    }

    /// Sets how the fence verifies the token header.
    #[must_use]
    pub fn verify(mut self, verify: impl Verify) -> Self {
        Arc::make_mut(&mut self.fence).verify = Arc::new(verify);
        self
    }

    /// Admits every token once.
    #[must_use]
    pub fn once(mut self) -> Self {
        Arc::make_mut(&mut self.fence).times = Times::Once;
        self
    }

    /// Sets the rule for requests that change nothing.
    #[must_use]
    pub fn reads(mut self, reads: Reads) -> Self {
        Arc::make_mut(&mut self.fence).reads = reads;
        self
    }

    /// Returns the turnstile, for callers that use it directly.
    pub fn turnstile(&self) -> &Turnstile {
        &self.fence.turnstile
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = FenceService<S>;

    fn layer(&self, service: S) -> FenceService<S> {
        FenceService { service, fence: Arc::clone(&self.fence) }
    }
}

impl<S, Q, R> Service<Request<Q>> for FenceService<S>
where
    S: Service<Request<Q>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    Q: Send + 'static,
    R: Body<Data = Bytes>,
{
    type Response = Response<FencedBody<R>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // `poll_ready` was called on this instance, so it serves the request. The clone is polled before its own next
        // call.
        let again = self.service.clone();
        let service = std::mem::replace(&mut self.service, again);
        let fence = Arc::clone(&self.fence);
        Box::pin(async move { fence.pass(service, request).await })
    }
}

impl LayerFence {
    fn at(&self) -> LockSlot<'_> {
        LockSlot { lock: &self.lock, slot: self.slot }
    }

    async fn pass<S, Q, R>(
        &self,
        mut service: S,
        mut request: Request<Q>,
    ) -> Result<Response<FencedBody<R>>, S::Error>
    where
        S: Service<Request<Q>, Response = Response<R>>,
    {
        let own = request.uri().path() == WELL_KNOWN;
        let bare = !request.headers().contains_key(FENCING_TOKEN);
        if own && request.method() == Method::GET {
            return Ok(answer::floor(self.at(), self.turnstile.floor().await));
        }
        if !own && bare && self.reads == Reads::Open && request.method().is_safe() {
            let response = service.call(request).await?;
            return Ok(response.map(|body| FencedBody::service(body, None)));
        }
        let claim = match self.claim(&request) {
            Ok(claim) => claim,
            Err(said) => return Ok(said.response(self.at())),
        };
        let touch = if own { Touch::Raise } else { Touch::Write };
        let entered = match self.turnstile.enter(claim, touch).await {
            Ok(entered) => entered,
            Err(denied) => return Ok(RefusalDraft::denied(&denied).response(self.at())),
        };
        if own {
            drop(entered);
            return Ok(answer::raised(self.turnstile.floor().await));
        }
        request.extensions_mut().insert(claim);
        let response = service.call(request).await?;
        Ok(response.map(|body| FencedBody::service(body, Some(entered))))
    }

    fn claim<Q>(&self, request: &Request<Q>) -> Result<Claim, RefusalDraft> {
        let mut given = request.headers().get_all(FENCING_TOKEN).iter();
        let malformed = || RefusalDraft::unproven(&Unproven::Malformed);
        let text =
            given.next().ok_or_else(RefusalDraft::required)?.to_str().map_err(|_| malformed())?;
        // With two tokens, the fence and the service might each trust a different one.
        if given.next().is_some() {
            return Err(malformed());
        }
        let claim = self
            .verify
            .verify(text, self.at())
            .map_err(|unproven| RefusalDraft::unproven(&unproven))?;
        Ok(if self.times == Times::Once { claim.once() } else { claim })
    }
}
