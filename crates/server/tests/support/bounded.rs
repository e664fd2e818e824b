//! Waits for conditions, members and programs with a time limit, and names what is late.
#![allow(dead_code, reason = "each test binary uses a part of this")]

#[path = "../../../cli/tests/common/ports.rs"]
mod ports;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) use ports::free_port;
use tenure_server::{
    InvitationSource, InvitationToken, RunningServer, ServerSettings, StartError, os, start,
};

/// How long anything may take here before the test fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// Waits until a condition holds.
pub(crate) fn wait<T>(what: &str, mut is_so: impl FnMut() -> Option<T>) -> T {
    let until_us = os::now_us() + u64::try_from(DEADLINE.as_micros()).unwrap();
    loop {
        if let Some(found) = is_so() {
            return found;
        }
        assert!(os::now_us() < until_us, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Has a member make an invitation, with which one more member can join.
pub(crate) fn invite(at: SocketAddr) -> InvitationSource {
    let request = format!(
        "POST /v1/cluster/invitations HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    wait("an invitation is made", || {
        let mut stream = TcpStream::connect(at).ok()?;
        stream.set_read_timeout(Some(DEADLINE)).ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, rest) = answer.split_once("\"invitation\":\"")?;
        InvitationToken::parse(rest.split('"').next()?).map(InvitationSource::Token)
    })
}

/// Names and free addresses for this many members.
pub(crate) fn listed(size: usize) -> Vec<(String, String)> {
    (0..size).map(|at| (format!("m{at}"), format!("127.0.0.1:{}", free_port()))).collect()
}

/// Starts members that need each other to start; none if another process had taken a port.
pub(crate) fn try_start_all(all: Vec<ServerSettings>) -> Option<Vec<RunningServer>> {
    let size = all.len();
    let stop = Arc::new(AtomicBool::new(false));
    let (done, started) = channel();
    for (at, settings) in all.into_iter().enumerate() {
        let (stop, done) = (stop.clone(), done.clone());
        let settings = ServerSettings { stop: stop.clone(), ..settings };
        std::thread::spawn(move || {
            // If one cannot start, the others would wait for it for ever, so stop them.
            let one = start(settings).inspect_err(|_| stop.store(true, Ordering::Release));
            let _ = done.send((at, one));
        });
    }
    drop(done);
    let mut running: Vec<Option<RunningServer>> = (0..size).map(|_| None).collect();
    for _ in 0..size {
        let Ok((at, one)) = started.recv_timeout(DEADLINE) else {
            stop.store(true, Ordering::Release);
            let missing: Vec<_> = (0..size).filter(|at| running[*at].is_none()).collect();
            panic!("waited too long: members {missing:?} of {size} start");
        };
        match one {
            Ok(one) => running[at] = Some(one),
            Err(StartError::Listen { .. } | StartError::Interrupted) => {}
            Err(other) => panic!("member {at} does not start: {other}"),
        }
    }
    running.into_iter().collect()
}

/// The same for members whose ports are reserved.
pub(crate) fn start_all(all: Vec<ServerSettings>) -> Vec<RunningServer> {
    try_start_all(all).expect("no other process uses the ports of this process")
}

/// Runs a program to its end; kills it if it takes too long.
pub(crate) fn output(command: &mut Command, within: Duration) -> io::Result<Output> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    // Read both pipes while it runs, or it would block on them.
    let (stdout, stderr) = (read(stdout), read(stderr));
    let until_us = os::now_us() + u64::try_from(within.as_micros()).unwrap();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if os::now_us() >= until_us {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("not over in {within:?}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = |pipe: JoinHandle<io::Result<Vec<u8>>>| pipe.join().expect("it only reads");
    Ok(Output { status, stdout: said(stdout)?, stderr: said(stderr)? })
}

fn read(mut pipe: impl Read + Send + 'static) -> JoinHandle<io::Result<Vec<u8>>> {
    std::thread::spawn(move || {
        let mut said = Vec::new();
        pipe.read_to_end(&mut said).map(|_| said)
    })
}

/// Stops a member; fails if that takes too long.
pub(crate) fn stop(one: RunningServer) {
    let (done, stopped) = channel();
    std::thread::spawn(move || {
        one.stop();
        let _ = done.send(());
    });
    let in_time = stopped.recv_timeout(DEADLINE).is_ok();
    assert!(in_time || std::thread::panicking(), "waited too long: a member stops");
}
