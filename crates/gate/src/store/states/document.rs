//! Reads the serial and the lineage of a state, and gives an old state a new serial.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// The longest lineage. Terraform writes a UUID.
const LINEAGE_BYTES_MAX: usize = 256;

/// What a state says about itself. Terraform and OpenTofu write both fields, OpenTofu also if the rest is encrypted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct StateHead {
    /// Counts the changes of the state.
    pub(super) serial: u64,
    /// The same for all states that came from each other.
    pub(super) lineage: String,
}

#[derive(Deserialize)]
struct StateFields<'a> {
    #[serde(borrow)]
    serial: &'a RawValue,
    #[serde(borrow)]
    lineage: Cow<'a, str>,
    encrypted_data: Option<IgnoredAny>,
}

/// Parses a state.
pub(super) fn read(state: &[u8]) -> Result<StateHead, String> {
    let (_, head, _) = parse(state)?;
    Ok(head)
}

/// Returns the same state with this serial. No other byte changes, so numbers keep all of their digits.
pub(super) fn with_serial(state: &[u8], serial: u64) -> Result<Bytes, String> {
    let (text, _, fields) = parse(state)?;
    if fields.encrypted_data.is_some() {
        return Err("the state is encrypted, and its serial is part of what is encrypted; \
                    write it with `tofu state push`"
            .to_owned());
    }
    let old = fields.serial.get();
    // The raw value is a part of the text, so its address says where it is.
    let at = old.as_ptr() as usize - text.as_ptr() as usize;
    let parts = [&text[..at], &serial.to_string(), &text[at + old.len()..]];
    Ok(Bytes::from(parts.concat()))
}

fn parse(state: &[u8]) -> Result<(&str, StateHead, StateFields<'_>), String> {
    let no = |why: &dyn std::fmt::Display| format!("this is no state: {why}");
    let text = std::str::from_utf8(state).map_err(|error| no(&error))?;
    let fields: StateFields<'_> = serde_json::from_str(text).map_err(|error| no(&error))?;
    let serial = fields.serial.get().parse();
    let serial = serial.map_err(|_| no(&"its serial is no whole number from 0"))?;
    let lineage = fields.lineage.clone().into_owned();
    if lineage.len() > LINEAGE_BYTES_MAX {
        return Err(no(&format!("its lineage has more than {LINEAGE_BYTES_MAX} bytes")));
    }
    Ok((text, StateHead { serial, lineage }, fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_and_lineage_are_read_and_nothing_else_is_changed() {
        let state =
            br#"{"version":4, "outputs":{"serial":7,"n":1e400}, "serial" : 12 ,"lineage":"a\"b"}"#;
        let head = StateHead { serial: 12, lineage: "a\"b".to_owned() };
        assert_eq!(read(state), Ok(head));
        let later = with_serial(state, 130).unwrap();
        let expected =
            br#"{"version":4, "outputs":{"serial":7,"n":1e400}, "serial" : 130 ,"lineage":"a\"b"}"#;
        assert_eq!(&later[..], expected);
    }

    #[test]
    fn what_is_no_state_is_refused() {
        for bad in [
            &b""[..],
            b"[]",
            b"\xff",
            br#"{"serial":1}"#,
            br#"{"lineage":"a"}"#,
            br#"{"serial":-1,"lineage":"a"}"#,
            br#"{"serial":1.5,"lineage":"a"}"#,
            br#"{"serial":"1","lineage":"a"}"#,
            br#"{"serial":99999999999999999999,"lineage":"a"}"#,
            br#"{"serial":1,"lineage":"a"} x"#,
            br#"{"serial":1,"serial":2,"lineage":"a"}"#,
        ] {
            assert!(read(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
        let long = format!(r#"{{"serial":1,"lineage":"{}"}}"#, "a".repeat(257));
        assert!(read(long.as_bytes()).is_err());
    }

    #[test]
    fn an_encrypted_state_keeps_its_serial() {
        let state = br#"{"serial":3,"lineage":"a","encrypted_data":"eA==","meta":{}}"#;
        assert_eq!(read(state).unwrap().serial, 3);
        assert!(with_serial(state, 4).unwrap_err().contains("encrypted"));
    }
}
