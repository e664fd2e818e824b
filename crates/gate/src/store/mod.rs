//! How does a store refuse the dead?
//!
//! A durable HTTP store in which every write names a lock and the token of its grant. Floor and data change in one
//! transaction, which is on the disk before anybody is told: whatever is killed in the middle, a floor never falls and
//! no write that was acknowledged is lost.
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

mod ask;
mod engine;
mod http;
mod metrics;
mod write;
mod writer;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use crate::believe::Believe;
use crate::hosts::Hosts;
use crate::listen::{self, Running, StartError};

pub use ask::Limits;

/// Where a store listens if nobody says otherwise.
pub const PORT: u16 = 8000;

/// Hears of an error that ends the store.
pub type OnEnd = Box<dyn FnOnce(&(dyn std::error::Error + 'static)) + Send>;

/// How a store is started.
pub struct Settings {
    /// Where to keep everything. Only one store uses a directory at a time.
    pub data: PathBuf,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Whether other machines may reach it, although it asks nobody who they are.
    pub insecure: bool,
    /// Names by which browsers may know it, beside addresses and `localhost`.
    pub hosts: Vec<String>,
    /// How much it takes.
    pub limits: Limits,
    /// Whose tokens to believe.
    pub believe: Believe,
    /// Hears why the store can write no more; it is best started again.
    pub on_end: OnEnd,
}

impl Settings {
    /// On loopback, believing every number.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            listen: (Ipv4Addr::LOCALHOST, PORT).into(),
            insecure: false,
            hosts: Vec::new(),
            limits: Limits::default(),
            believe: Believe::Numbers,
            on_end: Box::new(|_| ()),
        }
    }
}

/// Whether the one call of `POST /write` can be read from these bytes: for the fuzz targets.
#[doc(hidden)]
pub fn is_write(body: &[u8]) -> bool {
    write::read(body).is_ok()
}

/// Starts a store, on threads of its own.
pub fn start(settings: Settings) -> Result<Running, StartError> {
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
        writer::Writer::start(Arc::clone(&engine), limits, Arc::clone(&metrics), |broken| {
            on_end(broken);
        });
    let shop = http::Shop::new(
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
