//! Tests that a member that is killed while it writes its event archive loses nothing that a reader has seen in it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tenure_server::os;

use crate::common::http::{Call, Connection};
use crate::common::load::Load;
use crate::common::{Cluster, kills, tenure, wait};

/// The revisions that the cluster itself keeps: so few that a reader gets almost everything from the archive.
const KEPT: u64 = 50;
const TIMEOUT: Duration = Duration::from_secs(10);

fn call(to: SocketAddr, verb: &'static str, path: &str, body: Option<String>) -> Option<Value> {
    let body = body.map(|body| ("application/json", body));
    let call = Call { verb, path: path.to_owned(), key: None, body };
    let answer = Connection::open(to, None, TIMEOUT).ok()?.call(&call).ok()?;
    (answer.status == 200).then(|| serde_json::from_slice(&answer.body).unwrap())
}

fn number(value: &Value) -> u64 {
    value.as_str().unwrap().parse().unwrap()
}

/// Everything that the member answers about the locks of the load. None if it does not answer.
struct Answer {
    /// The revisions that came from the archive, because the cluster itself no longer had them.
    archived: BTreeSet<u64>,
    all: Vec<u64>,
}

fn read(to: SocketAddr) -> Option<Answer> {
    let (mut all, mut before) = (Vec::new(), String::new());
    let mut floor = None;
    loop {
        let path =
            format!("/v1/locks/shared/?view=history&archive=true&prefix=true&limit=1000{before}");
        let page = call(to, "GET", &path, None)?;
        // The first page has the oldest floor. Revisions below it came from the archive, on every page.
        floor.get_or_insert_with(|| number(&page["floor"]));
        let changes = page["changes"].as_array().unwrap();
        all.extend(changes.iter().map(|it| number(&it["revision"])));
        let Some(next) = page["before"].as_str() else { break };
        before = format!("&before={next}");
    }
    let floor = floor.unwrap_or_default();
    Some(Answer { archived: all.iter().copied().filter(|it| *it < floor).collect(), all })
}

#[test]
fn a_member_killed_while_it_writes_its_archive_loses_nothing_that_a_reader_has_seen() {
    let kills = kills(4);
    let mut cluster = Cluster::found(1);
    let to = cluster.address(0);
    let limits = format!(r#"{{"limits":[{{"limit":"history_revisions","value":{KEPT}}}]}}"#);
    wait("the limit is set", || call(to, "PATCH", "/v1/limits", Some(limits.clone())));
    let load = Load::begin(&cluster.addresses(), 4);
    let seen: Mutex<BTreeSet<u64>> = Mutex::default();
    for kill in 0..kills {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    seen.lock().unwrap().extend(read(to).into_iter().flat_map(|it| it.archived));
                }
            });
            let before = seen.lock().unwrap().len();
            load.goes_on(50);
            wait("a reader sees more of the archive", || {
                (seen.lock().unwrap().len() > before).then_some(())
            });
            // At any moment of the half second between two writes.
            load.goes_on(os::random() % 60);
            cluster.kill(0);
            over.store(true, Ordering::Release);
        });
        cluster.start(0, &[]);
        let found = wait("the member answers again", || read(to));
        let all: BTreeSet<u64> = found.all.iter().copied().collect();
        assert_eq!(all.len(), found.all.len(), "no revision comes twice");
        let lost: Vec<u64> = seen.lock().unwrap().difference(&all).copied().collect();
        assert!(lost.is_empty(), "after kill {kill}: {lost:?}");
    }
    load.judge(&cluster, &[0]);
    let archived = seen.lock().unwrap().len();
    cluster.kill(0);
    let data = cluster.data(0);
    let checked = tenure(&["history", "--verify", data.to_str().unwrap()]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.out, checked.err);
    println!("archive kills={kills} seen={archived} lost=0");
}
