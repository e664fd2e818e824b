//! Provides the clusters that scenarios are played on: three members behind proxies that can cut off each driver.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tenure::blocking::Client;
use tenure::{HolderState, LockView};
use tenure_server::tls::DialTrust;

use crate::authority::{Authority, CertificateFiles};
use crate::common::proxy::{Proxies, Road};
use crate::common::{Cluster, TENURE, http};
use crate::driver_process::Driver;
use crate::scenario::ClusterKind;

/// How many drivers the proxies of one cluster can tell apart. A driver keeps its number while it lives.
const DIALLERS: usize = 1_500;
const MEMBERS: usize = 3;

/// A cluster for scenarios.
pub(crate) struct ScenarioCluster {
    pub(crate) number: usize,
    cluster: Mutex<Cluster>,
    /// The runner's own client, which looks at locks.
    control: Client,
    next_dialler: AtomicUsize,
    cert_files: Vec<CertificateFiles>,
    ca: Option<PathBuf>,
    admin_key: Option<String>,
    /// Members that were killed or stopped and not brought back yet.
    hurt: Mutex<Vec<usize>>,
}

impl ScenarioCluster {
    /// Starts a cluster, and waits until all of it runs.
    pub(crate) fn found(kind: ClusterKind) -> Self {
        static NUMBERS: AtomicUsize = AtomicUsize::new(0);
        let mut cluster = Cluster::new();
        let authority =
            (kind == ClusterKind::Tls).then(|| Authority::new(cluster.dir.path(), "ours"));
        for _ in 0..MEMBERS {
            cluster.add();
        }
        let ports: Vec<u16> = cluster.members.iter().map(|one| one.clients).collect();
        cluster.client_proxies = Some(Proxies::with_diallers(&ports, DIALLERS));
        let names: Vec<String> = cluster.members.iter().map(|one| one.name.clone()).collect();
        let cert_files: Vec<CertificateFiles> = match &authority {
            Some(authority) => names.iter().map(|name| authority.sign(name)).collect(),
            None => Vec::new(),
        };
        if let Some(cert_files) = cert_files.first() {
            let own = Some((cert_files.cert.as_path(), cert_files.key.as_path()));
            cluster.trust = Some(DialTrust::load(&cert_files.ca, own).unwrap());
        }
        let listed: Vec<String> =
            (0..MEMBERS).map(|at| format!("{}={}", names[at], cluster.advertised(at))).collect();
        let listed = listed.join(",");
        for at in 0..MEMBERS {
            let flags = cert_files.get(at).map(CertificateFiles::flags).unwrap_or_default();
            let mut more: Vec<&str> = flags.iter().map(String::as_str).collect();
            more.extend(["--bootstrap", &listed]);
            cluster.start(at, &more);
        }
        cluster.until_founded();
        let ca = authority.as_ref().map(|authority| PathBuf::from(authority.ca()));
        let admin_key = (kind == ClusterKind::Access).then(|| enable_access(&cluster));
        let scheme = if ca.is_some() { "https://" } else { "" };
        let addresses: Vec<String> =
            cluster.addresses().iter().map(|address| format!("{scheme}{address}")).collect();
        let mut builder = tenure::Client::builder().addresses(&addresses.join(",")).name("runner");
        if let Some(ca) = &ca {
            builder = builder.ca(ca);
        }
        if let Some(key) = &admin_key {
            builder = builder.api_key(key);
        }
        let builder = builder.timeout(Duration::from_secs(60));
        let control = Client::from_builder(builder).expect("the runner connects to its cluster");
        Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            cluster: Mutex::new(cluster),
            control,
            next_dialler: AtomicUsize::new(MEMBERS),
            cert_files,
            ca,
            admin_key,
            hurt: Mutex::default(),
        }
    }

    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        // A scenario that fails while it holds the cluster must not fail all others.
        self.cluster.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The addresses for drivers, which lead through the proxies.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let cluster = self.cluster();
        let proxies = cluster.client_proxies.as_ref().expect("every stage has proxies");
        let scheme = if self.ca.is_some() { "https://" } else { "" };
        (0..MEMBERS).map(|at| format!("{scheme}127.0.0.1:{}", proxies.port(at))).collect()
    }

    /// The addresses of the members themselves, without proxies.
    pub(crate) fn direct_addresses(&self) -> Vec<String> {
        self.cluster().addresses().iter().map(ToString::to_string).collect()
    }

    pub(crate) fn ca(&self) -> Option<&Path> {
        self.ca.as_deref()
    }

    /// Tells the proxies which process a driver is.
    pub(crate) fn register(&self, driver: &mut Driver) -> usize {
        let pid = driver.pid();
        *driver.dialler.entry(self.number).or_insert_with(|| {
            let at = self.next_dialler.fetch_add(1, Ordering::Relaxed);
            let cluster = self.cluster();
            let proxies = cluster.client_proxies.as_ref().expect("every stage has proxies");
            proxies.know(at, pid);
            at
        })
    }

    /// Changes the connections of a driver: to one member or all, in both directions or one.
    pub(crate) fn road(&self, dialler: usize, to: Option<usize>, ways: Ways, road: Road) {
        let cluster = self.cluster();
        let proxies = cluster.client_proxies.as_ref().expect("every stage has proxies");
        for member in (0..MEMBERS).filter(|at| to.is_none_or(|to| to == *at)) {
            if ways != Ways::Answers {
                proxies.set(dialler, member, road);
            }
            if ways != Ways::Requests {
                proxies.set(member, dialler, road);
            }
        }
    }

    /// How many connections a driver has open through the proxies.
    pub(crate) fn open_connections(&self, dialler: usize) -> usize {
        let cluster = self.cluster();
        let proxies = cluster.client_proxies.as_ref().expect("every stage has proxies");
        proxies.open_connections(dialler)
    }

    pub(crate) fn leader(&self) -> usize {
        self.cluster().leader()
    }

    /// The member that a word names: `leader`, or `follower` for one that runs and does not lead.
    pub(crate) fn member(&self, word: &str) -> Result<usize, String> {
        let leader = self.leader();
        match word {
            "leader" => Ok(leader),
            "follower" => {
                let hurt = self.hurt.lock().unwrap();
                let runs = |at: &usize| *at != leader && !hurt.contains(at);
                (0..MEMBERS).find(runs).ok_or("no follower runs".to_owned())
            }
            _ => Err(format!("there is no member `{word}`")),
        }
    }

    pub(crate) fn kill(&self, at: usize) {
        self.hurt.lock().unwrap().push(at);
        self.cluster().kill(at);
    }

    pub(crate) fn freeze(&self, at: usize) {
        self.hurt.lock().unwrap().push(at);
        if let Some(process) = &self.cluster().members[at].process {
            process.signal("-STOP");
        }
    }

    /// Brings back every member that was killed or stopped, and waits until all agree.
    pub(crate) fn restart(&self) {
        let hurt = std::mem::take(&mut *self.hurt.lock().unwrap());
        if hurt.is_empty() {
            return;
        }
        let mut cluster = self.cluster();
        for at in hurt {
            match &cluster.members[at].process {
                Some(process) => process.signal("-CONT"),
                None => {
                    let flags =
                        self.cert_files.get(at).map(CertificateFiles::flags).unwrap_or_default();
                    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
                    cluster.start(at, &flags);
                }
            }
        }
        cluster.leader();
        cluster.agree(&[0, 1, 2]);
    }

    pub(crate) fn show(&self, lock: &str) -> Option<LockView> {
        self.control.block_on(async |client| client.show(lock).await).ok().flatten()
    }

    /// Whether some holder of a lock is in this state.
    pub(crate) fn some_holder(&self, lock: &str, is: impl Fn(HolderState) -> bool) -> bool {
        self.show(lock).is_some_and(|lock| lock.holders.iter().any(|holder| is(holder.state)))
    }

    /// The value of a key.
    pub(crate) fn value(&self, key: &str) -> Option<String> {
        let found = self.control.block_on(async |client| client.key(key).get().await).ok()??;
        String::from_utf8(found.value.to_vec()).ok()
    }

    /// Writes a key so often that the history moves on.
    pub(crate) fn fill(&self, key: &str, times: u64) -> Result<(), String> {
        self.control.block_on(async |client| {
            for time in 0..times {
                let put = client.key(key).put(time.to_string()).await;
                put.map_err(|error| format!("the runner cannot write a key: {error}"))?;
            }
            Ok(())
        })
    }

    /// Makes a principal that may use names below a prefix, and an API key for it.
    pub(crate) fn make_key(&self, name: &str, prefix: &str) -> Result<String, String> {
        let allow = format!("read,acquire,keys,observe:{prefix}");
        self.tenure(&["auth", "role", "put", name, "--allow", &allow])?;
        self.tenure(&["auth", "principal", "put", name, "--role", name])?;
        Ok(self.tenure(&["auth", "key", "create", name, "--expires", "1h"])?.trim().to_owned())
    }

    pub(crate) fn revoke_key(&self, key: &str) -> Result<(), String> {
        let id = key.split('_').nth(1).ok_or("that is no API key")?;
        self.tenure(&["auth", "key", "revoke", id]).map(drop)
    }

    pub(crate) fn set_limit(&self, name: &str, value: &str) -> Result<(), String> {
        let body = format!(r#"{{"limits":[{{"limit":"{name}","value":{value}}}]}}"#);
        let body = Some(("application/json", body));
        let call = http::Call { verb: "PATCH", path: "/v1/limits".to_owned(), key: None, body };
        let cluster = self.cluster();
        let to = cluster.address(cluster.leader());
        let asked = http::Connection::open(to, cluster.trust.as_ref(), Duration::from_secs(30));
        let answer = asked.and_then(|mut connection| connection.call(&call));
        let answer = answer.map_err(|error| format!("the limits cannot be set: {error}"))?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        (answer.status == 200).then_some(()).ok_or(text)
    }

    fn tenure(&self, arguments: &[&str]) -> Result<String, String> {
        let addresses: Vec<String> =
            self.cluster().addresses().iter().map(ToString::to_string).collect();
        run(&addresses.join(","), self.admin_key.as_deref().unwrap_or_default(), arguments)
    }
}

/// Which directions of a driver's connections change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ways {
    Both,
    Requests,
    Answers,
}

/// Makes the first administrator and lets the members demand credentials. Returns the administrator's key.
fn enable_access(cluster: &Cluster) -> String {
    let at = cluster.leader();
    let address = cluster.address(at).to_string();
    let data = cluster.data(at);
    let key = run(&address, "", &["auth", "init", "--data-dir", data.to_str().unwrap()]).unwrap();
    let key = key.trim().to_owned();
    run(&address, &key, &["auth", "enable"]).unwrap();
    key
}

fn run(address: &str, key: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(TENURE);
    command.args(arguments).env_clear().env("TENURE_ADDR", address).stdin(Stdio::null());
    command.env("TENURE_CONNECT_TIMEOUT", "30s");
    if !key.is_empty() {
        command.env("TENURE_API_KEY", key);
    }
    let ran = command.output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if !ran.status.success() {
        return Err(format!("tenure {}: {}", arguments.join(" "), text(&ran.stderr)));
    }
    Ok(text(&ran.stdout))
}
