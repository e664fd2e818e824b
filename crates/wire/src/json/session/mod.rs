//! Defines the messages of the WebSocket session at `/v1/ws`.
//!
//! They are those of `SessionService` in JSON, several per message in both directions. Leases are named by id here.

mod answer;
mod request;

pub use answer::{
    Answer, Asked, Ended, Granted, HandedOn, KeyAnswer, LeaseAnswer, LeaseEnded, Left, LockState,
    Lost, NewToken, PrefixOpened, Progressed, Queued, ServerMessage, Version, WaitEnded, Welcome,
};
pub use request::{
    ClientMessage, Delete, Expect, Guard, HandOn, Hello, Hold, HoldUpdate, LockAndLease,
    ProgressReport, Put, ReadTarget, Renew, Request, Resume, Revoke, Stopped,
};
