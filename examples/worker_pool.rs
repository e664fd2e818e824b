//! Shares three numbered licences among workers on many machines.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::{Client, Error};

const LICENCES: u32 = 3;
const JOBS: usize = 9;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::from_env().await?;
    println!("at most {} of {JOBS} jobs at once", run(&client).await?);
    Ok(())
}

/// Returns the largest number of jobs that ran at once.
pub(crate) async fn run(client: &Client) -> Result<usize, Error> {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let jobs = (0..JOBS).map(|job| {
        let (client, running, most) = (client.clone(), running.clone(), most.clone());
        tokio::spawn(async move {
            let permit = client.lock("licences").slots(LICENCES).await?;
            let slot = permit.slot().unwrap_or_default();
            let work = async {
                most.fetch_max(running.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
                println!("job {job} with licence {slot} on port {}", 9_000 + slot);
                tokio::time::sleep(Duration::from_millis(20)).await;
                running.fetch_sub(1, Ordering::AcqRel);
            };
            permit.run(work).await?;
            permit.release().await
        })
    });
    for job in jobs.collect::<Vec<_>>() {
        job.await.expect("a job does not panic")?;
    }
    Ok(most.load(Ordering::Acquire))
}
