//! Tests that an HTTP service behind the layer refuses stale requests and waits for running ones.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, State};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tenure_fence::http::{
    FENCING_FLOOR, FENCING_TOKEN, FenceLayer, FencedBody, FloorFile, Keep, Reads, TENURE_REASON,
    Unproven, Verify, WELL_KNOWN,
};
use tenure_fence::reason::Reason;
use tenure_fence::{Claim, Floor, Incarnation, LockSlot, Token};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tower::{Layer as _, ServiceExt as _};

use crate::subject::{FenceReply, Subject, claim};
use crate::trials::{self, Size};

/// A service that stores one value, with a fence for each lock and slot in front of it.
pub(crate) struct Service<'a> {
    runtime: &'a Runtime,
    dir: PathBuf,
    value: Arc<Mutex<Option<String>>>,
    fences: Mutex<BTreeMap<String, FenceLayer>>,
}

/// Parses a whole claim, as a ticket would prove it.
struct Everything;

impl Verify for Everything {
    fn verify(&self, text: &str, at: LockSlot<'_>) -> Result<Claim, Unproven> {
        let mut words = text.split(' ');
        let number = words.next().and_then(|word| word.parse().ok()).and_then(Token::from_u64);
        let mut claim = Claim::new(number.ok_or(Unproven::Malformed)?);
        for word in words {
            claim = match (word, Incarnation::parse(word)) {
                ("shared", _) => claim.shared(),
                ("once", _) => claim.once(),
                (_, Some(incarnation)) => claim.incarnation(incarnation),
                _ => return Err(Unproven::Forged(format!("not of {at}"))),
            };
        }
        Ok(claim)
    }
}

fn text_of(claim: Claim) -> String {
    let mut text = claim.token.to_string();
    if claim.mode == tenure_fence::Mode::Shared {
        text.push_str(" shared");
    }
    if claim.times == tenure_fence::Times::Once {
        text.push_str(" once");
    }
    if let Some(incarnation) = claim.incarnation {
        text.push_str(&format!(" {incarnation}"));
    }
    text
}

impl<'a> Service<'a> {
    fn keeping(runtime: &'a Runtime, dir: PathBuf) -> Self {
        Self { runtime, dir, value: Arc::default(), fences: Mutex::default() }
    }

    fn fence(&self, at: LockSlot<'_>) -> FenceLayer {
        let name = format!("{}-{:?}", at.lock, at.slot);
        let mut fences = self.fences.lock().unwrap();
        let file = || FloorFile::open(self.dir.join(&name), at).unwrap();
        // Requests wait as long as it takes, because these tests are about order.
        let make = || {
            FenceLayer::waiting(at, file(), Duration::from_secs(600)).unwrap().verify(Everything)
        };
        fences.entry(name.clone()).or_insert_with(make).clone()
    }

    fn ask(
        &self,
        at: LockSlot<'_>,
        method: Method,
        path: &str,
        claim: Claim,
        value: &str,
    ) -> Result<(), FenceReply> {
        let kept = Arc::clone(&self.value);
        let service = tower::service_fn(move |request: Request<Body>| {
            let kept = Arc::clone(&kept);
            async move {
                let value = request.into_body().collect().await.unwrap().to_bytes();
                // Work takes varying time; otherwise requests would hardly ever run beside each other.
                tokio::time::sleep(Duration::from_micros(fastrand::u64(..20_000))).await;
                *kept.lock().unwrap() = Some(String::from_utf8(value.to_vec()).unwrap());
                Ok::<_, Infallible>(Response::new(Body::empty()))
            }
        });
        let request =
            Request::builder().method(method).uri(path).header(FENCING_TOKEN, text_of(claim));
        let request = request.body(Body::from(value.to_owned())).unwrap();
        let fenced = self.fence(at).layer(service);
        self.runtime.block_on(async { understand(fenced.oneshot(request).await.unwrap()).await })
    }
}

async fn understand(response: Response<FencedBody<Body>>) -> Result<(), FenceReply> {
    let floor =
        response.headers().get(FENCING_FLOOR).map(|floor| floor.to_str().unwrap().parse().unwrap());
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    if status.is_success() {
        return Ok(());
    }
    let body = String::from_utf8(body.to_vec()).unwrap();
    let reason = body.split('"').nth(5).unwrap().to_owned();
    Err(match (status.as_u16(), reason.as_str()) {
        (412, "STALE_TOKEN") => FenceReply::Stale { floor: floor.unwrap() },
        (412, "TOKEN_USED") => FenceReply::Used,
        (403, "OTHER_INCARNATION") => FenceReply::OtherIncarnation,
        (400, "NOT_A_TOKEN") => FenceReply::Impossible,
        _ => panic!("{status}: {body}"),
    })
}

