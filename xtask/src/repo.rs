//! Finds the repository and lists its files.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The repository that contains this tool.
pub(crate) struct Repo {
    root: PathBuf,
}

impl Repo {
    /// The repository around this crate, whatever the current directory is.
    pub(crate) fn find() -> Result<Self> {
        // Cargo sets the variable when it runs xtask, so a moved or copied clone finds itself. The compiled-in path
        // serves a binary that is started by hand.
        let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest_dir.parent().context("xtask has no directory above it")?;
        let root = root
            .canonicalize()
            .with_context(|| format!("cannot find the repository at {}", root.display()))?;
        Ok(Self { root })
    }

    /// The top directory.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A path inside the repository.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// Every file that is tracked or could be, relative to the top, in order: the content of a commit of the whole
    /// working directory.
    pub(crate) fn files(&self) -> Result<Vec<String>> {
        let listed = self.git(&["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        let mut files: Vec<String> = listed
            .split('\0')
            .filter(|name| !name.is_empty())
            // Git still lists a file that is deleted but not yet committed.
            .filter(|name| self.path(name).is_file())
            .map(str::to_owned)
            .collect();
        files.sort();
        files.dedup();
        Ok(files)
    }

    /// The commit that is checked out, marked if files differ from it. Changes to `besides` do not count.
    pub(crate) fn commit(&self, besides: &str) -> Result<String> {
        let hash = self
            .git(&["rev-parse", "--short", "HEAD"])
            .context("there is no commit to name yet")?;
        let others = format!(":!{besides}");
        let changes = self.git(&["status", "--porcelain", "--", ".", &others])?;
        let mark = if changes.trim().is_empty() { "" } else { "-dirty" };
        Ok(format!("{}{mark}", hash.trim()))
    }

    fn git(&self, args: &[&str]) -> Result<String> {
        let output = Command::new("git")
            .args(args)
            .current_dir(&self.root)
            .output()
            .context("cannot start git")?;
        ensure!(
            output.status.success(),
            "git {} failed: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        String::from_utf8(output.stdout)
            .with_context(|| format!("git {} printed something other than text", args.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_lists_its_own_files_once_and_in_order() {
        let files = Repo::find().unwrap().files().unwrap();
        assert!(files.contains(&"xtask/src/repo.rs".to_owned()));
        assert!(files.is_sorted_by(|a, b| a < b));
        assert!(!files.iter().any(|file| file.starts_with("target/")));
    }
}
