//! Mixes what a run sends, answers and stores into one number, so that two runs of a seed can be compared.
//!
//! These take part, each with its moment: packets between members, messages between clients and members, the answers
//! of every member, and at the end the bytes on all disks. What else happens in a member shows in one of them.

use std::fmt::{self, Debug, Write};

use super::event::SimEvent;
use super::world::SimCluster;

/// Mixes the text that is written to it into a number.
struct MixedText(u64);

impl Write for MixedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = mixed(self.0, text.as_bytes());
        Ok(())
    }
}

impl SimCluster {
    /// Mixes in bytes that were sent now.
    pub(super) fn mix(&mut self, bytes: &[u8]) {
        self.trace = mixed(self.trace ^ self.now_us, bytes);
    }

    /// Mixes in a value by its debug text, which has every field.
    pub(super) fn mix_value(&mut self, value: &impl Debug) {
        let mut text = MixedText(self.trace ^ self.now_us);
        write!(text, "{value:?}").expect("mixing accepts every text");
        self.trace = text.0;
    }

    /// Mixes in a message between a client and a member, when it arrives.
    pub(super) fn mix_message(&mut self, event: &SimEvent) {
        match event {
            SimEvent::Said { stream, said } => self.mix_value(&(stream, said)),
            SimEvent::Mail { stream, replies } => self.mix_value(&(stream, replies)),
            SimEvent::Cut { stream } => self.mix_value(stream),
            SimEvent::Call { member, boot, call, input } => {
                self.mix_value(&(member, boot, call, input));
            }
            SimEvent::CallReply { caller, call, reply } => self.mix_value(&(caller, call, reply)),
            _ => {}
        }
    }

    /// Mixes in what all members have stored.
    pub(super) fn mix_disks(&mut self) {
        for member in 0..self.sim_members.len() {
            let disk = self.sim_members[member].disk.clone();
            for file in disk.files() {
                self.mix(file.as_bytes());
                self.mix(&disk.contents(&file).unwrap_or_default());
            }
        }
    }
}

fn mixed(mut trace: u64, bytes: &[u8]) -> u64 {
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        trace = (trace ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        trace ^= trace >> 29;
    }
    trace
}

#[cfg(test)]
mod tests {
    use tenure_node::{NodeFailure, SessionId};

    use super::super::packet::{ClientMessage, ClientStream};
    use super::super::session_task::SessionReply;
    use super::*;

    #[test]
    fn runs_differ_if_one_message_of_a_client_or_one_answer_does() {
        let stream = ClientStream { id: SessionId(1), client: 0, member: 0, boot: 1 };
        let trace = |event: &SimEvent| {
            let mut cluster = SimCluster::sized(1, 1);
            cluster.mix_message(event);
            cluster.trace
        };
        let hello = |leases| SimEvent::Said { stream, said: ClientMessage::Hello { leases } };
        let mail = |failure| {
            let replies = vec![SessionReply::Answer { id: 7, outcome: Err(failure) }];
            SimEvent::Mail { stream, replies }
        };
        let lease = tenure_types::Handle { slot: 1, generation: 1 };
        let traces = [
            trace(&hello(vec![])),
            trace(&hello(vec![lease])),
            trace(&mail(NodeFailure::Unknown)),
            trace(&mail(NodeFailure::NoLeader)),
        ];
        for (at, one) in traces.iter().enumerate() {
            assert!(!traces[..at].contains(one), "{traces:x?}");
        }
        assert_eq!(traces[0], trace(&hello(vec![])));
    }
}
