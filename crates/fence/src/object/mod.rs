//! How does an object store refuse stale tokens?
//!
//! The floor is in the metadata of the object that it protects. A write reads it, asks the rule, and puts data and
//! raised floor back on condition that the object is still the one that was read. The provider's version is that
//! condition and nothing else: it is never compared with a token.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! # let token = tenure_fence::Token::from_u64(7).unwrap();
//! let store = std::sync::Arc::new(object_store::memory::InMemory::new());    // or S3, GCS, Azure
//! let fence = tenure_fence::object::ObjectFence::open(store).await?;         // refuses stores that cannot do it
//! let path = object_store::path::Path::from("reports/today");
//! fence.put(&path, "reports", token, "all is well").await?;                  // refused if stale
//! assert_eq!(fence.get(&path).await?.unwrap(), "all is well");
//! # Ok::<(), tenure_fence::object::Error>(()) }).unwrap();
//! ```
//!
//! **The tail.** On S3 the version (ETag) is a hash of the bytes: writing the same bytes under another token gives the
//! same version, and a stale writer that had looked before would still find its condition met. [`ObjectFence::open`]
//! finds out whether the store is like that. If so every object gets a last line of 41 bytes that no two writes share;
//! [`ObjectFence::get`] takes it off, and the object's metadata `tenuretail` tells others how long it is.
//!
//! Whoever writes the object without the fence, or deletes it, removes the floor: grant that right to nobody else
//! ([`ObjectFence::delete`] keeps the floor). An object is read and written as a whole.

mod probe;

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion,
};

use crate::claim::{Claim, LockSlot};
use crate::floors::Floors;
use crate::rule::{Floor, Touch};

/// Metadata: the floors. Only letters, since every provider allows those.
const FLOOR: &str = "tenurefloor";
/// Metadata: which write made this object, so that one that was repeated on its way knows itself.
const WRITE: &str = "tenurewrite";
/// Metadata: how many bytes at the end are not data.
const TAIL: &str = "tenuretail";
/// Metadata: there is no data, only a floor.
const EMPTY: &str = "tenureempty";

/// How often a write that met another one looks again. Each time somebody else has won.
const ATTEMPTS_MAX: usize = 64;

/// Why it did not write, or may not have.
///
/// A refusal after the provider's client repeated a request whose answer was lost can mean that the write was done
/// first and has been replaced by a later token's since.
pub type Error = crate::Error<Failure>;

/// What the store did.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The store cannot do what a fence needs. Nothing was changed.
    #[error("{store} cannot be fenced: {why}")]
    Unfit {
        /// The store.
        store: String,
        /// What it lacks.
        why: String,
    },
    /// Others wrote the same object again and again. Nothing was changed.
    #[error("the object changed {ATTEMPTS_MAX} times while it was to be written")]
    Contended,
    /// Any other failure. The write may have happened.
    #[error("the object store failed")]
    Store(#[source] object_store::Error),
}

/// An object store whose objects refuse stale tokens.
#[derive(Clone, Debug)]
pub struct ObjectFence {
    store: Arc<dyn ObjectStore>,
    versions: Versions,
}

/// What the provider's version of an object tells apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Versions {
    /// Two writes, always.
    Writes,
    /// Two contents only.
    Contents,
}

/// An object as it was found.
struct Found {
    floors: Floors,
    write: Option<String>,
    version: UpdateVersion,
    attributes: Attributes,
    /// `None` where only a floor is kept, or only the head was asked for.
    data: Option<Bytes>,
}

/// What an accepted claim does to the object.
enum Change {
    Data(Bytes, Attributes),
    Delete,
    Raise,
}

impl ObjectFence {
    /// A fence over a store, after trying whether the store can do it: with five small writes to an object under
    /// `tenure-fence-probe/`, which is removed again.
    pub async fn open(store: Arc<dyn ObjectStore>) -> Result<Self, Error> {
        let versions = probe::versions(store.as_ref()).await?;
        Ok(Self { store, versions })
    }

