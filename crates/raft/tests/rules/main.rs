//! Checks rules of the replicated log whose absence a whole cluster shows too rarely.
//!
//! In a build with `--cfg mutants` the program has one test, `planted`: it leaves each rule out in turn and looks
//! whether its check notices. `cargo xtask test cluster-mutants` runs it.

#[cfg(not(mutants))]
mod commit;
#[path = "../disks/mod.rs"]
mod disks;
mod own_term;
#[cfg(mutants)]
mod planted;
mod removed;
mod reuse;
mod snapshot;
#[cfg(not(mutants))]
mod unlinked;
mod vote;
