//! Checks the replies of each API while the members stop, one after the other.

use std::sync::Arc;

use tenure_wire::v1;
use v1::request::Command;

use crate::common::wait_for;
use crate::request::{Api, Ask, Bad, Reply, What};
use crate::run::Run;

fn put(key: &str, deadline_ms: u32) -> Ask {
    let put = v1::PutRequest { key: key.into(), value: "x".into(), ..Default::default() };
    let what = What::Command(Command::Put(put));
    Ask { what, key: None, seq: 0, deadline_ms: Some(deadline_ms) }
}

impl Run {
    /// Stops all members but the leader, then the leader, and checks the replies.
    pub(crate) async fn faults(&mut self) {
        let leader = self.members.leader();
        let api = self.open(leader);
        let mut ending = (self.api == "grpc" || self.api == "plain").then(|| {
            let what = What::Watch { name: "ends".into(), from: 0, events: 1 };
            let ask = Ask { what, key: None, seq: 0, deadline_ms: None };
            tokio::spawn(api.ask("faults", ask))
        });
        // Write before, while and after the others stop: one write is in flight when the quorum is lost.
        let writing = tokio::spawn(write_until_no_member_leads(api.clone()));
        for at in (0..3).filter(|at| *at != leader) {
            tokio::task::block_in_place(|| self.members.stop(at));
        }
        let mut told = Vec::new();
        match writing.await {
            Ok(faults) => told.extend(faults),
            Err(error) => {
                self.seen.failed.push(format!("{}, without a quorum: {error}", self.api));
            }
        }
        let lead = self.members.one(leader).member.lead();
        wait_for("no member leads", async || lead.borrow().by.is_none().then_some(())).await;
        if matches!(self.api, "grpc" | "plain") {
            let what = What::Bad(Bad::Backup);
            let backup = Ask { what, key: None, seq: 0, deadline_ms: None };
            told.push(api.ask("faults", backup).await);
        }
        if matches!(self.api, "session" | "ws") {
            ending = Some(tokio::spawn(api.ask("faults", put("ends", 30_000))));
            // The answer to a later request proves that the member has received the one before.
            api.ask("faults", put("heard", 1)).await;
        }
        tokio::task::block_in_place(|| self.members.stop(leader));
        // A stream of events over HTTP simply ends.
        let Some(ending) = ending else { return self.check(told) };
        match ending.await {
            Ok(reply) => told.push(reply),
            Err(error) => self.seen.failed.push(format!("{}, at the end: {error}", self.api)),
        }
        self.check(told);
    }

    fn check(&mut self, told: Vec<Reply>) {
        for reply in told {
            let known = ["NO_LEADER", "NO_QUORUM", "UNKNOWN_OUTCOME", "SHUTTING_DOWN"];
            let kept = match &reply {
                Reply::Refused(fault) if known.contains(&&*fault.reason) => self.refused(fault),
                other => Err(format!("{other:?}")),
            };
            if let Err(why) = kept {
                self.seen.failed.push(format!("{}, without a quorum: {why}", self.api));
            }
        }
    }
}

async fn write_until_no_member_leads(api: Arc<dyn Api>) -> Vec<Reply> {
    let mut refused = Vec::new();
    for number in 0.. {
        match api.ask("faults", put(&format!("fault/{number}"), 400)).await {
            Reply::Done(_) => {}
            Reply::Refused(fault) if fault.reason == "NO_LEADER" => {
                refused.push(Reply::Refused(fault));
                break;
            }
            other => refused.push(other),
        }
    }
    refused
}
