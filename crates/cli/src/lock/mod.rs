//! Holds a lock from a shell, without a command to run.

mod under;
pub(crate) mod wait;

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tenure::{Cause, Error, Guard, Lease, LockAsk, Standing};
use tokio::time::Instant;

use crate::connection_args::ConnectedCluster;
use crate::duration;
use crate::exit::Exit;
use crate::failure::{CliError, quoted};
use crate::loss;
use crate::output::{self, OutputFormat};
use crate::print_args::QuietArgs;
use crate::signals::{self, StopSignals};
use crate::waiting::were_ahead;
use wait::WaitDisplay;

/// Flags of `tenure lock`.
#[derive(Args)]
pub(crate) struct LockArgs {
    /// Which lock
    #[arg(value_parser = output::lock_name)]
    pub(crate) lock: String,
    /// A command, which other tools take here; it is not run, and the error names `tenure run`
    #[arg(hide = true, num_args = 0..)]
    command: Vec<String>,
    /// Queue at most this long; 0 tries once [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    wait: Option<Duration>,
    #[command(flatten)]
    args: AcquireArgs,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// Flags of `tenure try`.
#[derive(Args)]
pub(crate) struct TryArgs {
    /// Which lock
    #[arg(value_parser = output::lock_name)]
    lock: String,
    #[command(flatten)]
    args: AcquireArgs,
    #[command(flatten)]
    pub(crate) connection: QuietArgs,
}

/// How to hold a lock.
#[derive(Args, Clone)]
struct AcquireArgs {
    /// Acquire in shared (read) mode
    #[arg(long, conflicts_with = "slots")]
    shared: bool,
    /// Acquire one of N semaphore slots
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,
    /// Acquire so many of the slots, all or none
    #[arg(
        long,
        value_name = "N",
        requires = "slots",
        default_value = "1",
        hide_default_value = true
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    take: u32,
    /// Hold it under this lease, and return once it is held; its first digits will do
    #[arg(long, value_name = "LEASE", conflicts_with = "ttl")]
    lease: Option<String>,
    /// Lease TTL, 1s to 1h: how long the lock stays held after this process dies [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = duration::ttl)]
    ttl: Option<Duration>,
    /// Description shown when the lock is inspected
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    metadata: String,
    /// Delay before re-grant after involuntary loss
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "0", hide_default_value = true)]
    lock_delay: Duration,
    /// Take the lock away one ttl before this time, so that others can have it by then
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    max_hold: Option<Duration>,
    /// Not granted again before this time has passed since the grant, even if released earlier
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "0", hide_default_value = true)]
    min_hold: Duration,
    /// Replace older requests of this group that wait for the lock
    #[arg(long, value_name = "GROUP", value_parser = output::name)]
    supersede: Option<String>,
    /// How urgent it is, 0 to 9: each step counts as having asked 30s earlier
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    #[arg(value_parser = output::priority)]
    priority: u8,
    /// Promise progress: report a larger number within this time, each time, or lose the lock
    #[arg(long, value_name = "TIME", value_parser = duration::within)]
    progress_within: Option<Duration>,
    /// Turn the shared hold that the lease has into an exclusive one, once there is no other holder
    #[arg(long, requires = "lease", conflicts_with_all = ["shared", "slots"])]
    upgrade: bool,
    /// Hold it in the foreground also where stdout is a pipe, whose reader must not wait for its end
    #[arg(long, conflicts_with = "lease")]
    hold: bool,
    /// Repeat a request whose outcome is not known, with --lease
    #[arg(long, value_name = "ID", requires = "lease")]
    request_id: Option<String>,
}

/// How long reporting a loss may be delayed by releasing the lock.
const FAREWELL: Duration = Duration::from_secs(1);

/// The default ttl.
pub(crate) const TTL: Duration = Duration::from_secs(15);

/// Waits for a lock and holds it.
pub(crate) fn lock(flags: &LockArgs) -> Result<Exit, CliError> {
    if !flags.command.is_empty() {
        let words: Vec<String> = flags.command.iter().map(quoted).collect();
        let failure = CliError::arguments("`tenure lock` holds a lock by hand, and runs nothing");
        return Err(failure.with("effect", "none: no lock was asked for").next(format!(
            "tenure run {} -- {}",
            quoted(&flags.lock),
            words.join(" ")
        )));
    }
    acquire(&flags.lock, flags.wait, &flags.args, &flags.connection)
}

/// Acquires a lock if it is free, and holds it.
pub(crate) fn try_lock(flags: &TryArgs) -> Result<Exit, CliError> {
    acquire(&flags.lock, Some(Duration::ZERO), &flags.args, &flags.connection)
}

