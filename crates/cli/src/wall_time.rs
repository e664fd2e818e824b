//! Shows and reads times of the wall clock, in the time zone of this machine.

use chrono::{
    DateTime, Days, Local, NaiveDate, NaiveDateTime, NaiveTime, SecondsFormat, TimeZone, Utc,
};
use tenure_wire::wall;

/// How wide a shown time is.
pub(crate) const WIDTH: usize = 29;

/// A time in the zone of this machine, such as `2026-03-02T04:14:07.112+01:00`.
pub(crate) fn local(unix_ms: u64) -> String {
    let at = i64::try_from(unix_ms).ok().and_then(DateTime::<Utc>::from_timestamp_millis);
    match at {
        Some(at) => at.with_timezone(&Local).to_rfc3339_opts(SecondsFormat::Millis, false),
        None => "beyond all calendars".to_owned(),
    }
}

/// Reads `03:14` (the last time it was that late), `2026-03-02`, `2026-03-02T03:14`, or a time with an offset. Returns
/// milliseconds since 1970.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    parse_at(text, Local::now()).ok_or_else(|| {
        format!("`{text}` is no time; try 03:14, \"2026-03-02 03:14\" or 2026-03-02T03:14:07Z")
    })
}

/// Reads a time as [`parse`] does, or how long ago it was, such as `10m`. A number alone that can be a time is one.
pub(crate) fn parse_or_ago(text: &str) -> Result<u64, String> {
    parse(text).or_else(|why| match tenure_wire::duration::parse(text) {
        Some(_) => parse_since(text),
        None => Err(format!("{why}, or 10m for so long ago")),
    })
}

/// Reads a time as [`parse`] does, or how long ago it was, such as `2h`. A number alone is in seconds.
pub(crate) fn parse_since(text: &str) -> Result<u64, String> {
    match tenure_wire::duration::parse(text) {
        Some(ago) => {
            let ago_ms = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
            Ok(tenure_server::os::wall_ms().saturating_sub(ago_ms))
        }
        None => parse(text)
            .map_err(|_| format!("`{text}` is no time; try 2h, 1d, 03:14 or 2026-03-02T03:14:07Z")),
    }
}

fn parse_at<Z: TimeZone>(text: &str, now: DateTime<Z>) -> Option<u64> {
    if text.len() > 12
        && let Some(unix_ms) = wall::parse(text)
    {
        return Some(unix_ms);
    }
    let civil = match wall::parse_of_day(text) {
        None => civil(wall::CivilTime::parse(text)?)?,
        Some(of_day_ms) => {
            let time = time_of(of_day_ms)?;
            let today = now.naive_local().date().and_time(time);
            if today > now.naive_local() { today.checked_sub_days(Days::new(1))? } else { today }
        }
    };
    // Of the two hours at the end of summer time, the first; in the hour that is left out, none.
    let at = now.timezone().from_local_datetime(&civil).earliest()?;
    u64::try_from(at.timestamp_millis()).ok()
}

fn civil(at: wall::CivilTime) -> Option<NaiveDateTime> {
    let date = NaiveDate::from_ymd_opt(i32::try_from(at.year).ok()?, at.month, at.day)?;
    Some(date.and_time(time_of(at.of_day_ms)?))
}

fn time_of(of_day_ms: u32) -> Option<NaiveTime> {
    let (seconds, millis) = (of_day_ms / 1_000, of_day_ms % 1_000);
    NaiveTime::from_num_seconds_from_midnight_opt(seconds, millis * 1_000_000)
}

#[cfg(test)]
mod tests {
    use chrono::FixedOffset;

    use super::*;

    #[test]
    fn since_takes_how_long_ago_it_was_with_or_without_a_unit() {
        let now_ms = tenure_server::os::wall_ms();
        for two_hours in ["2h", "120m", "7200"] {
            let ago_ms = now_ms - parse_since(two_hours).unwrap().min(now_ms);
            assert!((7_100_000..=7_200_000).contains(&ago_ms), "{two_hours}: {ago_ms}");
        }
        assert!(parse_since("yesterday").is_err());
    }

    #[test]
    fn a_moment_is_a_time_or_how_long_ago_it_was() {
        let ten_minutes_ago = tenure_server::os::wall_ms() - 600_000;
        let read = parse_or_ago("10m").unwrap();
        assert!((ten_minutes_ago..ten_minutes_ago + 60_000).contains(&read), "{read}");
        for time in ["03:14", "2026-03-02T03:14:07Z", "1772421247112"] {
            assert_eq!(parse_or_ago(time), parse(time), "{time}");
        }
        assert!(parse_or_ago("soon").unwrap_err().contains("or 10m for so long ago"));
    }

    #[test]
    fn a_time_of_day_is_the_last_one_and_a_date_is_of_this_zone() {
        let zone = FixedOffset::east_opt(3_600).unwrap();
        let now = zone.with_ymd_and_hms(2026, 3, 2, 9, 0, 0).unwrap();
        let utc = |text: &str| parse_at(text, now).map(wall::utc);
        let expected = |text: &str| Some(text.to_owned());
        assert_eq!(utc("03:14"), expected("2026-03-02T02:14:00.000Z"));
        assert_eq!(utc("09:00:01"), expected("2026-03-01T08:00:01.000Z"));
        assert_eq!(utc("2026-03-01 23:30"), expected("2026-03-01T22:30:00.000Z"));
        assert_eq!(utc("2026-03-02"), expected("2026-03-01T23:00:00.000Z"));
        assert_eq!(utc("2026-03-02T03:14:07Z"), expected("2026-03-02T03:14:07.000Z"));
        assert_eq!(utc("1772421247112"), expected("2026-03-02T03:14:07.112Z"));
        assert_eq!(utc("soon"), None);
        assert_eq!(utc("2026-02-30"), None);
    }

    #[test]
    fn a_shown_time_is_as_wide_as_its_column() {
        assert_eq!(local(1_772_421_247_112).len(), WIDTH);
        assert_eq!(local(u64::MAX), "beyond all calendars");
    }
}
