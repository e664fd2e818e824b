//! Tests the machine against a model and the numbered invariants, and whole clusters under faults.
//!
//! Random commands go to the machine, to a twin of it, to a copy read back from its own snapshot, and to a naive model.
//! After every step all of them are compared, and the observations are checked against the numbered invariants
//! independently of the model.

pub mod campaign;
pub mod cluster;
pub mod compare;
pub mod corpus;
pub mod coverage;
pub mod generate;
pub mod invariant;
pub mod model;
#[cfg(mutants)]
pub mod mutants;
pub mod observe;
pub mod run;
pub mod shrink;