    /// Replaces the object, or says why not. Its other attributes stay as they are.
    pub async fn put<'a>(
        &self,
        path: &Path,
        at: impl Into<LockSlot<'a>>,
        claim: impl Into<Claim>,
        data: impl Into<Bytes>,
    ) -> Result<(), Error> {
        self.put_with(path, at, claim, data, Attributes::new()).await
    }

    /// The same, with attributes to set (content type and the like).
    pub async fn put_with<'a>(
        &self,
        path: &Path,
        at: impl Into<LockSlot<'a>>,
        claim: impl Into<Claim>,
        data: impl Into<Bytes>,
        attributes: Attributes,
    ) -> Result<(), Error> {
        let change = Change::Data(data.into(), attributes);
        self.change(path, at.into(), (claim.into(), Touch::Write), change).await
    }

    /// Removes the data and keeps the floor, in an object without content.
    pub async fn delete<'a>(
        &self,
        path: &Path,
        at: impl Into<LockSlot<'a>>,
        claim: impl Into<Claim>,
    ) -> Result<(), Error> {
        self.change(path, at.into(), (claim.into(), Touch::Write), Change::Delete).await
    }

    /// Raises the floor and leaves the data, right after the lock was acquired: from then on nothing older is
    /// accepted. Reads the object and writes it back, whatever its size.
    pub async fn raise<'a>(
        &self,
        path: &Path,
        at: impl Into<LockSlot<'a>>,
        claim: impl Into<Claim>,
    ) -> Result<(), Error> {
        self.change(path, at.into(), (claim.into(), Touch::Raise), Change::Raise).await
    }

    /// The data, without what the fence added; nothing if there is none.
    pub async fn get(&self, path: &Path) -> Result<Option<Bytes>, Error> {
        Ok(self.find(path, Part::Whole).await?.and_then(|found| found.data))
    }

    /// The floor of a lock and slot at this object.
    pub async fn floor<'a>(
        &self,
        path: &Path,
        at: impl Into<LockSlot<'a>>,
    ) -> Result<Floor, Error> {
        let found = self.find(path, Part::Head).await?;
        Ok(found.map_or(Floor::default(), |found| found.floors.get(at.into())))
    }

    async fn change(
        &self,
        path: &Path,
        at: LockSlot<'_>,
        (claim, touch): (Claim, Touch),
        change: Change,
    ) -> Result<(), Error> {
        at.check()?;
        let write = nonce()?;
        let part = if matches!(change, Change::Raise) { Part::Whole } else { Part::Head };
        for _ in 0..ATTEMPTS_MAX {
            let found = self.find(path, part).await?;
            if found.as_ref().is_some_and(|found| found.write.as_ref() == Some(&write)) {
                return Ok(());
            }
            let mut floors = found.as_ref().map_or(Floors::default(), |found| found.floors.clone());
            floors.admit(at, claim, touch)?;
            let (payload, options) = self.next(found, &change, &floors, &write);
            match self.store.put_opts(path, payload, options).await {
                Ok(_) => return Ok(()),
                // Somebody was faster: what the rule said of the floor that was there says nothing any more.
                Err(error) if lost_race(&error) => {}
                Err(error) => return Err(failed(self.store.as_ref(), error)),
            }
        }
        Err(Error::Store(Failure::Contended))
    }

    fn next(
        &self,
        found: Option<Found>,
        change: &Change,
        floors: &Floors,
        write: &str,
    ) -> (PutPayload, PutOptions) {
        let (mode, mut attributes, kept) = match found {
            Some(found) => (PutMode::Update(found.version), found.attributes, found.data),
            None => (PutMode::Create, Attributes::new(), None),
        };
        let data = match change {
            Change::Data(data, given) => {
                given.into_iter().for_each(|(key, value)| {
                    attributes.insert(key.clone(), value.clone());
                });
                Some(data.clone())
            }
            Change::Delete => None,
            Change::Raise => kept,
        };
        let tail = match self.versions {
            Versions::Contents => Bytes::from(format!("\n#tenure:{write}")),
            Versions::Writes => Bytes::new(),
        };
        let mut set = |key: &'static str, value: String| {
            attributes.insert(Attribute::Metadata(key.into()), value.into())
        };
        set(FLOOR, floors.to_text());
        set(WRITE, write.to_owned());
        set(TAIL, tail.len().to_string());
        set(EMPTY, data.is_none().to_string());
        let payload = PutPayload::from_iter([data.unwrap_or_default(), tail]);
        (payload, PutOptions { mode, attributes, ..PutOptions::default() })
    }

    async fn find(&self, path: &Path, part: Part) -> Result<Option<Found>, Error> {
        let options = GetOptions { head: matches!(part, Part::Head), ..GetOptions::default() };
        let got = match self.store.get_opts(path, options).await {
            Ok(got) => got,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failed(self.store.as_ref(), error)),
        };
        let attributes = got.attributes.clone();
        let version =
            UpdateVersion { e_tag: got.meta.e_tag.clone(), version: got.meta.version.clone() };
        let text = |key: &'static str| {
            attributes.get(&Attribute::Metadata(key.into())).map(|it| it.as_ref().to_owned())
        };
        let unreadable = |what: &str| Error::Unreadable(format!("{path}: {what}"));
        let floors = match text(FLOOR) {
            None => Floors::default(),
            Some(text) => Floors::parse(&text).ok_or_else(|| unreadable(&text))?,
        };
        let (write, empty) = (text(WRITE), text(EMPTY).is_some_and(|empty| empty == "true"));
        let tail = text(TAIL)
            .map_or(Ok(0), |tail| tail.parse::<usize>().map_err(|_| unreadable(&tail)))?;
        let data = match part {
            Part::Head => None,
            Part::Whole => {
                let bytes =
                    got.bytes().await.map_err(|error| failed(self.store.as_ref(), error))?;
                let len = bytes
                    .len()
                    .checked_sub(tail)
                    .ok_or_else(|| unreadable("shorter than its tail"))?;
                (!empty).then(|| bytes.slice(..len))
            }
        };
        Ok(Some(Found { floors, write, version, attributes, data }))
    }
}

/// How much of an object is read.
#[derive(Clone, Copy)]
enum Part {
    Head,
    Whole,
}

fn lost_race(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    matches!(error, E::Precondition { .. } | E::AlreadyExists { .. })
}

fn failed(store: &dyn ObjectStore, error: object_store::Error) -> Error {
    use object_store::Error as E;
    match error {
        E::NotImplemented { .. } | E::NotSupported { .. } => {
            probe::unfit(store, &error.to_string())
        }
        error => Error::Store(Failure::Store(error)),
    }
}

/// 32 hexadecimal digits that no other write has.
fn nonce() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        let source = std::io::Error::other(error.to_string());
        Error::Store(Failure::Store(object_store::Error::Generic {
            store: "tenure-fence",
            source: source.into(),
        }))
    })?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
