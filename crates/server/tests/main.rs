//! Tests the server where no larger group of tests does: identity, TLS, health, overload, levels, restore, and others.

mod access;
mod administrators;
#[path = "support/alone.rs"]
mod alone;
mod archive;
mod audit;
mod audit_calls;
#[path = "../../cli/tests/common/authority.rs"]
mod authority;
#[path = "support/bounded.rs"]
mod bounded;
#[allow(dead_code, reason = "these tests use a part of the client")]
#[path = "http/client.rs"]
mod client;
mod clients_tls;
mod cluster;
mod common;
mod console;
mod defences;
#[path = "support/disk.rs"]
mod disk;
mod health;
mod hostile;
mod identity;
mod identity_restart;
mod identity_unread;
mod level;
mod matrix;
#[path = "support/metrics.rs"]
mod metrics;
mod ops_names;
mod overload;
mod panics;
mod permissions;
mod present;
mod python;
mod quotas;
mod restore;
mod slow_disk;
mod support;
mod tls;
mod tokens;
mod traces;
mod ws;
