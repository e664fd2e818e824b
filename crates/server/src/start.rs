//! Starts a member: opens its data, enters a cluster, starts the event loop and opens the ports.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::Machine;
use tenure_node::{BootstrapResult, InvitationToken, Join, MemberIdentity, MemberInfo, Node};
use tenure_raft::{Replica, ReplicaConfig};
use tenure_store::Disk;
use tokio::runtime::Runtime;

use crate::api::{AllowedHosts, ApiListeners, HealthListener};
use crate::archive::ArchiveSettings;
use crate::audit::{self, AuditOutcome, AuditRecord, AuditTo};
use crate::bootstrap;
use crate::credentials::{ServerAuthority, TrustedIssuers};
use crate::data_home::{DataHome, FileSizes};
use crate::dispatch::Dispatch;
use crate::error::StartError;
use crate::event_loop::EventLoop;
use crate::identity::ConsoleMode;
use crate::log_writer::spawn;
use crate::member::{End, MemberHandle};
use crate::os;
use crate::peer::{Net, PeerListener, Wire};
use crate::snapshot_disk::SnapshotDisk;
use crate::ticket::SigningKeys;
use crate::tls::ServerTls;
use crate::traces::TraceSettings;
use crate::watch::Hub;
use tenure_node::directory::{self, Address, MemberNames, MemberRecord, Preference};

/// How long a member may take to stop: it hands leadership over and makes its last sync.
const LEAVE: Duration = Duration::from_secs(10);
/// How long its archive may take for its last sync.
const ARCHIVE: Duration = Duration::from_secs(2);
/// How long its audit log may take for its last sync.
const AUDIT: Duration = Duration::from_secs(2);
/// More than one, so that a large response does not delay other clients. No more, because the event loop and the disk
/// need cores too.
const WORKERS: usize = 2;
/// The duration from which on requests and commits are logged as slow: a tenth of the usual timeout of a call.
const SLOW: Duration = Duration::from_secs(1);
/// The largest command. It is as large as the largest message of a client, and far below what a frame between members
/// and the buffer of a link can hold.
const COMMAND_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The address in the member directory of a member that is alone: no other member dials it.
const NOWHERE: &str = "-";
/// The file with the member's name at its last start.
const CALLED: &str = "name";

/// The way in which a member with an empty directory enters a cluster. A member that has data ignores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// It bootstraps a cluster of one.
    Alone,
    /// It bootstraps a cluster with these members, given by name and address. The list includes itself.
    Bootstrap(Vec<(String, Address)>),
    /// It joins the cluster that any of these members belongs to.
    Join(Vec<Address>),
    /// It enters none: starting with an empty directory is an error.
    None,
}

/// Where the invitation is that a member presents when it joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvitationSource {
    /// This is its text.
    Token(InvitationToken),
    /// This file has its text. It is read only when the member joins, so it need not outlive that.
    File(PathBuf),
}

/// Where a member serves health and metrics apart from its clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HealthListen {
    /// Nowhere: only the clients' port serves them.
    #[default]
    Off,
    /// At this address, or the member does not start.
    At(Address),
    /// At this address, unless another process has it: for a default that several members on one machine share.
    IfFree(Address),
}

