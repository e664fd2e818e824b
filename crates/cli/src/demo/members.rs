//! Starts and stops the members of the tour.

use std::ffi::OsStr;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tenure_server::os;

use crate::failure::CliError;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three processes of this binary on loopback, and their temporary directory.
pub(super) struct DemoMembers {
    dir: PathBuf,
    running: Vec<(Child, String)>,
}

impl DemoMembers {
    /// Starts the members; they form a cluster by themselves.
    pub(super) fn start() -> Result<Self, CliError> {
        let failed =
            |error: std::io::Error| CliError::refused(format!("cannot start members: {error}"));
        let dir = std::env::temp_dir().join(format!("tenure-demo-{:016x}", os::random()));
        let mut members = Self { dir, running: Vec::new() };
        std::fs::create_dir_all(&members.dir).map_err(failed)?;
        let ports = ports(2 * NAMES.len()).map_err(failed)?;
        let (clients, peers) = ports.split_at(NAMES.len());
        let address = |port: &u16| format!("127.0.0.1:{port}");
        let listed =
            NAMES.iter().zip(peers).map(|(name, port)| format!("{name}={}", address(port)));
        let listed = listed.collect::<Vec<_>>().join(",");
        let program = std::env::current_exe().map_err(failed)?;
        for ((name, client), peer) in NAMES.iter().zip(clients).zip(peers) {
            let log = File::create(members.dir.join(format!("{name}.log"))).map_err(failed)?;
            let mut command = Command::new(&program);
            // The user's TENURE_ variables describe another cluster and must not reach these members.
            for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(name)) {
                command.env_remove(name);
            }
            let child = command
                .args(["serve", "--while-stdin", "--name", name, "--bootstrap", &listed])
                .args(["--clients", &address(client), "--members", &address(peer)])
                .args(["--health", "none", "--data"])
                .arg(members.dir.join(name))
                // The member ends with this process, however it ends: its stdin closes.
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .map_err(failed)?;
            members.running.push((child, address(client)));
        }
        Ok(members)
    }

    /// The members' client addresses, separated by commas.
    pub(super) fn addresses(&self) -> String {
        self.running.iter().map(|(_, address)| address.as_str()).collect::<Vec<_>>().join(",")
    }

    /// Kills the member with this client address, as `kill -9` does.
    pub(super) fn kill(&mut self, address: &str) {
        for (child, known) in &mut self.running {
            if known == address {
                // An error means that the member has already exited.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

impl Drop for DemoMembers {
    fn drop(&mut self) {
        for (child, _) in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn is_ours(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"TENURE_")
}

/// Ports that are free now. All listeners stay bound until all ports are known, so that none repeats.
fn ports(count: usize) -> std::io::Result<Vec<u16>> {
    let bound: std::io::Result<Vec<TcpListener>> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect();
    bound?.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
