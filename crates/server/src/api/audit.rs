//! Answers with the newest records of this member's audit log, for the gRPC and the HTTP API.

use tenure_types::Revision;
use tenure_wire::Failure;

use super::decode;
use crate::audit::RECENT_MAX;
use crate::dispatch::{Dispatch, Principal};

/// The number of records in an answer, unless the caller says otherwise.
const LAST: usize = 100;
/// The most bytes of records in an answer: half of what gRPC clients accept by default.
const BYTES_MAX: usize = 2 * 1024 * 1024;

/// The number of records that a caller asks for.
pub(super) fn last(number: Option<u32>) -> Result<usize, Failure> {
    match number.map(|number| number as usize) {
        None => Ok(LAST),
        Some(last @ 1..=RECENT_MAX) => Ok(last),
        Some(_) => Err(wrong_last()),
    }
}

/// The refusal of a number of records that cannot be.
pub(super) fn wrong_last() -> Failure {
    decode::invalid("last", &format!("must be a number from 1 to {RECENT_MAX}"))
}

/// The newest records, oldest first, one JSON object each, and the revision of the member's state.
///
/// The permission is decided by the state that this member has applied, so the answer needs no quorum.
pub(super) async fn recent(
    dispatch: &Dispatch,
    who: &Principal,
    last: usize,
) -> Result<(Revision, Vec<String>), Failure> {
    dispatch.may_administer(who)?;
    let revision = dispatch.inspect(|replica| replica.machine().revision()).await?;
    let lines = dispatch.member().audit().recent(last);
    let lines = lines.iter().map(|line| line.trim_end());
    let left_out = left_out(lines.clone().map(str::len), BYTES_MAX);
    Ok((revision, lines.skip(left_out).map(str::to_owned).collect()))
}

/// How many of the oldest records do not fit into this many bytes.
fn left_out(
    lengths: impl DoubleEndedIterator<Item = usize> + ExactSizeIterator,
    max: usize,
) -> usize {
    let (count, mut bytes) = (lengths.len(), 0_usize);
    let fitting = lengths.rev().take_while(|length| {
        bytes = bytes.saturating_add(*length);
        bytes <= max
    });
    count - fitting.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_records_that_cannot_be_is_refused() {
        assert_eq!(last(None).ok(), Some(100));
        assert_eq!(last(Some(1)).ok(), Some(1));
        assert_eq!(last(Some(1_000)).ok(), Some(1_000));
        for wrong in [0, 1_001, u32::MAX] {
            assert_eq!(last(Some(wrong)).unwrap_err().reason(), "INVALID_FIELD", "{wrong}");
        }
    }

    #[test]
    fn the_oldest_records_are_left_out_if_they_do_not_fit() {
        assert_eq!(left_out([5, 3, 4].into_iter(), 12), 0);
        assert_eq!(left_out([5, 3, 4].into_iter(), 11), 1);
        assert_eq!(left_out([1, 9, 4].into_iter(), 5), 2);
        assert_eq!(left_out([].into_iter(), 5), 0);
    }
}
