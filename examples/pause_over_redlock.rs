//! Shows what a pause does to data under Redlock, and under a lock whose token the store checks.
//!
//! A takes the lock, checks that it holds it, and pauses before it writes. Its time runs out; B takes the lock and
//! writes. A wakes up and writes. The program runs this twice: over Redlock on three Redis servers, which has no token
//! to present, and over Tenure. The data is in `tenure store` both times. It draws what happened as a picture:
//!
//! ```console
//! $ for port in 6391 6392 6393; do redis-server --port $port --save '' --daemonize yes; done
//! $ tenure dev & tenure store &
//! $ export REDIS_ADDRS=127.0.0.1:6391,127.0.0.1:6392,127.0.0.1:6393
//! $ cargo run --package tenure-backends --example pause_over_redlock -- docs/pause.svg
//! ```

use std::error::Error;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use tenure_backends::{Locks, Redlock};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep};

/// Long enough for three servers that are busy, short enough to wait for.
const TTL: Duration = Duration::from_secs(4);
/// How long B is willing to wait.
const WAIT: Duration = Duration::from_secs(120);

/// How long the work takes.
const WORK: Duration = Duration::from_millis(600);

type Failed = Box<dyn Error + Send + Sync>;

/// The addresses of all servers.
pub(crate) struct Places {
    pub(crate) redis: Vec<String>,
    pub(crate) tenure: String,
    pub(crate) store: String,
}

/// What happens in an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// Takes the lock, with its token if there is one.
    Takes(Option<u64>),
    Pauses,
    Wakes,
    Accepted,
    Refused,
}

/// What happened, when, and to which client.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) who: &'static str,
    pub(crate) what: What,
}

/// The recording of one run.
pub(crate) struct Story {
    pub(crate) title: &'static str,
    pub(crate) events: Vec<Event>,
    /// What the store contains in the end.
    pub(crate) left: String,
}

/// A held lock, and what its holder presents to the store.
struct Held {
    token: Option<u64>,
    /// Whether the holder may believe that it holds the lock.
    valid: Box<dyn Fn() -> bool>,
}

fn main() -> Result<(), Failed> {
    let said = |name: &str, usual: &str| std::env::var(name).unwrap_or_else(|_| usual.to_owned());
    let redis = said("REDIS_ADDRS", "127.0.0.1:6391,127.0.0.1:6392,127.0.0.1:6393");
    let stories = run(&Places {
        redis: redis.split(',').map(str::to_owned).collect(),
        tenure: said("TENURE_ADDR", "127.0.0.1:7450"),
        store: said("TENURE_STORE", "127.0.0.1:8000"),
    })?;
    for Story { title, events, left } in &stories {
        println!("{title}");
        for Event { at, who, what } in events {
            println!("  {:6.2} s  {who} {what:?}", at.as_secs_f64());
        }
        println!("  in the end the store has: {left}\n");
    }
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(path, picture(&stories))?;
    }
    Ok(())
}

/// Runs both, one after the other.
pub(crate) fn run(places: &Places) -> Result<[Story; 2], Failed> {
    let redlock = tell("Redlock: nothing to show", "redlock", places, |runtime, lock| {
        runtime.block_on(async {
            let locks = Locks::builder(Redlock::new(places.redis.clone())).ttl(TTL).start()?;
            let guard = locks.lock(lock).wait(WAIT).await?;
            Ok(Held { token: None, valid: Box::new(move || guard.check().is_ok()) })
        })
    })?;
    let tenure =
        tell("Tenure: every grant has a larger token", "tenure", places, |runtime, lock| {
            runtime.block_on(async {
                let client = tenure::Client::connect(&places.tenure).await?;
                let guard = client.lock(lock).ttl(TTL).wait(WAIT).await?;
                let token = Some(guard.token().get());
                Ok(Held { token, valid: Box::new(move || guard.check().is_ok()) })
            })
        })?;
    Ok([redlock, tenure])
}