/// The settings of a member.
pub struct ServerSettings {
    /// The member's name.
    pub name: String,
    /// Its data directory.
    pub data: PathBuf,
    /// The address on which it listens for clients.
    pub clients: Address,
    /// The address on which it listens for members; none for a member that stays alone.
    pub members: Option<Address>,
    /// Where it serves health and metrics without client certificates.
    pub health: HealthListen,
    /// The address at which clients reach it, if that is not the one it listens on.
    pub advertise_clients: Option<Address>,
    /// Host names that clients may use in requests, besides the member's addresses.
    pub hosts: Vec<String>,
    /// Origins of web pages that may send requests, such as `https://app.example`, besides the member's own.
    pub allowed_origins: Vec<String>,
    /// What it serves of the web console.
    pub console: ConsoleMode,
    /// The address at which other members reach it, if that is not the one it listens on.
    pub advertise_members: Option<Address>,
    /// The way it enters a cluster.
    pub entrance: StartMode,
    /// The invitation that it presents when it joins. An operator of the cluster made it.
    pub invitation: Option<InvitationSource>,
    /// Whether a member that had another name may take this one.
    pub rename: bool,
    /// Whether it may listen on addresses that other machines reach without encryption, and without identity.
    pub insecure: bool,
    /// Whether its APIs refuse callers without credentials also as long as the cluster has not enabled identity.
    pub require_identity: bool,
    /// The authorities that sign the certificates of issuers' servers, from which the keys of issuers are read.
    pub issuer_authority: ServerAuthority,
    /// How strongly this member should lead: from 0, only if no other member can, to 100.
    pub preference: Preference,
    /// The certificates that protect its ports.
    pub tls: Option<Arc<ServerTls>>,
    /// Requests and commits that take at least this long are logged; none logs none.
    pub slow: Option<Duration>,
    /// Where administrative acts and denied calls are recorded.
    pub audit: AuditTo,
    /// Where it sends traces of requests; nowhere unless set.
    pub traces: Option<TraceSettings>,
    /// How much of the past it keeps on its disk.
    pub archive: ArchiveSettings,
    /// Size of new log segments.
    pub segment_bytes: u32,
    /// Space held in reserve for a full disk.
    pub reserve_bytes: u64,
    /// The number of entries after which it takes a snapshot.
    pub snapshot_entries: u64,
    /// The number of threads that serve clients.
    pub workers: usize,
    /// The highest known level of the machine's rules: that of the build, except in tests that act as an older or a
    /// newer build.
    #[doc(hidden)]
    pub level_known: u16,
    /// Wraps the disk of this machine; usually returns it unchanged.
    pub disk: fn(Arc<dyn Disk>) -> Arc<dyn Disk>,
    /// Set by the process to stop the wait for other members.
    pub stop: Arc<AtomicBool>,
    /// Called once if the member ends by itself.
    pub on_end: Box<dyn Fn(&End) + Send>,
}

/// What protects a port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protection {
    /// Nothing: only loopback addresses are allowed.
    None,
    /// TLS, but every caller is served.
    EncryptedOnly,
    /// As much as an address needs that other machines reach, or the operator needs none.
    Enough,
}

/// A running member.
pub struct RunningServer {
    /// The handle to the member.
    pub member: MemberHandle,
    /// The cluster it belongs to.
    pub cluster: String,
    /// The address on which it listens for clients.
    pub clients: SocketAddr,
    /// The address on which it listens for members.
    pub members: Option<SocketAddr>,
    /// The address on which it serves health and metrics apart from its clients.
    pub health: Option<SocketAddr>,
    peer_listener: Option<Arc<PeerListener>>,
    listeners: ApiListeners,
    health_listener: Option<HealthListener>,
    hub: Hub,
    // Dropped last: the fields above have tasks on it.
    runtime: Option<Runtime>,
}

impl InvitationSource {
    fn read(&self) -> Result<InvitationToken, StartError> {
        let path = match self {
            Self::Token(token) => return Ok(token.clone()),
            Self::File(path) => path,
        };
        let unusable = |problem: String| StartError::Invitation { path: path.clone(), problem };
        let text = fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
        let token = InvitationToken::parse(text.trim());
        token.ok_or_else(|| unusable("it has no invitation".to_owned()))
    }
}

impl ServerSettings {
    /// The default settings.
    pub fn new(name: impl Into<String>, data: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            data: data.into(),
            clients: "127.0.0.1:7450".into(),
            members: None,
            health: HealthListen::Off,
            advertise_clients: None,
            hosts: Vec::new(),
            allowed_origins: Vec::new(),
            console: ConsoleMode::default(),
            advertise_members: None,
            entrance: StartMode::None,
            invitation: None,
            rename: false,
            insecure: false,
            require_identity: false,
            issuer_authority: ServerAuthority::default(),
            preference: Preference::default(),
            tls: None,
            slow: Some(SLOW),
            archive: ArchiveSettings::default(),
            audit: AuditTo::Memory,
            traces: None,
            segment_bytes: 64 * 1024 * 1024,
            reserve_bytes: tenure_store::RESERVE_BYTES_DEFAULT,
            snapshot_entries: 1_000_000,
            workers: WORKERS,
            level_known: tenure_core::LEVEL_MAX,
            disk: |disk| disk,
            stop: Arc::default(),
            on_end: Box::new(|_| {}),
        }
    }

    /// How the clients' port is protected, as far as the settings say. Whether the cluster has enabled identity does
    /// not count: it can be disabled again while the member runs.
    fn client_protection(&self) -> Protection {
        match &self.tls {
            _ if self.insecure => Protection::Enough,
            None => Protection::None,
            Some(tls) if tls.knows_clients() || self.require_identity => Protection::Enough,
            Some(_) => Protection::EncryptedOnly,
        }
    }

    fn names(
        &self,
        clients: SocketAddr,
        members: Option<SocketAddr>,
    ) -> Result<MemberNames, StartError> {
        let listed = match &self.entrance {
            StartMode::Bootstrap(listed) => listed.iter().find(|(name, _)| *name == self.name),
            _ => None,
        };
        let members = members.map_or(NOWHERE.to_owned(), |address| address.to_string());
        let names = MemberNames {
            name: self.name.clone(),
            members: listed.map_or(members, |(_, address)| address.clone()),
            clients: clients.to_string(),
            preference: self.preference,
        };
        let names = MemberNames {
            members: self.advertise_members.clone().unwrap_or(names.members),
            clients: self.advertise_clients.clone().unwrap_or(names.clients),
            ..names
        };
        for word in [&names.name, &names.members, &names.clients] {
            if !directory::is_word(word) {
                return Err(StartError::Word { word: word.clone() });
            }
        }
        Ok(names)
    }
}

