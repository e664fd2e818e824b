//! Defines the JSON that the HTTP and WebSocket APIs accept and produce.
//!
//! Tokens, revisions, ids and places are decimal strings, because many JSON readers round large numbers; times (`_ms`)
//! and counts are numbers. Bytes are text if they are UTF-8, else base64 under a name that says so. The members refuse
//! unknown fields from clients; clients skip unknown fields from members.

pub mod access;
pub mod cluster;
mod content;
mod decimal;
mod drain;
pub mod election;
pub mod error;
pub mod event;
pub mod key;
pub mod lease;
pub mod lock;
mod mode;
mod patch;
pub mod plain;
mod schema;
pub mod session;
pub mod strict;
pub mod ticket;
mod view;

pub use content::{bytes_from, text_or_base64};
pub use decimal::Decimal;
pub use mode::{LockMode, Standing};
pub use schema::schemas;
pub use view::{Header, Holder, HolderShown, Holding, LockShown, ProgressShown, WaiterShown};

/// Omits `false` when serializing.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !*value
}

/// Omits zero when serializing.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// The id of a lease as messages have it, or 0 for none.
fn lease_number(lease: Option<Decimal>, field: &'static str) -> Result<i64, crate::Failure> {
    let Some(Decimal(number)) = lease else { return Ok(0) };
    match i64::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(crate::Failure::InvalidField {
            field,
            problem: "is no lease id: those are from 1 to 9223372036854775807".to_owned(),
        }),
    }
}

/// Converts a number that is signed on the wire and never negative.
fn signed(number: i64) -> Decimal {
    Decimal(u64::try_from(number).unwrap_or(0))
}

/// Converts a number; `None` for the 0 that means none.
fn some(number: i64) -> Option<Decimal> {
    (number > 0).then(|| signed(number))
}
