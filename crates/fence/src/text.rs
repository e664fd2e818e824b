//! Writes tokens and floors as text whose order is the order of the numbers.
//!
//! Never as a floating-point number: from 2^53 on, two tokens would compare equal. That is every token of the 32nd
//! epoch and later.

use tenure_types::Token;

use crate::claim::Incarnation;
use crate::rule::Floor;

/// The digits of a padded token: enough for the largest, which fits a signed 64-bit integer.
const DIGITS: usize = 19;

/// The text for an unknown value.
const NONE: &str = "-";

/// The text is not a number that a token can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a token is a decimal number from 1 to 9223372036854775807")]
pub struct NotAToken;

/// Writes a token with leading zeros: the order of such texts is the order of the tokens.
///
/// ```
/// let token = tenure_fence::Token::from_u64(1043).unwrap();
/// assert_eq!(tenure_fence::padded(token), "0000000000000001043");
/// ```
pub fn padded(token: Token) -> String {
    format!("{:0DIGITS$}", token.get())
}

/// Parses a token from decimal digits, padded or not.
///
/// ```
/// assert_eq!(tenure_fence::parse_token("0001043").unwrap().get(), 1043);
/// assert!(tenure_fence::parse_token("1.043e3").is_err());
/// ```
pub fn parse_token(text: &str) -> Result<Token, NotAToken> {
    let digits = (1..=DIGITS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let number = if digits { text.parse::<u64>().ok() } else { None };
    number
        .filter(|number| i64::try_from(*number).is_ok())
        .and_then(Token::from_u64)
        .ok_or(NotAToken)
}

impl Floor {
    /// Writes the floor as text without blanks, always in the same form.
    ///
    /// ```
    /// use tenure_fence::{Claim, Floor, Token, Touch};
    ///
    /// let token = Token::from_u64(7).unwrap();
    /// let floor = Floor::default().admit(Claim::new(token).shared(), Touch::Raise).unwrap();
    /// assert_eq!(floor.to_text(), "0000000000000000000.0000000000000000007.0000000000000000000.-");
    /// assert_eq!(Floor::parse(&floor.to_text()), Some(floor));
    /// ```
    pub fn to_text(self) -> String {
        let [x, s, u] = self.numbers();
        let incarnation = self.incarnation.map_or(NONE.to_owned(), |it| it.to_string());
        format!("{x:0DIGITS$}.{s:0DIGITS$}.{u:0DIGITS$}.{incarnation}")
    }

    /// Parses what [`Floor::to_text`] wrote, and nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let mut next = || parts.next();
        let (x, s, u, incarnation) = (next()?, next()?, next()?, next()?);
        let number = |text: &str| text.parse().ok();
        let incarnation = match incarnation {
            NONE => None,
            text => Some(Incarnation::parse(text)?),
        };
        let floor = Self::from_numbers([number(x)?, number(s)?, number(u)?], incarnation)?;
        (floor.to_text() == text).then_some(floor)
    }

    /// Returns exclusive, shared and used as numbers. An absent one is 0, which is no token.
    pub fn numbers(self) -> [i64; 3] {
        [self.exclusive, self.shared, self.used].map(|token| {
            let number = token.map_or(0, Token::get);
            i64::try_from(number).expect("a floor has only tokens that passed the rule")
        })
    }

    /// Creates the floor from these numbers, or returns `None` if one of them is negative.
    pub fn from_numbers(numbers: [i64; 3], incarnation: Option<Incarnation>) -> Option<Self> {
        let token = |number| u64::try_from(number).ok().map(Token::from_u64);
        let [exclusive, shared, used] = numbers.map(token);
        Some(Self { exclusive: exclusive?, shared: shared?, used: used?, incarnation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padded_texts_are_ordered_like_the_tokens() {
        let numbers = [1, 9, 10, (40 << 48) | 1, (40 << 48) | 2, (41 << 48) | 1, i64::MAX as u64];
        let tokens: Vec<Token> = numbers.iter().filter_map(|it| Token::from_u64(*it)).collect();
        let texts: Vec<String> = tokens.iter().copied().map(padded).collect();
        assert!(texts.is_sorted());
        assert!(texts.iter().all(|text| text.len() == DIGITS));
        for (text, token) in texts.iter().zip(tokens) {
            assert_eq!(parse_token(text), Ok(token));
        }
    }

    #[test]
    fn only_digits_are_a_token() {
        let bad =
            ["", "0", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "٣", "9223372036854775808"];
        for text in bad.into_iter().chain(["00000000000000000001"]) {
            assert_eq!(parse_token(text), Err(NotAToken), "{text:?}");
        }
    }

    #[test]
    fn only_the_one_form_is_a_floor() {
        let zero = "0".repeat(DIGITS);
        let whole = format!("{zero}.{zero}.{zero}.00000000000000af");
        assert_eq!(Floor::parse(&whole).unwrap().incarnation, Some(Incarnation(0xaf)));
        let bad = [
            String::new(),
            "1.2.3.-".to_owned(),
            format!("{zero}.{zero}.{zero}"),
            format!("{zero}.{zero}.{zero}.-.-"),
            format!("{zero}.{zero}.{zero}.00000000000000AF"),
            format!("-000000000000000001.{zero}.{zero}.-"),
            format!("{whole} "),
        ];
        for text in bad {
            assert_eq!(Floor::parse(&text), None, "{text:?}");
        }
    }
}
