//! How does somebody see what Tenure does, without reading anything first?

mod by_hand;

use clap::Args;

use crate::exit::Exit;
use crate::failure::Failure;

/// Flags of `tenure demo`.
#[derive(Args)]
pub(crate) struct Demo {
    /// Try the rules instead: one state machine, no network, time that you move; `help` inside lists what to type
    #[arg(long)]
    by_hand: bool,
}

/// Shows it.
pub(crate) fn run(flags: &Demo) -> Result<Exit, Failure> {
    let _ = flags.by_hand;
    by_hand::run()
}
