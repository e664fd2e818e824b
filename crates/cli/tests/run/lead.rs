//! Tests that a command under `tenure elect` runs only while its process leads.

use std::process::Command;

use rustix::process::Signal;
use tenure::Urgency;

use crate::common::{TENURE, wait};
use crate::job::{self, Role};
use crate::world::{Held, World, is_alive, scratch};

fn elect(world: &World, flags: &[&str]) -> Held {
    let addresses = world.addresses();
    let mut command = Command::new(TENURE);
    command.args(["elect", "billing", "--value", "a:1", "--ttl", "3s", "--addr", &addresses]);
    let dir = scratch();
    command.arg("--events").arg(dir.path().join("events"));
    command.args(flags).arg("--").args(job::program());
    Held::spawn(command, dir, Role::Plain)
}

fn depose(world: &World) {
    let shown = world.runtime.block_on(world.client.show("billing")).unwrap().unwrap();
    let token = shown.holders[0].token;
    let force = world.client.force("billing", token, "a test", Urgency::StopFirst);
    world.runtime.block_on(force.into_future()).unwrap();
}

#[test]
fn a_command_is_stopped_with_its_leadership_and_started_with_the_next() {
    let world = World::new(1);
    let mut held = elect(&world, &[]);
    held.runs(1);
    let first = held.record().pids[0];
    depose(&world);
    // The second command began after the first had ended.
    held.runs(2);
    assert!(!is_alive(first));
    held.signal(Signal::TERM);
    assert_eq!(held.ended().code(), Some(143));
    let said = held.said();
    assert!(said.contains("leadership of `billing` lost: forced by next: a test"), "{said}");
    assert!(said.contains("elected leader of `billing`, token 2"), "{said}");
}

#[test]
fn once_is_once() {
    let world = World::new(1);
    let mut held = elect(&world, &["--once"]);
    held.runs(1);
    depose(&world);
    assert_eq!(held.ended().code(), Some(76));
    assert_eq!(held.event("elected")["token"], "1");
    assert_eq!(held.event("ended")["outcome"], "lost");
    wait("it is gone", || (!held.record().pids.iter().any(|pid| is_alive(*pid))).then_some(()));
}
