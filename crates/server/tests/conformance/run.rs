//! Runs scenarios through one API, and checks the state after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::event::Event;
use tenure_core::{Filter, Machine};
use tenure_types::{Limit, Revision};
use tenure_wire::reason::{Socket, row};
use tenure_wire::v1;
use tenure_wire::v1::maintenance_service_client::MaintenanceServiceClient;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

use crate::common::{DEADLINE, Members, wait_for};
use crate::grpc::Grpc;
use crate::http::Http;
use crate::metrics::metric_if_any;
use crate::request::{Api, Ask, Fault, How, Reply, What};
use crate::script::{Scenario, Step};
use crate::session::Sessions;
use crate::stage::ScenarioNames;
use crate::ws::Sockets;

/// Every API.
pub(crate) const APIS: &[&str] = &["grpc", "plain", "session", "http", "ws"];

/// The classes under which requests are counted. The first counts only where leases are renewed one by one; the last
/// two do not occur on sessions.
const COMMANDS: &[&str] = &[
    "renew", "grant", "revoke", "acquire", "release", "force", "update", "put", "delete", "read",
    "watch", "admin",
];

/// The most times that a scenario runs again because of an election.
const TURNS: usize = 3;

/// One API of one cluster.
pub(crate) struct Run {
    pub(crate) api: &'static str,
    pub(crate) members: Members,
    size: usize,
    pub(crate) seen: Seen,
}

/// The results of the run.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) reasons: BTreeSet<String>,
    /// The reasons that answered a request, as opposed to those that ended a stream.
    answered: BTreeSet<String>,
    pub(crate) failed: Vec<String>,
    pub(crate) steps: usize,
}

/// The state of the cluster, without what changes with time alone.
#[derive(Clone, PartialEq, Debug)]
struct State {
    revision: u64,
    floor: u64,
    content: String,
    waiting: BTreeMap<String, u64>,
}

impl Run {
    pub(crate) fn new(api: &'static str, size: usize) -> Self {
        let members = Members::found(size);
        Self { api, members, size, seen: Seen::default() }
    }

    /// Runs every scenario in every shape that this cluster has.
    pub(crate) async fn all(mut self, scenarios: &[Scenario]) -> Seen {
        let shapes: &[_] = if self.size == 1 { &["alone"] } else { &["leader", "follower"] };
        for shape in shapes {
            let (mut asked, mut api) = (BTreeSet::new(), None);
            for (number, scenario) in scenarios.iter().enumerate() {
                self.play(&mut asked, &mut api, shape, number, scenario).await;
            }
            self.counted(&asked).await;
        }
        if self.size > 1 {
            self.faults().await;
        }
        self.seen
    }

    /// The member whose API is tested in a shape.
    fn member_of(&self, shape: &str) -> usize {
        match shape {
            "follower" => self.members.follower(),
            _ => self.members.leader(),
        }
    }

    /// Checks that the members have counted every request, and every refusal with its reason.
    async fn counted(&mut self, asked: &BTreeSet<usize>) {
        let (api, commands) = match self.api {
            "session" | "ws" => (self.api, &COMMANDS[..10]),
            "http" => ("http", COMMANDS),
            // Renewals are a separate stream.
            _ => ("grpc", &COMMANDS[1..]),
        };
        let of_command =
            |it: &&str| format!("tenure_request_seconds_count{{api=\"{api}\",command=\"{it}\"}}");
        let of_reason =
            |it: &String| format!("tenure_refusals_total{{reason=\"{it}\",api=\"{api}\"}}");
        let mut series: Vec<_> = commands.iter().map(of_command).collect();
        series.extend(std::mem::take(&mut self.seen.answered).iter().map(of_reason));
        for series in series {
            let mut counted = 0.0;
            for at in asked {
                let shown = metric_if_any(self.members.one(*at).clients, &series).await;
                counted += shown.unwrap_or(0.0);
            }
            if counted < 1.0 {
                self.seen.failed.push(format!("{}: {series} was not counted", self.api));
            }
        }
    }

