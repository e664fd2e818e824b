//! Plays the scenes of the tour in order.

use std::time::Duration;

use serde_json::json;
use tenure::{Client, Error, Guard};
use tenure_wire::json::lock::Explained;
use tokio::time::Instant;

use super::Guide;
use super::members::DemoMembers;
use crate::connection_args::{ConnectedCluster, ConnectionTarget};
use crate::duration;
use crate::failure::CliError;
use crate::lock::{millis, wait};
use crate::output::{self, OutputFormat, bold};

/// Short enough for the user to watch a lease expire.
const TTL: Duration = Duration::from_secs(4);
/// The ttl of leases whose expiry the tour does not show: long enough for an election on a busy machine.
const USUAL_TTL: Duration = Duration::from_secs(15);
/// How long three processes may take to form a cluster, and the cluster to elect another leader.
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const LOCK: &str = "deploy";
const KEY: &str = "ledger";

/// Plays all scenes, one after another.
pub(super) async fn play(guide: Guide) -> Result<(), CliError> {
    guide.narrate(&bold("Tenure: distributed locks that stop one holder before the next starts"));
    guide.narrate(
        "Three members on this machine, as real as in production, thrown away at the end.",
    );
    let began = Instant::now();
    let mut members = DemoMembers::start()?;
    let ana = client(&members, "ana").await?;
    let leader = leader(&ana).await?;
    let took = began.elapsed();
    guide.narrate(&format!("3 of 3 members up after {}, {leader} leads.", duration::shown(took)));
    guide.tell(&json!({
        "event": "ready", "members": 3, "leader": leader, "took_ms": millis(took),
        "clients": members.addresses().split(',').collect::<Vec<_>>(),
    }));

    guide.scene(1, "two want the same lock").await;
    let (bob, bobs) = contention(guide, &members, &ana).await?;
    guide.scene(2, "the holder stops renewing").await;
    let anas = expiry(guide, &ana, &bob, &bobs).await?;
    guide.scene(3, "the leader crashes").await;
    crash(guide, &mut members, &ana, &anas).await?;
    guide.scene(4, "the dead come back").await;
    zombie(guide, &ana, &anas, &bob, &bobs).await?;

    anas.release().await?;
    // Bob lost this lock long ago: the answer changes nothing.
    let _ = bobs.release().await;
    guide.narrate("");
    guide.narrate(&bold("That was all of it"));
    guide.narrate("  in two terminals     tenure dev    and    tenure run deploy -- sleep 30");
    guide.narrate("  how long is safe     tenure plan --ttl 15s --rtt 5ms");
    guide.narrate("  what goes on         tenure top");
    guide.tell(&json!({ "event": "ended" }));
    Ok(())
}

