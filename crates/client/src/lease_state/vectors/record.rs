//! Records what the lease state returns for a sequence of inputs, as one line of JSON.

use std::fmt::Write;
use std::time::Duration;

use tenure_types::{Revision, Token};

use super::super::{
    AckEffect, Cause, ClockReading, EndMessage, LeaseState, LeaseTiming, LeaseTimingError, Lost,
    Moment, PendingGrant, Standing,
};

/// What the clocks show when a trace begins.
pub(super) const START_US: u64 = 1_000_000_000;

/// The ttl, the window and the grace period that a client asks for.
#[derive(Clone, Copy)]
pub(super) struct RecordedTimes {
    pub(super) ttl_us: u64,
    pub(super) window_us: Option<u64>,
    pub(super) grace_us: Option<u64>,
}

/// One trace while it is recorded.
pub(super) struct Trace {
    name: String,
    head: String,
    steps: Vec<String>,
    timing: Option<LeaseTiming>,
    pending: Option<PendingGrant>,
    state: Option<LeaseState>,
    /// Microseconds since the trace began.
    now: u64,
    /// How many of these microseconds the machine was suspended.
    slept: u64,
}

impl RecordedTimes {
    pub(super) fn of(ttl_us: u64) -> Self {
        Self { ttl_us, window_us: None, grace_us: None }
    }

    fn timing(self) -> Result<LeaseTiming, LeaseTimingError> {
        let timing = LeaseTiming::new(Duration::from_micros(self.ttl_us))?;
        let timing = match self.window_us {
            Some(window) => timing.with_window(Duration::from_micros(window))?,
            None => timing,
        };
        match self.grace_us {
            Some(grace) => timing.stop_within(Duration::from_micros(grace)),
            None => Ok(timing),
        }
    }
}

