//! Reads the keys that verify tickets, and keeps them up to date.
//!
//! The keys come from any member over HTTP, in plain text or under TLS, or from a file that the operator keeps up to
//! date. They are read again every half minute, and when a ticket names an unknown key. The set that was used last is
//! kept beside the data: a restart needs no cluster, and never goes back to keys from before a restore, nor to one that
//! was rotated away.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tenure_fence::ticket::{BadSet, Forged, KeySet, Resource, Ticket, Tickets};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep, sleep_until};

use crate::key_source::{KeySource, KeySourceTls};
use crate::listen::StartError;
use crate::trust::Tell;

/// The name of the kept set, in the data directory.
const KEPT: &str = "keys.json";
/// The interval of regular reads. A leaked key is accepted for that long after it was rotated away.
const EVERY: Duration = Duration::from_secs(30);
/// The minimum time between two reads on demand: any client can name an unknown key.
const AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// The keys, and their sources.
pub(crate) struct VerificationKeys {
    tickets: Tickets,
    places: Vec<KeySource>,
    kept: PathBuf,
    tell: Tell,
    /// Serialises reads.
    reading: Arc<Mutex<LastRead>>,
}

/// The state of the last read.
#[derive(Default)]
struct LastRead {
    began: Option<Instant>,
    /// The set as it is kept.
    text: String,
    failing: bool,
}

impl VerificationKeys {
    /// Reads the set from one of these sources, or else the one that was kept the last time.
    pub(crate) fn open(
        places: &[String],
        tls: Option<&KeySourceTls>,
        data: &Path,
        tell: Tell,
    ) -> Result<Self, StartError> {
        let unusable = |why: String| StartError::Setting(format!("--keys {why}"));
        let places =
            places.iter().map(|it| KeySource::parse(it, tls)).collect::<Result<Vec<_>, _>>();
        let places = places.map_err(unusable)?;
        if places.is_empty() {
            return Err(unusable("names no place".to_owned()));
        }
        let kept = data.join(KEPT);
        let before = read_kept(&kept)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|source| StartError::Disk { what: "a thread".to_owned(), source })?;
        let known = before.map(|(text, set)| (text, Tickets::new(set)));
        let read = runtime.block_on(read(&places, |set| match &known {
            None => Ok(Some(Tickets::new(set))),
            Some((_, tickets)) => tickets.update(set).map(|()| None),
        }));
        let (tickets, text, failing) = match (read, known) {
            (Ok((text, Some(tickets))), _) | (Ok((text, None)), Some((_, tickets))) => {
                (tickets, text, false)
            }
            (Err(why), Some((text, tickets))) => {
                tell(&format!("no newer keys: {why}; those that were used last go on"));
                (tickets, text, true)
            }
            (Err(why), None) => return Err(StartError::Keys(why)),
            (Ok((_, None)), None) => unreachable!("a set is new or takes the place of another"),
        };
        keep(&kept, &text)
            .map_err(|source| StartError::Disk { what: kept.display().to_string(), source })?;
        let reading = Arc::new(Mutex::new(LastRead { began: None, text, failing }));
        Ok(Self { tickets, places, kept, tell, reading })
    }

    pub(crate) fn tickets(&self) -> &Tickets {
        &self.tickets
    }

    /// Returns the ticket in this text, and reads newer keys first if it needs them.
    pub(crate) async fn check(
        self: &Arc<Self>,
        text: &str,
        resource: &Resource<'_>,
    ) -> Result<Arc<Ticket>, Forged> {
        match self.tickets.check(text, resource) {
            Err(forged) if forged.wants_newer_keys() => {}
            said => return said,
        }
        self.refresh().await;
        self.tickets.check(text, resource)
    }

    /// Reads the keys regularly, until the task is dropped.
    pub(crate) async fn tend(self: Arc<Self>) {
        loop {
            sleep(EVERY).await;
            self.refresh().await;
        }
    }

    /// Reads the set, unless another task began to read after this call.
    async fn refresh(self: &Arc<Self>) {
        let came = Instant::now();
        let reading = Arc::clone(&self.reading).lock_owned().await;
        if reading.began.is_some_and(|began| began > came) {
            return;
        }
        // A read that has begun is completed even if its caller goes away, because other tasks wait for it.
        let keys = Arc::clone(self);
        let _ = tokio::spawn(async move { keys.read_again(reading).await }).await;
    }

    async fn read_again(&self, mut reading: OwnedMutexGuard<LastRead>) {
        if let Some(began) = reading.began {
            sleep_until(began + AT_MOST_EVERY).await;
        }
        reading.began = Some(Instant::now());
        match self.renew(&reading.text).await {
            Ok(text) => {
                reading.text = text;
                if std::mem::take(&mut reading.failing) {
                    (self.tell)("keys are read again");
                }
            }
            Err(why) => {
                if !std::mem::replace(&mut reading.failing, true) {
                    (self.tell)(&format!("no newer keys: {why}; those that are known go on"));
                }
            }
        }
    }

    /// Reads the current set and puts it into effect. Returns its text.
    async fn renew(&self, known: &str) -> Result<String, String> {
        let (text, ()) = read(&self.places, |set| self.tickets.update(set)).await?;
        if text != known {
            keep(&self.kept, &text).map_err(|error| format!("{}: {error}", self.kept.display()))?;
        }
        Ok(text)
    }
}

/// Returns the first set that a source has and `take` accepts.
async fn read<T>(
    places: &[KeySource],
    take: impl Fn(KeySet) -> Result<T, BadSet>,
) -> Result<(String, T), String> {
    let mut why = Vec::new();
    for place in places {
        let read = place.read().await;
        let taken = read.and_then(|text| match KeySet::parse(&text).and_then(&take) {
            Ok(taken) => Ok((text, taken)),
            Err(bad) => Err(format!("{place}: {bad}")),
        });
        match taken {
            Ok(taken) => return Ok(taken),
            Err(no) => why.push(no),
        }
    }
    Err(why.join("; "))
}

