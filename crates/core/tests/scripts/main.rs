//! Tests that the machine behaves over time as its rules say.
//!
//! Every test is a script that can be read without knowing the program; `script/mod.rs` explains the format.

#[path = "../script/mod.rs"]
mod script;

mod abandoned;
mod access;
mod any;
mod clock_and_terms;
mod deadlock;
mod draining;
mod elections;
mod exactly_once;
mod exclusive;
mod fairness;
mod golden;
mod golden_any;
mod golden_hand_on;
mod golden_policy;
mod golden_priority;
mod golden_priority_rules;
mod golden_progress;
mod golden_reopening;
mod golden_repairs;
mod golden_rules;
mod golden_shares;
mod handing_on;
mod history;
mod keys;
mod labels;
mod learned;
mod leases;
mod limits;
mod once_per_period;
mod permitted;
mod pools;
mod priorities;
mod priority_rules;
mod progress;
mod questions;
mod reopening;
mod repairs;
mod restore_and_epoch;
mod rounding;
mod semaphores;
mod several_locks;
mod shared;
mod shares;
mod shares_fairness;
mod snapshots;
mod superseding;
mod taking_away;
mod upgrades;
mod waiting;
