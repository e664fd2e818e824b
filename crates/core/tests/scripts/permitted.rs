//! Tests that queries of a principal tell it what it may see, and nothing else.

use tenure_core::request::{Hold, LeaseRef};
use tenure_core::{Explanation, Machine};
use tenure_types::{LeaseId, Refusal, Token, Verb};

use crate::script::play;

/// Ana works below `a/` and Bob below `b/`. Joe works below both. Una works below `a/` and reads nothing. Rob reads
/// all.
/// The lease Z is from before there were principals.
const TEAMS: &str = "
         0s  level 3                                             raised
         0s  role a acquire,read@a/                              done
         0s  role b acquire,read@b/                              done
         0s  role blind acquire@a/                               done
         0s  role reader read@                                   done
         0s  principal ana a                                     done
         0s  principal bob b                                     done
         0s  principal joe b a                                   done
         0s  principal una blind                                 done
         0s  principal rob reader                                done
         0s  Z lease 60s                                         granted
         0s  Z lock a/z                                          held token=1
         0s  identity on                                         done
         0s  A lease 60s as=ana                                  granted
         0s  A lock a/1 as=ana                                   held token=2
         0s  A lock a/2 as=ana                                   held token=3
         0s  B lease 60s as=bob                                  granted
         0s  B lock b/1 as=bob                                   held token=4
         0s  J lease 60s as=joe                                  granted
         0s  J lock a/3 as=joe                                   held token=5
         0s  J lock b/1 as=joe                                   queued ahead=0
         0s  U lease 60s as=una                                  granted
         0s  U lock a/3 as=una                                   queued ahead=0
";

fn lease_of(machine: &Machine, client: &str) -> LeaseId {
    let all = machine.leases(None, 100);
    all.iter().find(|lease| lease.client.as_str() == client).expect("it is there").id
}

#[test]
fn lists_have_the_names_that_may_be_read() {
    let machine = play(TEAMS).machine;
    let names = |who: &str, prefix: &str, after: Option<&str>, max: usize| -> Vec<String> {
        let sorted = machine.sorted_locks(usize::MAX).unwrap();
        let locks = sorted.locks_seen_by(who, prefix, after, max);
        locks.iter().map(|lock| lock.lock.as_str().to_owned()).collect()
    };
    assert_eq!(names("ana", "", None, 9), ["a/1", "a/2", "a/3", "a/z"]);
    assert_eq!(names("joe", "", None, 9), ["a/1", "a/2", "a/3", "a/z", "b/1"]);
    assert_eq!(names("joe", "", Some("a/3"), 9), ["a/z", "b/1"]);
    assert_eq!(names("joe", "", Some("a/z"), 1), ["b/1"]);
    assert_eq!(names("rob", "b", None, 9), ["b/1"]);
    for stranger in ["una", "eve", ""] {
        assert_eq!(names(stranger, "", None, 9), [""; 0]);
    }
}

#[test]
fn leases_are_seen_by_their_owners_and_readers_of_everything() {
    let machine = play(TEAMS).machine;
    let (a, z) = (lease_of(&machine, "A"), lease_of(&machine, "Z"));
    let sees = |who: &str, id| machine.sees_lease(who, LeaseRef::Id(id));
    assert!(sees("ana", a) && sees("rob", a) && !sees("bob", a) && !sees("eve", a));
    let owns = |who: &str, id| machine.owns_lease(who, LeaseRef::Id(id));
    assert!(owns("ana", a) && !owns("rob", a) && !owns("ana", z) && !owns("", z));
    let view = |who: &str, id| machine.lease_seen_by(who, LeaseRef::Id(id));
    assert_eq!(view("ana", a).map(|view| view.holds.len()), Some(2));
    assert_eq!(view("bob", a), None);
    // A lease without an owner is everyone's, but the names of its locks are not.
    assert_eq!(view("ana", z).map(|view| view.holds.len()), Some(1));
    assert_eq!(view("bob", z).map(|view| view.holds.len()), Some(0));
    assert_eq!(machine.own_leases("ana", None, 9), [a]);
    assert_eq!(machine.own_leases("ana", Some(a), 9), []);
    assert_eq!(machine.own_leases("eve", None, 9), []);
}

#[test]
fn an_explanation_ends_where_the_reader_may_not_look() {
    let machine = play(TEAMS).machine;
    let una = Some(LeaseRef::Id(lease_of(&machine, "U")));
    let joe = Some(LeaseRef::Id(lease_of(&machine, "J")));
    // Joe holds a/3 and waits for b/1: a chain of two steps, of which Ana may see one.
    let whole = |who: &str, lease| match machine.explain_to(who, lease, "a/3", 9) {
        Ok(Some(Explanation::Whole(it))) => it,
        other => panic!("{other:?}"),
    };
    let seen = whole("ana", None);
    assert_eq!((seen.chain.steps.len(), seen.chain.goes_on, seen.ahead.len()), (1, true, 1));
    let seen = whole("rob", None);
    assert_eq!((seen.chain.steps.len(), seen.chain.goes_on), (2, false));
    // The lease of another is no point of view.
    assert_eq!(whole("ana", una).own, None);
    match machine.explain_to("una", una, "a/3", 9) {
        Ok(Some(Explanation::Own { lock, holders, own, .. })) => {
            assert_eq!((lock.as_str(), holders.len()), ("a/3", 0));
            assert_eq!(own.map(|own| (own.ahead, own.behind)), Some((0, None)));
        }
        other => panic!("{other:?}"),
    }
    for (lease, lock) in [(None, "a/3"), (joe, "a/3"), (una, "a/1"), (una, "b/1"), (una, "a/no")] {
        assert_eq!(machine.explain_to("una", lease, lock, 9), Err(Verb::Read), "{lock}");
    }
}

#[test]
fn a_grant_is_confirmed_to_its_principal_whoever_ran_the_last_command() {
    let machine = play(TEAMS).machine;
    let lease = LeaseRef::Id(lease_of(&machine, "A"));
    let token = Token::from_u64(machine.lock("a/1").unwrap().holders[0].token.get()).unwrap();
    let hold = Hold { lease, lock: "a/1", token };
    assert!(machine.holding_of("ana", &hold).is_ok());
    assert!(machine.holding(&hold).is_ok());
    for other in ["bob", "rob", "una", ""] {
        assert_eq!(machine.holding_of(other, &hold), Err(Refusal::LeaseNotFound), "{other}");
    }
}
