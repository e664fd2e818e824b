//! Represents 64-bit numbers in JSON without rounding.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

/// The digits of the largest number.
const DIGITS_MAX: usize = 20;

/// A token, revision, id or queue position: a decimal string, because many JSON readers round large numbers.
///
/// Only digits without leading zeros are taken; a bare number is refused rather than trusted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, ToSchema)]
#[schema(value_type = String, pattern = "^(0|[1-9][0-9]{0,19})$", example = "1043")]
pub struct Decimal(pub u64);

impl Decimal {
    /// Parses digits without sign or leading zeros.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit());
        let canonical = plain && (text == "0" || !text.starts_with('0'));
        canonical.then(|| text.parse().ok().map(Self)).flatten()
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut digits = [0; DIGITS_MAX];
        serializer.serialize_str(written(self.0, &mut digits))
    }
}

/// The digits of a number, at the end of a buffer. Formatting by `Display` takes ten times as many instructions, and an
/// answer has several numbers.
fn written(mut number: u64, digits: &mut [u8; DIGITS_MAX]) -> &str {
    let mut at = DIGITS_MAX;
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    str::from_utf8(&digits[at..]).unwrap_or_default()
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Digits;

        impl Visitor<'_> for Digits {
            type Value = Decimal;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a decimal string such as \"1043\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Decimal, E> {
                let unexpected = || E::invalid_value(serde::de::Unexpected::Str(text), &self);
                Decimal::parse(text).ok_or_else(unexpected)
            }
        }

        deserializer.deserialize_str(Digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_survives_and_is_a_string() {
        let text = serde_json::to_string(&Decimal(u64::MAX)).unwrap();
        assert_eq!(text, "\"18446744073709551615\"");
        assert_eq!(serde_json::from_str::<Decimal>(&text).unwrap(), Decimal(u64::MAX));
    }

    #[test]
    fn numbers_of_every_length_are_written_as_they_are_displayed() {
        let lengths = std::iter::successors(Some(1_u64), |it| it.checked_mul(10));
        for number in lengths.flat_map(|it| [it - 1, it, it + 1]).chain([u64::MAX]) {
            let text = serde_json::to_string(&Decimal(number)).unwrap();
            assert_eq!(text, format!("\"{number}\""));
        }
    }

    #[test]
    fn anything_but_plain_digits_in_a_string_is_refused() {
        let bad =
            ["1043", "\"\"", "\"01\"", "\"+1\"", "\"-1\"", "\"1.0\"", "\"18446744073709551616\""];
        for text in bad {
            assert!(serde_json::from_str::<Decimal>(text).is_err(), "{text}");
        }
    }
}
