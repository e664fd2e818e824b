//! Describes a loss: its cause, who caused it and why.

use std::fmt;
use std::sync::Arc;

use super::Cause;

/// A loss: its cause and, if another client or an operator caused it, who and why.
///
/// ```no_run
/// # async fn example(guard: tenure::Guard) {
/// let lost = guard.lost().await;
/// println!("{lost}");                                  // forced by ops@host: stuck for an hour
/// if lost == tenure::Cause::Forced {
///     println!("{:?} said {:?}", lost.by(), lost.reason());
/// }
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    cause: Cause,
    /// Shared, because every subscriber to the loss gets a copy.
    word: Option<Arc<LossDetail>>,
}

#[derive(PartialEq, Eq, Debug)]
struct LossDetail {
    by: String,
    reason: String,
}

impl Lost {
    /// Creates a loss with the name and reason from the cluster; an empty string stands for an absent one.
    pub(crate) fn on_word(cause: Cause, by: &str, reason: &str) -> Self {
        let said = !by.is_empty() || !reason.is_empty();
        let word =
            said.then(|| Arc::new(LossDetail { by: by.to_owned(), reason: reason.to_owned() }));
        Self { cause, word }
    }

    /// Returns the cause.
    ///
    /// ```
    /// # use tenure::{Cause, Lost};
    /// assert_eq!(Lost::from(Cause::MaxHold).cause(), Cause::MaxHold);
    /// ```
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// Returns the stable word for programs and logs.
    ///
    /// ```
    /// # use tenure::{Cause, Lost};
    /// assert_eq!(Lost::from(Cause::Forced).word(), "forced");
    /// ```
    pub fn word(&self) -> &'static str {
        self.cause.word()
    }

    /// Returns the name of the client that took the lock away or revoked the lease. Returns `None` if no client did, if
    /// it gave no name, or if the name did not reach this client: [`Guard::why_lost`](crate::Guard::why_lost) looks it
    /// up.
    ///
    /// ```
    /// # use tenure::{Cause, Lost};
    /// assert_eq!(Lost::from(Cause::Expired).by(), None);
    /// ```
    pub fn by(&self) -> Option<&str> {
        self.word.as_ref().map(|word| word.by.as_str()).filter(|by| !by.is_empty())
    }

    /// Returns the reason that the other client gave. It is foreign text: filter control characters before you print it
    /// to a terminal.
    ///
    /// ```
    /// # use tenure::{Cause, Lost};
    /// assert_eq!(Lost::from(Cause::Expired).reason(), None);
    /// ```
    pub fn reason(&self) -> Option<&str> {
        self.word.as_ref().map(|word| word.reason.as_str()).filter(|reason| !reason.is_empty())
    }

    /// Whether another client caused the loss and its name is not known here.
    pub(crate) fn is_riddle(&self) -> bool {
        let by_caller = matches!(self.cause, Cause::Forced | Cause::Revoked | Cause::Gone);
        by_caller && self.word.is_none()
    }
}

impl From<Cause> for Lost {
    fn from(cause: Cause) -> Self {
        Self { cause, word: None }
    }
}

impl PartialEq<Cause> for Lost {
    fn eq(&self, cause: &Cause) -> bool {
        self.cause == *cause
    }
}

impl std::error::Error for Lost {}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.by(), self.cause) {
            (Some(by), Cause::Forced | Cause::Revoked) => {
                write!(f, "{} by {by}", self.cause.word())?;
            }
            _ => self.cause.fmt(f)?,
        }
        self.reason().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_reads_like_a_sentence_whatever_is_known_of_it() {
        let told = |by, reason| Lost::on_word(Cause::Forced, by, reason).to_string();
        assert_eq!(told("ops@host", "stuck for an hour"), "forced by ops@host: stuck for an hour");
        assert_eq!(told("ops@host", ""), "forced by ops@host");
        assert_eq!(told("", "stuck"), "taken away by force: stuck");
        assert_eq!(told("", ""), "taken away by force");
        let revoked = Lost::on_word(Cause::Revoked, "ops@host", "gone");
        assert_eq!(revoked.to_string(), "revoked by ops@host: gone");
        assert_eq!(Lost::from(Cause::Gone).to_string(), Cause::Gone.to_string());
    }
}
