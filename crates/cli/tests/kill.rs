//! Do three members lose anything when they are killed, one after another and all at once?

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Cluster, ask, field, wait};

/// What a client was told happened.
#[derive(Default)]
struct Told {
    keys: Vec<u64>,
    tokens: Vec<u64>,
}

/// Writes keys and takes locks, on whichever member leads, until told to stop.
fn load(ports: &[u16], number: u64, stop: &AtomicBool) -> Told {
    let mut told = Told::default();
    let mut at = 0;
    let lease = number + 1;
    let mut next = 0;
    while !stop.load(Ordering::Acquire) {
        next += 1;
        let key = number * 1_000_000 + next;
        let Some(put) = ask(ports[at], &format!("put load/{key} {key}")) else {
            at = (at + 1) % ports.len();
            continue;
        };
        if !put.starts_with("ok") {
            at = (at + 1) % ports.len();
            continue;
        }
        told.keys.push(key);
        let granted = ask(ports[at], &format!("lease {lease} 600000 client-{number}"));
        if !granted.is_some_and(|granted| granted.starts_with("ok")) {
            continue;
        }
        let lock = ask(ports[at], &format!("lock {lease} locks/{key} try"));
        if let Some(token) = lock.and_then(|lock| field(&lock, "token")) {
            told.tokens.push(token.parse().unwrap());
        }
    }
    told
}

#[test]
fn nothing_acknowledged_is_lost_by_kills_under_load() {
    let mut cluster = Cluster::found(3);
    let stop = Arc::new(AtomicBool::new(false));
    let ports: Vec<u16> = cluster.members.iter().map(|one| one.clients).collect();
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let (ports, stop) = (ports.clone(), stop.clone());
            std::thread::spawn(move || load(&ports, number, &stop))
        })
        .collect();

    for round in 0..6 {
        let leader = cluster.leader();
        let victim = if round % 2 == 0 { leader } else { (leader + 1) % 3 };
        cluster.ok(&format!("put round/{round} before"));
        cluster.kill(victim);
        cluster.ok(&format!("put round/{round} after"));
        cluster.start(victim, &[]);
        wait("the killed member is back", || {
            let status = cluster.ask(victim, "status")?;
            let applied: u64 = field(&status, "applied")?.parse().ok()?;
            let leading: u64 =
                field(&cluster.ask(cluster.leader(), "status")?, "applied")?.parse().ok()?;
            (applied + 1_000 > leading).then_some(())
        });
    }
    (0..3).for_each(|at| cluster.kill(at));
    (0..3).for_each(|at| cluster.start(at, &[]));
    cluster.leader();
    stop.store(true, Ordering::Release);
    let told: Vec<Told> = clients.into_iter().map(|client| client.join().unwrap()).collect();

    let keys: usize = told.iter().map(|told| told.keys.len()).sum();
    assert!(keys > 100, "{keys} keys are no load");
    for told in &told {
        assert!(told.tokens.is_sorted_by(|a, b| a < b), "tokens of one client only grow");
        for key in &told.keys {
            let answer = cluster.ok(&format!("get load/{key}"));
            assert_eq!(field(&answer, "value"), Some(key.to_string()), "key {key}: {answer}");
        }
    }
    let mut tokens: Vec<u64> = told.iter().flat_map(|told| told.tokens.clone()).collect();
    let all = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), all, "no token is given twice");
    cluster.agree(&[0, 1, 2]);
}
