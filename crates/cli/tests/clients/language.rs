//! Starts the drivers of a language, and keeps those that are not in use.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::driver_process::Driver;

/// Which drivers to play with.
#[derive(clap::Args)]
pub(crate) struct DriverArgs {
    /// How to start a driver, with its language before it, and the directory to start it in. Without one, Rust's own
    #[arg(long = "driver", value_name = "[NAME[@DIRECTORY]=]COMMAND")]
    drivers: Vec<String>,
}

/// A language, and its drivers that are started and not in use.
pub(crate) struct Language {
    pub(crate) name: String,
    command: String,
    directory: PathBuf,
    /// The bug that its drivers show on purpose.
    plant: Option<String>,
    idle: Mutex<Vec<Driver>>,
    started: Mutex<u64>,
    logs: PathBuf,
}

impl DriverArgs {
    /// The languages that the arguments name; Rust if they name none.
    pub(crate) fn languages(&self, logs: &Path) -> Vec<Language> {
        let rust = vec!["rust=own".to_owned()];
        let given = if self.drivers.is_empty() { &rust } else { &self.drivers };
        given.iter().map(|text| Language::new(text, logs)).collect()
    }
}

impl Language {
    fn new(text: &str, logs: &Path) -> Self {
        let is_name = |name: &str| name.chars().all(char::is_alphanumeric);
        let parts = text.split_once('=').map(|(place, command)| {
            let (name, directory) = place.split_once('@').unwrap_or((place, "."));
            (name, directory, command)
        });
        let parts = parts.filter(|(name, _, _)| is_name(name));
        let (name, directory, command) = parts.unwrap_or(("driver", ".", text));
        let own = std::env::current_exe().expect("this program has a path");
        let command = match command {
            "own" => format!("{} driver", own.display()),
            command => command.to_owned(),
        };
        Self {
            name: name.to_owned(),
            command,
            directory: PathBuf::from(directory),
            plant: None,
            idle: Mutex::default(),
            started: Mutex::default(),
            logs: logs.to_owned(),
        }
    }

    /// The same language with a planted bug.
    pub(crate) fn planted(&self, bug: &str) -> Self {
        Self {
            name: self.name.clone(),
            command: self.command.clone(),
            directory: self.directory.clone(),
            plant: Some(bug.to_owned()),
            idle: Mutex::default(),
            started: Mutex::default(),
            logs: self.logs.clone(),
        }
    }

    /// A driver that is started and idle, or a new one.
    pub(crate) fn take(&self) -> Result<Driver, String> {
        if let Some(driver) = self.idle.lock().unwrap().pop() {
            return Ok(driver);
        }
        let number = {
            let mut started = self.started.lock().unwrap();
            *started += 1;
            *started
        };
        let plant = self.plant.as_deref();
        let log =
            self.logs.join(format!("{}{}-{number}.log", self.name, plant.unwrap_or_default()));
        Driver::start(&self.command, &self.directory, plant, log)
    }

    /// Takes a driver back, with nothing open. What it told the scenario before must not be heard in the next one.
    pub(crate) fn put_back(&self, driver: Driver) {
        driver.forget();
        self.idle.lock().unwrap().push(driver);
    }
}