impl Trace {
    /// Begins a trace with these times. `LeaseTiming` may refuse them.
    pub(super) fn new(name: impl Into<String>, times: RecordedTimes) -> Self {
        let name = name.into();
        let mut head = format!("\"name\":\"{name}\",\"ttl\":{}", times.ttl_us);
        for (field, value) in [("window", times.window_us), ("grace", times.grace_us)] {
            if let Some(value) = value {
                write!(head, ",\"{field}\":{value}").unwrap();
            }
        }
        let timing = times.timing();
        head += &match &timing {
            Ok(timing) => format!(
                ",\"times\":{{\"window\":{},\"renew_after\":{},\"retry\":{},\"overdue_after\":{},\"surely_lives\":{}}}",
                us(timing.window()),
                us(timing.renew_after()),
                us(timing.retry()),
                us(timing.doubtful_after()),
                us(timing.surely_lives()),
            ),
            Err(LeaseTimingError::Ttl { .. }) => ",\"refused\":\"ttl\"".to_owned(),
            Err(LeaseTimingError::Window { least, most, .. }) => {
                format!(",\"refused\":\"window\",\"least\":{},\"most\":{}", us(*least), us(*most))
            }
            Err(LeaseTimingError::Grace { most, .. }) => {
                format!(",\"refused\":\"grace\",\"most\":{}", us(*most))
            }
        };
        let timing = timing.ok();
        Self {
            name,
            head,
            steps: Vec::new(),
            timing,
            pending: timing.map(PendingGrant::new),
            state: None,
            now: 0,
            slept: 0,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn line(&self) -> String {
        format!("{{{},\"steps\":[{}]}}", self.head, self.steps.join(","))
    }

    /// Whether `LeaseTiming` accepted the times.
    pub(super) fn fits(&self) -> bool {
        self.timing.is_some()
    }

    pub(super) fn timing(&self) -> LeaseTiming {
        self.timing.expect("the times of this trace fit")
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Moves the clock forward to this time of the trace.
    pub(super) fn to(&mut self, now: u64) -> &mut Self {
        assert!(now >= self.now, "time does not go back");
        self.now = now;
        self
    }

    pub(super) fn after(&mut self, time: u64) -> &mut Self {
        self.to(self.now + time)
    }

    /// Suspends the machine for this long.
    pub(super) fn suspend(&mut self, time: u64) -> &mut Self {
        self.slept += time;
        self.after(time)
    }

    /// When the lease asks to be polled next, as a time of the trace.
    pub(super) fn due(&self) -> u64 {
        self.lease().due().micros() - START_US
    }

    /// From when on the lease is lost, as a time of the trace.
    pub(super) fn lost_at(&self) -> u64 {
        self.lease().lost_at().micros() - START_US
    }

    /// Whether the lease was granted and is not lost.
    pub(super) fn is_held(&self) -> bool {
        self.state.as_ref().is_some_and(|state| state.loss().is_none())
    }

    fn lease(&self) -> &LeaseState {
        self.state.as_ref().expect("the lease was granted")
    }

    fn reading(&self) -> ClockReading {
        // The clocks differ by the time for which the machine was suspended.
        ClockReading {
            boot: Moment::from_micros(START_US + self.now),
            awake: Moment::from_micros(START_US + self.now - self.slept),
        }
    }

    /// Sends the request for the grant, for the first time or again.
    pub(super) fn send_grant(&mut self) -> &mut Self {
        let now = self.reading();
        self.pending.as_mut().expect("the times fit").sent(now);
        self.step("send_grant", "", "")
    }

    pub(super) fn grant(&mut self) -> &mut Self {
        let now = self.reading();
        match self.pending.as_ref().expect("the times fit").granted(now) {
            Ok(state) => {
                self.state = Some(state);
                self.step("granted", "", "")
            }
            Err(late) => {
                let result = format!("\"too_late\":{}", us(late.after));
                self.step("granted", "", &result)
            }
        }
    }

    /// Polls, and returns whether a renewal is to be sent.
    pub(super) fn poll(&mut self) -> bool {
        let now = self.reading();
        let renew = self.machine().poll(now);
        self.step("poll", "", &format!("\"renew\":{renew}"));
        renew
    }

    /// Sends a renewal, and returns its number.
    pub(super) fn renewing(&mut self) -> u64 {
        let now = self.reading();
        let number = self.machine().renewing(now);
        self.step("renewing", "", &format!("\"number\":{number}"));
        number
    }

    /// Handles the answer to a renewal: the lease lives, or has ended. Returns whether the client must read its
    /// holdings.
    pub(super) fn renewed(&mut self, number: u64, lives: bool, changed: u64) -> bool {
        let now = self.reading();
        let ttl = if lives { self.timing().ttl() } else { Duration::ZERO };
        let effect = self.machine().renewed(number, ttl, Revision(changed), now);
        let read = effect == AckEffect::ReadHoldings;
        let input = format!("\"number\":{number},\"ttl\":{},\"changed\":\"{changed}\"", us(ttl));
        self.step("renewed", &input, &format!("\"read_holdings\":{read}"));
        read
    }

    pub(super) fn not_renewed(&mut self, number: u64) -> &mut Self {
        self.machine().not_renewed(number);
        self.step("not_renewed", &format!("\"number\":{number}"), "")
    }

    pub(super) fn holdings(&mut self, revision: u64, changed: u64, holds: &[u64]) -> &mut Self {
        let now = self.reading();
        let tokens: Vec<_> = holds.iter().copied().map(token).collect();
        self.machine().holdings(Revision(revision), Revision(changed), &tokens, now);
        let list: Vec<_> = holds.iter().map(|it| format!("\"{it}\"")).collect();
        let input = format!(
            "\"revision\":\"{revision}\",\"changed\":\"{changed}\",\"holds\":[{}]",
            list.join(",")
        );
        self.step("holdings", &input, "")
    }

    pub(super) fn ended(&mut self, cause: Cause) -> &mut Self {
        let now = self.reading();
        self.machine().ended(cause, now);
        self.step("ended", &format!("\"cause\":\"{}\"", cause.word()), "")
    }

    pub(super) fn lock(&mut self, number: u64, revision: u64) -> &mut Self {
        let now = self.reading();
        let name = format!("lock-{number}");
        let taken = self.machine().granted(&name, token(number), Revision(revision), now);
        let input =
            format!("\"lock\":\"{name}\",\"token\":\"{number}\",\"revision\":\"{revision}\"");
        let result = format!("\"held\":{}", taken.is_ok());
        self.step("lock_granted", &input, &with_cause(result, taken.err()))
    }

    pub(super) fn taken(&mut self, number: u64, cause: Cause) -> &mut Self {
        self.machine().taken(token(number), cause);
        let input = format!("\"token\":\"{number}\",\"cause\":\"{}\"", cause.word());
        self.step("taken", &input, "")
    }

    pub(super) fn check(&mut self) -> &mut Self {
        let now = self.reading();
        let checked = self.machine().check(now);
        let result = format!("\"ok\":{}", checked.is_ok());
        self.step("check", "", &result)
    }

    pub(super) fn check_lock(&mut self, number: u64) -> &mut Self {
        let now = self.reading();
        let checked = self.machine().check_grant(token(number), now);
        let result = with_cause(format!("\"ok\":{}", checked.is_ok()), checked.err());
        self.step("check_lock", &format!("\"token\":\"{number}\""), &result)
    }

    pub(super) fn stopped(&mut self, number: u64) -> &mut Self {
        self.machine().stopped(token(number));
        self.step("stopped", &format!("\"token\":\"{number}\""), "")
    }

    /// Takes the messages about ended grants that the client must send to the cluster.
    pub(super) fn farewells(&mut self) -> &mut Self {
        let said = self.machine().farewells();
        let list: Vec<_> = said
            .iter()
            .map(|(token, lock, end)| {
                let word = match end {
                    EndMessage::Release => "release",
                    EndMessage::Confirm => "stopped",
                };
                format!("{{\"say\":\"{word}\",\"lock\":\"{lock}\",\"token\":\"{}\"}}", token.get())
            })
            .collect();
        self.step("farewells", "", &format!("\"farewells\":[{}]", list.join(",")))
    }

    pub(super) fn give_back(&mut self, number: u64) -> &mut Self {
        let now = self.reading();
        let lock = self.machine().given_back(token(number), now);
        let result =
            lock.map_or("\"release\":null".to_owned(), |it| format!("\"release\":\"{it}\""));
        self.step("give_back", &format!("\"token\":\"{number}\""), &result)
    }

    pub(super) fn end_if_idle(&mut self) -> &mut Self {
        let ended = self.machine().end_if_idle();
        self.step("end_if_idle", "", &format!("\"ended\":{ended}"))
    }

    pub(super) fn credentials_refused(&mut self) -> &mut Self {
        self.machine().credentials_refused();
        self.step("credentials_refused", "", "")
    }

    fn machine(&mut self) -> &mut LeaseState {
        self.state.as_mut().expect("the lease was granted")
    }

    /// Writes one step: the input, its result, and the state after it.
    fn step(&mut self, what: &str, input: &str, result: &str) -> &mut Self {
        let now = self.reading();
        let mut text = format!("{{\"at\":{}", now.boot.micros());
        if self.slept > 0 {
            write!(text, ",\"slept\":{}", self.slept).unwrap();
        }
        write!(text, ",\"do\":\"{what}\"").unwrap();
        if !input.is_empty() {
            write!(text, ",{input}").unwrap();
        }
        let mut out: Vec<String> = Vec::new();
        if !result.is_empty() {
            out.push(result.to_owned());
        }
        if let Some(state) = &mut self.state {
            out.push(observed(state, now));
        }
        write!(text, ",\"out\":{{{}}}}}", out.join(",")).unwrap();
        self.steps.push(text);
        self
    }
}

/// The state after a step, at the time of the step.
fn observed(state: &mut LeaseState, now: ClockReading) -> String {
    let standing = state.standing(now);
    let mut text = match standing {
        Standing::Valid | Standing::Doubtful => {
            let word = if standing == Standing::Valid { "valid" } else { "overdue" };
            let (due, lost_at) = (state.due().micros(), state.lost_at().micros());
            format!("\"state\":\"{word}\",\"due\":{due},\"lost_at\":{lost_at}")
        }
        Standing::Lost(cause) => format!("\"state\":\"lost\",{}", cause_fields(cause)),
    };
    let locks = state.locks();
    if !locks.is_empty() {
        let list: Vec<_> = locks
            .iter()
            .map(|(token, lost)| {
                let word = lost.as_ref().map_or("held", Lost::word);
                format!("\"{}\":\"{word}\"", token.get())
            })
            .collect();
        write!(text, ",\"locks\":{{{}}}", list.join(",")).unwrap();
    }
    text
}

fn with_cause(result: String, lost: Option<Lost>) -> String {
    match lost {
        Some(lost) => format!("{result},\"because\":\"{}\"", lost.word()),
        None => result,
    }
}

fn cause_fields(cause: Cause) -> String {
    let word = cause.word();
    let detail = match cause {
        Cause::Unreachable { silent } | Cause::CredentialsRefused { silent } => {
            format!(",\"silent\":{}", us(silent))
        }
        Cause::Stalled { late } => format!(",\"late\":{}", us(late)),
        Cause::Suspended { slept } => format!(",\"suspended\":{}", us(slept)),
        _ => String::new(),
    };
    format!("\"cause\":\"{word}\"{detail}")
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("times of a lease fit")
}

pub(super) fn token(number: u64) -> Token {
    Token::from_u64(number).expect("tokens begin at 1")
}
