//! Defines the exit codes and what a script may conclude from each.

use std::process::ExitCode;

/// How a command ended. The numbers never change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// The command did what it was asked to do.
    Done,
    /// A rule refused the request, or an obstacle outside the cluster prevents it. Nothing changed.
    Refused,
    /// The arguments are invalid. Nothing was sent.
    Arguments,
    /// No member was reached, and nothing happened; or no member answered, and a grant that the client did not see
    /// does not last.
    Unreachable,
    /// The request may have taken effect.
    Unknown,
    /// Another client has the lock.
    NotAcquired,
    /// The lock, the lease or the leadership was lost.
    Lost,
    /// Credentials are missing, or do not allow this.
    NotAllowed,
    /// The configuration cannot be used.
    Config,
    /// A signal ended the command.
    Signal(u8),
    /// The exit code of a command that `tenure` ran.
    Command(u8),
}

/// Every code with its meaning, for `docs/reference/cli.md` and `tenure help exit`.
pub(crate) const TABLE: &[(&str, &str)] = &[
    ("0", "done; for `run`, the command's own success"),
    (
        "1",
        "refused for another reason: a lease has ended, a lock is another's, a token is old, …; nothing changed. \
         For `cluster status` and `doctor`: not healthy",
    ),
    ("2", "wrong arguments, such as a flag whose value cannot be; nothing was sent"),
    (
        "69",
        "unreachable; nothing happened, or (UNANSWERED) what was granted unseen is given back, or ends with its lease",
    ),
    (
        "74",
        "unknown: it may have happened; the message has the request id to ask again with, if there is one",
    ),
    (
        "75",
        "not acquired: another client has the lock, it is drained, or a newer request of the group has replaced this \
         one (for `run`, --held-code replaces it)",
    ),
    (
        "76",
        "lost: what this command held, a lock or leadership, was taken away; for `run`, the command was stopped",
    ),
    ("77", "not allowed: credentials are missing, or do not allow this"),
    ("78", "the configuration cannot be used: a variable, a file, a port or a directory"),
    ("126, 127", "for `run`, as a shell: the command cannot be executed, was not found"),
    ("128+n", "ended by signal n, as in a shell: 130 for Ctrl-C"),
];

impl Exit {
    /// The numeric exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Refused => 1,
            Self::Arguments => 2,
            Self::Unreachable => 69,
            Self::Unknown => 74,
            Self::NotAcquired => 75,
            Self::Lost => 76,
            Self::NotAllowed => 77,
            Self::Config => 78,
            Self::Signal(number) => 128_u8.saturating_add(number),
            Self::Command(code) => code,
        }
    }

    /// The exit code for an error of the SDK.
    pub(crate) fn of(error: &tenure::Error) -> Self {
        use tenure::{Error, Refusal};
        match error {
            Error::Refused(
                Refusal::Held(_)
                | Refusal::WaitTimeout
                | Refusal::Draining(_)
                | Refusal::Superseded(_),
            ) => Self::NotAcquired,
            Error::Refused(Refusal::Forbidden { .. } | Refusal::PriorityForbidden { .. }) => {
                Self::NotAllowed
            }
            Error::Unavailable | Error::Unreachable { .. } => Self::Unreachable,
            Error::Unknown { .. } => Self::Unknown,
            Error::Lost { .. } => Self::Lost,
            Error::LeaseTiming(_) => Self::Arguments,
            Error::Setup(_) => Self::Config,
            Error::Failed { reason, .. } => match reason.as_str() {
                "PERMISSION_DENIED" | "UNAUTHENTICATED" | "HOST_NOT_ALLOWED" => Self::NotAllowed,
                // The cluster may have carried out a request whose answer the client cannot decode.
                "STRANGE_ANSWER" => Self::Unknown,
                "OVERLOADED" => Self::Unreachable,
                _ => Self::Refused,
            },
            _ => Self::Refused,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_stands_in_the_table() {
        let all = [
            Exit::Done,
            Exit::Refused,
            Exit::Arguments,
            Exit::Unreachable,
            Exit::Unknown,
            Exit::NotAcquired,
            Exit::Lost,
            Exit::NotAllowed,
            Exit::Config,
        ];
        for exit in all {
            let code = exit.code().to_string();
            assert!(TABLE.iter().any(|(known, _)| *known == code), "{exit:?}");
        }
        assert_eq!(Exit::Signal(2).code(), 130);
    }
}
