//! Converts bytes to JSON: as text if they are UTF-8, else as base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::Failure;

/// Encodes bytes for the JSON fields `name` (text) and `name_base64`. At most one of them is `Some`, and none for empty
/// bytes.
pub fn text_or_base64(bytes: &Bytes) -> (Option<String>, Option<String>) {
    if bytes.is_empty() {
        return (None, None);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

/// Decodes the two fields `name` and `name_base64`. At most one of them may be present.
pub fn bytes_from(
    field: &'static str,
    text: Option<String>,
    base64: Option<String>,
) -> Result<Bytes, Failure> {
    let problem = |problem: &str| Failure::InvalidField { field, problem: problem.to_owned() };
    match (text, base64) {
        (Some(_), Some(_)) => Err(problem("is there twice, as text and as base64")),
        (Some(text), None) => Ok(text.into_bytes().into()),
        (None, Some(coded)) => {
            STANDARD.decode(coded).map(Bytes::from).map_err(|_| problem("is no base64"))
        }
        (None, None) => Ok(Bytes::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_either_form() {
        for bytes in [&b""[..], b"release 5.2", "grüße".as_bytes(), b"\xff\x00", b"\0"] {
            let bytes = Bytes::copy_from_slice(bytes);
            let (text, coded) = text_or_base64(&bytes);
            assert_eq!(bytes_from("metadata", text, coded).unwrap(), bytes);
        }
    }

    #[test]
    fn both_forms_at_once_and_bad_base64_are_refused() {
        assert!(bytes_from("value", Some(String::new()), Some(String::new())).is_err());
        assert!(bytes_from("value", None, Some("?".to_owned())).is_err());
    }
}
