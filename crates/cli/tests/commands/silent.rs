//! Tests that commands ask the next member when one does not answer.

use std::net::TcpListener;

use crate::stage::{at, member};

/// The lists, as a user asks for them.
const LISTS: [&[&str]; 6] = [
    &["locks"],
    &["queue", "silent/x"],
    &["lease", "list"],
    &["key", "list"],
    &["history"],
    &["cluster", "members"],
];

#[test]
fn a_list_comes_from_the_next_member_while_others_do_not_answer() {
    // They accept connections, as a member that hangs does, and never say anything.
    let silent: Vec<TcpListener> =
        (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let mut addresses: Vec<String> =
        silent.iter().map(|it| it.local_addr().unwrap().to_string()).collect();
    addresses.push(member().addr.clone());
    let addresses = addresses.join(",");
    std::thread::scope(|scope| {
        for list in LISTS {
            let arguments = [list, &["--connect-timeout", "6s"]].concat();
            let addresses = &addresses;
            scope.spawn(move || {
                let ran = at(addresses, &arguments);
                assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
            });
        }
    });
}
