//! Parses durations in URLs.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// A duration such as `30s`, `500ms`, `2m` or `1h`; a bare `0` needs no unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span(pub(super) Duration);

impl Span {
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text == "0" {
            return Some(Self(Duration::ZERO));
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        if !(1..=9).contains(&digits) {
            return None;
        }
        let number: u64 = number.parse().ok()?;
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return None,
        };
        Some(Self(Duration::from_millis(number * unit_ms)))
    }

    pub(super) fn ms(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as 30s, 500ms or 2m")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
                let unexpected = || E::invalid_value(serde::de::Unexpected::Str(text), &self);
                Span::parse(text).ok_or_else(unexpected)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_nothing_else_is_one() {
        let ms = |text: &str| Span::parse(text).map(Span::ms);
        assert_eq!(ms("30s"), Some(30_000));
        assert_eq!(ms("500ms"), Some(500));
        assert_eq!(ms("2m"), Some(120_000));
        assert_eq!(ms("1h"), Some(3_600_000));
        assert_eq!(ms("0"), Some(0));
        assert_eq!(ms("999999999h"), Some(999_999_999 * 3_600_000));
        for bad in ["", "30", "s", "-1s", "+1s", "1.5s", "1d", "30 s", "30S", "9999999999s", "1s "]
        {
            assert_eq!(ms(bad), None, "{bad}");
        }
    }
}
