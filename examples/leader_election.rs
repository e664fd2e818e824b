//! Elects one of several processes as leader, and shows the others where it is.

use tenure::{Change, Client, Error, Observer};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::from_env().await?;
    for seen in run(&client).await? {
        println!("{seen}");
    }
    Ok(())
}

/// Lets two candidates lead one after the other, and returns what an observer saw.
pub(crate) async fn run(client: &Client) -> Result<Vec<String>, Error> {
    let election = client.election("billing");
    let mut observer = election.observe().await?;
    let mut seen = vec![next(&mut observer).await?];

    let first = election.campaign("10.0.0.5:9000").await?;
    seen.push(next(&mut observer).await?);
    let waiting = tokio::spawn({
        let election = election.clone();
        async move { election.campaign("10.0.0.6:9000").await }
    });
    // The work of the leader: dropped at its await if leadership is lost.
    first.run(async { println!("leading under token {}", first.guard().token()) }).await?;
    first.proclaim("10.0.0.5:9001").await?;
    seen.push(next(&mut observer).await?);
    first.resign().await?;

    let second = waiting.await.expect("a candidate does not panic")?;
    // The observer may see the moment between the two, in which no candidate leads.
    let mut change = next(&mut observer).await?;
    if change == "no leader" {
        change = next(&mut observer).await?;
    }
    seen.push(change);
    second.resign().await?;
    Ok(seen)
}

async fn next(observer: &mut Observer) -> Result<String, Error> {
    Ok(match observer.next().await? {
        Some(Change::Leader(leader)) => String::from_utf8_lossy(&leader.value).into_owned(),
        _ => "no leader".to_owned(),
    })
}
