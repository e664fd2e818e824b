//! Lets many clients read a cache together while one at a time rebuilds it.
//!
//! Readers hold the lock shared. The client that rebuilds the cache holds the lock exclusively and then downgrades: no
//! other client gets in between the new contents and the first read of them.

use tenure::{Client, Error};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::from_env().await?;
    println!("read {:?}", run(&client).await?);
    Ok(())
}

/// Returns what readers saw: before the cache was rebuilt, the rebuilder right after, and two readers together.
pub(crate) async fn run(client: &Client) -> Result<Vec<String>, Error> {
    let mut seen = vec![read(client).await?];

    let mut writer = client.lock("cache").await?;
    client.key("cache/page").guarded_by(&writer).put("version 2").await?;
    writer.downgrade().await?;
    // Other clients may read from here on; none can write while this guard exists.
    seen.push(text(client).await?);
    let (one, other) = tokio::join!(read(client), read(client));
    seen.extend([one?, other?]);
    writer.release().await?;
    Ok(seen)
}

async fn read(client: &Client) -> Result<String, Error> {
    client.lock("cache").shared().run(async |_| text(client).await).await
}

async fn text(client: &Client) -> Result<String, Error> {
    let page = client.key("cache/page").get().await?;
    Ok(page.map_or("empty".to_owned(), |it| String::from_utf8_lossy(&it.value).into_owned()))
}
