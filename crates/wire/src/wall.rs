//! Writes and reads times of the wall clock: RFC 3339, in UTC.

/// Milliseconds of a day.
const DAY_MS: i64 = 86_400_000;

/// A date and a time of day, without a time zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CivilTime {
    /// The year.
    pub year: i64,
    /// The month, from 1 on.
    pub month: u32,
    /// The day of the month, from 1 on.
    pub day: u32,
    /// Milliseconds since midnight.
    pub of_day_ms: u32,
}

impl CivilTime {
    /// The date and time that is this many milliseconds after the beginning of 1970.
    pub fn from_ms(ms: i64) -> Self {
        let (days, of_day) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
        // Days since 1 March of year 0, in eras of 400 years: leap days come last.
        let days = days + 719_468;
        let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let small = |number: i64| u32::try_from(number).unwrap_or_default();
        Self { year, month: small(month), day: small(day), of_day_ms: small(of_day) }
    }

    /// Milliseconds after the beginning of 1970.
    pub fn to_ms(self) -> i64 {
        let (month, day) = (i64::from(self.month), i64::from(self.day));
        let year = self.year - i64::from(month <= 2);
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
        let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
        (era * 146_097 + of_era - 719_468) * DAY_MS + i64::from(self.of_day_ms)
    }

    /// Reads `2026-03-02`, `2026-03-02T03:14` or `2026-03-02 03:14:07.112`; nothing else may follow.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, time) = match text.split_once(['T', ' ', 't']) {
            Some((date, time)) => (date, time),
            None => (text, "00:00"),
        };
        let mut parts = date.splitn(3, '-');
        let year: i64 = digits(parts.next()?, 4)?.into();
        let (month, day) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
        let found = Self { year, month, day, of_day_ms: parse_of_day(time)? };
        // A day that the month does not have would become one of the next month.
        (found == Self::from_ms(found.to_ms())).then_some(found)
    }
}

impl std::fmt::Display for CivilTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { year, month, day, of_day_ms } = *self;
        let (seconds, millis) = (of_day_ms / 1_000, of_day_ms % 1_000);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}")
    }
}

/// A time in UTC, such as `2026-03-02T03:14:07.112Z`.
pub fn utc(unix_ms: u64) -> String {
    format!("{}Z", CivilTime::from_ms(i64::try_from(unix_ms).unwrap_or(i64::MAX / 2)))
}

/// Reads a time with its offset, such as `2026-03-02T03:14:07Z` or `2026-03-02T03:14+01:00`, or a number of
/// milliseconds since 1970.
pub fn parse(text: &str) -> Option<u64> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let (civil, offset_ms) = match text.strip_suffix(['Z', 'z']) {
        Some(civil) => (civil, 0),
        None => {
            let at = text.len().checked_sub(6)?;
            let (civil, offset) = text.split_at_checked(at)?;
            let minutes = parse_of_day(offset.get(1..)?)?;
            match offset.as_bytes().first()? {
                b'+' => (civil, i64::from(minutes)),
                b'-' => (civil, -i64::from(minutes)),
                _ => return None,
            }
        }
    };
    u64::try_from(CivilTime::parse(civil)?.to_ms() - offset_ms).ok()
}

/// Reads `03:14`, `03:14:07` or `03:14:07.112`, as milliseconds since midnight.
pub fn parse_of_day(text: &str) -> Option<u32> {
    let mut parts = text.splitn(3, ':');
    let (hour, minute) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let (second, millis) = match parts.next() {
        None => (0, 0),
        Some(second) => match second.split_once('.') {
            None => (digits(second, 2)?, 0),
            Some((second, part)) => (digits(second, 2)?, parse_millis(part)?),
        },
    };
    let valid = hour < 24 && minute < 60 && second < 60;
    valid.then_some(((hour * 60 + minute) * 60 + second) * 1_000 + millis)
}

/// The first three digits of a fraction of a second.
fn parse_millis(text: &str) -> Option<u32> {
    if text.is_empty() || text.len() > 9 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("{text:0<3}").get(..3)?.parse().ok()
}

fn digits(text: &str, len: usize) -> Option<u32> {
    let valid = text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit());
    valid.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_there_and_back() {
        for (unix_ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_772_421_247_112, "2026-03-02T03:14:07.112Z"),
            (4_102_444_799_999, "2099-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(utc(unix_ms), text);
            assert_eq!(parse(text), Some(unix_ms), "{text}");
        }
        assert!(utc(u64::MAX).ends_with('Z'));
    }

    #[test]
    fn offsets_fractions_and_short_forms_are_read() {
        let at = parse("2026-03-02T03:14:00Z");
        for text in ["2026-03-02T04:14+01:00", "2026-03-01T21:44:00.0-05:30", "1772421240000"] {
            assert_eq!(parse(text), at, "{text}");
        }
        assert_eq!(parse("2026-03-02T03:14:00.5Z"), at.map(|at| at + 500));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "Z",
            "03:14",
            "2026-02-30T00:00Z",
            "2026-13-01T00:00Z",
            "2026-03-02T24:00Z",
            "2026-03-02T03:60Z",
            "2026-03-02T03:14",
            "2026-03-02T03:14:00.Z",
            "2026-3-2T03:14Z",
            "2026-03-02T03:14é01:00",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
