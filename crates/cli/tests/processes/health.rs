//! Tests that `cluster status` and `doctor` say which members are hung, dead or cut off, and exit accordingly.

use serde_json::Value;

use crate::common::proxy::Road;
use crate::common::{Cluster, Ended, tenure, wait};

/// Runs a command with the addresses of all members.
fn all(cluster: &Cluster, arguments: &[&str]) -> Ended {
    let addresses: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
    tenure(&[arguments, &["--addr", &addresses.join(",")]].concat())
}

/// Waits until `cluster status` finds nothing wrong, and checks that `doctor` agrees.
fn wait_for_health(cluster: &Cluster) {
    wait("the cluster is healthy", || {
        let status = all(cluster, &["cluster", "status"]);
        let healthy = status.code == Some(0);
        assert_eq!(healthy, !status.out.contains("wrong  "), "{}", status.out);
        (healthy && status.out.contains("3 of 3 members up, survives 1 failure")).then_some(())
    });
}

/// Waits until `cluster status` exits with 1 and its text contains all of these.
fn wait_for_words(cluster: &Cluster, words: &[&str]) -> String {
    let mut last = String::new();
    wait(&format!("the status says {words:?}"), || {
        let status = all(cluster, &["cluster", "status"]);
        last.clone_from(&status.out);
        let said = words.iter().all(|word| status.out.contains(word));
        (said && status.code == Some(1)).then_some(())
    });
    last
}

/// The problem that `cluster status --output json` names for each of the members.
fn problems(cluster: &Cluster) -> Vec<(String, String)> {
    let status = all(cluster, &["cluster", "status", "--output", "json"]);
    let status: Value = serde_json::from_str(&status.out).unwrap();
    assert_eq!(status["healthy"], false, "{status}");
    let word = |value: &Value| value.as_str().map(str::to_owned);
    let problems = status["problems"].as_array().unwrap().iter();
    problems.filter_map(|it| Some((word(&it["member"])?, word(&it["problem"])?))).collect()
}

#[test]
fn members_that_are_stopped_are_hung_and_not_up() {
    let cluster = Cluster::found(3);
    wait_for_health(&cluster);
    let leader = cluster.leader();
    let stopped = [(leader + 1) % 3, (leader + 2) % 3];
    let signal = |signal: &str| {
        for at in stopped {
            cluster.members[at].process.as_ref().unwrap().signal(signal);
        }
    };
    signal("-STOP");
    let [one, other] = stopped.map(|at| format!("m{at} is hung: it accepts connections at "));
    wait_for_words(&cluster, &["1 of 3 members up, no majority", &one, &other]);
    let mut found = problems(&cluster);
    found.sort();
    let mut wanted = stopped.map(|at| (format!("m{at}"), "hung".to_owned()));
    wanted.sort();
    assert_eq!(found, wanted);
    let doctor = all(&cluster, &["doctor"]);
    assert_eq!(doctor.code, Some(1), "{}", doctor.out);
    assert!(doctor.out.contains(&one) && doctor.out.contains("no majority"), "{}", doctor.out);
    signal("-CONT");
    wait_for_health(&cluster);
}

#[test]
fn one_stopped_member_of_three_is_hung() {
    let cluster = Cluster::found(3);
    wait_for_health(&cluster);
    let at = (cluster.leader() + 1) % 3;
    cluster.members[at].process.as_ref().unwrap().signal("-STOP");
    let says = format!("m{at} is hung");
    let status = wait_for_words(&cluster, &["2 of 3 members up, survives 0 more", &says]);
    let says = format!(" cluster remove m{at}");
    assert!(status.contains("or replace it: tenure --addr ") && status.contains(&says), "{status}");
    cluster.members[at].process.as_ref().unwrap().signal("-CONT");
    wait_for_health(&cluster);
}

#[test]
fn a_killed_member_is_dead() {
    let mut cluster = Cluster::found(3);
    wait_for_health(&cluster);
    let at = (cluster.leader() + 1) % 3;
    cluster.kill(at);
    let says = format!("m{at} is down: nothing listens at ");
    wait_for_words(&cluster, &["2 of 3 members up, survives 0 more", &says, " dead\n"]);
    assert_eq!(problems(&cluster), [(format!("m{at}"), "dead".to_owned())]);
    let doctor = all(&cluster, &["doctor"]);
    assert!(doctor.code == Some(1) && doctor.out.contains(&says), "{}", doctor.out);
    cluster.start(at, &[]);
    wait_for_health(&cluster);
}

#[test]
fn a_member_behind_a_partition_is_cut_off_also_if_it_is_the_one_that_answers() {
    let cluster = Cluster::found_behind_proxies();
    wait_for_health(&cluster);
    let at = (cluster.leader() + 1) % 3;
    // Its connections stay open: only silence shows that nothing arrives.
    cluster.proxies.as_ref().unwrap().around(at, Road::Hole);
    let says = format!("m{at} is cut off: it answers at ");
    wait_for_words(&cluster, &["2 of 3 members up, survives 0 more", &says]);
    // Another member that has just started may have no leader yet, and then the cut one names that member first.
    wait("the member that is cut off says so itself", || {
        let own = tenure(&["cluster", "status", "--addr", &cluster.address(at).to_string()]);
        (own.code == Some(1) && own.out.contains(&says)).then_some(())
    });
    wait("the doctor says so", || {
        let doctor = all(&cluster, &["doctor"]);
        (doctor.code == Some(1) && doctor.out.contains(&says)).then_some(())
    });
    cluster.proxies.as_ref().unwrap().heal();
    wait_for_health(&cluster);
}
