//! Keeps the floors of several locks and slots in one place.

use std::collections::BTreeMap;
use std::error::Error as StdError;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tenure_types::Name;

use crate::claim::{Claim, LockSlot};
use crate::error::Error;
use crate::rule::{Floor, Touch};

/// The characters of a lock's name that are written as `%XX`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.');

/// The floors beside one piece of data, one for each lock and slot that has written it.
///
/// ```
/// use tenure_fence::{Claim, Error, Floors, Token, Touch};
///
/// let mut floors = Floors::default();
/// let token = Token::from_u64(7).unwrap();
/// floors.admit::<std::io::Error>("ledger".into(), Claim::new(token), Touch::Write)?;
/// assert_eq!(floors.get("ledger".into()).exclusive, Some(token));
/// # Ok::<(), Error<std::io::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Floors(BTreeMap<(Name, Option<u32>), Floor>);

impl Floors {
    /// The maximum number of floors: more than semaphores in use have slots, and still quick to read.
    pub const ENTRIES_MAX: usize = 1_024;

    /// Returns the floor of a lock and slot, or an empty one if it has none.
    pub fn get(&self, at: LockSlot<'_>) -> Floor {
        Name::new(at.lock)
            .ok()
            .and_then(|name| self.0.get(&(name, slot_of(at))).copied())
            .unwrap_or_default()
    }

    /// Admits a claim by [`Floor::admit`], and stores the raised floor.
    pub fn admit<B: StdError + 'static>(
        &mut self,
        at: LockSlot<'_>,
        claim: Claim,
        touch: Touch,
    ) -> Result<(), Error<B>> {
        let key = (Name::new(at.lock)?, slot_of(at));
        let floor = self.0.get(&key).copied().unwrap_or_default();
        let next = floor.admit(claim, touch)?;
        if !self.0.contains_key(&key) && self.0.len() == Self::ENTRIES_MAX {
            return Err(Error::Full);
        }
        self.0.insert(key, next);
        Ok(())
    }

    /// Creates a set with one floor.
    #[cfg(feature = "http")]
    pub(crate) fn one(at: LockSlot<'_>, floor: Floor) -> Result<Self, tenure_types::InvalidName> {
        Ok(Self(BTreeMap::from([((Name::new(at.lock)?, at.slot), floor)])))
    }

    /// Writes all floors as one line of ASCII without blanks, which fits an object's metadata.
    pub fn to_text(&self) -> String {
        let entries = self.0.iter().map(|((lock, slot), floor)| {
            let slot = slot.map_or("-".to_owned(), |slot| slot.to_string());
            format!("{}:{slot}:{}", floor.to_text(), utf8_percent_encode(lock, ESCAPED))
        });
        entries.collect::<Vec<_>>().join(",")
    }

    /// Parses what [`Floors::to_text`] wrote, and nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let entries = text.split(',').filter(|entry| !entry.is_empty());
        let entries: Option<BTreeMap<_, _>> = entries.map(parse_entry).collect();
        let floors = Self(entries?);
        (floors.to_text() == text && floors.0.len() <= Self::ENTRIES_MAX).then_some(floors)
    }
}

fn slot_of(at: LockSlot<'_>) -> Option<u32> {
    if mutant!("slots_share_a_floor") { None } else { at.slot }
}

fn parse_entry(entry: &str) -> Option<((Name, Option<u32>), Floor)> {
    let mut parts = entry.splitn(3, ':');
    let floor = Floor::parse(parts.next()?)?;
    let slot = match parts.next()? {
        "-" => None,
        slot => Some(slot.parse().ok()?),
    };
    // A malformed escape decodes to itself. It would be written differently, so `Floors::parse` refuses it.
    let lock = percent_decode_str(parts.next()?).decode_utf8().ok()?;
    let lock = Name::new(&lock).ok()?;
    Some(((lock, slot), floor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_types::Token;

    fn admit(
        floors: &mut Floors,
        at: LockSlot<'_>,
        token: u64,
    ) -> Result<(), Error<std::fmt::Error>> {
        floors.admit(at, Claim::new(Token::from_u64(token).unwrap()), Touch::Write)
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut floors = Floors::default();
        assert_eq!(Floors::parse(&floors.to_text()), Some(floors.clone()));
        let places =
            [("a/b c,d:e%", None), ("a/b c,d:e%", Some(0)), ("ключ", Some(7)), ("x", None)];
        for (token, at) in (1..).zip(places) {
            admit(&mut floors, at.into(), token).unwrap();
        }
        let text = floors.to_text();
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
        assert_eq!(Floors::parse(&text), Some(floors));
        for bad in ["x", &text[1..], &format!("{text},"), &text.replace(":7:", ":07:")] {
            assert_eq!(Floors::parse(bad), None, "{bad}");
        }
        for escape in ["%", "%2", "%zz", "%+1", "%2f", "%C3", "ü", " "] {
            let bad = text.replace("%20", escape);
            assert_eq!(Floors::parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let mut floors = Floors::default();
        for slot in 0..1_024 {
            admit(&mut floors, ("workers", slot).into(), 1).unwrap();
        }
        assert!(matches!(admit(&mut floors, "other".into(), 1), Err(Error::Full)));
        admit(&mut floors, ("workers", 5).into(), 2).unwrap();
        assert!(matches!(admit(&mut floors, "".into(), 2), Err(Error::Name(_))));
    }
}
