//! Protects a resource from clients that lost their lock and do not know it yet.
//!
//! A lock service can say who holds a lock. It cannot stop a program that was frozen while it held the lock from waking
//! up and writing. The resource can: every grant carries a [`Token`] larger than all before it, and a *fence* beside
//! the data remembers the largest it has seen. There is one rule, in [`Floor::admit`]: lower is refused, equal is
//! accepted, higher raises the floor.
//!
//! ```
//! use tenure_fence::{Claim, Floor, Token, Touch};
//!
//! let (a, b) = (Token::from_u64(1).unwrap(), Token::from_u64(2).unwrap());
//! let floor = Floor::default().admit(Claim::new(b), Touch::Write).unwrap();   // B writes
//! assert!(floor.admit(Claim::new(b), Touch::Write).is_ok());                  // and again
//! assert!(floor.admit(Claim::new(a), Touch::Write).is_err());                 // A wakes up: refused
//! ```
//!
//! Each fence is a module behind a feature of its own, and changes floor and data together: `postgres`, `sqlite`,
//! `redis`, `object` (object stores), `files`, and `http` (a tower layer). Every one of them can *raise* the floor
//! without writing: if a client does so right after it acquired the lock, the fence accepts nothing older from then on.
//! `ticket` verifies signed tickets, for all of them. The guide is `docs/fencing.md`.

#[macro_use]
mod plant;

mod claim;
mod error;
mod floors;
#[cfg(test)]
mod model;
pub mod reason;
mod rule;
mod text;

#[cfg(feature = "files")]
pub mod files;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "object")]
pub mod object;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "ticket")]
pub mod ticket;

pub use claim::{Claim, Incarnation, LockSlot, Mode, Times};
pub use error::Error;
pub use floors::Floors;
pub use rule::{Floor, Refused, Touch};
pub use text::{NotAToken, padded, parse_token};

pub use tenure_types::{InvalidName, Token};
