//! How does a member start, keep its promises to its disk, and end?

use tenure_core::Machine;
use tenure_raft::{Config, Input, Saved};
use tenure_store::sim::Restart;

use super::event::Event;
use super::node::{CUT_SHORT, Wrote};
use super::oracle::ensure;
use super::world::World;
use super::{MS, S};
use crate::invariant::{Check, Violation};

impl World {
    pub(super) fn start(&mut self, node: usize) -> Check {
        if self.nodes[node].is_up() || self.nodes[node].dead {
            return Ok(());
        }
        let config = Config {
            snapshot_entries: self.snapshot_entries,
            hash_every: 20,
            batch_bytes: 8 * 1024,
            ..Config::new(self.nodes[node].id)
        };
        let entropy = self.rng.u64(..);
        // Whoever starts a member that joins names those it belongs to.
        let given = self.members.all();
        if let Err(error) = self.nodes[node].start(config, given, entropy) {
            self.nodes[node].process = None;
            self.say(|| format!("{node} does not start: {error:#}"));
            ensure(!error.to_string().contains(CUT_SHORT), "S8", || format!("{node}: {error}"))?;
            if self.nodes[node].damaged {
                self.nodes[node].dead = true;
            } else {
                // The disk may still be full or failing.
                self.nodes[node].crash(Restart::ProcessKilled);
                self.queue.push(self.now_us + S, Event::Start { node });
                ensure(!error.to_string().contains("corrupt"), "S8", || {
                    format!("{node} cannot start: {error:#}")
                })?;
            }
            return Ok(());
        }
        self.say(|| format!("{node} starts"));
        let process = self.nodes[node].process.as_ref().expect("it has just started");
        let (seen, machine) = (process.seen, process.replica.machine());
        self.oracle.state(node, seen, machine)?;
        self.wake(node, self.now_us);
        Ok(())
    }

    pub(super) fn write(&mut self, node: usize) -> Check {
        let boot = self.nodes[node].boot;
        let Some(process) = &mut self.nodes[node].process else { return Ok(()) };
        match process.write() {
            Err(error) => return Err(Violation::new("S12", format!("{error:#}"))),
            Ok(Wrote::Fatal) => {
                self.crash(node, Restart::ProcessKilled);
                return Ok(());
            }
            Ok(Wrote::NoSpace) if process.retrying => {}
            Ok(Wrote::NoSpace) => {
                process.retrying = true;
                self.queue.push(self.now_us + 200 * MS, Event::Write { node, boot });
            }
            Ok(Wrote::Done) => {}
        }
        if process.written > process.synced && !process.syncing {
            process.syncing = true;
            let slow = self.rng.u64(0..1000) < self.slow_sync;
            let delay_us = if slow { self.rng.u64(10..800) * MS } else { self.rng.u64(60..400) };
            self.tally.count_by("slow_sync", u64::from(slow));
            self.queue.push(self.now_us + delay_us, Event::Sync { node, boot });
        }
        Ok(())
    }

    pub(super) fn sync(&mut self, node: usize, boot: u64) -> Check {
        let target = &mut self.nodes[node];
        let Some(process) = target.process.as_mut().filter(|_| target.boot == boot) else {
            return Ok(());
        };
        if process.log.sync().is_err() {
            self.crash(node, Restart::ProcessKilled);
            return Ok(());
        }
        process.syncing = false;
        process.synced = process.written;
        process.proven = process.durable;
        process.durable = process.log.last_index();
        let number = process.synced;
        self.queue.push(self.now_us, Event::Synced { node, boot, number });
        Ok(())
    }

    pub(super) fn save(&mut self, node: usize) -> Check {
        let boot = self.nodes[node].boot;
        let Some(process) = &mut self.nodes[node].process else { return Ok(()) };
        let Some((point, bytes, saved)) = process.save() else { return Ok(()) };
        let again = Machine::decode(&bytes).map(|machine| machine.encode());
        ensure(again.as_ref() == Ok(&bytes), "S10", || {
            let problem = again.err();
            format!("the snapshot of {node} at {point:?} does not read back: {problem:?}")
        })?;
        let saved = if saved.is_ok() { Saved::Yes } else { Saved::No };
        self.tally.count_by("snapshot_saved", u64::from(saved == Saved::Yes));
        self.give(node, boot, Input::SnapshotSaved { point, saved });
        Ok(())
    }

    /// Ends a process, to be started again soon.
    pub(super) fn crash(&mut self, node: usize, how: Restart) {
        self.say(|| format!("{node} crashes: {how:?}"));
        self.nodes[node].crash(how);
        let at_us = self.now_us + self.rng.u64(10..5000) * MS;
        self.queue.push(at_us, Event::Start { node });
    }
}
