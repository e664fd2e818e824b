//! Tests what happens to the command while a renewal is late.

use tenure_server::os;

use crate::common::free_port;
use crate::common::proxy::{Proxies, Road};
use crate::common::wait;
use crate::job::Role;
use crate::world::{Held, World};

/// Long enough that a renewal still arrives between doubt and loss.
const TTL: &str = "12s";

// Retry once: the renewal must arrive in the seconds between doubt and loss.
#[test]
fn frozen_while_doubtful_and_continued_when_renewed() {
    let world = World::new(1);
    let proxies = Proxies::new(&[world.cluster.members[0].clients, free_port()]);
    let through = format!("127.0.0.1:{}", proxies.port(0));
    let flags = ["--ttl", TTL, "--on-doubt", "freeze"];
    let mut held = Held::begin(&through, "doubt", &flags, Role::Family);
    proxies.know(1, held.child.id());
    held.runs(3);
    // No bytes arrive, and none are lost.
    proxies.around(1, Road::Held);
    let frozen = held.event("frozen");
    assert_eq!(frozen["processes"], 3, "all of it stands still");
    let (at_us, last_us) = (os::now_us(), held.record().last_us());
    wait("a while passes", || (os::now_us() > at_us + 100_000).then_some(()));
    assert_eq!(held.record().last_us(), last_us, "it ran although the lock was doubtful");
    proxies.heal();
    held.event("thawed");
    wait("it runs again", || (held.record().last_us() > last_us).then_some(()));
    held.signal(rustix::process::Signal::KILL);
    held.ended();
}
