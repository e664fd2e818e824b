//! Shows what Tenure does: a tour with three members, or the rules by hand.

mod by_hand;
mod members;
mod scenes;

use std::io::{BufRead, IsTerminal};

use clap::Args;
use serde_json::{Value, json};

use crate::connection_args::runtime;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::output::{self, OutputFormat, bold};
use crate::signals;

/// Flags of `tenure demo`.
#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Go on without waiting for Enter
    #[arg(long)]
    no_pause: bool,
    /// Try the rules instead: one state machine, no network, time that you move; `help` inside lists what to type
    #[arg(long, conflicts_with = "no_pause")]
    by_hand: bool,
    /// Output format
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputFormat,
}

/// Prints the tour: text for people, JSON objects for programs.
#[derive(Clone, Copy)]
struct Guide {
    output: OutputFormat,
    pauses: bool,
}

/// Runs the tour, or the rules by hand.
pub(crate) fn run(flags: &DemoArgs) -> Result<Exit, CliError> {
    if flags.by_hand {
        return by_hand::run(flags.output);
    }
    let text = flags.output == OutputFormat::Text;
    let pauses = !flags.no_pause && text && std::io::stdin().is_terminal();
    let guide = Guide { output: flags.output, pauses };
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let mut asked = signals::listen()?;
        tokio::select! {
            done = scenes::play(guide) => done.map(|()| Exit::Done),
            signal = asked.signal() => Ok(Exit::Signal(signal)),
        }
    });
    // After a signal at a prompt the user no longer presses Enter: do not wait for the thread that reads stdin.
    runtime.shutdown_background();
    done
}

impl Guide {
    /// Prints a line in text output.
    fn narrate(self, text: &str) {
        if self.output == OutputFormat::Text {
            output::out(&format!("{text}\n"));
        }
    }

    /// Prints a command as a user would type it.
    fn typed(self, who: &str, line: &str) {
        self.narrate(&format!("{who:<5}$ {line}"));
    }

    /// Prints an event in JSON output.
    fn tell(self, event: &Value) {
        if self.output == OutputFormat::Json {
            output::object(event);
        }
    }

    /// Starts the next scene, after the user has read the previous one.
    async fn scene(self, number: u32, title: &str) {
        self.pause(&format!("{number}. {title}")).await;
        let mut letters = title.chars();
        let first = letters.next().map(|it| it.to_uppercase().to_string()).unwrap_or_default();
        self.narrate("");
        self.narrate(&bold(&format!("{number}. {first}{}", letters.as_str())));
        self.tell(&json!({ "event": "scene", "scene": number, "title": title }));
    }

    /// Waits until the user presses Enter.
    async fn pause(self, what: &str) {
        if !self.pauses {
            return;
        }
        output::out(&format!("\n[Enter] {what}"));
        // The read blocks a thread of its own: members and leases go on meanwhile.
        let entered = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            let _ = std::io::stdin().lock().read_line(&mut line);
        });
        let _ = entered.await;
    }
}