/// Two clients ask for one lock: one acquires it, and the other learns who is ahead of it.
async fn contention(
    guide: Guide,
    members: &DemoMembers,
    ana: &Client,
) -> Result<(Client, Guard), CliError> {
    let anas = ana.lock(LOCK).ttl(TTL).metadata("release 5.2").await?;
    guide.typed("ana", "tenure lock deploy");
    guide.narrate(&format!("       lock `{LOCK}` acquired, token {}", anas.token()));
    guide.tell(&acquired("ana", &anas, None));
    let bob = client(members, "bob").await?;
    guide.typed("bob", "tenure lock deploy");
    let waiting = {
        let bob = bob.clone();
        tokio::spawn(async move { bob.lock(LOCK).ttl(TTL).await })
    };
    let addresses = members.addresses().split(',').map(str::to_owned).collect();
    let place = ConnectionTarget {
        addresses,
        client: None,
        timeout: TIMEOUT,
        wait_for_server: None,
        tls: None,
        credentials: None,
        insecure_credentials: false,
    };
    let cluster = ConnectedCluster::new(ana.clone(), OutputFormat::Text, place);
    let explained = loop {
        let explained = wait::explain(&cluster, LOCK, None).await?;
        if !explained.ahead.is_empty() {
            break explained;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    for line in crate::inspect::explain_text(LOCK, &explained, "ana").lines() {
        guide.narrate(&format!("       {line}"));
    }
    guide.tell(&json!({
        "event": "queued", "client": "bob", "lock": LOCK, "explained": Explained::from(explained),
    }));
    guide.narrate("ana gives it back; bob has it in the same moment, and with a larger token:");
    let began = Instant::now();
    anas.release().await?;
    let bobs = waiting.await.map_err(|error| CliError::refused(error.to_string()))??;
    let took = began.elapsed();
    guide.tell(&acquired("bob", &bobs, Some(took)));
    let took = duration::shown(took);
    guide.narrate(&format!("bob    lock `{LOCK}` acquired after {took}, token {}", bobs.token()));
    Ok((bob, bobs))
}

/// A holder without a connection stops first and loses the lock afterwards.
async fn expiry(guide: Guide, ana: &Client, bob: &Client, bobs: &Guard) -> Result<Guard, CliError> {
    guide.narrate(&format!(
        "bob's network is cut. His lease has a ttl of {}; ana waits.",
        duration::shown(TTL)
    ));
    guide.tell(&json!({ "event": "cut_off", "client": "bob", "ttl_ms": millis(TTL) }));
    bob.drop_renewals(true);
    let began = Instant::now();
    let (stopped, anas) = tokio::join!(
        async {
            let cause = bobs.lost().await;
            let stopped = Instant::now();
            guide.tell(&json!({
                "event": "lost", "client": "bob", "lock": LOCK, "cause": cause.word(),
                "after_ms": millis(stopped - began),
            }));
            let after = duration::shown(stopped - began);
            guide.narrate(&format!("bob    {after}: lost: {cause}. His work is stopped here."));
            stopped
        },
        ana.lock(LOCK).ttl(USUAL_TTL),
    );
    let anas = anas?;
    guide.tell(&acquired("ana", &anas, Some(began.elapsed())));
    guide.tell(&json!({ "event": "free", "lock": LOCK, "for_ms": millis(stopped.elapsed()) }));
    let after = duration::shown(began.elapsed());
    let margin = duration::shown(stopped.elapsed());
    guide.narrate(&format!("ana    {after}: lock `{LOCK}` acquired, token {}", anas.token()));
    guide.narrate(&format!("Between the two no client had it, for {margin}: never two at once."));
    Ok(anas)
}

/// The leader crashes, and the lock stays with its holder.
async fn crash(
    guide: Guide,
    members: &mut DemoMembers,
    ana: &Client,
    anas: &Guard,
) -> Result<(), CliError> {
    let status = ana.status_raw().await?;
    let leader = status.leader.unwrap_or_default();
    guide.narrate(&format!("kill -9 of {}, which leads, while ana holds the lock.", leader.name));
    guide.tell(&json!({ "event": "killed", "member": leader.name }));
    let began = Instant::now();
    members.kill(&leader.address);
    let next = loop {
        let status = ana.status_raw().await;
        let known = status.ok().and_then(|status| status.leader);
        match known.filter(|it| it.member_id != 0 && it.member_id != leader.member_id) {
            Some(next) => break next,
            None if began.elapsed() > TIMEOUT => {
                return Err(CliError::refused("no other member leads; try the tour again"));
            }
            None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    };
    ana.key("after-the-crash").put("written").await?;
    anas.check()?;
    guide.tell(&json!({
        "event": "leads", "member": next.name, "after_ms": millis(began.elapsed()),
    }));
    guide.tell(&json!({
        "event": "held", "client": "ana", "lock": LOCK, "token": anas.token().to_string(),
    }));
    let took = duration::shown(began.elapsed());
    guide.narrate(&format!(
        "{} leads, and the first write is durable, {took} after the crash.",
        next.name
    ));
    guide.narrate(&format!(
        "ana    still holds `{LOCK}` under token {}: she noticed nothing.",
        anas.token()
    ));
    Ok(())
}

/// The fence at the data refuses a holder that comes back with a stale token.
async fn zombie(
    guide: Guide,
    ana: &Client,
    anas: &Guard,
    bob: &Client,
    bobs: &Guard,
) -> Result<(), CliError> {
    guide.narrate(
        "No lock can stop a machine that was frozen from outside, or a write already on its way.",
    );
    guide.narrate("So every grant has a number, and the data refuses smaller ones.");
    guide.typed(
        "ana",
        &format!("tenure key put {KEY} \"paid by ana\" --lock {LOCK} --token {}", anas.token()),
    );
    let revision = ana.key(KEY).guarded_by(anas).put("paid by ana").await?;
    guide.narrate(&format!("       written at revision {revision}"));
    guide.tell(&json!({
        "event": "written", "client": "ana", "key": KEY, "token": anas.token().to_string(),
        "revision": revision.to_string(),
    }));
    guide.narrate("bob wakes up and finishes what he began, under the token of before:");
    guide.typed(
        "bob",
        &format!("tenure key put {KEY} \"paid by bob\" --lock {LOCK} --token {}", bobs.token()),
    );
    match bob.key(KEY).guarded_by(bobs).put("paid by bob").await {
        Err(Error::Refused(refusal)) => {
            guide.narrate(&format!("       refused: {refusal}"));
            guide.tell(&json!({
                "event": "refused", "client": "bob", "key": KEY,
                "token": bobs.token().to_string(), "reason": refusal.reason(),
                "message": refusal.to_string(),
            }));
        }
        Err(error) => return Err(error.into()),
        Ok(_) => return Err(CliError::refused("a stale token was let through: this is a bug")),
    }
    let kept = ana.key(KEY).get().await?.map(|it| output::bytes(&it.value)).unwrap_or_default();
    guide.narrate(&format!("The ledger says {kept:?}."));
    guide.tell(&json!({ "event": "read", "key": KEY, "value": kept }));
    Ok(())
}

async fn client(members: &DemoMembers, name: &str) -> Result<Client, CliError> {
    let builder = Client::builder().addresses(&members.addresses()).name(name);
    Ok(builder.timeout(TIMEOUT).connect().await?)
}

/// Waits until all three members are up and one leads.
async fn leader(client: &Client) -> Result<String, CliError> {
    let until = Instant::now() + TIMEOUT;
    loop {
        if let Ok(status) = client.status_raw().await {
            let up = status.members.iter().filter(|it| it.up).count();
            let leader = status.leader.filter(|it| it.member_id != 0);
            if let (3.., Some(leader)) = (up, leader) {
                return Ok(leader.name);
            }
        }
        if Instant::now() > until {
            return Err(CliError::refused(
                "the members did not find each other; try the tour again",
            ));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn acquired(client: &str, guard: &Guard, after: Option<Duration>) -> serde_json::Value {
    json!({
        "event": "acquired", "client": client, "lock": LOCK, "token": guard.token().to_string(),
        "after_ms": after.map(millis),
    })
}