/// Starts a member. When this returns, the member has joined its cluster or waits for the cluster to send its state.
pub fn start(settings: ServerSettings) -> Result<RunningServer, StartError> {
    let sizes =
        FileSizes { segment_bytes: settings.segment_bytes, reserve_bytes: settings.reserve_bytes };
    let mut home = DataHome::open(&settings.data, sizes)?.through(settings.disk);
    let covered = settings.tls.as_ref().is_some_and(|tls| tls.covers_members());
    if let Some(tls) = &settings.tls {
        tls.check_name(&settings.name)?;
    }
    let wire = Wire::new(settings.tls.clone());
    let (client_port, clients) =
        listen(&settings.clients, "--clients", settings.client_protection())?;
    let member_protection =
        if settings.insecure || covered { Protection::Enough } else { Protection::None };
    let member_port =
        settings.members.as_ref().map(|at| listen(at, "--members", member_protection));
    let member_port = member_port.transpose()?;
    let members = member_port.as_ref().map(|(_, address)| *address);
    let health_port = listen_for_health(&settings.health)?;
    let record = MemberRecord { id: home.id(), names: settings.names(clients, members)? };
    // Clients that check the certificate ask for one of its names.
    let certified = settings.tls.as_ref().map(|tls| tls.host_names()).unwrap_or_default();
    let names = settings.hosts.iter().chain(&certified).map(String::as_str);
    let hosts = AllowedHosts::new(clients, &record.names.clients, names.clone())
        .with_origins(&settings.allowed_origins);
    let health = health_port.as_ref().map(|(_, address)| *address);
    let health_hosts = health.map(|at| AllowedHosts::new(at, &record.names.clients, names));
    let me = MemberInfo::new(record.id, record.names.clone(), settings.level_known);
    let mut member_port = member_port.map(|(port, _)| port);
    let mut peer_listener = None;
    if home.cluster().is_none()
        && let Some(port) = member_port.take()
    {
        // The other members ask for this member's identity before there is a cluster.
        peer_listener =
            Some(PeerListener::open(port, me.clone(), wire.clone()).map_err(system("listen"))?);
    }
    if let Some(cluster) = home.cluster() {
        bootstrap::check_cluster(cluster, &settings.entrance, &settings.name, &wire)?;
        if matches!(settings.entrance, StartMode::Join(_)) {
            let join = "not needed";
            tracing::info!(%cluster, join, "this member already belongs to a cluster");
        }
    } else if let Err(error) = enter(&mut home, &settings, &record, &wire) {
        peer_listener.inspect(|it: &Arc<PeerListener>| it.close());
        return Err(error);
    }
    let lineage = home.lineage().expect("the member has entered a cluster");
    let cluster = lineage.cluster.clone();
    let keys =
        SigningKeys::open(&settings.data, &lineage).map_err(system("keep the key that signs"))?;
    let level_known = settings.level_known;
    let opened = home.load(level_known)?;
    let initial_members = directory::initial_members(&opened.boot.machine);
    let voters = &opened.boot.members.voters;
    if settings.entrance == StartMode::Alone && voters.iter().any(|id| *id != record.id) {
        return Err(StartError::NotAlone { cluster, members: voters.len() });
    }
    check_name(&settings, &opened.boot.machine, &record)?;
    let level = directory::first_level(&opened.boot.machine);
    let me = MemberInfo { cluster: Some(cluster.clone()), initial_members, level, ..me };
    match (&peer_listener, member_port) {
        (Some(listener), _) => listener.introduce(me),
        (None, Some(port)) => {
            peer_listener =
                Some(PeerListener::open(port, me, wire.clone()).map_err(system("listen"))?);
        }
        (None, None) => {}
    }
    let config = ReplicaConfig {
        // A batch fits in a segment with room to spare, also beside one larger command.
        batch_bytes: settings.segment_bytes as usize / 4,
        snapshot_entries: settings.snapshot_entries,
        level_known,
        reluctant: settings.preference.get() == 0,
        ..ReplicaConfig::new(record.id)
    };
    let replica = Replica::new(config, opened.boot, os::random())?;
    // A segment has room for one command of half its size beside a batch.
    let command_bytes_max = COMMAND_BYTES_MAX.min(settings.segment_bytes as usize / 2);
    let (member, events) = MemberHandle::new(record.id, lineage, Arc::new(os::Monotonic), None);
    let admission = member.admission().clone();
    let opened_identity = member.identity().open(&settings.data);
    opened_identity.map_err(system("write the key of the local administrator"))?;
    member.publish(replica.machine());
    let audit = member.audit().write_to(&settings.audit, &settings.data, member.lineage());
    let audit_resume = audit.map_err(system("open the audit log"))?;
    member.meters().log_slow(settings.slow);
    if let Some(tls) = &settings.tls {
        member.meters().show_certificates(tls.clone());
    }
    let net = Net::new(level_known, member.clone(), wire.clone());
    let identity = peer_listener.is_some().then(|| MemberIdentity {
        record: record.clone(),
        lineage: member.lineage().clone(),
        level_known,
        given: opened.given.clone(),
    });
    let given = opened.given.into_iter().map(|record| (record.id, record.names)).collect();
    net.learn(&given, replica.members(), replica.vouched());
    if let Some(listener) = &peer_listener {
        listener.admit(net.clone(), opened.snapshots.clone());
    }
    let runtime = dispatch_runtime(settings.workers).map_err(system("start a thread"))?;
    let issuers = TrustedIssuers::new(runtime.handle().clone(), settings.issuer_authority.clone());
    member.identity().verify_tokens(issuers);
    let console = member.identity().console();
    console.configure(settings.console, record.id.get(), settings.tls.is_some());
    if settings.require_identity {
        member.identity().admit_known_only();
    }
    if let Some(to) = &settings.traces {
        let traces = &member.meters().traces;
        traces.start(to, &settings.name, runtime.handle()).map_err(system("export traces"))?;
    }
    let node_config = tenure_node::NodeConfig {
        command_bytes_max,
        admission,
        identity,
        chunk_bytes: tenure_node::transfer::CHUNK_BYTES,
    };
    let node = Node::new(replica, node_config);
    let no_thread = || StartError::System {
        doing: "start a thread",
        source: std::io::ErrorKind::OutOfMemory.into(),
    };
    let snapshot_disk =
        SnapshotDisk::start(&opened.snapshots, &member, level_known).ok_or_else(no_thread)?;
    let on = EventLoop {
        node,
        log_writer: opened.log_writer,
        snapshots: opened.snapshots,
        snapshot_disk,
        net: net.clone(),
        member: member.clone(),
        events,
        on_end: settings.on_end,
        dir: opened.dir,
    };
    if !spawn("tenure-loop", move || on.run()) {
        return Err(no_thread());
    }
    let archive = member.archive();
    if !archive.start(&settings.data, settings.archive, &member, net.clone()) {
        return Err(no_thread());
    }
    let insecure = settings.insecure;
    let handle = runtime.handle().clone();
    let dispatch = Dispatch::new(member.clone(), net, cluster.clone(), insecure, keys, handle);
    dispatch.request_metrics().watch(settings.slow, member.audit().clone());
    // The epoch and the incarnation show whether the data was restored from a backup.
    let lineage = member.lineage();
    let record = AuditRecord::new("start", AuditOutcome::Done).who(&settings.name).target(&cluster);
    let record = record.with("epoch", lineage.epoch.get());
    member.audit().record(&record.with("incarnation", lineage.incarnation.to_string()));
    dispatch.runtime().spawn(audit::follow(member.clone(), audit_resume));
    let listeners = ApiListeners::open(client_port, &dispatch, hosts, settings.tls)
        .map_err(system("listen"))?;
    let health_listener = match health_port.zip(health_hosts) {
        Some(((port, _), hosts)) => {
            Some(HealthListener::open(port, &dispatch, hosts).map_err(system("listen"))?)
        }
        None => None,
    };
    let (hub, runtime) = (dispatch.hub().clone(), Some(runtime));
    Ok(RunningServer {
        member,
        cluster,
        clients,
        members,
        health,
        peer_listener,
        listeners,
        health_listener,
        hub,
        runtime,
    })
}

