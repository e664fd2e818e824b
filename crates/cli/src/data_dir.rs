//! Finds the directory below which data is kept if no flag names one.

use std::path::PathBuf;

use crate::failure::CliError;

/// `tenure` below the user's data directory (`XDG_DATA_HOME`, else `~/.local/share`). `instead` says which flags to try
/// if there is none.
pub(crate) fn default_parent(instead: &str) -> Result<PathBuf, CliError> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(data) = set("XDG_DATA_HOME").filter(|path| path.is_absolute()) {
        return Ok(data.join("tenure"));
    }
    let home = set("HOME").ok_or_else(|| {
        CliError::config(format!("there is no home directory to keep data in; try {instead}"))
    })?;
    Ok(home.join(".local/share/tenure"))
}
