//! Holds a lock with the same kind of guard over an existing etcd.
//!
//! Three instances start together and each writes a report under the lock. The file refuses late writers by their
//! token. The same code runs over every store whose grants have tokens; with Redis it does not compile. It needs an
//! etcd:
//!
//! ```console
//! $ ETCD_ADDR=http://127.0.0.1:2379 cargo run --package tenure-backends --example lock_over_etcd
//! ```

use std::sync::{Arc, Mutex};

use tenure_backends::{Backend, Error, Etcd, Fenced, Locks, Token};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let address = std::env::var("ETCD_ADDR").unwrap_or_else(|_| "http://127.0.0.1:2379".to_owned());
    let locks = Locks::new(Etcd::new(&address)?)?;
    for line in run(&locks).await? {
        println!("{line}");
    }
    Ok(())
}

/// What the lock protects: a file that remembers the largest token it has seen.
#[derive(Default)]
struct File {
    newest: Option<Token>,
    lines: Vec<String>,
}

impl File {
    fn append(&mut self, token: Token, line: String) -> bool {
        let late = self.newest.is_some_and(|newest| token < newest);
        if !late {
            self.newest = Some(token);
            self.lines.push(line);
        }
        !late
    }
}

/// Starts three instances at once, and returns the file that they wrote.
pub(crate) async fn run<B: Backend<Promise = Fenced>>(
    locks: &Locks<B>,
) -> Result<Vec<String>, Error> {
    let file = Arc::new(Mutex::new(File::default()));
    let instances = (0..3).map(|_| tokio::spawn(report(locks.clone(), file.clone())));
    for instance in instances.collect::<Vec<_>>() {
        instance.await.expect("an instance does not panic")?;
    }
    Ok(file.lock().expect("no task panics with it").lines.clone())
}

fn write(file: &Mutex<File>, token: Token, page: u32) {
    let mut file = file.lock().expect("no task panics with it");
    assert!(file.append(token, format!("page {page}")), "too late to write");
}

async fn report<B: Backend<Promise = Fenced>>(
    locks: Locks<B>,
    file: Arc<Mutex<File>>,
) -> Result<(), Error> {
    // Watches, tries, waits for the event. If the lock is lost, the work is dropped at its await.
    let guard = locks.lock("report").await?;
    let work = async {
        for page in 1..=2 {
            write(&file, guard.token(), page);
            tokio::task::yield_now().await;
        }
    };
    guard.run(work).await?;
    guard.release().await
}