    /// The API of one member.
    pub(crate) fn open(&self, at: usize) -> Arc<dyn Api> {
        open(self.api, self.members.connect(at), self.members.one(at).clients)
    }

    /// Runs a scenario to its end. If the members elected a new leader meanwhile, the result means nothing and the
    /// scenario runs again: a machine that stands still for a second causes an election.
    async fn play(
        &mut self,
        asked: &mut BTreeSet<usize>,
        api: &mut Option<(usize, Arc<dyn Api>)>,
        shape: &str,
        number: usize,
        scenario: &Scenario,
    ) {
        for turn in 0.. {
            let (at, term) = (self.member_of(shape), self.term());
            asked.insert(at);
            let open = match api.take() {
                Some((same, open)) if same == at && turn == 0 => open,
                _ => self.open(at),
            };
            let stage = format!("{}-{shape}-{number}-{turn}", self.api);
            let failed = self.attempt(&open, shape, stage, scenario).await;
            *api = Some((at, open));
            let Err(why) = failed else { return };
            if turn == TURNS || self.term() == term {
                return self.seen.failed.push(why);
            }
        }
    }

    fn term(&self) -> u64 {
        let leader = self.members.one(self.members.leader());
        leader.member.status().expect("it runs").agreement.term.0
    }

    async fn attempt(
        &mut self,
        api: &Arc<dyn Api>,
        shape: &str,
        prefix: String,
        scenario: &Scenario,
    ) -> Result<(), String> {
        let ids = (0..self.size).map(|at| self.members.id(at)).collect();
        let mut stage = ScenarioNames::new(prefix, ids);
        let mut asking = BTreeMap::new();
        let mut outcome = Ok(());
        for step in scenario.steps.iter().filter(|step| step.is_for(self.api, shape)) {
            self.seen.steps += 1;
            let made = self.step(api, step, &mut stage, &mut asking).await;
            if let Err(why) = made {
                let (title, api) = (&scenario.title, self.api);
                outcome = Err(format!("{}: {title} [{api}, {shape}]: {why}", step.at));
                break;
            }
        }
        // Leases that are left over must not affect the next scenario.
        drop(asking);
        for lease in stage.leases() {
            let revoke = v1::RevokeRequest { lease, ..Default::default() };
            let what = What::Command(v1::request::Command::Revoke(revoke));
            api.ask("nobody", Ask { what, key: None, seq: 0, deadline_ms: None }).await;
        }
        if scenario.steps.iter().any(|step| step.verb == "limits") {
            let limit = |it: Limit| (it.name().to_owned(), it.default_value());
            let limit = |it| Some(limit(it)).map(|(limit, value)| v1::LimitValue { limit, value });
            let limits = Limit::all().filter_map(limit).collect();
            let request = v1::SetLimitsRequest { limits };
            wait_for("the limits are as before", async || {
                let channel = self.members.connect(self.members.leader());
                MaintenanceServiceClient::new(channel).set_limits(request.clone()).await.ok()
            })
            .await;
        }
        outcome
    }

