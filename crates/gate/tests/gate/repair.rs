//! Tests that an operator can repair a floor that a mistake or a liar raised, and that the repair is recorded.

use std::path::Path;
use std::time::Duration;

use tenure_fence::{LockSlot, Mode, Token};
use tenure_gate::{FloorRepair, RepairRequest, StartError, proxy, store};

use crate::calls::call;
use crate::upstream::Upstream;

/// The largest token that any cluster grants, and that any client can invent.
const LARGEST: u64 = 9_223_372_036_854_775_807;

fn ask(token: u64, reason: &str) -> RepairRequest<'_> {
    let (at, token) = (LockSlot::from("ledger"), Token::from_u64(token).unwrap());
    RepairRequest { at, token, by: "ana", reason, at_unix_ms: 7 }
}

/// Repairs, and retries while a service that was just stopped still holds its file.
fn repaired(
    data: &Path,
    repair: impl Fn(&Path, &RepairRequest<'_>) -> Result<FloorRepair, StartError>,
) -> FloorRepair {
    for _ in 0..1_000 {
        match repair(data, &ask(34, "a script sent a wrong number")) {
            Ok(repair) => return repair,
            Err(StartError::Disk { .. }) => std::thread::sleep(Duration::from_millis(10)),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the file was never let go");
}

fn check(repair: &FloorRepair, all: &[FloorRepair]) {
    assert_eq!((repair.from.as_str(), repair.to.as_str()), (LARGEST.to_string().as_str(), "34"));
    assert_eq!((repair.by.as_str(), repair.at_unix_ms), ("ana", 7));
    assert_eq!(repair.reason, "a script sent a wrong number");
    assert_eq!(all, std::slice::from_ref(repair));
}

#[test]
fn one_maximal_token_locks_a_store_until_an_operator_repairs_its_floor() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let store = crate::store::started(dir.path(), |_| ());
    let put = |to, token| call(to, "PUT", "/v1/data/page?lock=ledger", Some(token), "x").status;
    assert_eq!(put(store.address, 33), 200);
    assert_eq!(call(store.address, "PUT", "/v1/floors/ledger", Some(LARGEST), "").status, 204);
    assert_eq!(put(store.address, 34), 412, "the real holder is locked out");
    let busy = store::repair_floor(&data, &ask(34, "why")).unwrap_err();
    assert!(matches!(busy, StartError::Disk { .. }), "not while the store runs: {busy}");
    store.stop();
    let repair = repaired(&data, store::repair_floor);
    check(&repair, &store::repairs(&data).unwrap());
    let floors = store::floors(&data).unwrap();
    let lowest = floors[0].floor.lowest(Mode::Exclusive).map(Token::get);
    assert_eq!((floors.len(), floors[0].lock.as_str(), lowest), (1, "ledger", Some(34)));
    let store = crate::store::started(dir.path(), |_| ());
    assert_eq!((put(store.address, 33), put(store.address, 34)), (412, 200));
}

#[test]
fn one_maximal_token_locks_a_service_until_an_operator_repairs_the_floor_of_its_proxy() {
    let (dir, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let data = dir.path().join("fence");
    let proxy = crate::proxy::started(dir.path(), upstream.address, |_| ());
    let put = |to, token| call(to, "PUT", "/text", Some(token), "x").status;
    assert_eq!(put(proxy.address, LARGEST), 200);
    assert_eq!(put(proxy.address, 34), 412, "the real holder is locked out");
    assert!(proxy::repair_floor(&data, &ask(34, "why")).is_err(), "not while the proxy runs");
    proxy.stop();
    let repair = repaired(&data, proxy::repair_floor);
    check(&repair, &proxy::repairs(&data).unwrap());
    let floor = proxy::floor(&data, "ledger".into()).unwrap();
    assert_eq!(floor.lowest(Mode::Exclusive).map(Token::get), Some(34));
    let proxy = crate::proxy::started(dir.path(), upstream.address, |_| ());
    assert_eq!((put(proxy.address, 33), put(proxy.address, 34)), (412, 200));
}

#[test]
fn a_repair_needs_a_reason_a_valid_lock_and_a_store_that_exists() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere");
    assert!(matches!(store::repair_floor(&nowhere, &ask(1, "why")), Err(StartError::Disk { .. })));
    assert!(!nowhere.exists(), "a mistyped directory does not become a store");
    assert!(proxy::repair_floor(&nowhere, &ask(1, "why")).is_err());
    assert!(matches!(store::repair_floor(&nowhere, &ask(1, " ")), Err(StartError::Setting(_))));
    assert!(matches!(proxy::repair_floor(&nowhere, &ask(1, " ")), Err(StartError::Setting(_))));
    let unnamed = RepairRequest { at: "".into(), ..ask(1, "why") };
    assert!(matches!(store::repair_floor(&nowhere, &unnamed), Err(StartError::Setting(_))));
}
