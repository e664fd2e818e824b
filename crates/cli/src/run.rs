//! How does a member run as a process: signals, last words, exit code?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tenure_server::{End, Running, StartError, say};

use crate::exit::Exit;
pub(crate) use crate::failure::{Failure, chain};
use crate::output::Output;

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let text = chain(&error);
        let mark = if error.is_corrupt() { "CORRUPT: " } else { "" };
        let exit = if error.is_setting() { Exit::Config } else { Exit::Refused };
        Self::new(exit, "START", format!("{mark}{text}; try {}", error.advice()))
    }
}

/// What somebody outside wants of the process.
pub(crate) struct Wishes {
    pub(crate) stop: Arc<AtomicBool>,
    asked: Receiver<()>,
}

/// Listens for Ctrl-C and SIGTERM. The first asks to stop, the second does not ask.
pub(crate) fn wishes() -> Result<Wishes, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let (ask, asked) = channel();
    let failed = |error| Failure::refused(format!("cannot listen for signals: {error}"));
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let kept = stop.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if kept.swap(true, Ordering::AcqRel) {
                std::process::exit(128 + signal);
            }
            let _ = ask.send(());
        }
    });
    Ok(Wishes { stop, asked })
}

impl Wishes {
    /// Waits until the process shall stop, then stops its members gracefully.
    pub(crate) fn wait(&self, running: &[Running]) {
        let _ = self.asked.recv();
        say::info("stopping", &[("again", &"Ctrl-C stops at once")]);
        running.iter().for_each(Running::stop);
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
                "keeping the directory aside, then an empty one and --join under a new id"
            }
            End::Disk(_) => "starting it again once the disk is well",
        };
        // Not a macro that panics when nobody reads: the process must end.
        let text = format!("member {name} stopped: {end}; try {advice}");
        Failure::new(Exit::Refused, "STOPPED", text).report_as(output);
        std::process::exit(1);
    })
}
