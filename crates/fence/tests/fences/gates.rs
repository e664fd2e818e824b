//! Runs the scenario against the store, the proxy and the cluster's own keys, which refuse stale tokens too.

use std::net::SocketAddr;

use tenure_fence::Token;
use tenure_gate::{proxy, store};

use crate::calls::{Answer, Connection};
use crate::scenario::Resource;
use crate::upstream::Upstream;

/// A store with one key.
struct Stored(SocketAddr);

/// A proxy in front of a service that ignores tokens.
struct Guarded {
    proxy: SocketAddr,
    upstream: Upstream,
}

/// A key of the cluster's own store, written under lock and token.
struct Key(SocketAddr);

fn send(to: SocketAddr, verb: &str, path: &str, token: Option<Token>, body: &str) -> Answer {
    let token = token.map(|token| token.to_string());
    let headers: Vec<(&str, &str)> =
        token.iter().map(|token| ("fencing-token", token.as_str())).collect();
    Connection::open(to).unwrap().call(verb, path, &headers, body.as_bytes()).unwrap()
}

fn accepted(said: &Answer) -> bool {
    assert!([200, 412].contains(&said.status), "{said:?}");
    said.status == 200
}

fn escaped(lock: &str) -> String {
    lock.replace(' ', "%20")
}

impl Resource for Stored {
    fn write(&self, lock: &str, token: Token, value: &str) -> bool {
        let path = format!("/v1/data/value?lock={}", escaped(lock));
        accepted(&send(self.0, "PUT", &path, Some(token), value))
    }

    fn read(&self) -> Option<String> {
        Some(send(self.0, "GET", "/v1/data/value", None, "").text().to_owned())
    }

    /// The store has no unfenced write, so this presents the current floor as its token, as any client could.
    fn write_unfenced(&self, value: &str) {
        let floor = send(self.0, "GET", "/v1/floors/A%20store", None, "");
        let floor = floor.header("fencing-floor").unwrap().parse().ok().and_then(Token::from_u64);
        assert!(self.write("A store", floor.unwrap(), value));
    }
}

impl Resource for Guarded {
    fn write(&self, _: &str, token: Token, value: &str) -> bool {
        accepted(&send(self.proxy, "PUT", "/text", Some(token), value))
    }

    fn read(&self) -> Option<String> {
        Some(self.upstream.text())
    }

    fn write_unfenced(&self, value: &str) {
        assert!(accepted(&send(self.upstream.address, "PUT", "/text", None, value)));
    }
}

impl Resource for Key {
    fn write(&self, lock: &str, token: Token, value: &str) -> bool {
        let path = format!("/v1/keys/value?lock={}&token={token}", escaped(lock));
        accepted(&send(self.0, "PUT", &path, None, value))
    }

    fn read(&self) -> Option<String> {
        Some(send(self.0, "GET", "/v1/keys/value", None, "").text().to_owned())
    }

    fn write_unfenced(&self, value: &str) {
        assert!(accepted(&send(self.0, "PUT", "/v1/keys/value", None, value)));
    }

    fn forgets(&self) -> bool {
        true
    }
}

pub(crate) fn store(play: &dyn Fn(&dyn Resource)) {
    let dir = tempfile::tempdir().unwrap();
    let settings = store::Settings::new(dir.path().join("data"));
    let running = store::start(store::Settings { listen: ([127, 0, 0, 1], 0).into(), ..settings });
    let running = running.unwrap();
    play(&Stored(running.address));
    running.stop();
}

pub(crate) fn proxy(play: &dyn Fn(&dyn Resource)) {
    let (dir, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let url = format!("http://{}", upstream.address);
    let settings = proxy::Settings::new(url, "A proxy", dir.path().join("data"));
    let running = proxy::start(proxy::Settings { listen: ([127, 0, 0, 1], 0).into(), ..settings });
    let running = running.unwrap();
    play(&Guarded { proxy: running.address, upstream });
    running.stop();
}

pub(crate) fn keys(member: SocketAddr, play: &dyn Fn(&dyn Resource)) {
    play(&Key(member));
}
