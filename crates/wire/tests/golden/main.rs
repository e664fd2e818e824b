//! Tests that messages and JSON written by earlier versions still decode and are still written the same way.
//!
//! A file that differs is a change of the public contract. `TENURE_FIX=1` writes files that are missing, and the text
//! form of those whose bytes are unchanged. It never changes bytes that were written before.

mod answers;
mod json;
mod messages;
mod spoken;
mod tickets;
mod websocket;

use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", name].iter().collect()
}

/// Returns the file's text. With `TENURE_FIX`, first writes the file if it is missing or may be replaced.
fn golden(name: &str, now: &str, may_replace: impl Fn(&str) -> bool) -> String {
    let path = path(name);
    let old = std::fs::read_to_string(&path);
    if std::env::var_os("TENURE_FIX").is_some() && old.as_deref().map_or(true, may_replace) {
        std::fs::write(&path, now).unwrap();
        return now.to_owned();
    }
    old.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Compares a message with its file: the text form after `#`, for people, then its bytes in hexadecimal.
fn check<M: prost::Message + std::fmt::Debug + PartialEq + Default>(name: &str, message: &M) {
    let bytes = message.encode_to_vec();
    let mut text = String::new();
    for line in format!("{message:#?}").lines() {
        text += &format!("# {line}\n");
    }
    for line in bytes.chunks(40) {
        text += &line.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        text.push('\n');
    }
    let name = format!("{name}.hex");
    let kept = bytes_of(&golden(&name, &text, |old| bytes_of(old) == bytes));
    let back = M::decode(&kept[..]).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(back == *message, "{name} reads as something else: {back:#?}");
    assert!(kept == bytes, "{name} would be written differently:\n{text}");
}

/// Decodes a file that was written with fields that are reserved now. Nothing else of it is lost.
fn check_reads<M: prost::Message + std::fmt::Debug + PartialEq + Default>(name: &str, message: &M) {
    let name = format!("{name}.hex");
    let kept = bytes_of(&std::fs::read_to_string(path(&name)).unwrap());
    let back = M::decode(&kept[..]).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(back == *message, "{name} reads as something else: {back:#?}");
    assert!(message.encoded_len() < kept.len(), "{name} has no reserved field");
}

fn bytes_of(file: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        file.lines().filter(|line| !line.starts_with('#')).flat_map(str::bytes).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}
