//! Measures what an idle lease costs.
//!
//! It runs in a process of its own, so that only the client is counted: one client with many leases at the default ttl,
//! kept alive over several renewals.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tenure::{Client, Lease, Standing};
use tenure_server::os;

use crate::memory::resident_bytes;
use crate::run_results::RunResults;

const TTL: Duration = Duration::from_secs(15);
/// The number of leases that are granted at once.
const AT_ONCE: usize = 200;

pub(super) fn measure(
    address: SocketAddr,
    leases: usize,
    quick: bool,
    results: &mut RunResults,
) -> Result<()> {
    let seconds = if quick { 6 } else { 30 };
    let program = std::env::current_exe().context("finding this program")?;
    let output = Command::new(program)
        .args(["idle", &address.to_string(), &leases.to_string(), &seconds.to_string()])
        .output()
        .context("starting a process to keep leases in")?;
    let said = String::from_utf8(output.stdout)?;
    let why = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "keeping leases alive failed: {why}");
    let numbers: Vec<f64> =
        said.split_whitespace().map(str::parse).collect::<Result<_, _>>().context("reading it")?;
    let &[bytes, tasks, cpu, lost] = &numbers[..] else { anyhow::bail!("four numbers: {said}") };
    results.add("idle_lease_bytes", bytes, format!("bytes per idle lease handle, of {leases}"));
    results.add("idle_lease_tasks", tasks, "tasks per idle lease handle");
    let meaning = format!("% of one core to keep {leases} leases of 15 s alive");
    results.add("idle_leases_cpu_percent", cpu, meaning);
    let meaning = format!("of {leases} leases lost in {seconds} s (to stay: 0)");
    results.add("idle_leases_lost", lost, meaning);
    Ok(())
}

/// Keeps `leases` leases for `seconds`; prints bytes and tasks for each, the share of a core, and how many were lost.
pub(crate) fn keep(address: &str, leases: usize, seconds: u64) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let builder = Client::builder().address(address).name("idle").ttl(TTL);
        let client = builder.timeout(Duration::from_secs(30)).connect().await?;
        // The first lease is not counted, because it also pays for what all leases share.
        let first = client.lease(TTL).await?;
        let metrics = tokio::runtime::Handle::current().metrics();
        let (bytes, tasks) = (resident_bytes()?, metrics.num_alive_tasks());
        let mut held: Vec<Lease> = vec![first];
        while held.len() < leases {
            let mut asking = tokio::task::JoinSet::new();
            for _ in 0..AT_ONCE.min(leases - held.len()) {
                let client = client.clone();
                asking.spawn(async move { client.lease(TTL).await });
            }
            while let Some(lease) = asking.join_next().await {
                held.push(lease??);
            }
        }
        let grown = resident_bytes()?.saturating_sub(bytes) as f64 / leases as f64;
        let more = metrics.num_alive_tasks().saturating_sub(tasks) as f64 / leases as f64;
        let (cpu_us, from_us) = (cpu_us()?, os::now_us());
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let took_us = (os::now_us() - from_us) as f64;
        let cpu = (self::cpu_us()? - cpu_us) as f64 / took_us * 100.0;
        let lost = held.iter().filter(|it| matches!(it.standing(), Standing::Lost(_))).count();
        println!("{grown} {more} {cpu} {lost}");
        Ok(())
    })
}

/// The CPU time of this process.
fn cpu_us() -> Result<u64> {
    let mut ns = 0;
    for task in std::fs::read_dir("/proc/self/task").context("listing threads")? {
        let path = task.context("listing threads")?.path().join("schedstat");
        // A thread may end between being listed and being read.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        ns += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(ns / 1_000)
}
