//! Runs a reverse proxy that fences a service which ignores tokens.
//!
//! It is built on the layer of `tenure_fence::http`. A request needs the token of the lock in `Fencing-Token`. The
//! proxy raises the floor durably before it forwards a request. A request that raises the floor waits until every
//! request that was admitted with a lower token has ended, and gets a 503 if that takes too long. Run one proxy per
//! resource, and allow no way around it.
//!
//! **Not covered:** a service that continues to work after its connection was closed, and clients that reach the
//! service around the proxy.

mod forward;
mod prepared;
mod repair;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tenure_fence::LockSlot;
use tenure_fence::http::{FenceLayer, FloorFile};
use tower::Layer as _;

use crate::hosts::Hosts;
use crate::listen::{self, Exposure, RunningService, StartError};
use crate::tls::{Handshakes, ServeTls};
use crate::trust::TokenPolicy;

pub use repair::{floor, repair_floor, repairs};
pub use tenure_fence::http::Reads;

/// The default port of a proxy.
pub const PORT: u16 = 8001;

/// The longest timeout that can be set: nothing that takes longer is a request.
const LONGEST: Duration = Duration::from_secs(3_600);

/// The settings of a proxy.
pub struct Settings {
    /// The address of the service: `http://host:port`, optionally with a path, which is put before the path of every
    /// request.
    pub upstream: String,
    /// The lock that guards the service.
    pub resource: String,
    /// The slot of the lock, if it is a semaphore.
    pub slot: Option<u32>,
    /// The directory of the floor. Only one proxy may use a directory at a time.
    pub data: PathBuf,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Whether other machines may reach the proxy in plain text.
    pub insecure: bool,
    /// Whether to believe bare numbers as tokens although other machines reach the proxy.
    pub bare_tokens: bool,
    /// The certificate to serve TLS with.
    pub tls: Option<ServeTls>,
    /// Host names under which clients reach the proxy, in addition to addresses and `localhost`. The service sees its
    /// own name, so it cannot recognise a web page that points a name of its own at the proxy; the proxy does.
    pub hosts: Vec<String>,
    /// Whether requests that change nothing need a token.
    pub reads: Reads,
    /// Whether every token is admitted only once.
    pub once: bool,
    /// How long a request waits for those with lower tokens.
    pub wait: Duration,
    /// How long a request may take at the service.
    pub timeout: Duration,
    /// Which tokens to accept.
    pub believe: TokenPolicy,
}

impl Settings {
    /// Creates settings for loopback that accept every number and fence every request.
    pub fn new(
        upstream: impl Into<String>,
        resource: impl Into<String>,
        data: impl Into<PathBuf>,
    ) -> Self {
        Self {
            upstream: upstream.into(),
            resource: resource.into(),
            slot: None,
            data: data.into(),
            listen: (Ipv4Addr::LOCALHOST, PORT).into(),
            insecure: false,
            bare_tokens: false,
            tls: None,
            hosts: Vec::new(),
            reads: Reads::Fenced,
            once: false,
            wait: Duration::from_secs(5),
            timeout: Duration::from_secs(60),
            believe: TokenPolicy::Numbers,
        }
    }
}

/// Starts a proxy, on threads of its own.
pub fn start(settings: Settings) -> Result<RunningService, StartError> {
    let Settings {
        upstream,
        resource,
        slot,
        data,
        listen,
        insecure,
        bare_tokens,
        tls,
        hosts,
        reads,
        once,
        wait,
        timeout,
        believe,
    } = settings;
    let at = LockSlot { lock: &resource, slot };
    at.check().map_err(|invalid| StartError::Setting(format!("--resource: {invalid}")))?;
    if wait > LONGEST || timeout > LONGEST || timeout.is_zero() {
        let text = "--wait is at most an hour, and --timeout more than nothing and at most an hour";
        return Err(StartError::Setting(text.to_owned()));
    }
    let forward = forward::Forward::new(&upstream, timeout)?;
    let exposure = Exposure { insecure, bare_tokens, tls: tls.as_ref(), believe: &believe };
    let listener = listen::bind(listen, &exposure)?;
    let handshakes = tls.map(Handshakes::open).transpose()?;
    let disk = |source| StartError::Disk { what: data.display().to_string(), source };
    make(&data).map_err(disk)?;
    let floor = FloorFile::open(data.join(repair::FLOOR), at).map_err(disk)?;
    let fence = FenceLayer::waiting(at, floor, wait).map_err(disk)?;
    let judge = believe.open(&data)?;
    let fence = fence.reads(reads).verify(judge.clone());
    let fence = if once { fence.once() } else { fence };
    let service =
        prepared::KeyedFence::new(judge.clone(), at, Hosts::new(&hosts), fence.layer(forward));
    let running = listen::serve(listener, service, handshakes)
        .map_err(|source| StartError::Listen { at: listen, source })?;
    judge.tend(&running);
    Ok(running)
}

fn make(dir: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}