fn acquire(
    lock: &str,
    wait: Option<Duration>,
    args: &AcquireArgs,
    connection: &QuietArgs,
) -> Result<Exit, CliError> {
    if args.lease.is_none()
        && !args.hold
        && connection.output == OutputFormat::Text
        && output::is_piped()
    {
        // A shell waits in $(…) until this process ends, and it ends when the shell says so.
        let lock = quoted(lock);
        let text = "stdout is a pipe, as in $(…), which would wait for as long as the lock is held";
        return Err(CliError::arguments(text)
            .with("effect", "none: no lock was asked for")
            .with("try", format!("tenure run {lock} -- COMMAND, which finds the token in TENURE_TOKEN"))
            .with("or", format!("LEASE=$(tenure lease grant --ttl 5m); TOKEN=$(tenure try {lock} --lease $LEASE)"))
            .with("or", "the same with --hold, if what reads the pipe does not wait for its end"));
    }
    connection.with(async |cluster| match &args.lease {
        Some(lease) => under::acquire(cluster, lock, wait, args, lease).await,
        None => foreground(cluster, lock, wait, args).await,
    })
}

/// Holds a lock under a lease of its own until a signal or a loss.
async fn foreground(
    cluster: &ConnectedCluster,
    lock: &str,
    wait: Option<Duration>,
    args: &AcquireArgs,
) -> Result<Exit, CliError> {
    let mut asked = signals::listen()?;
    let ttl = args.ttl.unwrap_or(TTL);
    let not_acquired = |error| unanswered(&format!("lock `{lock}`"), ttl, error);
    let lease = cluster.client.lease(ttl).await.map_err(not_acquired)?;
    let waiting = WaitDisplay::new(cluster, lock, lease.id());
    let ask = args.configure(lease.lock(lock)).on_queued(waiting.teller());
    let ask = match wait {
        Some(wait) => ask.wait(wait),
        None => ask,
    };
    let began = Instant::now();
    let guard = tokio::select! {
        guard = ask.into_future() => guard,
        () = waiting.show() => unreachable!("it is shown until something else happens"),
        signal = asked.signal() => {
            waiting.clear();
            lease.revoke().await?;
            left(cluster, lock, waiting.ahead());
            return Ok(Exit::Signal(signal));
        }
    };
    waiting.clear();
    let guard = match guard {
        Ok(guard) => guard,
        // The place in the queue ended with the lease: no lock was held that could be lost.
        Err(Error::Lost(lost)) if !is_unreachable(lost.cause()) => {
            let lost = output::clean(&lost.to_string());
            let text = format!("lock `{lock}` was not acquired: {lost}");
            let lock = quoted(lock);
            return Err(CliError::new(Exit::NotAcquired, "LOST", text)
                .with("effect", "none: the queue position is gone")
                .next(format!("the same again; who has it: tenure explain {lock}")));
        }
        Err(error) => {
            let failure = wait::explained(cluster, lock, wait, not_acquired(error)).await;
            // A grant that the client did not see ends with the lease; a revocation that fails is not worth another
            // error.
            let _ = lease.revoke().await;
            return Err(failure);
        }
    };
    acquired(cluster, &guard, began.elapsed());
    hold_until_end(cluster, (guard, lease), ttl, &mut asked).await
}

/// The failure of a request under a lease of its own. Without an answer the lock may have been granted all the same,
/// but a process that ends now cannot hold it. Unlike with other unknown outcomes, there is no request id to repeat.
pub(crate) fn unanswered(what: &str, ttl: Duration, error: Error) -> CliError {
    let text = match &error {
        Error::Unknown { waited, .. } => {
            format!("{what}: no member could answer within {}", duration::shown(*waited))
        }
        Error::Lost(lost) if is_unreachable(lost.cause()) => {
            format!("{what} was not acquired: {}", output::clean(&lost.to_string()))
        }
        _ => return error.into(),
    };
    let ends = "what was granted unseen is given back, or ends with its lease";
    CliError::new(Exit::Unreachable, "UNANSWERED", text)
        .unknown(format!("{ends}, within {}", duration::shown(ttl)))
        .next("tenure doctor, or the same again")
}

fn is_unreachable(cause: Cause) -> bool {
    matches!(cause, Cause::Unreachable { .. })
}

impl AcquireArgs {
    fn configure(&self, mut ask: LockAsk) -> LockAsk {
        if self.shared {
            ask = ask.shared();
        }
        if let Some(slots) = self.slots {
            ask = ask.slots(slots).take(self.take);
        }
        if let Some(max) = self.max_hold {
            ask = ask.max_hold(max);
        }
        if let Some(group) = &self.supersede {
            ask = ask.supersede(group);
        }
        let progress_within = self.progress_within.unwrap_or_default();
        ask = ask.priority(self.priority).progress_within(progress_within);
        ask.lock_delay(self.lock_delay).min_hold(self.min_hold).metadata(self.metadata.clone())
    }
}