fn read_kept(path: &Path) -> Result<Option<(String, KeySet)>, StartError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StartError::Disk { what: path.display().to_string(), source }),
    };
    match KeySet::parse(&text) {
        Ok(set) => Ok(Some((text, set))),
        Err(bad) => {
            let what = path.display().to_string();
            Err(StartError::Unreadable { what, why: bad.to_string() })
        }
    }
}

/// Replaces the kept set atomically.
fn keep(path: &Path, text: &str) -> io::Result<()> {
    let next = path.with_extension("json.next");
    let mut file = File::create(&next)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn set(epoch: u16) -> String {
        format!(r#"{{"cluster":"c","epoch":{epoch},"incarnation":"0000000000000000","keys":[]}}"#)
    }

    fn quiet() -> Tell {
        Arc::new(|_| ())
    }

    #[test]
    fn what_was_used_last_goes_on_and_nothing_older_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("given.json");
        let places = [file.display().to_string()];
        let told = Arc::new(std::sync::Mutex::new(String::new()));
        let tell: Tell = {
            let told = Arc::clone(&told);
            Arc::new(move |what| *told.lock().unwrap() = what.to_owned())
        };
        let open = || VerificationKeys::open(&places, None, dir.path(), Arc::clone(&tell));
        assert!(matches!(open(), Err(StartError::Keys(_))), "there are none");
        fs::write(&file, set(2)).unwrap();
        assert!(open().is_ok() && told.lock().unwrap().is_empty());
        let goes_on_because = |why: &str| {
            assert!(open().is_ok(), "{why}");
            let told = told.lock().unwrap();
            assert!(told.contains("go on") && told.contains(why), "{told}");
            assert_eq!(fs::read_to_string(dir.path().join(KEPT)).unwrap(), set(2));
        };
        fs::remove_file(&file).unwrap();
        goes_on_because("No such file");
        fs::write(&file, set(1)).unwrap();
        goes_on_because("epoch 1, and epoch 2 was seen");
        fs::write(&file, set(2).replace("\"c\"", "\"x\"")).unwrap();
        goes_on_because("of cluster x, not c");
        fs::write(&file, "no set").unwrap();
        goes_on_because("this is not a key set");
        // A set of a member that has not seen the last rotation.
        let at = |revision: u64| set(2).replacen('{', &format!(r#"{{"revision":"{revision}","#), 1);
        fs::write(&file, at(8)).unwrap();
        assert!(open().is_ok());
        fs::write(&file, at(7)).unwrap();
        assert!(open().is_ok());
        assert_eq!(fs::read_to_string(dir.path().join(KEPT)).unwrap(), at(8));
        // A set of a member whose clock lags behind: it still contains a key that had ended.
        let key = format!(
            r#"[{{"kty":"OKP","crv":"Ed25519","kid":"k","x":"{}","epoch":2,"incarnation":"0000000000000000"}}]"#,
            "A".repeat(43)
        );
        let one_more = at(8).replace("[]", &key);
        fs::write(&file, one_more).unwrap();
        assert!(open().is_ok());
        assert_eq!(fs::read_to_string(dir.path().join(KEPT)).unwrap(), at(8));
        // An outdated set in the first file does not hide the next one.
        let newer = dir.path().join("newer.json");
        fs::write(&newer, set(3)).unwrap();
        fs::write(&file, set(1)).unwrap();
        let both = [&file, &newer].map(|path| path.display().to_string());
        assert!(VerificationKeys::open(&both, None, dir.path(), quiet()).is_ok());
        assert_eq!(fs::read_to_string(dir.path().join(KEPT)).unwrap(), set(3));
        fs::write(dir.path().join(KEPT), "no set").unwrap();
        assert!(matches!(open(), Err(StartError::Unreadable { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_meanwhile_shares_what_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("given.json");
        fs::write(&file, set(2)).unwrap();
        let places = [file.display().to_string()];
        let data = dir.path().to_owned();
        let keys = std::thread::spawn(move || {
            VerificationKeys::open(&places, None, &data, quiet()).unwrap()
        });
        let keys = Arc::new(keys.join().unwrap());
        keys.refresh().await;
        let began = Instant::now();
        let all: Vec<_> = (0..50)
            .map(|_| {
                let keys = Arc::clone(&keys);
                tokio::spawn(async move { keys.refresh().await })
            })
            .collect();
        for each in all {
            each.await.unwrap();
        }
        assert!(began.elapsed() <= AT_MOST_EVERY * 2, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn who_hangs_up_while_keys_are_read_leaves_them_to_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let member = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = format!("http://{}", member.local_addr().unwrap());
        let keys = Arc::new(VerificationKeys {
            tickets: Tickets::new(KeySet::parse(&set(2)).unwrap()),
            places: vec![KeySource::parse(&place, None).unwrap()],
            kept: dir.path().join(KEPT),
            tell: quiet(),
            reading: Arc::default(),
        });
        let [first, second] = [(); 2].map(|()| {
            let keys = Arc::clone(&keys);
            tokio::spawn(async move { keys.refresh().await })
        });
        let (mut asked, _) = member.accept().await.unwrap();
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let newer = set(3);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{newer}", newer.len());
        assert_ne!(asked.read(&mut [0; 1024]).await.unwrap(), 0);
        asked.write_all(answer.as_bytes()).await.unwrap();
        second.await.unwrap();
        assert_eq!(fs::read_to_string(dir.path().join(KEPT)).unwrap(), newer);
    }
}
