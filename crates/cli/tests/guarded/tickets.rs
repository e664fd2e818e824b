//! Tests that a store and a proxy that require tickets accept every issued ticket and nothing else.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::{Client, Guard};
use tenure_server::tls::DialTrust;
use tokio::runtime::Runtime;

use crate::Guardian;
use crate::authority::Authority;
use crate::calls::{Answer, Connection};
use crate::common::{Cluster, tenure, wait};
use crate::upstream::Upstream;

/// Far longer than any test of this file takes.
const TTL: Duration = Duration::from_secs(120);

/// Acquires locks of a cluster and asks its members for tickets.
struct Holder<'a> {
    cluster: &'a Cluster,
    runtime: Runtime,
    client: Client,
}

impl<'a> Holder<'a> {
    fn new(cluster: &'a Cluster, name: &str) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let addresses: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
        let connect = Client::builder().addresses(&addresses.join(",")).name(name).connect();
        let client = runtime.block_on(connect).unwrap();
        Self { cluster, runtime, client }
    }

    fn take(&self, lock: &str) -> Guard {
        self.runtime.block_on(async { self.client.lock(lock).ttl(TTL).await }).unwrap()
    }

    fn give_back(&self, guard: Guard) {
        self.runtime.block_on(guard.release()).unwrap();
    }

    /// A ticket that a certain member signed.
    fn ticket(&self, at: usize, guard: &Guard) -> String {
        let lock = &guard.locks().next().unwrap().name;
        let ask = json!({
            "lock": lock, "lease": guard.lease().get().to_string(), "token": guard.token().to_string(),
        });
        let kind = [("content-type", "application/json")];
        let signed = Connection::open(self.cluster.address(at))
            .unwrap()
            .call("POST", "/v1/tickets", &kind, ask.to_string().as_bytes())
            .unwrap();
        assert_eq!(signed.status, 200, "{signed:?}");
        let signed: Value = serde_json::from_slice(&signed.body).unwrap();
        signed["ticket"].as_str().unwrap().to_owned()
    }
}

/// Sends a request with this text as its token.
fn send(to: SocketAddr, verb: &str, path: &str, token: Option<&str>, body: &str) -> Answer {
    let headers: Vec<(&str, &str)> = token.iter().map(|token| ("fencing-token", *token)).collect();
    Connection::open(to).unwrap().call(verb, path, &headers, body.as_bytes()).unwrap()
}

/// Sends `POST /write` with a ticket in the place of the number.
fn write(to: SocketAddr, client: &str, lock: &str, value: &str) -> Answer {
    let body =
        json!({"clientID": client, "fencingToken": {"key": lock, "value": value}, "data": client});
    let kind = [("content-type", "application/json")];
    Connection::open(to)
        .unwrap()
        .call("POST", "/write", &kind, body.to_string().as_bytes())
        .unwrap()
}

/// Two copies of the ticket: one with a changed character in its claims, one with a changed character in its signature.
fn altered(ticket: &str) -> [String; 2] {
    let parts: Vec<&str> = ticket.split('.').collect();
    let [header, claims, signature] = parts[..] else { panic!("{ticket}") };
    let other = |text: &str| {
        let first = if text.starts_with('A') { 'B' } else { 'A' };
        format!("{first}{}", &text[1..])
    };
    // The claims begin with `{"iss":"…`. The change replaces the quote before the colon, so they are no longer JSON.
    let token = claims.replacen("eyJpc3MiOi", "eyJpc3NiOi", 1);
    [format!("{header}.{token}.{signature}"), format!("{header}.{claims}.{}", other(signature))]
}

/// The address from which keys are read: the first member's.
fn keys_of(cluster: &Cluster) -> String {
    format!("http://{}", cluster.address(0))
}