impl Subject for Service<'_> {
    fn write(&self, at: LockSlot<'_>, claim: Claim, value: &str) -> Result<(), FenceReply> {
        self.ask(at, Method::POST, "/value", claim, value)
    }

    fn raise(&self, at: LockSlot<'_>, claim: Claim) -> Result<(), FenceReply> {
        self.ask(at, Method::PUT, WELL_KNOWN, claim, "")
    }

    fn floor(&self, at: LockSlot<'_>) -> Floor {
        self.runtime.block_on(self.fence(at).turnstile().floor())
    }

    fn read(&self) -> Option<String> {
        self.value.lock().unwrap().clone()
    }

    fn write_unfenced(&self, value: &str) {
        *self.value.lock().unwrap() = Some(value.to_owned());
    }
}

/// Sets up one service and runs the scenario on it.
pub(crate) fn stand(play: &dyn Fn(&Service<'_>)) {
    let (dir, runtime) = (tempfile::tempdir().unwrap(), &Runtime::new().unwrap());
    play(&Service::keeping(runtime, dir.path().to_owned()));
}

#[test]
fn a_service_behind_the_layer_refuses_the_dead() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = &Runtime::new().unwrap();
    trials::all(Size { steps: 150, writes: 30 }, |name| {
        let dir = dir.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        Service::keeping(runtime, dir)
    });
}

/// A floor that is kept in memory only, or cannot be kept.
struct Memory {
    floor: Floor,
    broken: bool,
}

impl Keep for Memory {
    fn load(&mut self) -> io::Result<Floor> {
        Ok(self.floor)
    }

    fn keep(&mut self, floor: Floor) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("no disk"));
        }
        self.floor = floor;
        Ok(())
    }
}

fn memory() -> Memory {
    Memory { floor: Floor::default(), broken: false }
}

/// A handler that signals its start, and ends when the test says so.
#[derive(Clone)]
struct Slow {
    begun: Arc<Semaphore>,
    end: Arc<Semaphore>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Default for Slow {
    fn default() -> Self {
        let none = || Arc::new(Semaphore::new(0));
        Self { begun: none(), end: none(), log: Arc::default() }
    }
}

impl Slow {
    /// Waits until one more request has begun.
    async fn begun(&self) {
        self.begun.acquire().await.unwrap().forget();
    }

    /// Lets one more request end.
    fn end(&self) {
        self.end.add_permits(1);
    }

    fn behind(&self, fence: FenceLayer) -> axum::Router {
        async fn work(
            State(slow): State<Slow>,
            Extension(claim): Extension<Claim>,
        ) -> &'static str {
            slow.log.lock().unwrap().push(format!("begin {}", claim.token));
            slow.begun.add_permits(1);
            slow.end.acquire().await.unwrap().forget();
            slow.log.lock().unwrap().push(format!("end {}", claim.token));
            "done"
        }
        let read = axum::routing::get(async || "read").post(work);
        axum::Router::new().route("/work", read).with_state(self.clone()).layer(fence)
    }
}

fn request(method: Method, path: &str, tokens: &[&str]) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    for token in tokens {
        request = request.header(FENCING_TOKEN, *token);
    }
    request.body(Body::empty()).unwrap()
}

