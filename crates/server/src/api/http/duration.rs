//! Deserializes the durations of a URL.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use tenure_wire::duration;

/// A duration such as `30s`, `500ms` or `1h30m`; a number alone is seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DurationParameter(pub(super) Duration);

impl DurationParameter {
    /// The duration in milliseconds, rounded up: a short wait is not the same as no wait.
    pub(super) fn ms(self) -> u64 {
        u64::try_from(self.0.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

impl<'de> Deserialize<'de> for DurationParameter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = DurationParameter;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as 30s, 500ms or 1h30m")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<DurationParameter, E> {
                let unexpected = || E::invalid_value(serde::de::Unexpected::Str(text), &self);
                duration::parse(text).map(DurationParameter).ok_or_else(unexpected)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_the_command_line_in_full_milliseconds() {
        let ms = |text: &str| {
            serde_json::from_value::<DurationParameter>(text.into()).ok().map(DurationParameter::ms)
        };
        assert_eq!(ms("0"), Some(0));
        assert_eq!(ms("500ms"), Some(500));
        assert_eq!(ms("1.5s"), Some(1_500));
        assert_eq!(ms("1h30m"), Some(5_400_000));
        assert_eq!(ms("1us"), Some(1));
        assert_eq!(ms("30"), Some(30_000));
        assert_eq!(ms("30x"), None);
    }
}
