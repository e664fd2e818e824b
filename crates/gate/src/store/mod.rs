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
mod request;
mod write;
mod writer;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use crate::hosts::Hosts;
use crate::listen::{self, RunningService, StartError};
use crate::trust::Believe;

pub use request::StoreLimits;

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
    /// Whether other machines may reach the store, although it authenticates no client.
    pub insecure: bool,
    /// Host names under which browsers may reach the store, in addition to addresses and `localhost`.
    pub hosts: Vec<String>,
    /// The size limits.
    pub limits: StoreLimits,
    /// Which tokens to accept.
    pub believe: Believe,
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
            hosts: Vec::new(),
            limits: StoreLimits::default(),
            believe: Believe::Numbers,
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
    let Settings { data, listen, insecure, hosts, limits, believe, on_end } = settings;
    if limits.body_bytes_max as u64 > limits.value_bytes_max
        || limits.value_bytes_max > limits.bytes_max
    {
        return Err(StartError::Setting(
            "a body must fit into a value, and a value into the store".to_owned(),
        ));
    }
    let listener = listen::bind(listen, insecure)?;
    let engine = Arc::new(engine::Engine::open(&data)?);
    let judge = believe.open(&data)?;
    let metrics = Arc::new(metrics::Metrics::new());
    let thread = |source| StartError::Disk { what: "a thread".to_owned(), source };
    let writer =
        writer::StoreWriter::start(Arc::clone(&engine), limits, Arc::clone(&metrics), |broken| {
            on_end(broken);
        });
    let shop = http::StoreApi::new(
        engine,
        writer.map_err(thread)?,
        judge.clone(),
        Hosts::new(&hosts),
        metrics,
        limits,
    );
    let running = listen::serve(listener, http::routes(shop))
        .map_err(|source| StartError::Listen { at: listen, source })?;
    judge.tend(&running);
    Ok(running)
}
