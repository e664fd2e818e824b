//! How is a service guarded that knows nothing of tokens?
//!
//! A reverse proxy on the layer of `tenure_fence::http`: a request needs the token of the lock in `Fencing-Token`; the
//! floor rises durably before a request goes on; whoever raises it waits until every request that was let through with
//! a lower token has ended, and is answered 503 if that takes too long. One proxy per resource, and no way around it.
//!
//! **Not covered:** a service that works on after its connection was cut, and whoever reaches it around the proxy.

mod forward;
mod prepared;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tenure_fence::LockSlot;
use tenure_fence::http::{FenceLayer, FloorFile};
use tower::Layer as _;

use crate::believe::Believe;
use crate::listen::{self, Running, StartError};

pub use tenure_fence::http::Reads;

/// Where a proxy listens if nobody says otherwise.
pub const PORT: u16 = 8001;

/// The longest that anybody waits here: what takes longer is no request.
const LONGEST: Duration = Duration::from_secs(3_600);

/// How a proxy is started.
pub struct Settings {
    /// Where the service is: `http://host:port`, or with a path that goes before that of every request.
    pub upstream: String,
    /// The lock that guards the service.
    pub resource: String,
    /// Which slot of it, if it is a semaphore.
    pub slot: Option<u32>,
    /// Where the floor is kept. Only one proxy uses a directory at a time.
    pub data: PathBuf,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Whether other machines may reach it, although it asks nobody who they are.
    pub insecure: bool,
    /// Whether requests that change nothing need a token.
    pub reads: Reads,
    /// Whether every token is let through once only.
    pub once: bool,
    /// How long a request waits for those with lower tokens.
    pub wait: Duration,
    /// How long a request may take at the service.
    pub timeout: Duration,
    /// Whose tokens to believe.
    pub believe: Believe,
}

impl Settings {
    /// On loopback, believing every number, fencing every request.
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
            reads: Reads::Fenced,
            once: false,
            wait: Duration::from_secs(5),
            timeout: Duration::from_secs(60),
            believe: Believe::Numbers,
        }
    }
}

/// Starts a proxy, on threads of its own.
pub fn start(settings: Settings) -> Result<Running, StartError> {
    let Settings {
        upstream,
        resource,
        slot,
        data,
        listen,
        insecure,
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
    let listener = listen::bind(listen, insecure)?;
    let disk = |source| StartError::Disk { what: data.display().to_string(), source };
    make(&data).map_err(disk)?;
    let floor = FloorFile::open(data.join("floor"), at).map_err(disk)?;
    let fence = FenceLayer::waiting(at, floor, wait).map_err(disk)?;
    let judge = believe.open(&data)?;
    let fence = fence.reads(reads).verify(judge.clone());
    let fence = if once { fence.once() } else { fence };
    let service = prepared::Prepared::new(judge.clone(), at, fence.layer(forward));
    let running = listen::serve(listener, service)
        .map_err(|source| StartError::Listen { at: listen, source })?;
    judge.tend(&running);
    Ok(running)
}

fn make(dir: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}
