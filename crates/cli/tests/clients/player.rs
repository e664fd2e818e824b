//! Plays one scenario: sends its commands to drivers, disturbs what it says, and compares the answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value, json};
use tenure::HolderState;

use crate::common::proxy::Road;
use crate::common::waiting::try_wait;
use crate::driver_process::Driver;
use crate::expect::Names;
use crate::language::Language;
use crate::scenario::{Expected, Field, Scenario, Step, StepKind, Then, has_handle};
use crate::stage::{ScenarioCluster, Ways};

struct Actor {
    driver: Driver,
    dialler: usize,
    /// The client objects that it has opened.
    handles: Vec<String>,
    /// Whether the process still runs, unhurt.
    is_well: bool,
}

struct Play<'a> {
    stage: &'a ScenarioCluster,
    drivers: &'a Language,
    names: Names,
    actors: BTreeMap<String, Actor>,
    labels: BTreeMap<String, (String, u64)>,
    limits: bool,
}

/// How a scenario ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Passed,
    /// The scenario does not apply: the driver lacks the feature that it names.
    Inapplicable,
    /// The driver lacks a command.
    Hole(String),
    Failed(String),
}

/// Plays a scenario.
pub(crate) fn play(scenario: &Scenario, stage: &ScenarioCluster, drivers: &Language) -> Outcome {
    static PLAYS: AtomicU64 = AtomicU64::new(0);
    let number = PLAYS.fetch_add(1, Ordering::Relaxed);
    let names = Names { prefix: format!("s{number}/"), bound: BTreeMap::new() };
    let (actors, labels) = (BTreeMap::new(), BTreeMap::new());
    let mut play = Play { stage, drivers, names, actors, labels, limits: false };
    if let Some(feature) = &scenario.feature {
        match drivers.take() {
            Err(why) => return Outcome::Failed(why),
            Ok(driver) => {
                let has = driver.features.contains(feature);
                drivers.put_back(driver);
                if !has {
                    return Outcome::Inapplicable;
                }
            }
        }
    }
    let mut outcome = Outcome::Passed;
    for step in &scenario.steps {
        if let Err(why) = play.step(step) {
            let why =
                format!("line {}: {}\n    {}", step.line, step.text, why.replace('\n', "\n    "));
            outcome = if why.contains("\"unsupported\"") {
                Outcome::Hole(why)
            } else {
                Outcome::Failed(why)
            };
            break;
        }
    }
    play.end();
    outcome
}

