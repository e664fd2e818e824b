//! Runs a job once per tick, although every machine has it in its crontab.
//!
//! A machine that does not get the lock at once has nothing to do. A late machine finds the lock free again, so each
//! run is also recorded, under the guard.

use tenure::{Client, Error, Refusal};

const TICKS: usize = 3;
const MACHINES: usize = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::from_env().await?;
    for (tick, times) in run(&client).await?.into_iter().enumerate() {
        println!("tick {tick} ran {times} times");
    }
    Ok(())
}

/// Returns how often the job ran, for each tick.
pub(crate) async fn run(client: &Client) -> Result<Vec<usize>, Error> {
    let mut ran = Vec::new();
    for tick in 0..TICKS {
        let machines = (0..MACHINES).map(|_| tokio::spawn(fire(client.clone(), tick)));
        let mut times = 0;
        for machine in machines.collect::<Vec<_>>() {
            times += usize::from(machine.await.expect("a machine does not panic")?);
        }
        ran.push(times);
    }
    Ok(ran)
}

/// What crontab starts on every machine. Returns whether the job ran here.
async fn fire(client: Client, tick: usize) -> Result<bool, Error> {
    let guard = match client.lock("cron/report").no_wait().await {
        Ok(guard) => guard,
        Err(Error::Refused(Refusal::Held(held))) => {
            println!("skipped: {held}");
            return Ok(false);
        }
        Err(other) => return Err(other),
    };
    let mark = client.key(format!("cron/report/{tick}")).if_absent().guarded_by(&guard);
    let first = match mark.put("done").await {
        Ok(_) => true,
        Err(Error::Refused(Refusal::CompareFailed { .. })) => false,
        Err(other) => return Err(other),
    };
    if first {
        guard.run(async { println!("the report of tick {tick}") }).await?;
    }
    guard.release().await?;
    Ok(first)
}
