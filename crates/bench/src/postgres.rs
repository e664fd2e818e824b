//! Measures what the fence in PostgreSQL costs, in round trips and in time.

use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tenure_fence::Token;
use tenure_fence::postgres::{MIGRATION, check};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_postgres::{Client, NoTls, Statement};

use crate::clock::timed;
use crate::run_results::RunResults;

/// The number of transactions of each kind, alternating; the median counts.
const ROUNDS: u64 = 500;
/// How often to try to connect to a server that is starting.
const TRIES: u32 = 3_000;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// Updates a row in transactions, with the fence and without, on a server of its own.
pub(crate) fn run(quick: bool, results: &mut RunResults) -> Result<()> {
    let Some(programs) = programs() else {
        eprintln!("  no PostgreSQL on this machine: what its fence costs was not measured");
        return Ok(());
    };
    let server = PostgresServer::start(&programs)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut client, trips) = runtime.block_on(server.connect())?;
    let update = runtime.block_on(set_up(&client))?;
    let rounds = if quick { 10 } else { ROUNDS };
    let (mut plain, mut fenced) = (TransactionTimes::default(), TransactionTimes::default());
    for round in 0..=rounds {
        let token = Token::from_u64(round + 1).context("small numbers are tokens")?;
        for (kind, token) in [(&mut plain, None), (&mut fenced, Some(token))] {
            let before = trips.load(Ordering::Relaxed);
            let (done, took) = timed(|| runtime.block_on(transaction(&mut client, &update, token)));
            done?;
            // The first round of each kind is for warming up.
            if round > 0 {
                kind.took.push(took);
                kind.trips += trips.load(Ordering::Relaxed) - before;
            }
        }
    }
    let paid = runtime.block_on(client.query_one("select paid from ledger", &[]))?;
    ensure!(paid.get::<_, i64>(0) == i64::try_from(2 * (rounds + 1))?, "all were committed");
    let (plain_us, fenced_us) = (plain.median_us(), fenced.median_us());
    let each = |kind: &TransactionTimes| kind.trips as f64 / rounds as f64;
    results.add("postgres_trips", each(&plain), "round trips of a transaction with one update");
    results.add(
        "postgres_fence_trips",
        each(&fenced) - each(&plain),
        "round trips that the fence adds to it (to stay at or below: 1)",
    );
    results.add("postgres_us", plain_us, "µs of the transaction, server on this machine, median");
    results.add("postgres_fence_us", fenced_us - plain_us, "µs that the fence adds to it");
    Ok(())
}

async fn set_up(client: &Client) -> Result<Statement> {
    client.batch_execute(MIGRATION).await?;
    client
        .batch_execute("create table ledger (paid bigint); insert into ledger values (0)")
        .await?;
    Ok(client.prepare("update ledger set paid = paid + 1").await?)
}

async fn transaction(client: &mut Client, update: &Statement, token: Option<Token>) -> Result<()> {
    let tx = client.transaction().await?;
    if let Some(token) = token {
        check(&tx, "ledger", token).await?;
    }
    tx.execute(update, &[]).await?;
    Ok(tx.commit().await?)
}

/// The times of transactions of one kind.
#[derive(Default)]
struct TransactionTimes {
    took: Vec<Duration>,
    trips: u64,
}

impl TransactionTimes {
    fn median_us(&mut self) -> f64 {
        self.took.sort_unstable();
        self.took[self.took.len() / 2].as_secs_f64() * 1e6
    }
}

/// A server in a directory of its own, with its default settings. It ends with this value.
struct PostgresServer {
    port: u16,
    child: Child,
    _dir: TempDir,
}

impl PostgresServer {
    fn start(programs: &Path) -> Result<Self> {
        let dir = tempfile::tempdir().context("a directory for PostgreSQL")?;
        let data = dir.path().join("data");
        // PostgreSQL refuses to run as root.
        let root = dir.path().metadata()?.uid() == 0;
        if root {
            chown(dir.path(), Some(user()?), None)?;
        }
        let mut init = as_user(root, &programs.join("initdb"));
        init.args(["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D"]).arg(&data);
        let said = init.output().context("cannot start initdb")?;
        ensure!(said.status.success(), "initdb: {}", String::from_utf8_lossy(&said.stderr));
        // Free at this moment; if another process takes it in between, the server reports that and ends.
        let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut serve = as_user(root, &programs.join("postgres"));
        serve.arg("-D").arg(&data).arg("-k").arg(dir.path());
        serve.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
        let child = serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Ok(Self { port, child: child.context("cannot start postgres")?, _dir: dir })
    }

    /// Opens a connection with a counter of round trips: how often something was sent after something had been
    /// received.
    async fn connect(&self) -> Result<(Client, Arc<AtomicU64>)> {
        let mut settings = tokio_postgres::Config::new();
        settings.user("postgres").dbname("postgres");
        for _ in 0..TRIES {
            if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await {
                stream.set_nodelay(true)?;
                let trips = Arc::new(AtomicU64::new(0));
                let counted = CountingStream { stream, trips: Arc::clone(&trips), heard: true };
                // The port is open before the server has started up.
                if let Ok((client, connection)) = settings.connect_raw(counted, NoTls).await {
                    tokio::spawn(connection);
                    return Ok((client, trips));
                }
            }
            tokio::time::sleep(BETWEEN_TRIES).await;
        }
        anyhow::bail!("PostgreSQL does not answer")
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // Gracefully: a killed server leaves shared memory behind.
        let pid = self.child.id().to_string();
        let asked = Command::new("kill").args(["-INT", &pid]).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// A stream that counts round trips.
struct CountingStream {
    stream: TcpStream,
    trips: Arc<AtomicU64>,
    /// Whether something was received since something was sent.
    heard: bool,
}

impl AsyncRead for CountingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = to.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, to);
        self.heard |= to.filled().len() > before;
        read
    }
}

impl AsyncWrite for CountingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_ready() && std::mem::take(&mut self.heard) {
            self.trips.fetch_add(1, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Where Debian installs the newest server.
fn programs() -> Option<PathBuf> {
    let found = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let versions = found.filter_map(|it| Some(it.ok()?.path().join("bin")));
    versions.filter(|bin| bin.join("initdb").exists()).max()
}

/// The user that the package created.
fn user() -> Result<u32> {
    let users = std::fs::read_to_string("/etc/passwd")?;
    let id = users.lines().find_map(|line| line.strip_prefix("postgres:x:")?.split(':').next());
    Ok(id.context("there is no user postgres")?.parse()?)
}

/// A command that ends with this process, run as that user if root may not run it.
fn as_user(root: bool, program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    if root {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).current_dir("/");
    }
    command.args(["--pdeathsig", "INT", "--"]).arg(program);
    command
}