/// Holds until the lock is lost or a signal asks to end.
async fn hold_until_end(
    cluster: &ConnectedCluster,
    (guard, lease): (Guard, Lease),
    ttl: Duration,
    asked: &mut StopSignals,
) -> Result<Exit, CliError> {
    let began = Instant::now();
    let name = guard.locks().next().map(|lock| lock.name.clone()).unwrap_or_default();
    let token = guard.token();
    let mut standings = guard.standings();
    loop {
        tokio::select! {
            lost = guard.lost() => {
                let why = loss::cause_words(&lost, ttl);
                let held = began.elapsed();
                let failure = CliError::new(Exit::Lost, "LOST", format!("lock `{name}` lost: {why}"))
                    .with("held", loss::held_words(&guard, held))
                    .with("effect", format!("whatever ran under token {token} must stop; a fence refuses it"))
                    .with("look", format!("tenure history {} --from {}", quoted(&name), guard.revision()))
                    .field("lock", name.as_str())
                    .fields(loss::error_fields(&guard, held, &lost));
                // Release at once, as far as that is possible: stopping the work is up to this process, and it runs
                // none.
                let farewell = async {
                    let _ = guard.release().await;
                    let _ = lease.revoke().await;
                };
                let _ = tokio::time::timeout(FAREWELL, farewell).await;
                return Err(failure);
            }
            signal = asked.signal() => {
                let _ = signal;
                guard.release().await?;
                lease.revoke().await?;
                released(cluster, &name, began.elapsed());
                return Ok(Exit::Done);
            }
            changed = standings.changed() => {
                if changed.is_ok() && *standings.borrow_and_update() == Standing::Doubtful {
                    doubtful(cluster, &name);
                }
            }
        }
    }
}

fn acquired(cluster: &ConnectedCluster, guard: &Guard, waited: Duration) {
    let Some(lock) = guard.locks().next() else { return };
    let token = lock.token.to_string();
    let tokens: Vec<String> = guard.locks().map(|it| it.token.to_string()).collect();
    let slots: Vec<u32> = guard.locks().filter_map(|it| it.slot).collect();
    match cluster.output {
        OutputFormat::Json => {
            let mut said = json!({
                "event": "acquired", "lock": lock.name, "token": token,
                "lease": guard.lease().to_string(),
                "revision": guard.revision().to_string(), "waited_ms": millis(waited),
            });
            if let Some(slot) = lock.slot {
                said["slot"] = json!(slot);
            }
            if slots.len() > 1 {
                (said["tokens"], said["slots"]) = (json!(tokens), json!(slots));
            }
            output::object(&said);
        }
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => {
            output::out(&format!("{}\n", tokens.join("\n")));
            if output::watched() {
                let (slot, token) = (output::slots(&slots), tokens.join(", "));
                let text = format!("tenure: lock `{}` acquired, token {token}{slot}", lock.name);
                output::tell(&format!("{text}; held until Ctrl-C, in a script use --lease\n"));
            }
        }
    }
}

fn released(cluster: &ConnectedCluster, lock: &str, held: Duration) {
    match cluster.output {
        OutputFormat::Json => output::object(&json!({
            "event": "released", "lock": lock, "held_ms": millis(held),
        })),
        OutputFormat::Text if output::watched() && !cluster.quiet => {
            let held = duration::shown(held);
            output::tell(&format!("tenure: lock `{lock}` released after {held}\n"));
        }
        OutputFormat::Text => {}
    }
}

fn doubtful(cluster: &ConnectedCluster, lock: &str) {
    match cluster.output {
        OutputFormat::Json => output::object(&json!({ "event": "doubtful", "lock": lock })),
        OutputFormat::Text if cluster.quiet => {}
        OutputFormat::Text => output::tell(&format!(
            "tenure: lock `{lock}`: renewal overdue, none was acknowledged in time, trying other members\n"
        )),
    }
}

fn left(cluster: &ConnectedCluster, lock: &str, ahead: Option<u64>) {
    match (cluster.output, ahead) {
        (OutputFormat::Json, _) => {
            output::object(&json!({ "event": "left", "lock": lock, "ahead": ahead }));
        }
        (OutputFormat::Text, _) if cluster.quiet => {}
        (OutputFormat::Text, Some(ahead)) => {
            let ahead = were_ahead(ahead);
            output::tell(&format!("tenure: left the queue of lock `{lock}`, {ahead}\n"));
        }
        (OutputFormat::Text, None) => output::tell(&format!("tenure: gave up lock `{lock}`\n")),
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
