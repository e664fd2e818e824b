//! Runs members as a process: signals, log, final message and exit code.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tenure_server::{End, RunningServer, StartError, log};

use crate::exit::Exit;
pub(crate) use crate::failure::{CliError, chain};
use crate::output::OutputFormat;

/// The suffix for the directory of a member that was removed while others in the same process go on.
pub(crate) const REMOVED: &str = "-removed";

impl From<StartError> for CliError {
    fn from(error: StartError) -> Self {
        let mark = if error.is_corrupt() { "CORRUPT: " } else { "" };
        let exit = if error.is_setting() { Exit::Config } else { Exit::Refused };
        Self::new(exit, "START", format!("{mark}{}; try {}", chain(&error), error.advice()))
    }
}

/// The failure of a member that did not start, with advice; for damaged data, the advice depends on `company`.
pub(crate) fn unstarted(error: StartError, data: &Path, company: Company) -> CliError {
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
    CliError::new(Exit::Refused, "START", format!("CORRUPT: {text}, in {data}; try {advice}"))
}

/// Sends the log of this process's members to stderr.
pub(crate) fn install_log(form: Option<log::LineForm>, level: log::Level) -> Result<(), CliError> {
    let failed = |error| CliError::refused(format!("cannot start the log: {error}"));
    log::install(form, level).map_err(failed)
}

/// Which other members may have the data that a member has lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Company {
    /// This process cannot tell.
    Unknown,
    /// There are no other members.
    Alone,
    /// Other members run in the same process.
    Others,
}

/// Receives requests to the process: to stop, or to go on without a member.
pub(crate) struct ProcessRequests {
    pub(crate) stop: Arc<AtomicBool>,
    asked: Receiver<ProcessRequest>,
    ask: Sender<ProcessRequest>,
}

/// A request to the process.
enum ProcessRequest {
    /// The process stops.
    Stop,
    /// The process goes on without this member, which was removed from the cluster.
    Without(String),
}

/// Listens for Ctrl-C and SIGTERM. The first signal asks the process to stop; the second exits at once.
pub(crate) fn process_requests() -> Result<ProcessRequests, CliError> {
    let stop = Arc::new(AtomicBool::new(false));
    let (ask, asked) = channel();
    let failed = |error| CliError::refused(format!("cannot listen for signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let (kept, asks) = (stop.clone(), ask.clone());
    let listen = move || {
        for signal in signals.forever() {
            if kept.swap(true, Ordering::AcqRel) {
                log::flush();
                std::process::exit(128 + signal);
            }
            let _ = asks.send(ProcessRequest::Stop);
        }
    };
    std::thread::Builder::new().name("tenure-signals".to_owned()).spawn(listen).map_err(failed)?;
    Ok(ProcessRequests { stop, asked, ask })
}

impl ProcessRequests {
    /// Waits until the process has to stop, then stops its members gracefully. Calls `without` for every member that
    /// is removed meanwhile.
    pub(crate) fn wait(&self, running: &[RunningServer], mut without: impl FnMut(&str)) {
        while let Ok(ProcessRequest::Without(name)) = self.asked.recv() {
            without(&name);
        }
        tracing::info!(again = "Ctrl-C stops at once", "stopping");
        running.iter().for_each(RunningServer::stop);
    }
}

impl ProcessRequests {
    /// The handler for the end of a member among others in this process: a removed member stops alone.
    pub(crate) fn on_end_among(
        &self,
        name: &str,
        output: OutputFormat,
    ) -> Box<dyn Fn(&End) + Send> {
        let (ask, name) = (self.ask.clone(), name.to_owned());
        let alone = on_end(&name, output);
        Box::new(move |end| match end {
            End::Cluster(tenure_server::Stop::Removed) => {
                let _ = ask.send(ProcessRequest::Without(name.clone()));
            }
            end => alone(end),
        })
    }
}

/// The handler for a member that ends by itself: it ends the process at once, with one message.
pub(crate) fn on_end(name: &str, output: OutputFormat) -> Box<dyn Fn(&End) + Send> {
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
            End::Panic { .. } => "starting it again, and reporting the panic that its log shows",
        };
        // Print through the log, which waits for a reader of stderr at most a second: the process must end.
        let text = format!("member {name} stopped: {end}; try {advice}");
        CliError::new(Exit::Refused, "STOPPED", text).report_as(output);
        log::flush();
        std::process::exit(1);
    })
}

/// A path, with `~` for the home directory.
pub(crate) fn shown(path: &Path) -> String {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let below = home.as_ref().and_then(|home| path.strip_prefix(home).ok());
    below.map_or(path.display().to_string(), |below| format!("~/{}", below.display()))
}
