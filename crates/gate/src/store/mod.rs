//! Runs a durable HTTP store that refuses writes with stale tokens.
//!
//! Every write names a lock and the token of its grant. Floor and data change in one transaction, which is on disk
//! before the store answers: after a kill at any moment, a floor never falls and no acknowledged write is lost.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let data = dir.path().join("data");
//! use tenure_gate::store::{Settings, start};
//! let store = start(Settings { listen: "127.0.0.1:0".parse()?, ..Settings::new(data) })?;
//! println!("curl -X PUT --data hi -H 'Fencing-Token: 43' 'http://{}/v1/data/greeting?lock=deploy'", store.address);
//! store.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod engine;
mod http;
mod metrics;
mod repair;
mod request;
mod states;
mod write;
mod writer;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::hosts::Hosts;
use crate::listen::{self, Exposure, RunningService, StartError};
use crate::readers::Readers;
use crate::tls::{Handshakes, ServeTls};
use crate::trust::{Tell, TokenPolicy};

pub use repair::{KeptFloor, floors, repair_floor, repairs};
pub use request::StoreLimits;
pub use states::client::{StateClient, StateCredentials, StateReply, StateUnanswered, in_url};
pub use states::{LockRefused, StateCluster, StateFuture, StateHold, StateLimits};

/// The default port of a store.
pub const PORT: u16 = 8000;

/// Receives the error that ends the store.
pub type OnEnd = Box<dyn FnOnce(&(dyn std::error::Error + 'static)) + Send>;

/// The settings of a store.
pub struct Settings {
    /// The data directory. Only one store may use a directory at a time.
    pub data: PathBuf,
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Whether other machines may reach the store in plain text.
    pub insecure: bool,
    /// Whether to believe bare numbers as tokens although other machines reach the store.
    pub bare_tokens: bool,
    /// The certificate to serve TLS with.
    pub tls: Option<ServeTls>,
    /// A file with the bearer tokens of readers, one per line. Without it every client may read.
    pub readers: Option<PathBuf>,
    /// A file with the keys of writers of states, one per line.
    pub writers: Option<PathBuf>,
    /// Host names under which browsers may reach the store, in addition to addresses and `localhost`.
    pub hosts: Vec<String>,
    /// The size limits.
    pub limits: StoreLimits,
    /// The size limits of states.
    pub states: StateLimits,
    /// The cluster whose locks guard states, for clients that have no lease of their own.
    pub cluster: Option<Arc<dyn StateCluster>>,
    /// Receives messages about the locks of states.
    pub tell: Tell,
    /// Which tokens to accept.
    pub believe: TokenPolicy,
    /// Receives the reason when the store can no longer write. The process should then be restarted.
    pub on_end: OnEnd,
}

impl Settings {
    /// Creates settings for loopback that accept every number.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            listen: (Ipv4Addr::LOCALHOST, PORT).into(),
            insecure: false,
            bare_tokens: false,
            tls: None,
            readers: None,
            writers: None,
            hosts: Vec::new(),
            limits: StoreLimits::default(),
            states: StateLimits::default(),
            cluster: None,
            tell: Arc::new(|_| ()),
            believe: TokenPolicy::Numbers,
            on_end: Box::new(|_| ()),
        }
    }
}

/// Whether these bytes are a valid body of `POST /write`. For the fuzz targets.
#[doc(hidden)]
pub fn is_write(body: &[u8]) -> bool {
    write::read(body).is_ok()
}

/// Starts a store, on threads of its own.
pub fn start(settings: Settings) -> Result<RunningService, StartError> {
    let Settings {
        data,
        listen,
        insecure,
        bare_tokens,
        tls,
        readers,
        writers,
        hosts,
        limits,
        states: state_limits,
        cluster,
        tell,
        believe,
        on_end,
    } = settings;
    if limits.body_bytes_max as u64 > limits.value_bytes_max
        || limits.value_bytes_max > limits.bytes_max
    {
        return Err(StartError::Setting(
            "a body must fit into a value, and a value into the store".to_owned(),
        ));
    }
    if state_limits.versions_max == 0 {
        return Err(StartError::Setting("at least one version of a state is kept".to_owned()));
    }
    let exposure = Exposure { insecure, bare_tokens, tls: tls.as_ref(), believe: &believe };
    let listener = listen::bind(listen, &exposure)?;
    let handshakes = tls.map(Handshakes::open).transpose()?;
    let keys =
        |path: Option<PathBuf>, flag| path.map(|path| Readers::open(&path, flag)).transpose();
    let (readers, writers) = (keys(readers, "--readers")?, keys(writers, "--writers")?);
    let engine = Arc::new(engine::Engine::open(&data)?);
    let judge = believe.open(&data)?;
    let metrics = Arc::new(metrics::StoreMetrics::new());
    let end: states::EndOnce = Arc::new(Mutex::new(Some(on_end)));
    let thread = |source| StartError::Disk { what: "a thread".to_owned(), source };
    let writer = writer::StoreWriter::start(Arc::clone(&engine), limits, Arc::clone(&metrics), {
        let end = Arc::clone(&end);
        move |broken| states::end_once(&end, broken)
    });
    let parts = states::StateParts {
        engine: Arc::clone(&engine),
        limits: state_limits,
        cluster,
        tell,
        end,
    };
    let (all, held) = states::States::open(&data, parts)?;
    let access = states::StateAccess { readers: readers.clone(), writers, judge: judge.clone() };
    let shop = http::StoreApi::new(
        engine,
        writer.map_err(thread)?,
        judge.clone(),
        http::Admitted { hosts: Hosts::new(&hosts), readers },
        metrics,
        limits,
    );
    let api = states::StatesApi::new(Arc::clone(&all), access);
    let running = listen::serve(listener, http::routes(shop, api), handshakes)
        .map_err(|source| StartError::Listen { at: listen, source })?;
    judge.tend(&running);
    all.resume(held, &running);
    Ok(running)
}
