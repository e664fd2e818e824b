//! Starts the processes of a system, and ends those that it started.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tenure_server::os;

/// How long a server may take to serve.
const START_MAX: Duration = Duration::from_secs(60);
/// The pause between two probes of a server that starts.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a question about a server's state may take.
const ASK_MAX: Duration = Duration::from_secs(5);

/// What one server is started with.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The address for clients.
    pub address: String,
    /// The address of its counters, if it differs from `address`.
    pub status: String,
    /// The file for its output.
    pub log: PathBuf,
}

/// One server process. It is killed when this is dropped, or when the thread that started it ends.
struct PeerServer {
    spec: ServerSpec,
    process: Child,
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        // It may have ended; its data is not needed any more.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// All servers of a system.
pub struct PeerServers {
    servers: Vec<PeerServer>,
}

impl PeerServers {
    /// Starts a process for each of these.
    pub fn start(specs: Vec<ServerSpec>) -> Result<Self> {
        let server = |spec: ServerSpec| Ok(PeerServer { process: spawn(&spec)?, spec });
        Ok(Self { servers: specs.into_iter().map(server).collect::<Result<_>>()? })
    }

    /// Where clients connect, one address for each server.
    pub fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|it| it.spec.address.clone()).collect()
    }

    /// Where the counters are, one address for each server.
    pub fn statuses(&self) -> impl Iterator<Item = &str> {
        self.servers.iter().map(|it| it.spec.status.as_str())
    }

    /// The processes.
    pub fn pids(&self) -> Vec<u32> {
        self.servers.iter().map(|it| it.process.id()).collect()
    }

    /// Waits until a question that is asked again and again has an answer.
    pub async fn until<T>(
        &mut self,
        what: &str,
        mut ask: impl AsyncFnMut() -> Option<T>,
    ) -> Result<T> {
        let until_us = os::now_us() + os_us(START_MAX);
        loop {
            if let Ok(Some(answer)) = tokio::time::timeout(ASK_MAX, ask()).await {
                return Ok(answer);
            }
            for server in &mut self.servers {
                if let Some(ended) = server.process.try_wait()? {
                    bail!("{what}: a server ended with {ended}: {}", tail(&server.spec.log));
                }
            }
            if os::now_us() > until_us {
                let log = self.servers.first().map(|it| tail(&it.spec.log)).unwrap_or_default();
                bail!("{what}: not within {START_MAX:?}: {log}");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Kills one server, as if its machine had failed.
    pub fn kill(&mut self, at: usize) -> Result<()> {
        let server =
            self.servers.get_mut(at).with_context(|| format!("there is no server {at}"))?;
        server.process.kill().context("killing a server")?;
        server.process.wait().context("waiting for the end of a server")?;
        Ok(())
    }
}

fn spawn(spec: &ServerSpec) -> Result<Child> {
    let log = File::options().create(true).append(true).open(&spec.log);
    let log = log.with_context(|| format!("making {}", spec.log.display()))?;
    // The kernel ends the server when this program ends in any way.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(&spec.program).args(&spec.arguments);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("starting {}", spec.program.display()))
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

/// Ports on loopback that are free now. All are held until the last is found, so that they differ.
pub fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT]> {
    let held: std::io::Result<Vec<TcpListener>> =
        (0..COUNT).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    let held = held.context("finding free ports")?;
    let mut ports = [0; COUNT];
    for (port, held) in ports.iter_mut().zip(&held) {
        *port = held.local_addr()?.port();
    }
    Ok(ports)
}

/// Sends bytes to a server and reads its answer to the end.
pub fn ask(address: &str, question: &str) -> Result<String> {
    let address: SocketAddr = address.parse().context("an address is an ip and a port")?;
    let mut stream = TcpStream::connect_timeout(&address, ASK_MAX)?;
    stream.set_read_timeout(Some(ASK_MAX))?;
    stream.write_all(question.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Reads a page over HTTP.
pub fn get(address: &str, path: &str) -> Result<String> {
    ask(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n"))
}

/// The value of a counter in the text form of Prometheus; the sum, if there are several with labels.
pub fn counter(page: &str, name: &str) -> Option<u64> {
    let of = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            Some(labelled) => labelled.split_once('}')?.1,
            None => rest,
        };
        let value: f64 = value.strip_prefix([' ', '\t'])?.trim().parse().ok()?;
        whole(value)
    };
    page.lines().filter_map(of).reduce(|sum, value| sum + value)
}

/// A count that was printed as a number with a fraction.
fn whole(value: f64) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, reason = "it is checked to be a count")]
    (0.0..1e15).contains(&value).then_some(value as u64)
}

/// A duration on the clock of the benchmarks.
pub(crate) fn os_us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_over_their_labels() {
        let page = "# HELP a_total x\na_total 7\na_total_more 9\nb_count{x=\"1\"} 2\nb_count{x=\"2\"} 3e1\n";
        assert_eq!(counter(page, "a_total"), Some(7));
        assert_eq!(counter(page, "b_count"), Some(32));
        assert_eq!(counter(page, "c"), None);
    }
}
