//! Validates the names of locks, keys and clients and stores them compactly.

use alloc::string::String;
use alloc::sync::Arc;
use core::borrow::Borrow;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;

/// Names up to this many bytes are stored inline, longer ones on the heap, where copies of a name share the text: one
/// answer may name a lock for each of a thousand slots. With this size a name takes half a cache line and most names in
/// use need no allocation.
const INLINE_MAX: usize = 30;

/// The name of a lock, key, client or principal: 1 to 512 bytes of UTF-8 without control
/// characters, ordered by its bytes.
#[derive(Clone)]
pub struct Name(Form);

#[derive(Clone)]
enum Form {
    Inline { len: u8, bytes: [u8; INLINE_MAX] },
    Heap(Arc<str>),
}

/// Why a text is not a valid name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidName {
    /// It has no characters.
    #[error("a name needs at least one character")]
    Empty,
    /// It is longer than the longest valid name.
    #[error("a name has at most {} bytes", Name::LEN_MAX)]
    TooLong,
    /// It contains a control character.
    #[error("a name has no control characters")]
    Control,
}

impl Name {
    /// The longest valid name in bytes. A cluster may set a lower limit, never a higher one.
    pub const LEN_MAX: usize = 512;

    /// Creates a name, if the text is valid.
    #[inline]
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        Self::check(text)?;
        Ok(Self::from_checked(text))
    }

    /// Checks whether the text is a valid name, without creating one.
    #[inline]
    pub fn check(text: &str) -> Result<(), InvalidName> {
        if text.is_empty() {
            return Err(InvalidName::Empty);
        }
        if text.len() > Self::LEN_MAX {
            return Err(InvalidName::TooLong);
        }
        // Most names are ASCII: check bytes first, and decode characters only if a byte requires it.
        let plain = text.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_control());
        if !plain && text.chars().any(char::is_control) {
            return Err(InvalidName::Control);
        }
        Ok(())
    }

    /// Creates a name from a text that has passed [`Name::check`], without checking it again.
    #[inline]
    pub fn from_checked(text: &str) -> Self {
        debug_assert!(Self::check(text).is_ok(), "the text was not checked");
        let len = text.len();
        match u8::try_from(len) {
            Ok(short) if len <= INLINE_MAX => {
                let mut bytes = [0; INLINE_MAX];
                bytes[..len].copy_from_slice(text.as_bytes());
                Self(Form::Inline { len: short, bytes })
            }
            _ => Self(Form::Heap(Arc::from(text))),
        }
    }

    /// The text.
    #[inline]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Form::Inline { .. } => core::str::from_utf8(self.as_bytes())
                .expect("an inline name was copied whole from a text"),
            Form::Heap(text) => text,
        }
    }

    /// The bytes of the text. They order like names.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Form::Heap(text) => text.as_bytes(),
        }
    }

    /// How many heap bytes the name takes.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Inline { .. } => 0,
            Form::Heap(text) => text.len(),
        }
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

// Lookups use bytes, not text: `str` and `[u8]` have the same order, and bytes need no UTF-8 check.
impl Borrow<[u8]> for Name {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Name {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;
    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::new(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_of_every_length_keep_their_text() {
        for len in 1..=Name::LEN_MAX {
            let text = "ä".repeat(len / 2) + if len % 2 == 1 { "x" } else { "" };
            assert_eq!(Name::new(&text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_name_is_half_a_cache_line() {
        assert_eq!(size_of::<Name>(), 32);
    }

    #[test]
    fn empty_overlong_and_control_texts_are_refused() {
        assert_eq!(Name::new(""), Err(InvalidName::Empty));
        assert_eq!(Name::new(&"x".repeat(513)), Err(InvalidName::TooLong));
        assert_eq!(Name::new("a\nb"), Err(InvalidName::Control));
        assert_eq!(Name::new("a\u{85}b"), Err(InvalidName::Control));
        assert!(Name::new("/locks/db/Ωμέγα 1").is_ok());
    }

    #[test]
    fn short_and_long_names_order_by_their_bytes() {
        let long = "b".repeat(40);
        let names = ["a", "b", long.as_str(), "c"].map(|text| Name::new(text).unwrap());
        assert!(names.is_sorted());
        assert_eq!(names[2].to_string(), long);
    }
}