    async fn step(
        &mut self,
        api: &Arc<dyn Api>,
        step: &Step,
        stage: &mut ScenarioNames,
        asking: &mut BTreeMap<String, JoinHandle<Reply>>,
    ) -> Result<(), String> {
        let before = self.state();
        stage.newest = before.revision.cast_signed();
        stage.floor = before.floor.cast_signed();
        let reply = match &*step.verb {
            "asks" => {
                let lock = stage.awaited(step);
                let mut task = tokio::spawn(api.ask(&step.who, stage.ask(step)));
                let waiting = before.waiting.get(&lock).copied();
                // One that replaces another waits in its stead.
                let replaces = step.option("supersede").is_some();
                let waits = wait_for("it waits", async || {
                    let now = self.state();
                    let longer = now.waiting.get(&lock).copied() > waiting;
                    (longer || replaces && now.revision > before.revision).then_some(())
                });
                tokio::select! {
                    () = waits => {}
                    reply = &mut task => return Err(format!("did not wait: {reply:?}")),
                }
                asking.insert(step.who.clone(), task);
                return Ok(());
            }
            "gets" => {
                let Some(task) = asking.remove(&step.who) else {
                    return Err("asked nothing".into());
                };
                joined(task).await?
            }
            _ => joined(tokio::spawn(api.ask(&step.who, stage.ask(step)))).await?,
        };
        match reply {
            Reply::NotHere => Err("the api does not have this".into()),
            Reply::Done(mut told) => {
                stage.learn(step, &told);
                if let [(lock, _)] = &told.grants[..]
                    && !lock.is_empty()
                {
                    told.facts.insert("lock", stage.short(lock).to_owned());
                }
                if told.word != step.outcome {
                    return Err(format!("wanted {}, got {told:?}", step.outcome));
                }
                let differs = |(name, value): &(&String, &String)| {
                    told.facts.get(name.as_str()) != Some(*value)
                };
                if let Some((name, value)) = step.facts.iter().find(differs) {
                    return Err(format!("wanted {name}={value}, got {told:?}"));
                }
                // The actor that took something away is recorded, whichever API it used.
                match step.option("who") {
                    Some(who) if !self.is_on_record(before.revision, who) => {
                        Err(format!("`{who}` is not on record"))
                    }
                    _ => Ok(()),
                }
            }
            Reply::Refused(fault) => {
                if !step.is_refused() || fault.reason != step.outcome {
                    return Err(format!("wanted {}, got {fault:?}", step.outcome));
                }
                // A call that is not acquired is no error, and has no details.
                let differs = |(name, value): &(&String, &String)| {
                    fault.how != How::NotAcquired && fault.facts.get(name.as_str()) != Some(*value)
                };
                if let Some((name, value)) = step.facts.iter().find(differs) {
                    return Err(format!("wanted {name}={value}, got {fault:?}"));
                }
                self.refused(&fault)?;
                // The waiter was in the queue, and has left it. A refused deadlock is recorded.
                let is_same = |after: &State| match &*fault.reason {
                    "WAIT_TIMEOUT" | "SUPERSEDED" | "DEADLOCK" => after.content == before.content,
                    _ => *after == before,
                };
                // A follower may apply what was agreed on before its leader does, and tell of it.
                let mut after = self.state();
                for _ in 0..40 {
                    if is_same(&after) {
                        return Ok(());
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    after = self.state();
                }
                Err(format!("{before:?} became {after:?}"))
            }
        }
    }

    /// Checks that a refusal matches the table.
    pub(crate) fn refused(&mut self, fault: &Fault) -> Result<(), String> {
        self.seen.refused(self.api, fault)
    }

    /// Whether an event since a revision records this actor.
    fn is_on_record(&self, since: u64, who: &str) -> bool {
        let who = who.to_owned();
        let on_record = move |machine: &Machine| {
            let events = machine.events(Revision(since + 1), Filter::All, 100);
            let batches = events.expect("it is not compacted yet").batches;
            let said = |event: &Event| event.by.as_ref().is_some_and(|by| by.as_str() == who);
            batches.iter().any(|batch| batch.events.iter().any(said))
        };
        let leader = self.members.one(self.members.leader());
        leader.member.read_stale(on_record).expect("it runs")
    }

    fn state(&self) -> State {
        let leader = self.members.one(self.members.leader());
        leader.member.read_stale(state).expect("it runs")
    }
}

/// An API of a member.
pub(crate) fn open(api: &str, channel: Channel, address: SocketAddr) -> Arc<dyn Api> {
    match api {
        "grpc" => Arc::new(Grpc::new(channel, address, false)),
        "plain" => Arc::new(Grpc::new(channel, address, true)),
        "session" => Arc::new(Sessions::new(channel)),
        "http" => Arc::new(Http { at: address }),
        "ws" => Arc::new(Sockets::new(address)),
        other => panic!("{other}"),
    }
}

impl Seen {
    /// Checks that a refusal of an API matches the table.
    pub(crate) fn refused(&mut self, api: &str, fault: &Fault) -> Result<(), String> {
        let row = row(&fault.reason).ok_or_else(|| format!("not in the table: {fault:?}"))?;
        self.reasons.insert(fault.reason.clone());
        // The end of a wait is a notice, and a session that cannot be opened is refused like a call.
        let is_answer = match api {
            "session" | "ws" => {
                let is_notice = ["WAIT_TIMEOUT", "SUPERSEDED"].contains(&&*fault.reason);
                fault.how == How::Frame && !is_notice
            }
            _ => matches!(fault.how, How::Code(_) | How::Status(_)),
        };
        if is_answer {
            self.answered.insert(fault.reason.clone());
        }
        let fits = match &fault.how {
            How::Code(code) => *code == row.code,
            How::NotAcquired => tenure_wire::reason::is_not_acquired(row.reason),
            How::Status(status) | How::Upgrade(status) => *status == row.http,
            How::Frame if api == "ws" => {
                matches!(row.socket, Socket::Frame | Socket::FrameThenClose(_) | Socket::Redirect)
            }
            How::Frame => true,
            How::Ends => !matches!(row.socket, Socket::Frame | Socket::Redirect),
            How::Close(code) => match row.socket {
                Socket::Close(due) | Socket::FrameThenClose(due) | Socket::RefuseUpgrade(due) => {
                    *code == Some(due)
                }
                Socket::Frame | Socket::Redirect => false,
            },
        };
        // Every API reports the newest revision as the bound.
        let reached = fault.revision.is_some_and(|it| it > 0 && it.cast_unsigned() == fault.bound);
        let fits = fits && (fault.reason != "FUTURE_REVISION" || reached);
        if !fits || fault.effect != row.effect || fault.message.is_empty() {
            return Err(format!("{fault:?} is not as the table says: {row:?}"));
        }
        Ok(())
    }
}

/// The reply, or the error of a task that failed an assertion.
async fn joined(task: JoinHandle<Reply>) -> Result<Reply, String> {
    match tokio::time::timeout(DEADLINE, task).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) => Err(match error.try_into_panic() {
            Ok(panic) => match panic.downcast::<String>() {
                Ok(why) => *why,
                Err(_) => "an assertion failed".into(),
            },
            Err(error) => error.to_string(),
        }),
        Err(_) => Err("no answer".into()),
    }
}

