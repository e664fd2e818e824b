//! Runs a single member for a test, and removes its data afterwards.

use std::path::{Path, PathBuf};

use tenure_server::{RunningServer, ServerSettings, StartMode, start};

/// A single member.
pub(crate) struct Alone {
    pub(crate) running: RunningServer,
    dir: tempfile::TempDir,
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.running.stop();
    }
}

impl Alone {
    /// Starts it with these settings, whose data is in the directory.
    pub(crate) fn run(dir: tempfile::TempDir, settings: ServerSettings) -> Self {
        Self::of(dir, start(settings).unwrap())
    }

    /// Takes over a member that runs, whose data is in the directory.
    pub(crate) fn of(dir: tempfile::TempDir, running: RunningServer) -> Self {
        Self { running, dir }
    }

    /// The data directory of a member with the settings of this file.
    #[allow(dead_code, reason = "each test binary uses a part of this")]
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join(NAME)
    }
}

/// The name of the member, and of its data directory.
const NAME: &str = "m0";

/// Settings for a small member on loopback.
pub(crate) fn settings(dir: &Path) -> ServerSettings {
    ServerSettings {
        clients: "127.0.0.1:0".into(),
        entrance: StartMode::Alone,
        segment_bytes: 256 * 1024,
        reserve_bytes: 64 * 1024,
        ..ServerSettings::new(NAME, dir.join(NAME))
    }
}
