//! Starts a driver, sends it commands and collects its answers and events.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};

/// How long an answer may take before the scenario fails. Many drivers share the machine.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A running driver.
pub(crate) struct Driver {
    child: Child,
    words: Option<ChildStdin>,
    heard: Arc<Heard>,
    next_id: u64,
    /// Its number at the proxies of each cluster.
    pub(crate) dialler: BTreeMap<usize, usize>,
    pub(crate) features: Vec<String>,
    log: PathBuf,
}

#[derive(Default)]
struct Heard {
    state: Mutex<HeardState>,
    changed: Condvar,
}

#[derive(Default)]
struct HeardState {
    answers: BTreeMap<u64, Value>,
    events: VecDeque<Value>,
    ended: bool,
}

impl Driver {
    /// Starts a driver by its command line, in a directory, with a planted bug or none, and asks for its features.
    pub(crate) fn start(
        command: &str,
        directory: &Path,
        plant: Option<&str>,
        log: PathBuf,
    ) -> Result<Self, String> {
        let said = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        // `exec`, so that signals and the owner of the sockets are the driver itself.
        let started = Command::new("sh")
            .args(["-c", &format!("exec {command}")])
            .current_dir(directory)
            .envs(plant.map(|bug| ("TENURE_PLANT", bug)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said)
            .spawn();
        let mut child = started.map_err(|error| format!("`{command}`: {error}"))?;
        let words = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let heard = Arc::new(Heard::default());
        let hears = heard.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok).filter(|line| line.starts_with('{')) {
                hears.take(&line);
            }
            hears.state.lock().unwrap().ended = true;
            hears.changed.notify_all();
        });
        let (dialler, features) = (BTreeMap::new(), Vec::new());
        let mut driver = Self { child, words, heard, next_id: 1, dialler, features, log };
        let hello = driver.ask("hello", Map::new())?;
        let hello = driver.answer(hello)?;
        let features = hello["ok"]["features"].as_array().cloned().unwrap_or_default();
        driver.features = features.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Ok(driver)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command, and returns its id.
    pub(crate) fn ask(
        &mut self,
        command: &str,
        mut fields: Map<String, Value>,
    ) -> Result<u64, String> {
        let id = self.next_id;
        self.next_id += 1;
        fields.insert("id".to_owned(), json!(id));
        fields.insert("do".to_owned(), json!(command));
        let line = format!("{}\n", Value::Object(fields));
        let words = self.words.as_mut().ok_or("the driver was ended")?;
        let sent = words.write_all(line.as_bytes()).and_then(|()| words.flush());
        sent.map_err(|error| {
            format!("the driver takes no more commands: {error}\n{}", self.log())
        })?;
        Ok(id)
    }

    /// Waits for the answer to a command.
    pub(crate) fn answer(&self, id: u64) -> Result<Value, String> {
        self.wait(|state| state.answers.get(&id).cloned())
            .map_err(|why| format!("no answer to command {id}: {why}\n{}", self.log()))
    }

    /// The answer to a command, if it has come.
    pub(crate) fn try_answer(&self, id: u64) -> Option<Value> {
        self.heard.state.lock().unwrap().answers.get(&id).cloned()
    }

    /// Waits for the next event of a stream that has this name or ends the stream.
    pub(crate) fn event(&self, stream: &str) -> Result<Value, String> {
        self.wait(|state| {
            let of = |event: &Value| event["stream"] == stream || event["handle"] == stream;
            let at = state.events.iter().position(of)?;
            state.events.remove(at)
        })
        .map_err(|why| format!("no event of stream `{stream}`: {why}\n{}", self.log()))
    }

    fn wait<T>(&self, mut found: impl FnMut(&mut HeardState) -> Option<T>) -> Result<T, String> {
        let mut state = self.heard.state.lock().unwrap();
        let mut left = ANSWER_TIMEOUT;
        let step = Duration::from_millis(100);
        loop {
            if let Some(found) = found(&mut state) {
                return Ok(found);
            }
            if state.ended {
                return Err("the driver has ended".to_owned());
            }
            if left.is_zero() {
                return Err(format!("not within {ANSWER_TIMEOUT:?}"));
            }
            let (next, timed) = self.heard.changed.wait_timeout(state, step).unwrap();
            state = next;
            if timed.timed_out() {
                left = left.saturating_sub(step);
            }
        }
    }

    /// Drops answers and events that no step waited for. Its clients are closed, so no more of them come.
    pub(crate) fn forget(&self) {
        let mut state = self.heard.state.lock().unwrap();
        state.answers.clear();
        state.events.clear();
    }

    /// Waits until the process has ended by itself.
    pub(crate) fn ended(&mut self) -> Result<(), String> {
        self.wait(|state| state.ended.then_some(()))?;
        self.child.wait().map(drop).map_err(|error| error.to_string())
    }

    pub(crate) fn signal(&self, signal: &str) -> Result<(), String> {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        let good = sent.is_ok_and(|status| status.success());
        good.then_some(()).ok_or_else(|| format!("kill {signal} {pid} failed"))
    }

    /// The last lines that it wrote to its stderr.
    fn log(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Heard {
    fn take(&self, line: &str) {
        let Ok(value) = serde_json::from_str::<Value>(line) else { return };
        let mut state = self.state.lock().unwrap();
        match value["id"].as_u64() {
            Some(id) => drop(state.answers.insert(id, value)),
            None => state.events.push_back(value),
        }
        self.changed.notify_all();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
