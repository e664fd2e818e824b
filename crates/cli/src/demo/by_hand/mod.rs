//! Lets a user try the rules by hand on one state machine.

mod line;
mod machine;
mod show;

use std::io::{BufRead, ErrorKind, IsTerminal, Result, Write, stdin, stdout};

use serde_json::json;

use crate::exit::Exit;
use crate::failure::CliError;
use crate::output::OutputFormat;
use line::Typed;
use machine::DemoMachine;

const INTRODUCTION: &str = "\
The rules of Tenure, by hand: one state machine, nothing kept, and time moves when you say so.
Try:  ana lock deploy
      bob lock deploy
      explain deploy
      wait 10s
      bob renew
      wait 10s            (ana never renewed: her lease has ended, and bob is next)
Type `help` for everything, `quit` or Ctrl-D to leave.";

const HELP: &str = "\
NAME lock LOCK [shared | slots N] [try | limit TIME]   ask for a lock; NAME gets a lease of 15s
NAME unlock LOCK      give it back                     NAME leave LOCK      leave the queue
NAME renew            keep the lease alive             NAME stopped LOCK    confirm a taken lock
force LOCK [now]      take it away from its holder     wait TIME            let time pass (20s, 500ms)
locks                 every lock                       explain LOCK         who has it, who waits
history               what happened                    help, quit";

/// Reads lines and answers them until the input ends.
pub(crate) fn run(output: OutputFormat) -> std::result::Result<Exit, CliError> {
    let asks = output == OutputFormat::Text && stdin().is_terminal();
    match read_lines(&mut stdin().lock(), &mut stdout().lock(), asks, output) {
        Ok(()) => Ok(Exit::Done),
        // The reader of our output has gone, so no error message can reach it.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Exit::Done),
        Err(error) => Err(CliError::refused(format!("cannot go on: {error}"))),
    }
}

fn read_lines(
    from: &mut dyn BufRead,
    to: &mut dyn Write,
    asks: bool,
    output: OutputFormat,
) -> Result<()> {
    if asks {
        writeln!(to, "{INTRODUCTION}")?;
    }
    let mut machine = DemoMachine::new();
    let mut bytes = Vec::new();
    loop {
        if asks {
            write!(to, "{:>6} > ", show::time(machine.clock_ms()))?;
            to.flush()?;
        }
        bytes.clear();
        if from.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(());
        }
        let typed = String::from_utf8_lossy(&bytes);
        let (understood, answer) = match line::parse(&typed) {
            Ok(Typed::Nothing) => continue,
            Ok(Typed::Quit) => return Ok(()),
            Ok(Typed::Help) => (true, HELP.to_owned()),
            Ok(Typed::Line(line)) => (true, machine.answer(&line).to_string()),
            Err(why) => (false, format!("{why}; `help` lists what can be typed")),
        };
        match output {
            OutputFormat::Text => writeln!(to, "{answer}")?,
            OutputFormat::Json => {
                let (typed, clock_ms) = (typed.trim(), machine.clock_ms());
                let said = json!({
                    "typed": typed, "understood": understood, "clock_ms": clock_ms, "answer": answer,
                });
                writeln!(to, "{said}")?;
            }
        }
    }
}