/// A takes the lock and pauses; B takes it and writes; A wakes up and writes.
fn tell(
    title: &'static str,
    word: &str,
    places: &Places,
    hold: impl Fn(&Runtime, &str) -> Result<Held, Failed> + Sync,
) -> Result<Story, Failed> {
    let lock = &format!("pause-{word}-{}", std::process::id());
    let (began, events) = (Instant::now(), &Mutex::new(Vec::new()));
    let note = &|who, what| {
        let at = began.elapsed();
        events.lock().expect("no task panics with it").push(Event { at, who, what });
    };
    let write = &|who, held: &Held| {
        // Without tokens, both clients present the same number, which is as good as none.
        let token = held.token.unwrap_or(1);
        let accepted = put(&places.store, lock, token, &format!("{who}'s work"))?;
        note(who, if accepted { What::Accepted } else { What::Refused });
        Ok::<(), Failed>(())
    };
    let hold = &hold;
    let (paused, is_paused) = channel();
    let (wake, is_woken) = channel();
    std::thread::scope(|scope| {
        let a = scope.spawn(move || -> Result<(), Failed> {
            // Everything that A does, renewals included, runs on this thread and pauses with it.
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let held = hold(&runtime, lock)?;
            note("A", What::Takes(held.token));
            runtime.block_on(async { sleep(WORK).await });
            if !(held.valid)() {
                return Err(
                    "this machine is too slow: A lost the lock before it could pause".into()
                );
            }
            note("A", What::Pauses);
            paused.send(())?;
            is_woken.recv()?;
            note("A", What::Wakes);
            write("A", &held)
        });
        let b = || {
            is_paused.recv()?;
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
            let held = hold(&runtime, lock)?;
            note("B", What::Takes(held.token));
            runtime.block_on(async { sleep(WORK).await });
            write("B", &held)?;
            runtime.block_on(async { sleep(WORK).await });
            wake.send(())?;
            Ok::<_, Failed>((held, runtime))
        };
        // B holds the lock until A is done.
        let b = b();
        drop(wake);
        let a = a.join().unwrap_or_else(|_| Err("A panicked".into()));
        match (a, b) {
            (Ok(()), Ok(_)) => Ok(()),
            (Err(a), Err(b)) => Err(format!("A: {a}; B: {b}").into()),
            (Err(why), Ok(_)) | (Ok(()), Err(why)) => Err(why),
        }
    })?;
    let events = std::mem::take(&mut *events.lock().expect("no task panics with it"));
    Ok(Story { title, events, left: ask(&places.store, "GET", lock, None, "")?.1 })
}

/// Writes to the store, and returns whether it accepted the write.
fn put(store: &str, lock: &str, token: u64, value: &str) -> Result<bool, Failed> {
    match ask(store, "PUT", &format!("{lock}?lock={lock}"), Some(token), value)? {
        (200, _) => Ok(true),
        (412, _) => Ok(false),
        (status, body) => Err(format!("the store said {status}: {body}").into()),
    }
}

/// Sends one request to the store.
fn ask(
    store: &str,
    verb: &str,
    key: &str,
    token: Option<u64>,
    body: &str,
) -> Result<(u16, String), Failed> {
    let token = token.map_or(String::new(), |token| format!("Fencing-Token: {token}\r\n"));
    let headers = format!("Connection: close\r\n{token}Content-Length: {}\r\n", body.len());
    let mut stream = TcpStream::connect(store)?;
    write!(stream, "{verb} /v1/data/{key} HTTP/1.1\r\nHost: {store}\r\n{headers}\r\n{body}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the store broke off")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or("the store said nothing")?, body.to_owned()))
}

/// The dimensions of the picture, in pixels.
const WIDTH: f64 = 860.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const PANEL: f64 = 180.0;

