//! How does a program hold a lock and stop in time?

#[macro_use]
mod plant;
mod life;

pub use life::{Cause, Moment, Pace, PaceError, Standing};
