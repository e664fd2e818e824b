//! Tests what `tenure store state restore` says when the store stops answering in the middle.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::common::{Ended, tenure};

/// Restores a version at a store that gives these answers, one for each request; an empty one closes the connection.
/// Returns what the command said, and the verbs that the store saw.
fn restore(answers: &[&'static str]) -> (Ended, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answers = answers.to_vec();
    let store = thread::spawn(move || {
        let mut verbs = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            verbs.push(request(&stream));
            stream.write_all(answer.as_bytes()).unwrap();
        }
        verbs
    });
    let said = tenure(&["store", "state", "restore", "prod", "--version", "1", "--store", &url]);
    (said, store.join().unwrap())
}

/// Reads a whole request and returns its verb.
fn request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let from = head.len();
        reader.read_line(&mut head).unwrap();
        let line = head[from..].to_ascii_lowercase();
        if let Some(bytes) = line.strip_prefix("content-length:") {
            length = bytes.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    head.split(' ').next().unwrap().to_owned()
}

const DONE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
const RESTORED: &str = "HTTP/1.1 200 OK\r\ncontent-length: 24\r\n\r\n{\"version\":7,\"serial\":9}";
const FAILED: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n";
const GONE: &str = "";

#[test]
fn a_restore_that_is_not_answered_may_have_happened() {
    let (said, verbs) = restore(&[DONE, GONE, DONE]);
    assert_eq!(said.code, Some(74), "{}", said.err);
    assert!(said.err.contains("unknown") && said.err.contains("POST"), "{}", said.err);
    assert_eq!(verbs, ["LOCK", "POST", "UNLOCK"]);
}

#[test]
fn a_restore_that_happened_is_printed_also_if_the_state_stays_locked() {
    let (said, verbs) = restore(&[DONE, RESTORED, FAILED]);
    assert_eq!(said.out, "version 1 of `prod` is now version 7, serial 9\n", "{}", said.err);
    assert_eq!(said.code, Some(74), "{}", said.err);
    assert!(said.err.contains("only the unlocking failed"), "{}", said.err);
    assert_eq!(verbs, ["LOCK", "POST", "UNLOCK"]);
}

#[test]
fn a_lock_that_may_have_been_acquired_is_released() {
    let (said, verbs) = restore(&[GONE, DONE]);
    assert_eq!(said.code, Some(74), "{}", said.err);
    assert_eq!(verbs, ["LOCK", "UNLOCK"]);
}