async fn answer(app: &axum::Router, request: Request<Body>) -> (StatusCode, String) {
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn spawn(app: &axum::Router, token: &'static str) -> tokio::task::JoinHandle<StatusCode> {
    let app = app.clone();
    tokio::spawn(async move { answer(&app, request(Method::POST, "/work", &[token])).await.0 })
}

#[tokio::test]
async fn every_refusal_has_its_status() {
    let slow = Slow::default();
    slow.end();
    let app = slow.behind(FenceLayer::new("a \"lock\"", memory()).unwrap());
    let post = |tokens: &[&str]| answer(&app, request(Method::POST, "/work", tokens));
    assert_eq!(post(&["7"]).await, (StatusCode::OK, "done".to_owned()));
    let (status, body) = post(&[]).await;
    assert_eq!(status, StatusCode::PRECONDITION_REQUIRED);
    assert!(
        body.starts_with(r#"{"error":{"reason":"TOKEN_REQUIRED","message":"a header"#),
        "{body}"
    );
    let (status, body) = post(&["6"]).await;
    assert_eq!(status, StatusCode::PRECONDITION_FAILED);
    let stale = concat!(
        r#"{"error":{"reason":"STALE_TOKEN","message":"token 6 is stale: the highest token seen is 7","#,
        r#""effect":"none","next":"stop the work; the lock is not yours","lock":"a \"lock\"","floor":"7"}}"#
    );
    assert_eq!(body, stale);
    for bad in [&["x"][..], &["7.0"], &["9223372036854775808"], &["7", "7"], &["281474976710656"]] {
        assert_eq!(post(bad).await.0, StatusCode::BAD_REQUEST, "{bad:?}");
    }
    assert_eq!(
        answer(&app, request(Method::GET, "/work", &[])).await.0,
        StatusCode::PRECONDITION_REQUIRED
    );
    let (status, floor) = answer(&app, request(Method::GET, WELL_KNOWN, &[])).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        floor,
        r#"{"lock":"a \"lock\"","slot":null,"exclusive":"7","shared":"0","used":"7"}"#
    );
    assert_eq!(
        answer(&app, request(Method::PUT, WELL_KNOWN, &["8"])).await,
        (StatusCode::NO_CONTENT, String::new())
    );
    assert_eq!(post(&["7"]).await.0, StatusCode::PRECONDITION_FAILED);

    let forged = slow.behind(FenceLayer::new("lock", memory()).unwrap().verify(Everything));
    let (status, body) = answer(&forged, request(Method::POST, "/work", &["7 stolen"])).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(body.contains("FORGED_TOKEN") && body.contains("not of `lock`"), "{body}");
    let open = slow.behind(FenceLayer::new("lock", memory()).unwrap().reads(Reads::Open));
    assert_eq!(
        answer(&open, request(Method::GET, "/work", &[])).await,
        (StatusCode::OK, "read".to_owned())
    );
    assert_eq!(
        answer(&open, request(Method::POST, "/work", &[])).await.0,
        StatusCode::PRECONDITION_REQUIRED
    );

    let broken = slow.behind(FenceLayer::new("lock", Memory { broken: true, ..memory() }).unwrap());
    let (status, body) = answer(&broken, request(Method::POST, "/work", &["7"])).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("FENCE_FAILED"), "{body}");
    assert_eq!(slow.log.lock().unwrap().len(), 2, "no other request was let in");
}

