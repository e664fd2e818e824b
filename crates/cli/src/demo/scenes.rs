//! What does the tour show, in which order?

use std::time::Duration;

use tenure::{Client, Error, Guard};
use tokio::time::Instant;

use super::members::Members;
use super::pause;
use crate::failure::Failure;
use crate::lock::wait;
use crate::output::{self, Output, bold};
use crate::reach::{Cluster, Place};
use crate::span;

/// Short enough to see a lease end while looking on.
const TTL: Duration = Duration::from_secs(4);
/// What leases have where nobody looks on: long enough for an election on a busy machine.
const USUAL_TTL: Duration = Duration::from_secs(15);
/// How long three processes may take to become a cluster, and a cluster to have another leader.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);
const LOCK: &str = "deploy";
const KEY: &str = "ledger";

/// All scenes, one after the other.
pub(super) async fn play(pauses: bool) -> Result<(), Failure> {
    say(&bold("Tenure: a lock that stops you in time"));
    say("Three members on this machine, as real as in production, thrown away at the end.");
    let began = Instant::now();
    let mut members = Members::start()?;
    let ana = client(&members, "ana").await?;
    let leader = leader(&ana).await?;
    say(&format!("3 of 3 members up after {}, {leader} leads.", span::shown(began.elapsed())));

    pause(pauses, "1. two want the same lock").await;
    let (bob, bobs) = contention(&members, &ana).await?;
    pause(pauses, "2. the holder falls silent").await;
    let anas = expiry(&ana, &bob, &bobs).await?;
    pause(pauses, "3. the leader crashes").await;
    crash(&mut members, &ana, &anas).await?;
    pause(pauses, "4. the dead come back").await;
    zombie(&ana, &anas, &bob, &bobs).await?;

    anas.release().await?;
    // His was lost long ago; whatever is answered changes nothing.
    let _ = bobs.release().await;
    heading("That was all of it");
    say("  in two terminals     tenure dev    and    tenure run deploy -- sleep 30");
    say("  how long is safe     tenure plan --ttl 15s --rtt 5ms");
    say("  what goes on         tenure top");
    Ok(())
}

/// Two ask for one lock: one has it, the other is told whom it waits for.
async fn contention(members: &Members, ana: &Client) -> Result<(Client, Guard), Failure> {
    heading("1. Two want the same lock");
    let anas = ana.lock(LOCK).ttl(TTL).metadata("release 5.2").await?;
    typed("ana", "tenure lock deploy");
    say(&format!("       lock `{LOCK}` acquired, token {}", anas.token()));
    let bob = client(members, "bob").await?;
    typed("bob", "tenure lock deploy");
    let waiting = {
        let bob = bob.clone();
        tokio::spawn(async move { bob.lock(LOCK).ttl(TTL).await })
    };
    let addresses = members.addresses().split(',').map(str::to_owned).collect();
    let place = Place { addresses, client: None, patience: PATIENCE, tls: None };
    let cluster = Cluster { client: ana.clone(), output: Output::Text, place };
    let explained = loop {
        let explained = wait::explain(&cluster, LOCK, None).await?;
        if !explained.ahead.is_empty() {
            break explained;
        }
        tokio::time::sleep(LOOK).await;
    };
    for line in crate::look::explain_text(LOCK, &explained, "ana").lines() {
        say(&format!("       {line}"));
    }
    say("ana gives it back; bob has it in the same moment, and with a larger token:");
    let began = Instant::now();
    anas.release().await?;
    let bobs = waiting.await.map_err(|error| Failure::refused(error.to_string()))??;
    let took = span::shown(began.elapsed());
    say(&format!("bob    lock `{LOCK}` acquired after {took}, token {}", bobs.token()));
    Ok((bob, bobs))
}

