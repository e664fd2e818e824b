//! Tests that the picture in the docs shows what a pause does under Redlock and under Tenure.

use crate::Guardian;
use crate::common::Cluster;
use crate::pause_over_redlock::{Places, Story, What, picture, run};
use crate::servers::Server;

/// How often the runs are tried.
const TRIES: usize = 5;

/// Both runs, repeated if the machine was too busy for A to keep its lock until it pauses.
fn stories(places: &Places) -> [Story; 2] {
    for _ in 0..TRIES {
        match run(places) {
            Err(why) if why.to_string().contains("this machine is too slow") => eprintln!("{why}"),
            told => return told.unwrap(),
        }
    }
    panic!("the machine was too slow {TRIES} times")
}

/// The texts of a picture, without positions and times.
fn words(picture: &str) -> Vec<String> {
    let texts =
        picture.lines().filter(|line| line.starts_with("<text") || line.starts_with("<title"));
    let texts = texts.filter_map(|line| line.split(['<', '>']).nth(2));
    let texts = texts.filter(|text| !text.ends_with(" s"));
    texts.map(|text| text.replace(|it: char| it.is_ascii_digit(), "")).collect()
}

#[test]
fn a_pause_corrupts_under_redlock_and_is_refused_under_tenure() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut redis = Vec::new();
    for _ in 0..3 {
        let Some(server) = runtime.block_on(Server::redis()) else { return };
        redis.push(server);
    }
    let (dir, cluster) = (tempfile::tempdir().unwrap(), Cluster::found(1));
    let store = Guardian::store(dir.path());
    let [redlock, tenure] = stories(&Places {
        redis: redis.iter().map(|server| server.address.clone()).collect(),
        tenure: cluster.address(0).to_string(),
        store: store.address.to_string(),
    });
    for (story, left, late) in
        [(&redlock, "A's work", What::Accepted), (&tenure, "B's work", What::Refused)]
    {
        let told: Vec<_> = story.events.iter().map(|event| (event.who, event.what)).collect();
        let expected = [
            ("A", told[0].1),
            ("A", What::Pauses),
            ("B", told[2].1),
            ("B", What::Accepted),
            ("A", What::Wakes),
            ("A", late),
        ];
        assert_eq!((&told[..], story.left.as_str()), (&expected[..], left), "{}", story.title);
        assert!(story.events.is_sorted_by_key(|event| event.at));
        match (told[0].1, told[2].1, late) {
            (What::Takes(None), What::Takes(None), What::Accepted) => {}
            (What::Takes(Some(a)), What::Takes(Some(b)), What::Refused) => assert!(a < b),
            other => panic!("{}: {other:?}", story.title),
        }
    }
    let drawn = picture(&[redlock, tenure]);
    let kept = include_str!("../../../../docs/pause.svg");
    assert_eq!(words(&drawn), words(kept), "docs/pause.svg is not what the example draws");
}
