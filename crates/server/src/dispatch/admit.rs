//! Authorises commands and admits them against the member's budget.
//!
//! Every command of every API passes [`Dispatch::admitted`] or [`Dispatch::admit`]. They check first that the caller
//! may run the command, then that the budget has room for it. An admitted command counts towards the budget at once.

use bytes::Bytes;
use tenure_core::request::{Command, LEVEL_MIN_HOLD, RequestId};
use tenure_node::{Permit, Principal, Weight, weight};

use super::{Caller, Dispatch, Failure, WITHIN, encode};
use crate::os;

/// How long a caller that was refused for lack of room is told to wait before it retries, at the least and at the most.
const RETRY_AFTER_MS: std::ops::RangeInclusive<u64> = 50..=2_000;

impl Dispatch {
    /// Authorises and admits a command that takes `bytes` bytes in its log encoding.
    pub(crate) fn admit(
        &self,
        who: &Principal,
        command: &Command<'_>,
        bytes: usize,
    ) -> Result<Permit, Failure> {
        let decided = self.member().identity().authorise(who, command);
        decided.map_err(|failure| self.failure_to(who, failure, WITHIN))?;
        let (needed, level) = (command.level(), self.member().level());
        // The commands of earlier levels are refused by the machine alone: they may come while a member still reads its
        // log, and the level that it has published is an old one.
        if needed >= LEVEL_MIN_HOLD && needed > level {
            return Err(Failure::LevelTooLow { level, needed });
        }
        let (admission, weight) = (self.member().admission(), weight(command));
        // A quota that is too low must not keep out who would raise it.
        let counts = !matches!(command, Command::SetAccess(_));
        if counts {
            self.count_request(weight)?;
        }
        let permit = Caller::with_share(|share| admission.admit_from(weight, bytes as u64, share));
        let permit = permit.ok_or_else(|| self.overloaded())?;
        // Renewals and releases free what is held: a full quota must not keep them out.
        if counts && weight != Weight::Keeps {
            Caller::check_bytes(self.member().identity())?;
        }
        Ok(permit)
    }

    /// Counts a request of the present caller against its quota.
    pub(super) fn count_request(&self, weight: Weight) -> Result<(), Failure> {
        let member = self.member();
        Caller::count_request(member.identity(), || member.now_us(), weight)
    }

    /// Encodes a command for the log, then authorises and admits it.
    pub(super) fn admitted(
        &self,
        who: &Principal,
        id: RequestId<'_>,
        command: Command<'_>,
    ) -> Result<(Bytes, Permit), Failure> {
        let request = encode(who, id, command.clone());
        let permit = self.admit(who, &command, request.len())?;
        Ok((request, permit))
    }

    /// The failure for a caller that there is no room for.
    pub(crate) fn overloaded(&self) -> Failure {
        let used = self.member().admission().percent_used();
        Failure::Overloaded { retry_after_ms: retry_after_ms(used, os::random()) }
    }
}

/// How long to wait before the next attempt: longer the fuller the budget is, and different for each caller, so that
/// callers that were refused together do not return together.
fn retry_after_ms(percent_used: u64, random: u64) -> u64 {
    let (least, most) = (*RETRY_AFTER_MS.start(), *RETRY_AFTER_MS.end());
    let load = percent_used.min(100);
    // The mean grows with the square of the load: a member that is half full has room again soon.
    let mean = least * 2 + (most / 2 - least * 2) * load * load / 10_000;
    (mean / 2 + random % (mean + 1)).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_grows_with_the_load_and_differs_between_callers() {
        let all = |load| (0..1_000).map(move |random| retry_after_ms(load, random * 7_919));
        let mean = |load| all(load).sum::<u64>() / 1_000;
        assert!(mean(0) < mean(50) && mean(50) < mean(75) && mean(75) < mean(100));
        for load in [0, 50, 75, 100, 1_000] {
            let (least, most) = (all(load).min().unwrap(), all(load).max().unwrap());
            assert!(RETRY_AFTER_MS.contains(&least) && RETRY_AFTER_MS.contains(&most), "{load}");
            assert!(most >= 2 * least, "{load}: {least} to {most}");
        }
    }
}