impl RunningServer {
    /// The hub that serves its watches.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Hands leadership over, makes everything durable, and closes every port.
    pub fn stop(&self) {
        self.listeners.close();
        self.member.leave(LEAVE);
        self.member.archive().ended(ARCHIVE);
        self.listeners.emptied();
        self.peer_listener.iter().for_each(|it| it.close());
        self.health_listener.iter().for_each(HealthListener::close);
        self.member.audit().flush(AUDIT);
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        // A plain drop would wait for tasks that wait for clients.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The runtime whose threads serve clients.
fn dispatch_runtime(workers: usize) -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_name("tenure-dispatch")
        .enable_all()
        .build()
}

/// Checks that the directory belongs to the member with the given name, and records that name. A file beside the data
/// holds the name of the last start, because the state that is read here may not contain a new name yet.
fn check_name(
    settings: &ServerSettings,
    machine: &Machine,
    record: &MemberRecord,
) -> Result<(), StartError> {
    let given = &record.names.name;
    let file = settings.data.join(CALLED);
    let called = match fs::read_to_string(&file) {
        Ok(text) => Some(text.trim_end().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            directory::read(machine).remove(&record.id).map(|known| known.name)
        }
        Err(source) => return Err(system("read what the member is called")(source)),
    };
    if let Some(found) = called.filter(|found| found != given && !settings.rename) {
        return Err(StartError::OtherName { found, given: given.clone() });
    }
    let written = fs::write(file.with_extension("new"), format!("{given}\n"));
    let written = written.and_then(|()| fs::rename(file.with_extension("new"), &file));
    written.map_err(system("write what the member is called"))
}

/// Brings an empty directory into a cluster.
fn enter(
    home: &mut DataHome,
    settings: &ServerSettings,
    record: &MemberRecord,
    wire: &Wire,
) -> Result<(), StartError> {
    let stopped = || settings.stop.load(Ordering::Acquire);
    match &settings.entrance {
        StartMode::Alone => {
            home.bootstrap(&BootstrapResult::alone(record.clone(), settings.level_known))
        }
        StartMode::Bootstrap(listed) => {
            home.bootstrap(&bootstrap::agree(listed, record, settings.level_known, wire, &stopped)?)
        }
        StartMode::Join(seeds) => {
            let (record, level) = (record.clone(), settings.level_known);
            let invitation =
                settings.invitation.as_ref().map(InvitationSource::read).transpose()?;
            let join = Join { record, level, lineage: None, invitation };
            let entered = bootstrap::join(seeds, join, wire, &stopped)?;
            home.join(entered.lineage, &entered.directory)
        }
        StartMode::None => Err(StartError::NoEntrance),
    }
}

fn listen(
    address: &str,
    flag: &'static str,
    protection: Protection,
) -> Result<(TcpListener, SocketAddr), StartError> {
    if protection != Protection::Enough && !is_loopback(address) {
        let address = address.to_owned();
        return Err(match protection {
            Protection::EncryptedOnly => StartError::Unidentified { address },
            Protection::None | Protection::Enough => StartError::Exposed { address },
        });
    }
    let failed = |source| StartError::Listen { address: address.to_owned(), flag, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Binds the port for health and metrics. It needs no `insecure`: other machines get health and metrics there, and
/// nothing else.
fn listen_for_health(
    health: &HealthListen,
) -> Result<Option<(TcpListener, SocketAddr)>, StartError> {
    let (address, needed) = match health {
        HealthListen::Off => return Ok(None),
        HealthListen::At(address) => (address, true),
        HealthListen::IfFree(address) => (address, false),
    };
    match listen(address, "--health", Protection::Enough) {
        Err(StartError::Listen { source, .. })
            if !needed && source.kind() == io::ErrorKind::AddrInUse =>
        {
            let next = "--health ADDR, or --health none";
            tracing::warn!(address, next, "health port in use; only the clients' port serves it");
            Ok(None)
        }
        listening => listening.map(Some),
    }
}

/// Whether only this machine can reach an address. Names are resolved; a name that cannot be resolved counts as
/// reachable by others.
fn is_loopback(address: &str) -> bool {
    let Ok(found) = address.to_socket_addrs() else { return false };
    let found: Vec<SocketAddr> = found.collect();
    !found.is_empty() && found.iter().all(|address| address.ip().is_loopback())
}

fn system(doing: &'static str) -> impl FnOnce(std::io::Error) -> StartError {
    move |source| StartError::System { doing, source }
}
