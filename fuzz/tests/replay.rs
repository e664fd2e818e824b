//! Tests that the inputs kept in the corpora still pass.

use std::path::Path;

use tenure_fuzz::measured::{MESSAGE, bounded};

/// Runs one target over its corpus and prints how many inputs it had.
fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is in the repository") {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        run(&bytes);
        inputs += 1;
    }
    println!("replayed {target} inputs={inputs}");
    assert!(inputs > 0, "a corpus without inputs shows nothing");
}

#[test]
fn replay_request() {
    replay("request", tenure_fuzz::request);
}

#[test]
fn replay_snapshot() {
    replay("snapshot", tenure_fuzz::snapshot);
}

#[test]
fn replay_message() {
    replay("message", tenure_fuzz::message);
}

#[test]
fn replay_apply() {
    replay("apply", tenure_fuzz::apply);
}

#[test]
fn replay_grpc() {
    replay("grpc", tenure_fuzz::grpc);
}

#[test]
fn replay_json() {
    replay("json", tenure_fuzz::json);
}

#[test]
fn replay_socket() {
    replay("socket", tenure_fuzz::socket);
}

#[test]
fn replay_plain() {
    replay("plain", tenure_fuzz::plain);
}

#[test]
fn replay_query() {
    replay("query", tenure_fuzz::query);
}

#[test]
fn replay_forwarded() {
    replay("forwarded", tenure_fuzz::forwarded);
}

#[test]
fn replay_backup() {
    replay("backup", tenure_fuzz::backup);
}

#[test]
fn replay_config() {
    replay("config", tenure_fuzz::config);
}

#[test]
fn replay_control() {
    replay("control", tenure_fuzz::control);
}

#[test]
fn replay_line() {
    replay("line", tenure_fuzz::line);
}

#[test]
fn replay_ticket() {
    replay("ticket", tenure_fuzz::ticket);
}

#[test]
fn replay_answer() {
    replay("answer", tenure_fuzz::answer);
}

#[test]
fn replay_write() {
    replay("write", tenure_fuzz::write);
}

#[test]
fn replay_segment() {
    replay("segment", tenure_fuzz::segment);
}

#[test]
fn replay_file() {
    replay("file", tenure_fuzz::file);
}

#[test]
fn what_is_given_back_counts_too_and_what_is_left_does_not() {
    let kept = bounded(&[], MESSAGE, || vec![0_u8; 200 * 1024]);
    bounded(&[], MESSAGE, || vec![0_u8; 200 * 1024]);
    drop(kept);
}

#[test]
#[should_panic(expected = "bytes of input took")]
fn more_than_is_allowed_is_found_even_if_it_is_given_back() {
    bounded(b"four", MESSAGE, || drop(vec![0_u8; 300 * 1024]));
}