impl Play<'_> {
    fn step(&mut self, step: &Step) -> Result<(), String> {
        match &step.what {
            StepKind::Command { actor, command, fields, then: Then::Repeat(expected) } => {
                self.repeat(actor, command, fields, expected)
            }
            StepKind::Command { actor, command, fields, then } => {
                let id = self.command(actor, command, fields)?;
                self.then(actor, id, then)?;
                if command == "exit" {
                    let actor = self.actor(actor)?;
                    actor.is_well = false;
                    actor.driver.ended()?;
                }
                Ok(())
            }
            StepKind::Answer { label, expected } => {
                let (actor, id) = self.label(label)?;
                self.compare(&actor, id, expected)
            }
            StepKind::Pending { label } => {
                let (actor, id) = self.label(label)?;
                match self.actor(&actor)?.driver.try_answer(id) {
                    None => Ok(()),
                    Some(answer) => Err(format!("it is answered: {answer}")),
                }
            }
            StepKind::Before { first, second } => {
                let (a, b) = (self.answered_at(first)?, self.answered_at(second)?);
                (a <= b).then_some(()).ok_or_else(|| format!("{first} at {a}, {second} at {b}"))
            }
            StepKind::Hears { actor, stream, event, fields } => {
                let stream = self.named(stream);
                let heard = self.actor(actor)?.driver.event(&stream)?;
                if heard["event"] != event.as_str() {
                    return Err(format!("heard {heard}"));
                }
                let compared = self.names.compare_fields(&heard, fields);
                compared.map_err(|why| format!("{why}: {heard}"))
            }
            StepKind::Until(words) => self.until(words),
            StepKind::Act { verb, words, fields, then } => self.act(verb, words, fields, then),
        }
    }

    fn actor(&mut self, name: &str) -> Result<&mut Actor, String> {
        if !self.actors.contains_key(name) {
            self.launch(name)?;
            let id = self.open(name, &[])?;
            let answer = self.actors[name].driver.answer(id)?;
            if answer.get("ok").is_none() {
                return Err(format!("client {name} cannot be opened: {answer}"));
            }
        }
        self.actors.get_mut(name).ok_or_else(|| format!("there is no client {name}"))
    }

    fn launch(&mut self, name: &str) -> Result<(), String> {
        let mut driver = self.drivers.take()?;
        let dialler = self.stage.register(&mut driver);
        let actor = Actor { driver, dialler, handles: Vec::new(), is_well: true };
        self.actors.insert(name.to_owned(), actor);
        Ok(())
    }

    fn open(&mut self, name: &str, more: &[Field]) -> Result<u64, String> {
        let mut fields = self.sent(more)?;
        let mut default = |key: &str, value: Value| {
            fields.entry(key.to_owned()).or_insert(value);
        };
        // Every play has names of its own, also for clients.
        let own = format!("{}{name}", self.names.prefix);
        default("handle", json!(own));
        default("name", json!(own));
        default("addrs", json!(self.stage.addresses()));
        default("timeout_ms", json!(30_000));
        if let Some(ca) = self.stage.ca() {
            default("ca_file", json!(ca));
        }
        let actor =
            self.actors.get_mut(name).ok_or_else(|| format!("client {name} was not launched"))?;
        actor.handles.push(fields["handle"].as_str().unwrap_or_default().to_owned());
        actor.driver.ask("open", fields)
    }

    fn sent(&self, fields: &[Field]) -> Result<Map<String, Value>, String> {
        let mut sent = Map::new();
        for field in fields {
            let value = self.names.filled(&field.value)?;
            let (name, value) = Field { value, ..field.clone() }.sent();
            let value = match (name.as_str(), value) {
                // A driver plays many scenarios, so streams have names of their own too.
                (
                    "lock" | "pool" | "key" | "election" | "stream" | "prefix",
                    Value::String(text),
                ) => {
                    json!(self.named(&text))
                }
                ("locks", Value::Array(all)) => {
                    let long = all.iter().filter_map(Value::as_str).map(|text| self.named(text));
                    json!(long.collect::<Vec<_>>())
                }
                (_, value) => value,
            };
            sent.insert(name, value);
        }
        Ok(sent)
    }

    /// A name of the scenario as the cluster knows it. An empty name, a very long one and one after `raw:` stay as they
    /// are.
    fn named(&self, text: &str) -> String {
        if let Some(raw) = text.strip_prefix("raw:") {
            return raw.to_owned();
        }
        let raw = text.is_empty() || text.len() > 256;
        if raw { text.to_owned() } else { format!("{}{text}", self.names.prefix) }
    }

    fn command(&mut self, actor: &str, command: &str, fields: &[Field]) -> Result<u64, String> {
        if command == "open" {
            return self.open(actor, fields);
        }
        let mut fields = self.sent(fields)?;
        let own = format!("{}{actor}", self.names.prefix);
        if command == "close" || has_handle(command) {
            fields.entry("handle".to_owned()).or_insert(json!(own));
        }
        if command == "cancel" {
            let label = fields["of"].as_str().unwrap_or_default().to_owned();
            fields.insert("of".to_owned(), json!(self.label(&label)?.1));
        }
        if command == "work" {
            fields.entry("mode".to_owned()).or_insert(json!("async"));
        }
        self.actor(actor)?.driver.ask(command, fields)
    }

    fn then(&mut self, actor: &str, id: u64, then: &Then) -> Result<(), String> {
        match then {
            Then::Expect(expected) | Then::Repeat(expected) => self.compare(actor, id, expected),
            Then::Label(label) => {
                self.labels.insert(label.clone(), (actor.to_owned(), id));
                Ok(())
            }
        }
    }

    /// Repeats a command until its answer is as expected.
    fn repeat(
        &mut self,
        actor: &str,
        command: &str,
        fields: &[Field],
        expected: &Expected,
    ) -> Result<(), String> {
        let mut last = Err("it was never asked".to_owned());
        try_wait(|| {
            last = self
                .command(actor, command, fields)
                .and_then(|id| self.compare(actor, id, expected));
            last.is_ok().then_some(())
        });
        last
    }

    fn compare(&mut self, actor: &str, id: u64, expected: &Expected) -> Result<(), String> {
        let answer = self.actor(actor)?.driver.answer(id)?;
        self.names.compare(&answer, expected).map_err(|why| format!("{why}\nanswer: {answer}"))
    }

    fn label(&self, label: &str) -> Result<(String, u64), String> {
        self.labels.get(label).cloned().ok_or_else(|| format!("nothing has the label `{label}`"))
    }

    fn answered_at(&mut self, label: &str) -> Result<u64, String> {
        let (actor, id) = self.label(label)?;
        let answer = self.actor(&actor)?.driver.answer(id)?;
        answer["at_us"].as_u64().ok_or_else(|| format!("there is no `at_us`: {answer}"))
    }

    fn act(
        &mut self,
        verb: &str,
        words: &[String],
        fields: &[Field],
        then: &Then,
    ) -> Result<(), String> {
        let word = |at: usize| words.get(at).map(String::as_str);
        let first = word(0).unwrap_or_default().to_owned();
        match verb {
            "launch" => self.launch(&first),
            "start" => {
                self.launch(&first)?;
                let id = self.open(&first, fields)?;
                self.then(&first, id, then)
            }
            "cut" | "swallow" | "hold" | "heal" => self.disturb(verb, words),
            "stop" => self.actor(&first)?.driver.signal("-STOP"),
            "continue" => self.actor(&first)?.driver.signal("-CONT"),
            "kill" if word(0) == Some("leader") || word(0) == Some("follower") => {
                let at = self.stage.member(&first)?;
                self.stage.kill(at);
                Ok(())
            }
            "kill" => {
                let actor = self.actor(&first)?;
                actor.is_well = false;
                actor.driver.signal("-KILL")
            }
            "freeze" => {
                let at = self.stage.member(&first)?;
                self.stage.freeze(at);
                Ok(())
            }
            "restart" | "thaw" => {
                self.stage.restart();
                Ok(())
            }
            "key" => {
                let key = self
                    .stage
                    .make_key(&format!("{}{first}", self.names.prefix), &self.names.prefix)?;
                self.names.bound.insert(first, key);
                Ok(())
            }
            "revoke" => self.stage.revoke_key(&self.names.filled(&format!("${first}"))?),
            "limit" => {
                self.limits = true;
                self.stage.set_limit(&first, word(1).unwrap_or_default())
            }
            "fill" => {
                let times = word(1).and_then(|times| times.parse().ok()).ok_or("fill KEY TIMES")?;
                self.stage.fill(&self.named(&first), times)
            }
            _ => Err(format!("there is no verb `{verb}`")),
        }
    }

    /// `cut A`, `swallow A`, `hold A`, `hold answers of A`, `hold requests of A`, `cut A from leader`, `heal A`.
    fn disturb(&mut self, verb: &str, words: &[String]) -> Result<(), String> {
        let road = match verb {
            "cut" => Road::Cut,
            "swallow" => Road::Hole,
            "hold" => Road::Held,
            _ => Road::Open,
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (name, ways, to) = match &words[..] {
            [name] => (*name, Ways::Both, None),
            ["answers", "of", name] => (*name, Ways::Answers, None),
            ["requests", "of", name] => (*name, Ways::Requests, None),
            [name, "from", member] => (*name, Ways::Both, Some(self.stage.member(member)?)),
            _ => return Err(format!("{verb} what?")),
        };
        let dialler = self.actor(name)?.dialler;
        self.stage.road(dialler, to, ways, road);
        // Wait until the cut has happened: a cut that is healed before it did would be none.
        let is_cut = || self.stage.open_connections(dialler) == 0;
        if road == Road::Cut && to.is_none() && try_wait(|| is_cut().then_some(())).is_none() {
            return Err("connections are still open".to_owned());
        }
        Ok(())
    }

    /// `until LOCK has N waiting`, `is held by A`, `is held`, `is free`, `is revoking`, `is delayed`, `is resting`;
    /// `until key KEY is VALUE`, `until key KEY is gone`; `until LABEL is answered`.
    fn until(&mut self, words: &[String]) -> Result<(), String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let stage = self.stage;
        let holds: Box<dyn Fn() -> bool + '_> = match &words[..] {
            [lock, "has", number, "waiting"] => {
                let (lock, number) =
                    (self.named(lock), number.parse::<u64>().map_err(|error| error.to_string())?);
                Box::new(move || stage.show(&lock).map_or(0, |lock| lock.waiting) == number)
            }
            ["key", key, "is", "gone"] => {
                let key = self.named(key);
                Box::new(move || stage.value(&key).is_none())
            }
            ["key", key, "is", value] => {
                let (key, value) = (self.named(key), (*value).to_owned());
                Box::new(move || stage.value(&key).as_ref() == Some(&value))
            }
            [label, "is", "answered"] => {
                let (actor, id) = self.label(label)?;
                return self.actor(&actor)?.driver.answer(id).map(drop);
            }
            [lock, "is", "held"] => {
                let lock = self.named(lock);
                Box::new(move || stage.some_holder(&lock, |state| state == HolderState::Held))
            }
            [lock, "is", "held", "by", actor] => {
                let (lock, client) = (self.named(lock), format!("{}{actor}", self.names.prefix));
                Box::new(move || {
                    let shown = stage.show(&lock);
                    shown.is_some_and(|lock| {
                        lock.holders
                            .iter()
                            .any(|it| it.client == client && it.state == HolderState::Held)
                    })
                })
            }
            [lock, "is", "free"] => {
                let lock = self.named(lock);
                Box::new(move || stage.show(&lock).is_none_or(|lock| lock.holders.is_empty()))
            }
            [lock, "is", "revoking"] => {
                let lock = self.named(lock);
                Box::new(move || {
                    stage.some_holder(&lock, |state| matches!(state, HolderState::Revoking { .. }))
                })
            }
            [lock, "is", "delayed"] => {
                let lock = self.named(lock);
                Box::new(move || {
                    stage.some_holder(&lock, |state| matches!(state, HolderState::Delayed { .. }))
                })
            }
            [lock, "is", "resting"] => {
                let lock = self.named(lock);
                Box::new(move || {
                    stage.some_holder(&lock, |state| matches!(state, HolderState::Resting { .. }))
                })
            }
            _ => return Err("there is no such condition".to_owned()),
        };
        let is_so = try_wait(|| holds().then_some(())).is_some();
        let shown = || format!("it never came; now: {:?}", stage.show(&self.named(words[0])));
        is_so.then_some(()).ok_or_else(shown)
    }

    /// Brings everything back to how it was, and returns the drivers that can be used again.
    fn end(mut self) {
        self.stage.restart();
        if self.limits {
            let _ = self.stage.set_limit("history_revisions", "100000");
        }
        for (_, mut actor) in std::mem::take(&mut self.actors) {
            self.stage.road(actor.dialler, None, Ways::Both, Road::Open);
            let _ = actor.driver.signal("-CONT");
            let mut good = actor.is_well;
            for handle in actor.handles.iter().filter(|_| actor.is_well) {
                let fields = json!({ "handle": handle, "deadline_ms": 2_000 });
                let Value::Object(fields) = fields else { continue };
                let closed = actor.driver.ask("close", fields);
                good &= closed.is_ok_and(|id| actor.driver.answer(id).is_ok());
            }
            if good {
                self.drivers.put_back(actor.driver);
            }
        }
    }
}
