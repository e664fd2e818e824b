//! Reads from a certificate when it is valid.
//!
//! The TLS library checks the validity of a peer's certificate, but not of our own: the first client would find out.

use rustls::pki_types::CertificateDer;

use super::der::{SEQUENCE, element, take};

/// The version of a certificate, which may be missing.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The time in which a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Validity {
    pub(crate) from: i64,
    pub(crate) until: i64,
}

impl Validity {
    /// The validity of a certificate; none if it cannot be parsed.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let mut outer = certificate.as_ref();
        let mut inner = take(&mut outer, SEQUENCE)?;
        let mut fields = take(&mut inner, SEQUENCE)?;
        if fields.first() == Some(&VERSION) {
            element(&mut fields)?;
        }
        // The serial number, the algorithm of the signature, and the issuer come before the validity.
        for _ in 0..3 {
            element(&mut fields)?;
        }
        let mut validity = take(&mut fields, SEQUENCE)?;
        Some(Self { from: time(&mut validity)?, until: time(&mut validity)? })
    }

    /// Why a certificate must not be used at a time; none if it may.
    pub(crate) fn objection(self, now: i64) -> Option<&'static str> {
        match now {
            now if now > self.until => Some("has expired"),
            now if now < self.from => Some("is not valid yet"),
            _ => None,
        }
    }
}

fn time(from: &mut &[u8]) -> Option<i64> {
    let (tag, text) = element(from)?;
    let text = str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = match tag {
        // Two digits, of which the lower half is in this century.
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    if rest.len() != 10 {
        return None;
    }
    let two = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let (month, day) = (two(0)?, two(2)?);
    let seconds = two(4)? * 3_600 + two(6)? * 60 + two(8)?;
    Some(days(year, month, day) * 86_400 + seconds)
}

/// The days from 1970 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that a leap day is the last one.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn signed(from: (i32, u8, u8), until: (i32, u8, u8)) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["m0".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from.0, from.1, from.2);
        params.not_after = date_time_ymd(until.0, until.1, until.2);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn both_forms_of_times_are_read() {
        let validity = Validity::of(&signed((1975, 1, 1), (4096, 1, 1))).unwrap();
        assert_eq!(validity, Validity { from: 157_766_400, until: 67_090_118_400 });
        let leap = Validity::of(&signed((2000, 2, 29), (2024, 3, 1))).unwrap();
        assert_eq!(leap, Validity { from: 951_782_400, until: 1_709_251_200 });
        assert_eq!(leap.objection(951_782_399), Some("is not valid yet"));
        assert_eq!(leap.objection(951_782_400), None);
        assert_eq!(leap.objection(1_709_251_201), Some("has expired"));
    }

    #[test]
    fn no_bytes_make_it_fail() {
        let whole = signed((2000, 1, 1), (2030, 1, 1));
        for end in 0..whole.len() {
            assert_eq!(Validity::of(&CertificateDer::from(&whole[..end])), None);
        }
        for at in 0..whole.len() {
            let mut changed = whole.to_vec();
            changed[at] ^= 0xff;
            let _ = Validity::of(&CertificateDer::from(changed));
        }
    }
}
