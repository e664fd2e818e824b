//! How can somebody try the rules by hand?

mod line;
mod show;
mod table;

use std::io::{BufRead, IsTerminal, Write, stdin, stdout};
use std::process::ExitCode;

use line::Typed;
use table::Table;

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

/// Reads lines and answers them until there are no more.
pub(crate) fn run() -> ExitCode {
    let asks = stdin().is_terminal();
    if asks {
        println!("{INTRODUCTION}");
    }
    let mut table = Table::new();
    let mut lines = stdin().lock().lines();
    loop {
        if asks {
            print!("{:>6} > ", show::time(table.clock_ms()));
            // A prompt that cannot be shown is no reason to stop answering.
            stdout().flush().unwrap_or_default();
        }
        let line = match lines.next() {
            Some(Ok(line)) => line,
            Some(Err(error)) => {
                eprintln!("error: cannot read the next line: {error}");
                return ExitCode::FAILURE;
            }
            None => return ExitCode::SUCCESS,
        };
        match line::parse(&line) {
            Ok(Typed::Nothing) => {}
            Ok(Typed::Quit) => return ExitCode::SUCCESS,
            Ok(Typed::Help) => println!("{HELP}"),
            Ok(Typed::Line(line)) => println!("{}", table.answer(&line)),
            Err(why) => println!("{why}; `help` lists what can be typed"),
        }
    }
}
