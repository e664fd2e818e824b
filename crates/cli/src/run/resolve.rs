//! Checks that the command exists before a lock is requested for it.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::codes;

/// Checks that a program can be found and executed. The error is a message and the exit code of a shell.
pub(super) fn look_for(program: &OsStr) -> Result<(), (String, u8)> {
    let shown = program.display();
    if program.as_bytes().contains(&b'/') {
        let path = Path::new(program);
        return match (path.exists(), can_run(path)) {
            (_, true) => Ok(()),
            (true, _) => Err((format!("`{shown}` is not executable"), codes::NOT_EXECUTABLE)),
            _ => Err((format!("there is no `{shown}`"), codes::NOT_FOUND)),
        };
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let candidates: Vec<PathBuf> =
        env::split_paths(&path).map(|dir| dir.join(program)).filter(|it| it.is_file()).collect();
    match candidates.iter().any(|it| can_run(it)) {
        true => Ok(()),
        false if candidates.is_empty() => {
            let text = match program.as_bytes().contains(&b' ') {
                // A whole line of a shell as one word.
                true => format!(
                    "command `{shown}` not found; for a line of a shell: -- sh -c '{shown}'"
                ),
                false => format!("command `{shown}` not found"),
            };
            Err((text, codes::NOT_FOUND))
        }
        false => Err((format!("`{shown}` is not executable"), codes::NOT_EXECUTABLE)),
    }
}

fn can_run(path: &Path) -> bool {
    path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_or_cannot_run_is_told_apart() {
        assert!(look_for(OsStr::new("sh")).is_ok());
        assert!(look_for(OsStr::new("/bin/sh")).is_ok());
        let code = |program: &str| look_for(OsStr::new(program)).unwrap_err().1;
        assert_eq!(code("no-such-command-anywhere"), codes::NOT_FOUND);
        let (line, _) = look_for(OsStr::new("echo hi")).unwrap_err();
        assert!(line.contains("-- sh -c 'echo hi'"), "{line}");
        assert_eq!(code("./no-such-command"), codes::NOT_FOUND);
        assert_eq!(code("/etc/passwd"), codes::NOT_EXECUTABLE);
        assert_eq!(code("/etc"), codes::NOT_EXECUTABLE);
    }
}
