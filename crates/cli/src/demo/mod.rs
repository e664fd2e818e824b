//! How does somebody see what Tenure does, without reading anything first?

mod by_hand;
mod members;
mod scenes;

use std::io::{BufRead, IsTerminal};

use clap::Args;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::reach::runtime;
use crate::signals;

/// Flags of `tenure demo`.
#[derive(Args)]
pub(crate) struct Demo {
    /// Go on without waiting for Enter
    #[arg(long)]
    no_pause: bool,
    /// Try the rules instead: one state machine, no network, time that you move; `help` inside lists what to type
    #[arg(long, conflicts_with = "no_pause")]
    by_hand: bool,
}

/// Shows it.
pub(crate) fn run(flags: &Demo) -> Result<Exit, Failure> {
    if flags.by_hand {
        return by_hand::run();
    }
    let pauses = !flags.no_pause && std::io::stdin().is_terminal();
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let mut asked = signals::listen()?;
        tokio::select! {
            done = scenes::play(pauses) => done.map(|()| Exit::Done),
            signal = asked.signal() => Ok(Exit::Signal(signal)),
        }
    });
    // Somebody who gave up at a prompt does not press Enter any more: the thread that waits for it is left behind.
    runtime.shutdown_background();
    done
}

/// Lets somebody read, until Enter.
async fn pause(pauses: bool, what: &str) {
    if !pauses {
        return;
    }
    output::out(&format!("\n[Enter] {what}"));
    // Waits on a thread of its own: members and leases live on meanwhile.
    let entered = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        let _ = std::io::stdin().lock().read_line(&mut line);
    });
    let _ = entered.await;
}
