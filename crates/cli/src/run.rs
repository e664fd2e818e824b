//! How does a member run as a process: signals, last words, exit code?

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tenure_server::{End, Running, StartError, log};

use crate::exit::Exit;
pub(crate) use crate::failure::{Failure, chain};
use crate::output::Output;

/// The directory of a member that others in one process go on without has this behind its name.
pub(crate) const REMOVED: &str = "-removed";

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let mark = if error.is_corrupt() { "CORRUPT: " } else { "" };
        let exit = if error.is_setting() { Exit::Config } else { Exit::Refused };
        Self::new(exit, "START", format!("{mark}{}; try {}", chain(&error), error.advice()))
    }
}

/// Why a member did not start, and what helps: for damage, what can be done with the directory at hand.
pub(crate) fn unstarted(error: StartError, data: &Path, company: Company) -> Failure {
    if !error.is_corrupt() {
        return error.into();
    }
    let (text, data) = (chain(&error), shown(data));
    let advice = match company {
        Company::Unknown => format!(
            "moving it away; then, if other members run, removing the old member, an empty directory \
             and --join; if none does, tenure restore BACKUP --data {data}"
        ),
        Company::Alone => format!(
            "moving it away; then tenure restore BACKUP --data {data} brings back what was saved, and \
             without a backup tenure dev begins anew"
        ),
        Company::Others => format!("mv {data} {data}{REMOVED}: the others go on without it"),
    };
    Failure::new(Exit::Refused, "START", format!("CORRUPT: {text}, in {data}; try {advice}"))
}

/// Sends what the members of this process log to stderr.
pub(crate) fn install_log(form: Option<log::Form>, level: log::Level) -> Result<(), Failure> {
    let failed = |error| Failure::refused(format!("cannot start the log: {error}"));
    log::install(form, level).map_err(failed)
}

/// Who else may have what a member has lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Company {
    /// Nobody here can tell.
    Unknown,
    /// Nobody.
    Alone,
    /// Members in the same process.
    Others,
}

/// What somebody outside wants of the process.
pub(crate) struct Wishes {
    pub(crate) stop: Arc<AtomicBool>,
    asked: Receiver<Wish>,
    ask: Sender<Wish>,
}

/// What can be wanted of it.
enum Wish {
    /// That it stops.
    Stop,
    /// That it goes on without one of its members, which was removed from their cluster.
    Without(String),
}

/// Listens for Ctrl-C and SIGTERM. The first asks to stop, the second does not ask.
pub(crate) fn wishes() -> Result<Wishes, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let (ask, asked) = channel();
    let failed = |error| Failure::refused(format!("cannot listen for signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let (kept, asks) = (stop.clone(), ask.clone());
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if kept.swap(true, Ordering::AcqRel) {
                log::flush();
                std::process::exit(128 + signal);
            }
            let _ = asks.send(Wish::Stop);
        }
    });
    Ok(Wishes { stop, asked, ask })
}

impl Wishes {
    /// Waits until the process shall stop, then stops its members gracefully. Members that are removed meanwhile are
    /// handed over to `without`.
    pub(crate) fn wait(&self, running: &[Running], mut without: impl FnMut(&str)) {
        while let Ok(Wish::Without(name)) = self.asked.recv() {
            without(&name);
        }
        tracing::info!(again = "Ctrl-C stops at once", "stopping");
        running.iter().for_each(Running::stop);
    }
}

impl Wishes {
    /// A member among others in this process: if it is removed from their cluster, it stops alone.
    pub(crate) fn on_end_among(&self, name: &str, output: Output) -> Box<dyn Fn(&End) + Send> {
        let (ask, name) = (self.ask.clone(), name.to_owned());
        let alone = on_end(&name, output);
        Box::new(move |end| match end {
            End::Cluster(tenure_server::Stop::Removed) => {
                let _ = ask.send(Wish::Without(name.clone()));
            }
            end => alone(end),
        })
    }
}

/// A member that ends by itself ends the process: one clear line, at once.
pub(crate) fn on_end(name: &str, output: Output) -> Box<dyn Fn(&End) + Send> {
    let name = name.to_owned();
    Box::new(move |end| {
        let advice = match end {
            End::Told => return,
            End::Cluster(tenure_server::Stop::Removed) => {
                "an empty directory and --join to bring it back under a new id"
            }
            End::Cluster(tenure_server::Stop::Outgrown { .. }) => {
                "the version of tenure that the other members run"
            }
            End::Cluster(_) => {
                "keeping the directory aside and removing this member from the cluster, then an empty \
                 directory and --join under a new id"
            }
            End::Disk(_) => "starting it again once the disk is well",
        };
        // Through the log, which waits for a reader of stderr for a second at most: the process must end.
        let text = format!("member {name} stopped: {end}; try {advice}");
        Failure::new(Exit::Refused, "STOPPED", text).report_as(output);
        log::flush();
        std::process::exit(1);
    })
}

/// A path as people write it.
pub(crate) fn shown(path: &Path) -> String {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let below = home.as_ref().and_then(|home| path.strip_prefix(home).ok());
    below.map_or(path.display().to_string(), |below| format!("~/{}", below.display()))
}