/// A holder that is not heard of any more is stopped first, and loses the lock afterwards.
async fn expiry(ana: &Client, bob: &Client, bobs: &Guard) -> Result<Guard, Failure> {
    heading("2. The holder falls silent");
    say(&format!("bob's network is cut. His lease has a ttl of {}; ana waits.", span::shown(TTL)));
    bob.drop_renewals(true);
    let began = Instant::now();
    let (stopped, anas) = tokio::join!(
        async {
            let cause = bobs.lost().await;
            let stopped = Instant::now();
            let after = span::shown(stopped - began);
            say(&format!("bob    {after}: lost: {cause}. His work is stopped here."));
            stopped
        },
        ana.lock(LOCK).ttl(USUAL_TTL),
    );
    let anas = anas?;
    let after = span::shown(began.elapsed());
    let margin = span::shown(stopped.elapsed());
    say(&format!("ana    {after}: lock `{LOCK}` acquired, token {}", anas.token()));
    say(&format!("Between the two nobody had it, for {margin}: never two at once."));
    Ok(anas)
}

/// A leader that dies takes nothing with it.
async fn crash(members: &mut Members, ana: &Client, anas: &Guard) -> Result<(), Failure> {
    heading("3. The leader crashes");
    let status = ana.status().await?;
    let leader = status.leader.unwrap_or_default();
    say(&format!("kill -9 of {}, which leads, while ana holds the lock.", leader.name));
    let began = Instant::now();
    members.kill(&leader.address);
    let next = loop {
        let status = ana.status().await;
        let known = status.ok().and_then(|status| status.leader);
        match known.filter(|it| it.member_id != 0 && it.member_id != leader.member_id) {
            Some(next) => break next,
            None if began.elapsed() > PATIENCE => {
                return Err(Failure::refused("no other member leads; try the tour again"));
            }
            None => tokio::time::sleep(LOOK).await,
        }
    };
    ana.key("after-the-crash").put("written").await?;
    anas.check()?;
    let took = span::shown(began.elapsed());
    say(&format!("{} leads, and the first write is durable, {took} after the crash.", next.name));
    say(&format!("ana    still holds `{LOCK}` under token {}: she noticed nothing.", anas.token()));
    Ok(())
}

/// Whoever comes back from the dead is refused where it matters: at the data.
async fn zombie(ana: &Client, anas: &Guard, bob: &Client, bobs: &Guard) -> Result<(), Failure> {
    heading("4. The dead come back");
    say("No lock can stop a machine that was frozen from outside, or a write already on its way.");
    say("So every grant has a number, and the data refuses smaller ones.");
    typed(
        "ana",
        &format!("tenure key put {KEY} \"paid by ana\" --lock {LOCK} --token {}", anas.token()),
    );
    let revision = ana.key(KEY).guarded_by(anas).put("paid by ana").await?;
    say(&format!("       written at revision {revision}"));
    say("bob wakes up and finishes what he began, under the token of before:");
    typed(
        "bob",
        &format!("tenure key put {KEY} \"paid by bob\" --lock {LOCK} --token {}", bobs.token()),
    );
    match bob.key(KEY).guarded_by(bobs).put("paid by bob").await {
        Err(Error::Refused(refusal)) => {
            say(&format!("       refused: {refusal} ({})", refusal.reason()));
        }
        Err(error) => return Err(error.into()),
        Ok(_) => return Err(Failure::refused("a stale token was let through: this is a bug")),
    }
    let kept = ana.key(KEY).get().await?.map(|it| output::bytes(&it.value)).unwrap_or_default();
    say(&format!("The ledger says {kept:?}."));
    Ok(())
}

async fn client(members: &Members, name: &str) -> Result<Client, Failure> {
    let builder = Client::builder().addresses(&members.addresses()).name(name);
    Ok(builder.timeout(PATIENCE).connect().await?)
}

/// Waits until all three are there and one leads.
async fn leader(client: &Client) -> Result<String, Failure> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Ok(status) = client.status().await {
            let up = status.members.iter().filter(|it| it.up).count();
            let leader = status.leader.filter(|it| it.member_id != 0);
            if let (3.., Some(leader)) = (up, leader) {
                return Ok(leader.name);
            }
        }
        if Instant::now() > until {
            return Err(Failure::refused(
                "the members did not find each other; try the tour again",
            ));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn heading(text: &str) {
    say("");
    say(&bold(text));
}

fn typed(who: &str, line: &str) {
    say(&format!("{who:<5}$ {line}"));
}

fn say(text: &str) {
    output::out(&format!("{text}\n"));
}
