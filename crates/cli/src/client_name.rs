//! Builds the default name under which other clients see this one: `ana@ci-7/4121`, or `ana@ci-7/4121:migrate.sh`.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use rustix::process::{Uid, geteuid};

/// What the name of a client ends with whose lease `tenure lease grant` took.
pub(crate) const GRANTED_SUFFIX: &str = ":lease-grant";
/// The longest name of a command that becomes a part of the name.
const COMMAND_CHARS_MAX: usize = 40;

/// The user, the host and the process id; with a command also its name, without its directory and its arguments, which
/// may be secret.
pub(crate) fn default_name(command: Option<&OsStr>) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = Some(host.trim()).filter(|host| !host.is_empty()).unwrap_or("unnamed");
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = user(&users, geteuid());
    let command = command.and_then(|it| Path::new(it).file_name());
    let command = command.map_or(String::new(), |it| format!(":{}", shown(it)));
    format!("{user}@{host}/{}{command}", std::process::id())
}

/// The name under which `tenure lease grant` takes a lease: a given name, or the default one with a suffix that says
/// that the process does not live as long as the lease.
pub(crate) fn granted_name(name: &str) -> String {
    if name == default_name(None) { format!("{name}{GRANTED_SUFFIX}") } else { name.to_owned() }
}

/// The name of a user in a list like `/etc/passwd`, or else the number.
fn user(users: &str, uid: Uid) -> String {
    let number = uid.as_raw().to_string();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number && !name.is_empty()).then_some(name)
    });
    named.map_or_else(|| format!("uid{number}"), str::to_owned)
}

fn shown(command: &OsStr) -> String {
    let text = command.to_string_lossy();
    text.chars().filter(|c| !c.is_control() && !c.is_whitespace()).take(COMMAND_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_user_and_the_command_without_its_arguments() {
        let users = "root:x:0:0:root:/root:/bin/sh\nana:x:1000:1000::/home/ana:/bin/sh\n";
        assert_eq!(user(users, Uid::from_raw(1000)), "ana");
        assert_eq!(user(users, Uid::from_raw(77)), "uid77");
        let name = default_name(Some(OsStr::new("./tools/migrate db.sh")));
        assert!(name.ends_with(&format!("/{}:migratedb.sh", std::process::id())), "{name}");
        assert!(default_name(None).contains('@'), "{}", default_name(None));
    }
}