fn state(machine: &Machine) -> State {
    use std::fmt::Write as _;
    const ALL: usize = 10_000;
    let mut content = String::new();
    let _ = write!(content, "{} {:?} {:?} ", machine.level(), machine.floor(), machine.limits());
    for it in machine.drains() {
        let _ = write!(content, "{} {:?} {}; ", it.prefix, it.by, it.reason);
    }
    for it in machine.leases(None, ALL) {
        let (holds, waits, keys) = (it.holds, it.waits, it.keys);
        let _ = write!(content, "{:?} {} {holds:?} {waits:?} {keys:?}; ", it.id, it.ttl_ms);
    }
    let mut waiting = BTreeMap::new();
    for it in machine.sorted_locks(usize::MAX).unwrap().locks("", None, ALL) {
        let _ = write!(content, "{} {:?}: ", it.lock.as_str(), it.slots);
        for holder in &it.holders {
            let (token, mode, state) = (holder.token, holder.mode, holder.metadata.len());
            let _ = write!(content, "{:?} {token:?} {mode:?} {state}, ", holder.lease);
        }
        waiting.insert(it.lock.as_str().to_owned(), it.waiting);
    }
    for it in machine.keys("", None, ALL) {
        let (key, modified, lease) = (it.key, it.modified, it.lease);
        let _ = write!(content, "{} {modified:?} {lease:?} {}; ", key.as_str(), it.value.len());
    }
    State { revision: machine.revision().0, floor: machine.floor().0, content, waiting }
}