#[test]
fn a_store_that_demands_tickets_believes_nothing_else() {
    let (dir, mut cluster) = (tempfile::tempdir().unwrap(), Cluster::found(3));
    let keys = keys_of(&cluster);
    let mut store = Guardian::store_with(dir.path(), &["--require-ticket", "--keys", &keys]);
    let to = store.address;
    let put = |token: Option<&str>| send(to, "PUT", "/v1/data/page?lock=wiki", token, "text");
    let (holder, stranger) = (Holder::new(&cluster, "ana"), Cluster::found(1));
    let guard = holder.take("wiki");
    // Any member may sign, also with a key that the store does not know yet.
    let tickets = [0, 1, 2].map(|at| holder.ticket(at, &guard));
    for ticket in &tickets {
        assert_eq!(put(Some(ticket)).status, 200);
    }
    let good = &tickets[0];
    let other = holder.take("other");
    let other_lock = holder.ticket(0, &other);
    let other_cluster = {
        let theirs = Holder::new(&stranger, "ana");
        let guard = theirs.take("wiki");
        theirs.ticket(0, &guard)
    };
    let [claims, signature] = altered(good);
    let unsigned = format!("{}.", good.rsplit_once('.').unwrap().0);
    for (text, why) in [
        ("7", "NOT_A_TICKET"),
        (&i64::MAX.to_string(), "NOT_A_TICKET"),
        (&claims, "NOT_A_TICKET"),
        (&signature, "TICKET_SIGNATURE"),
        (&unsigned, "TICKET_UNSIGNED"),
        (&other_lock, "TICKET_OTHER_LOCK"),
        (&other_cluster, "TICKET_OTHER_CLUSTER"),
    ] {
        let said = put(Some(text));
        assert_eq!(said.refusal(), (403, "FORGED_TOKEN"), "{why}: {said:?}");
        assert_eq!(said.header("tenure-ticket"), Some(why), "{said:?}");
        assert!(said.text().contains(&format!("\"ticket\":\"{why}\"")), "{said:?}");
        for verb in ["POST", "DELETE", "GET"] {
            let said = send(to, verb, "/v1/data/page?lock=wiki", Some(text), "");
            assert_eq!(said.status, 403, "{verb}: {said:?}");
        }
        let raised = send(to, "PUT", "/v1/floors/wiki", Some(text), "");
        assert_eq!(raised.status, 403, "{raised:?}");
    }
    assert_eq!(put(None).refusal(), (428, "TOKEN_REQUIRED"));
    // The simple write API: the client must be the holder.
    let book = holder.take("book");
    let ticket = holder.ticket(1, &book);
    assert_eq!(write(to, "ana", "book", &ticket).text(), r#"{"success":true}"#);
    for (client, value, why) in [
        ("ben", ticket.as_str(), "TICKET_OTHER_HOLDER"),
        ("ana", good, "TICKET_OTHER_LOCK"),
        ("ana", "9", "NOT_A_TICKET"),
    ] {
        let said = write(to, client, "book", value);
        assert_eq!((said.status, said.text()), (403, r#"{"success":false}"#));
        assert_eq!(said.header("tenure-ticket"), Some(why));
    }
    // A ticket does not replace the fence.
    holder.give_back(guard);
    let guard = holder.take("wiki");
    let newer = holder.ticket(2, &guard);
    assert_eq!(put(Some(&newer)).status, 200);
    assert_eq!(put(Some(good)).refusal(), (412, "STALE_TOKEN"));
    drop((guard, other, book));
    drop(holder);
    keys_are_rotated_and_kept(&mut cluster, &mut store, dir.path());
}

/// Tickets of a key that was rotated out are refused, and the store restarts while no member runs.
fn keys_are_rotated_and_kept(cluster: &mut Cluster, store: &mut Guardian, dir: &std::path::Path) {
    let to = store.address;
    let put = |token: &str| send(to, "PUT", "/v1/data/log?lock=log", Some(token), "text");
    let address = cluster.address(1).to_string();
    let (old, new) = {
        let holder = Holder::new(cluster, "ana");
        let guard = holder.take("log");
        let old = holder.ticket(1, &guard);
        assert_eq!(put(&old).status, 200);
        let words = ["cluster", "keys", "rotate", "m1", "--overlap", "0", "--addr", &address];
        let rotated = tenure(&words);
        assert_eq!(rotated.code, Some(0), "{}", rotated.err);
        (old, holder.ticket(1, &guard))
    };
    // The store does not know the new key yet, so it fetches a newer key set, which no longer contains the old key.
    assert_eq!(put(&new).status, 200);
    assert_eq!(put(&old).header("tenure-ticket"), Some("TICKET_KEY_RETIRED"));
    (0..3).for_each(|at| cluster.kill(at));
    store.kill();
    assert!(dir.join("store/keys.json").exists());
    store.again();
    assert_eq!(put(&new).status, 200);
    assert_eq!(put(&old).status, 403);
    let said = store.process.as_ref().unwrap().words();
    assert!(
        said.contains("signed tickets only") && said.contains("warning: no newer keys"),
        "{said}"
    );
}

#[test]
fn a_proxy_that_requires_tickets_rejects_requests_without_one() {
    let (dir, upstream) = (tempfile::tempdir().unwrap(), Upstream::start());
    let cluster = Cluster::found(1);
    let holder = Holder::new(&cluster, "ana");
    let set = dir.path().join("set.json");
    let fetch = || {
        let set = send(cluster.address(0), "GET", "/.well-known/jwks.json", None, "");
        assert_eq!(set.status, 200);
        set.body
    };
    std::fs::write(&set, fetch()).unwrap();
    let place = set.to_str().unwrap();
    let proxy =
        Guardian::proxy_with(dir.path(), upstream.address, &["--require-ticket", "--keys", place]);
    let put = |token: Option<&str>, body: &str| send(proxy.address, "PUT", "/text", token, body);
    let (guard, other) = (holder.take("l"), holder.take("other"));
    let ticket = holder.ticket(0, &guard);
    assert_eq!(put(Some(&ticket), "a").status, 200);
    let [_, forged] = altered(&ticket);
    for (text, why) in [
        (guard.token().to_string().as_str(), "NOT_A_TICKET"),
        (&forged, "TICKET_SIGNATURE"),
        (&holder.ticket(0, &other), "TICKET_OTHER_LOCK"),
    ] {
        let said = put(Some(text), "forged");
        assert_eq!(said.status, 403, "{said:?}");
        assert!(said.text().contains("FORGED_TOKEN") && said.text().contains(why), "{said:?}");
    }
    assert_eq!(put(None, "nothing").status, 428);
    holder.give_back(guard);
    let guard = holder.take("l");
    let newer = holder.ticket(0, &guard);
    assert_eq!(put(Some(&newer), "b").status, 200);
    assert_eq!(put(Some(&ticket), "late").status, 412);
    assert_eq!(upstream.text(), "b");
    // The operator of the file updates it with newer keys: the proxy reads them when a ticket needs them.
    let address = cluster.address(0).to_string();
    let rotated = tenure(&["cluster", "keys", "rotate", "m0", "--addr", &address]);
    assert_eq!(rotated.code, Some(0), "{}", rotated.err);
    let rotated = holder.ticket(0, &guard);
    assert_eq!(put(Some(&rotated), "too early").status, 403);
    std::fs::write(&set, fetch()).unwrap();
    wait("the file is read again", || (put(Some(&rotated), "c").status == 200).then_some(()));
    assert_eq!(upstream.text(), "c");
}

#[test]
fn after_a_restore_no_ticket_of_before_is_believed() {
    let (dir, upstream, mut cluster) =
        (tempfile::tempdir().unwrap(), Upstream::start(), Cluster::found(1));
    let (set, backup) = (dir.path().join("set.json"), dir.path().join("backup"));
    let fetch = |cluster: &Cluster| {
        let said = send(cluster.address(0), "GET", "/.well-known/jwks.json", None, "");
        assert_eq!(said.status, 200, "{said:?}");
        std::fs::write(&set, said.body).unwrap();
    };
    fetch(&cluster);
    let demand = ["--require-ticket", "--keys", set.to_str().unwrap()];
    let store = Guardian::store_with(dir.path(), &demand);
    let proxy = Guardian::proxy_with(dir.path(), upstream.address, &demand);
    let put = |ticket: &str| {
        let stored = send(store.address, "PUT", "/v1/data/a?lock=l", Some(ticket), "x");
        (stored, send(proxy.address, "PUT", "/text", Some(ticket), "x"))
    };
    let old = {
        let holder = Holder::new(&cluster, "ana");
        let guard = holder.take("l");
        let ticket = holder.ticket(0, &guard);
        holder.give_back(guard);
        ticket
    };
    let (stored, passed) = put(&old);
    assert_eq!((stored.status, passed.status), (200, 200), "{stored:?} {passed:?}");
    let (file, address) = (backup.to_str().unwrap(), cluster.address(0).to_string());
    let ended = tenure(&["backup", file, "--addr", &address]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    cluster.kill(0);
    let mut restored = Cluster::new();
    restored.add();
    let data = restored.data(0);
    let ended = tenure(&["restore", file, "--data", data.to_str().unwrap(), "--waive-quiet"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    restored.start(0, &[]);
    restored.leader();
    let holder = Holder::new(&restored, "ana");
    let guard = holder.take("l");
    let newer = holder.ticket(0, &guard);
    // With only the older keys, the store refuses a ticket of the newer epoch. With the newer keys, it refuses older
    // tickets.
    assert_eq!(put(&newer).0.header("tenure-ticket"), Some("TICKET_NEWER_EPOCH"));
    fetch(&restored);
    wait("newer keys are read", || {
        let (stored, passed) = put(&newer);
        (stored.status == 200 && passed.status == 200).then_some(())
    });
    let (stored, passed) = put(&old);
    assert_eq!(stored.header("tenure-ticket"), Some("TICKET_OLD_EPOCH"), "{stored:?}");
    assert_eq!(passed.status, 403);
    assert!(passed.text().contains("TICKET_OLD_EPOCH"), "{passed:?}");
    holder.give_back(guard);
}

/// A member that speaks TLS and requires a certificate of the second authority from every client.
fn secured(authority: &Authority, clients: &Authority, mut cluster: Cluster) -> Cluster {
    let me = clients.sign("operator").trusting(authority);
    cluster.trust = Some(DialTrust::load(&me.ca, Some((&me.cert, &me.key))).unwrap());
    cluster.add();
    let (name, port) = (cluster.members[0].name.clone(), cluster.members[0].members);
    let cert_files = authority.sign(&name);
    let mut flags = cert_files.flags();
    let listed = format!("{name}=127.0.0.1:{port}");
    flags.extend(["--tls-client-ca".to_owned(), clients.ca(), "--bootstrap".to_owned(), listed]);
    cluster.start(0, &flags.iter().map(String::as_str).collect::<Vec<_>>());
    cluster.leader();
    cluster
}

#[test]
fn keys_are_read_under_tls_from_members_that_are_believed() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, other) =
        (Authority::new(dir.path(), "ours"), Authority::new(dir.path(), "other"));
    let clients = Authority::new(dir.path(), "clients");
    let cluster = secured(&authority, &clients, Cluster::new());
    let keys = format!("https://{}", cluster.address(0));
    let (me, stranger) = (clients.sign("store").trusting(&authority), other.sign("store"));
    let text = |path: &std::path::PathBuf| path.to_str().unwrap().to_owned();
    let (ca, cert, key) = (text(&me.ca), text(&me.cert), text(&me.key));
    let demand = ["--require-ticket", "--keys", &keys, "--tls-ca"];
    let full = [&demand[..], &[&ca, "--tls-cert", &cert, "--tls-key", &key]].concat();
    // A store that trusts another authority, or shows no certificate, gets no keys.
    let data = text(&dir.path().join("refused"));
    let start = |more: &[&str]| {
        let plain = ["store", "--data", &data, "--listen", "127.0.0.1:0"];
        tenure(&[&plain[..], more].concat())
    };
    let not_believed = start(&[&demand[..], &[&text(&stranger.ca)]].concat());
    assert_eq!(not_believed.code, Some(1), "{}", not_believed.err);
    assert!(not_believed.err.contains("is not trusted"), "{}", not_believed.err);
    let not_shown = start(&[&demand[..], &[&ca]].concat());
    assert_eq!(not_shown.code, Some(1), "{}", not_shown.err);
    assert!(not_shown.err.contains("it answers 401"), "{}", not_shown.err);
    // A ticket of that cluster is accepted by the store and by the proxy.
    let store = Guardian::store_with(dir.path(), &full);
    let upstream = Upstream::start();
    let proxy = Guardian::proxy_with(dir.path(), upstream.address, &full);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (ticket, _guard) = runtime.block_on(async {
        let client = Client::builder().addresses(&keys).ca(&me.ca).identity(&me.cert, &me.key);
        let client = client.name("ana").connect().await.unwrap();
        let guard = client.lock("l").ttl(TTL).await.unwrap();
        (guard.ticket().await.unwrap().to_string(), guard)
    });
    let stored = send(store.address, "PUT", "/v1/data/a?lock=l", Some(&ticket), "x");
    assert_eq!(stored.status, 200, "{stored:?}");
    assert_eq!(send(proxy.address, "PUT", "/text", Some(&ticket), "x").status, 200);
    let [_, forged] = altered(&ticket);
    let refused = send(store.address, "PUT", "/v1/data/a?lock=l", Some(&forged), "x");
    assert_eq!(refused.header("tenure-ticket"), Some("TICKET_SIGNATURE"));
}

#[test]
fn tickets_without_keys_are_not_demanded() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("store");
    let plain = ["store", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let start = |more: &[&str]| tenure(&[&plain[..], more].concat());
    let unreachable = start(&["--require-ticket", "--keys", "http://127.0.0.1:1"]);
    assert_eq!(unreachable.code, Some(1), "{}", unreachable.err);
    assert!(
        unreachable.err.contains("no keys to verify tickets") && unreachable.err.contains("; try "),
        "{}",
        unreachable.err
    );
    let tls = start(&["--require-ticket", "--keys", "https://127.0.0.1:1"]);
    assert_eq!(tls.code, Some(2), "{}", tls.err);
    assert!(tls.err.contains("--tls-ca"), "{}", tls.err);
    let none = ["--require-ticket", "--keys", "https://127.0.0.1:1", "--tls-ca", "/nowhere.pem"];
    assert_eq!(start(&none).code, Some(2));
    assert_eq!(start(&["--tls-ca", "/nowhere.pem"]).code, Some(2));
    assert_eq!(start(&["--keys", "set.json"]).code, Some(2));
}
