//! Do the inputs kept in the corpora still pass?

use std::path::Path;

/// Runs one target over its corpus and says how many inputs it had.
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
fn replay_ticket() {
    replay("ticket", tenure_fuzz::ticket);
}