/// Covers every row of the table: a new reason needs a case here.
#[tokio::test]
async fn every_reason_of_the_table_is_said_as_it_stands_there() {
    let layer = |keep| FenceLayer::waiting("lock", keep, Duration::from_millis(50)).unwrap();
    for reason in Reason::ALL {
        let slow = Slow::default();
        let app = slow.behind(layer(memory()).verify(Everything));
        // One request runs, and keeps running if the fence has to be busy.
        let first = spawn(&app, "5 once 00000000000000a1");
        slow.begun().await;
        let tokens = match reason {
            Reason::TokenRequired => &[][..],
            Reason::NotAToken => &["x"],
            Reason::StaleToken => &["4"],
            Reason::TokenUsed => &["5 once 00000000000000a1"],
            Reason::ForgedToken => &["6 stolen"],
            Reason::OtherIncarnation => &["5 00000000000000a2"],
            Reason::FenceBusy | Reason::FenceFailed => &["6"],
            other => panic!("no request leads to {other:?}"),
        };
        let app = match reason {
            Reason::FenceFailed => slow.behind(layer(Memory { broken: true, ..memory() })),
            _ => app,
        };
        let row = reason.row();
        let response = app.oneshot(request(Method::POST, "/work", tokens)).await.unwrap();
        assert_eq!(response.status().as_u16(), row.status, "{reason:?}");
        assert_eq!(response.headers()[TENURE_REASON], row.reason);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8(body.to_vec()).unwrap();
        let (effect, next) = (row.effect.word(), row.advice);
        let said = format!(r#""effect":"{effect}","next":"{next}""#);
        assert!(body.contains(row.reason) && body.contains(&said), "{body}");
        slow.end();
        assert_eq!(first.await.unwrap(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_request_that_raises_the_floor_waits_until_the_lower_ones_have_ended() {
    let slow = Slow::default();
    let fence = FenceLayer::waiting("lock", memory(), Duration::from_secs(600)).unwrap();
    let app = slow.behind(fence.clone());
    let spawn = |token| spawn(&app, token);
    let first = spawn("1");
    slow.begun().await;
    let second = spawn("2");
    // The floor rises at once, before the second request is admitted.
    while fence.turnstile().floor().await.exclusive != Some(claim(2).token) {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        answer(&app, request(Method::POST, "/work", &["1"])).await.0,
        StatusCode::PRECONDITION_FAILED
    );
    let beside = spawn("2");
    slow.end();
    assert_eq!(first.await.unwrap(), StatusCode::OK);
    for _ in 0..2 {
        slow.begun().await;
        slow.end();
    }
    assert_eq!((second.await.unwrap(), beside.await.unwrap()), (StatusCode::OK, StatusCode::OK));
    assert_eq!(slow.log.lock().unwrap()[..2], ["begin 1", "end 1"]);
}

#[tokio::test]
async fn no_request_waits_for_ever_and_a_caller_that_goes_away_ends_its_request() {
    let slow = Slow::default();
    let app =
        slow.behind(FenceLayer::waiting("lock", memory(), Duration::from_millis(50)).unwrap());
    let spawn = |token| spawn(&app, token);
    // 503: nothing is done, and the floor stays where it was raised to.
    let stuck = spawn("3");
    slow.begun().await;
    assert_eq!(spawn("4").await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(spawn("3").await.unwrap(), StatusCode::PRECONDITION_FAILED);
    // A caller that goes away ends its request.
    stuck.abort();
    assert!(stuck.await.unwrap_err().is_cancelled());
    slow.end();
    assert_eq!(spawn("4").await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn a_request_lasts_until_its_response_was_sent() {
    let fence = FenceLayer::new("lock", memory()).unwrap();
    let (sender, receiver) =
        tokio::sync::mpsc::channel::<Result<hyper::body::Frame<bytes::Bytes>, Infallible>>(1);
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let stream = async move || {
        let mut receiver = receiver.lock().unwrap().take().expect("one request");
        let stream = futures_util::stream::poll_fn(move |context| receiver.poll_recv(context));
        Body::new(http_body_util::StreamBody::new(stream))
    };
    let app = axum::Router::new().route("/", axum::routing::post(stream)).layer(fence.clone());
    let response = app.oneshot(request(Method::POST, "/", &["1"])).await.unwrap();
    let second = tokio::spawn({
        let turnstile = fence.turnstile().clone();
        async move { turnstile.raise(claim(2)).await }
    });
    while fence.turnstile().floor().await.exclusive != Some(claim(2).token) {
        tokio::task::yield_now().await;
    }
    sender.send(Ok(hyper::body::Frame::data("part".into()))).await.unwrap();
    assert!(!second.is_finished());
    drop(sender);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "part");
    second.await.unwrap().unwrap();
}

#[tokio::test]
async fn shared_holders_run_beside_each_other_and_not_beside_others() {
    let fence = FenceLayer::waiting("lock", memory(), Duration::from_millis(1)).unwrap();
    let enter = |claim: Claim| fence.turnstile().enter(claim, tenure_fence::Touch::Write);
    let (five, six) =
        (enter(claim(5).shared()).await.unwrap(), enter(claim(6).shared()).await.unwrap());
    let late = enter(claim(4).shared()).await.unwrap();
    assert!(enter(claim(7)).await.unwrap_err().to_string().contains("have not ended"));
    drop((five, six, late));
    let alone = enter(claim(7)).await.unwrap();
    assert_eq!(alone.claim(), claim(7));
    assert!(enter(claim(8).shared()).await.unwrap_err().to_string().contains("have not ended"));
    assert!(enter(claim(6).shared()).await.is_err(), "an exclusive holder came after it");
    drop(alone);
    // Waiting has not used the token up.
    let fence = FenceLayer::waiting("lock", memory(), Duration::from_millis(1)).unwrap();
    let enter = |claim: Claim| fence.turnstile().enter(claim, tenure_fence::Touch::Write);
    let first = enter(claim(1).once()).await.unwrap();
    enter(claim(2).once()).await.unwrap_err();
    drop(first);
    drop(enter(claim(2).once()).await.unwrap());
    enter(claim(2).once()).await.unwrap_err();
}

#[tokio::test]
async fn a_restart_goes_on_from_the_floor_and_only_one_instance_guards() {
    let dir = tempfile::tempdir().unwrap();
    let open = |lock| FloorFile::open(dir.path().join("fence"), lock);
    let fence = FenceLayer::new("lock", open("lock").unwrap()).unwrap();
    fence.turnstile().raise(claim(5)).await.unwrap();
    assert_eq!(open("lock").unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    drop(fence);
    // A process that another test starts has the locks of this one until it runs its own program.
    let again = |lock| {
        let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
        for _ in 0..6_000 {
            match open(lock) {
                Err(error) if is_busy(&error) => std::thread::sleep(Duration::from_millis(5)),
                opened => return opened.unwrap(),
            }
        }
        panic!("the file is still locked");
    };
    let fence = FenceLayer::new("lock", again("lock")).unwrap();
    assert!(fence.turnstile().raise(claim(4)).await.is_err());
    drop(fence);
    // The floor of another lock, or any other content, is not accepted as the floor.
    assert!(FenceLayer::new("other", again("other")).is_err());
    std::fs::write(dir.path().join("fence"), "").unwrap();
    assert!(FenceLayer::new("lock", again("lock")).is_err());
}
