//! Tests that every command does what its help says, in text and in JSON.

mod audit;
mod auth;
mod choices;
mod damaged_archives;
mod draining;
mod errors;
mod first_seconds;
mod hand_on;
mod help;
mod keys;
mod leases;
mod locks;
mod members;
mod not_run;
mod pages;
mod past;
mod plan_bench_demo;
#[path = "../common/ports.rs"]
mod ports;
mod printing;
mod priority;
mod progress;
mod screens;
#[path = "../../../fence/tests/fences/server.rs"]
#[allow(dead_code, reason = "only one of the servers is needed here")]
mod server;
mod shares;
mod silent;
mod stage;
mod steps;
#[path = "../common/waiting.rs"]
mod waiting;
mod watches;
