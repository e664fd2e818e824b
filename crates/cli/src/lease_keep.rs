//! Keeps a lease alive from a shell, while a command runs or until a signal.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command as Process, ExitStatus};
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tenure_wire::v1;
use tokio::sync::oneshot;
use tokio::time::Instant;
use v1::answer::Result as Answer;
use v1::request::Command;

use crate::connection_args::{ConnectedCluster, flag_or_variable};
use crate::duration;
use crate::exit::Exit;
use crate::failure::CliError;
use crate::lease::{self, RENEWED_IN};
use crate::output::{self, OutputFormat};
use crate::print_args::QuietArgs;
use crate::signals;

/// The part of the ttl for which an acknowledged renewal is relied on, as in the SDK.
const RELIED_ON: u32 = 2;
/// The pause after a renewal that failed.
const AGAIN: Duration = Duration::from_millis(200);

/// Flags of `tenure lease keep`.
#[derive(Args)]
pub(crate) struct KeepArgs {
    /// Which; its first digits will do [env: TENURE_LEASE]
    lease: Option<String>,
    /// Keep it while this command runs
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Renews the lease until the command ends, a signal comes, or the lease is lost.
pub(crate) fn keep(flags: &KeepArgs) -> Result<Exit, CliError> {
    let given: String = flag_or_variable(flags.lease.clone(), "LEASE", "TENURE_LEASE")?;
    flags.connection.with(async |cluster| {
        let lease = lease::find(cluster, &given).await?;
        let mut asked = signals::listen()?;
        // The first renewal tells whether the lease can be kept at all: nothing is started before it.
        let first = renew_once(cluster, lease).await?;
        let (child, mut ended) = start(flags, lease)?;
        let mut kept = std::pin::pin!(renew(cluster, lease, first));
        loop {
            tokio::select! {
                failure = &mut kept => {
                    if let Some(child) = child {
                        stop(child, &mut ended).await;
                    }
                    return Err(failure);
                }
                end = &mut ended, if child.is_some() => return Ok(exit(end.ok())),
                signal = asked.signal() => match child {
                    Some(child) => {
                        let signal = Signal::from_named_raw(i32::from(signal));
                        let _ = kill_process(child, signal.unwrap_or(Signal::TERM));
                    }
                    None => return Ok(Exit::Done),
                }
            }
        }
    })
}

/// Starts the command, if there is one.
fn start(
    flags: &KeepArgs,
    lease: i64,
) -> Result<(Option<Pid>, oneshot::Receiver<ExitStatus>), CliError> {
    let (tell, ended) = oneshot::channel();
    let [program, arguments @ ..] = &flags.command[..] else { return Ok((None, ended)) };
    let mut command = Process::new(program);
    command.args(arguments).env("TENURE_LEASE", lease.to_string());
    let mut child = command.spawn().map_err(|error| {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        let exit = Exit::Command(if missing { 127 } else { 126 });
        let text = format!("cannot run `{}`: {error}", program.display());
        CliError::new(exit, "NOT_STARTED", text)
            .with("effect", "none: the lease goes on without it")
    })?;
    let pid = Pid::from_child(&child);
    std::thread::spawn(move || child.wait().map(|status| tell.send(status)));
    Ok((Some(pid), ended))
}

fn exit(status: Option<ExitStatus>) -> Exit {
    let Some(status) = status else { return Exit::Refused };
    let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
    match (status.code().and_then(|code| u8::try_from(code).ok()), signal) {
        (Some(code), _) => Exit::Command(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Refused,
    }
}

/// An acknowledged renewal.
struct KeptRenewal {
    sent: Instant,
    ttl: Duration,
}

/// Renews the lease once. A lease that no longer exists is lost; after any other error it may exist.
async fn renew_once(cluster: &ConnectedCluster, lease: i64) -> Result<KeptRenewal, CliError> {
    let sent = Instant::now();
    let renewal = v1::RenewRequest { leases: vec![lease], ..Default::default() };
    match cluster.client.ask(Command::Renew(renewal), None).await? {
        (Answer::Renewed(it), _) => match it.ttl_ms.first() {
            Some(0) | None => Err(lost(lease, "it has ended or was revoked")),
            Some(ttl_ms) => Ok(KeptRenewal { sent, ttl: Duration::from_millis(*ttl_ms) }),
        },
        _ => Err(CliError::new(Exit::Refused, "STRANGE_ANSWER", "the renewal had another answer")),
    }
}

/// Renews the lease until it is lost, and returns why.
async fn renew(cluster: &ConnectedCluster, lease: i64, first: KeptRenewal) -> CliError {
    kept(cluster, lease, first.ttl);
    let mut last = first;
    tokio::time::sleep(last.ttl / RENEWED_IN).await;
    loop {
        let until = last.sent + last.ttl / RELIED_ON;
        let pause = match tokio::time::timeout_at(until, renew_once(cluster, lease)).await {
            Ok(Ok(renewal)) => {
                last = renewal;
                last.ttl / RENEWED_IN
            }
            Ok(Err(failure)) if failure.exit == Exit::Lost => return failure,
            Ok(Err(_)) | Err(_) if Instant::now() >= until => {
                let silent = duration::shown(last.sent.elapsed());
                return lost(lease, &format!("no renewal was acknowledged for {silent}"));
            }
            Ok(Err(_)) | Err(_) => AGAIN,
        };
        tokio::time::sleep(pause).await;
    }
}

fn kept(cluster: &ConnectedCluster, lease: i64, ttl: Duration) {
    if cluster.output == OutputFormat::Json {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let kept = json!({ "event": "kept", "lease": lease.to_string(), "ttl_ms": ttl_ms });
        output::tell_object(&kept);
    } else if output::watched() && !cluster.quiet {
        let (lease, ttl) = (lease::short(lease), duration::shown(ttl));
        output::tell(&format!("tenure: lease {lease} is kept, ttl {ttl}\n"));
    }
}

fn lost(lease: i64, why: &str) -> CliError {
    CliError::new(Exit::Lost, "LOST", format!("lease {} lost: {why}", lease::short(lease)))
        .with("effect", "whatever ran under it must stop; its command was told to")
        .field("lease", lease.to_string())
        .next("tenure lease grant --ttl 60s")
}

/// Stops the command: SIGTERM, and SIGKILL if it has not ended a moment later.
async fn stop(child: Pid, ended: &mut oneshot::Receiver<ExitStatus>) {
    const GRACE: Duration = Duration::from_secs(1);
    let _ = kill_process(child, Signal::TERM);
    if tokio::time::timeout(GRACE, &mut *ended).await.is_err() {
        let _ = kill_process(child, Signal::KILL);
        let _ = ended.await;
    }
}