/// Draws the runs below each other, on the same scale.
pub(crate) fn picture(stories: &[Story]) -> String {
    let last = |story: &Story| story.events.last().map_or(0.0, |event| event.at.as_secs_f64());
    let longest = stories.iter().map(last).fold(1.0, f64::max);
    let height = PANEL * stories.len() as f64 + 34.0;
    let mut to = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>A pause beyond the ttl, under Redlock and under Tenure</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (at, story) in stories.iter().enumerate() {
        panel(&mut to, story, PANEL * at as f64, longest);
    }
    let seconds = (0..).map(f64::from).take_while(|second| *second <= longest);
    for second in seconds {
        let (x, y) = (place(second, longest), height - 12.0);
        label(&mut to, (x, y), "#666666", "middle", &format!("{second} s"));
    }
    to.push_str("</svg>\n");
    to
}

fn place(second: f64, longest: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * second / longest
}

fn panel(to: &mut String, story: &Story, top: f64, longest: f64) {
    let when = |who: &str, is: fn(What) -> bool| {
        let found = story.events.iter().find(|event| event.who == who && is(event.what));
        found.map(|event| (place(event.at.as_secs_f64(), longest), event.what))
    };
    let took = |who: &str| {
        let (x, what) = when(who, |what| matches!(what, What::Takes(_)))?;
        let What::Takes(Some(token)) = what else { return Some((x, String::new())) };
        Some((x, format!(", token {token}")))
    };
    let end = place(longest, longest);
    let [a, b, data] = [52.0, 92.0, 132.0].map(|down| top + down);
    label(to, (14.0, top + 24.0), "#000000", "start", story.title);
    for (name, y) in [("A", a), ("B", b), ("store", data)] {
        label(to, (14.0, y + 14.0), "#000000", "start", name);
        line(to, (LEFT, y + 22.0), (end, y + 22.0));
    }
    let woke = when("A", |what| what == What::Wakes).map_or(end, |(x, _)| x);
    let paused = when("A", |what| what == What::Pauses);
    if let (Some((took, token)), Some((paused, _))) = (took("A"), paused) {
        bar(to, (took, a), paused, "#2b6cb0");
        bar(to, (paused, a), woke, "#cbd5e0");
        let words = format!("took the lock{token}; stands still");
        label(to, (paused + 8.0, a + 14.0), "#4a5568", "start", &words);
    }
    label(to, (woke + 6.0, a + 14.0), "#2b6cb0", "start", "wakes up, writes");
    if let Some((took, token)) = took("B") {
        bar(to, (took, b), end, "#2f855a");
        let words = format!("A's time is over: takes the lock{token}");
        label(to, (took - 6.0, b + 14.0), "#2f855a", "end", &words);
    }
    for event in &story.events {
        let (x, y) = (place(event.at.as_secs_f64(), longest), data + 10.0);
        let (colour, words) = match (event.who, event.what) {
            ("B", What::Accepted) => ("#2f855a", "B writes"),
            (_, What::Accepted) => ("#c53030", "A over B: B's work is lost"),
            (_, What::Refused) => ("#2f855a", "A is refused, B stays"),
            _ => continue,
        };
        let _ = writeln!(to, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\" fill=\"{colour}\"/>");
        let (x, anchor) = if event.who == "B" { (x - 10.0, "end") } else { (x + 10.0, "start") };
        label(to, (x, data + 14.0), colour, anchor, words);
    }
}

fn bar(to: &mut String, (x, y): (f64, f64), end: f64, colour: &str) {
    let width = (end - x).max(2.0);
    let _ = writeln!(
        to,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"20\" fill=\"{colour}\"/>"
    );
}

fn line(to: &mut String, (x, y): (f64, f64), (end, _): (f64, f64)) {
    let _ = writeln!(
        to,
        "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{end:.1}\" y2=\"{y:.1}\" stroke=\"#e2e8f0\"/>"
    );
}

fn label(to: &mut String, (x, y): (f64, f64), colour: &str, anchor: &str, words: &str) {
    let _ = writeln!(
        to,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}
