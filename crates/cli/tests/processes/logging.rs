//! Tests that a member whose stderr is a full, unread pipe goes on serving, and stops when it is told to.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common::{TENURE, ask, free_port, wait};

/// How much is written to a pipe at once while it has room.
const PAGE: [u8; 4096] = [b'\n'; 4096];

/// Kills the process when it is dropped, also if the test fails.
struct Killed(Child);

impl Killed {
    /// Sends SIGTERM.
    fn stop(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pipe without room for another byte.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let has_room = |writer: &PipeWriter| {
        let mut fds = [PollFd::new(writer, PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    };
    while has_room(&writer) {
        writer.write_all(&PAGE).unwrap();
    }
    (reader, writer)
}

fn start(port: u16, home: &Path, level: &str, stderr: impl Into<Stdio>) -> Killed {
    let clients = format!("127.0.0.1:{port}");
    let child = Command::new(TENURE)
        .args(["dev", "--fresh", "--clients", &clients, "--log-level", level])
        .env_clear()
        .env("HOME", home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn();
    Killed(child.unwrap())
}

#[test]
fn a_full_stderr_that_is_not_read_does_not_stop_a_member() {
    let (home, port) = (tempfile::tempdir().unwrap(), free_port());
    let (mut reader, writer) = full_pipe();
    let mut member = start(port, home.path(), "info", writer);
    let put = |key: &str| {
        wait("it answers", || {
            let answer = ask(port, &format!("put {key} value"))?;
            answer.starts_with("ok").then_some(())
        });
    };
    (0..20).for_each(|at| put(&format!("key{at}")));
    // The lines that the member has logged meanwhile wait for a reader.
    let mut read = Vec::new();
    let mut page = [0; PAGE.len()];
    wait("the log is written once it is read", || {
        let length = reader.read(&mut page).unwrap();
        read.extend_from_slice(&page[..length]);
        String::from_utf8_lossy(&read).contains("\"message\":\"became leader\"").then_some(())
    });
    put("last");
    member.stop();
    let ended = wait("it ends", || member.0.try_wait().unwrap());
    assert!(ended.success(), "{ended}");
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("\"message\":\"stopped\""), "the last lines are written: {rest}");
}

#[test]
fn a_member_whose_stderr_is_not_read_ends_when_it_is_told_to() {
    let (home, port) = (tempfile::tempdir().unwrap(), free_port());
    let (reader, writer) = full_pipe();
    let mut member = start(port, home.path(), "info", writer);
    wait("it answers", || ask(port, "put key value")?.starts_with("ok").then_some(()));
    member.stop();
    let ended = wait("it ends", || member.0.try_wait().unwrap());
    assert!(ended.success(), "{ended}");
    drop(reader);
}

#[test]
fn the_level_decides_which_lines_are_logged() {
    let (home, port) = (tempfile::tempdir().unwrap(), free_port());
    let lines = |level: &str| {
        let mut member = start(port, home.path(), level, Stdio::piped());
        wait("it answers", || ask(port, "put key value")?.starts_with("ok").then_some(()));
        member.stop();
        let mut text = String::new();
        member.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    };
    assert!(lines("info").contains("\"level\":\"info\""));
    assert!(!lines("warn").contains("\"level\":\"info\""));
}
