//! Fences the objects of an object store: refuses writes with stale tokens.
//!
//! The floor is in the metadata of the object that it protects. A write reads it, applies the rule, and puts data and
//! raised floor back on condition that the object has not changed since. The provider's version serves only as that
//! condition; it is never compared with a token.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! # let token = tenure_fence::Token::from_u64(7).unwrap();
//! let store = std::sync::Arc::new(object_store::memory::InMemory::new());    // or S3, GCS, Azure
//! let fence = tenure_fence::object::ObjectFence::open(store).await?;         // refuses unsuitable stores
//! let path = object_store::path::Path::from("reports/today");
//! fence.put(&path, "reports", token, "all is well").await?;                  // refused if stale
//! assert_eq!(fence.get(&path).await?.unwrap(), "all is well");
//! # Ok::<(), tenure_fence::object::Error>(()) }).unwrap();
//! ```
//!
//! **The tail.** On S3 the version (ETag) is a hash of the bytes. Writing the same bytes under another token gives the
//! same version, and a stale writer that had read the object before would still find its condition met.
//! [`ObjectFence::open`] probes whether the store behaves like that. If so, every object gets a last line of 41 bytes
//! that no two writes share; [`ObjectFence::get`] removes it, and the object's metadata `tenuretail` tells other
//! readers how long it is.
//!
//! A client that writes or deletes the object without the fence removes the floor. Grant that permission to no other
//! client ([`ObjectFence::delete`] keeps the floor). An object is read and written as a whole.

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

/// The metadata key of the floors. Only letters, which every provider allows.
const FLOOR: &str = "tenurefloor";
/// The metadata key of the write's id, so that a write that was repeated on its way recognises itself.
const WRITE: &str = "tenurewrite";
/// The metadata key of the tail's length: how many bytes at the end are not data.
const TAIL: &str = "tenuretail";
/// The metadata key that marks an object without data, which only keeps a floor.
const EMPTY: &str = "tenureempty";

/// How often a write that lost a race tries again. Each loss means that another write succeeded.
const ATTEMPTS_MAX: usize = 64;

/// Why the fence did not write, or may not have.
///
/// If the provider's client repeated a request whose answer was lost, a refusal can also mean that the write was done
/// first, and was then replaced by a write with a later token.
pub type Error = crate::Error<Failure>;

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The store lacks something that a fence needs. Nothing was changed.
    #[error("{store} cannot be fenced: {why}")]
    Unfit {
        /// The name of the store.
        store: String,
        /// What the store lacks.
        why: String,
    },
    /// Other writers kept changing the same object. Nothing was changed.
    #[error("the object changed {ATTEMPTS_MAX} times while it was to be written")]
    Contended,
    /// Any other failure. The write may have happened.
    #[error("the object store failed")]
    Store(#[source] object_store::Error),
}

/// An object store that refuses writes with stale tokens.
#[derive(Clone, Debug)]
pub struct ObjectFence {
    store: Arc<dyn ObjectStore>,
    versions: Versions,
}

/// What the provider's version of an object distinguishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Versions {
    /// Any two writes.
    Writes,
    /// Two different contents only.
    Contents,
}

/// An object as it was read.
struct FoundObject {
    floors: Floors,
    write: Option<String>,
    version: UpdateVersion,
    attributes: Attributes,
    /// The data; `None` where only a floor is kept, or only the head was read.
    data: Option<Bytes>,
}

/// What an accepted claim does to the object.
enum ObjectChange {
    Data(Bytes, Attributes),
    Delete,
    Raise,
}

impl ObjectFence {
    /// Opens a fence over a store, and probes whether the store is suitable: with five small writes to an object under
    /// `tenure-fence-probe/`, which is removed again.
    pub async fn open(store: Arc<dyn ObjectStore>) -> Result<Self, Error> {
        let versions = probe::versions(store.as_ref()).await?;
        Ok(Self { store, versions })
    }

    /// Replaces the object, or returns why not. Its other attributes stay as they are.
    pub async fn put<'a>(
        &self,
        path: &Path,
        at: impl Into<LockSlot<'a>>,
        claim: impl Into<Claim>,
        data: impl Into<Bytes>,
    ) -> Result<(), Error> {
        self.put_with(path, at, claim, data, Attributes::new()).await
    }

    /// Replaces the object and sets attributes, such as the content type.
    pub async fn put_with<'a>(
        &self,
        path: &Path,
        at: impl Into<LockSlot<'a>>,
        claim: impl Into<Claim>,
        data: impl Into<Bytes>,
        attributes: Attributes,
    ) -> Result<(), Error> {
        let change = ObjectChange::Data(data.into(), attributes);
        self.change(path, at.into(), (claim.into(), Touch::Write), change).await
    }

    /// Removes the data and keeps the floor, in an object without content.
    pub async fn delete<'a>(
        &self,
        path: &Path,
        at: impl Into<LockSlot<'a>>,
        claim: impl Into<Claim>,
    ) -> Result<(), Error> {
        self.change(path, at.into(), (claim.into(), Touch::Write), ObjectChange::Delete).await
    }

    /// Raises the floor and leaves the data as it is. Call it right after the lock was acquired: from then on the fence
    /// accepts nothing older. Reads the object and writes it back, whatever its size.
    pub async fn raise<'a>(
        &self,
        path: &Path,
        at: impl Into<LockSlot<'a>>,
        claim: impl Into<Claim>,
    ) -> Result<(), Error> {
        self.change(path, at.into(), (claim.into(), Touch::Raise), ObjectChange::Raise).await
    }

    /// Returns the data without the fence's additions, or `None` if there is none.
    pub async fn get(&self, path: &Path) -> Result<Option<Bytes>, Error> {
        Ok(self.find(path, ObjectPart::Whole).await?.and_then(|found| found.data))
    }

    /// Returns the floor of a lock and slot at this object.
    pub async fn floor<'a>(
        &self,
        path: &Path,
        at: impl Into<LockSlot<'a>>,
    ) -> Result<Floor, Error> {
        let found = self.find(path, ObjectPart::Head).await?;
        Ok(found.map_or(Floor::default(), |found| found.floors.get(at.into())))
    }

    async fn change(
        &self,
        path: &Path,
        at: LockSlot<'_>,
        (claim, touch): (Claim, Touch),
        change: ObjectChange,
    ) -> Result<(), Error> {
        at.check()?;
        let write = nonce()?;
        let part = if matches!(change, ObjectChange::Raise) {
            ObjectPart::Whole
        } else {
            ObjectPart::Head
        };
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
                // Another write was faster. The rule's answer was for the old floor, so read the new one.
                Err(error) if lost_race(&error) => {}
                Err(error) => return Err(failed(self.store.as_ref(), error)),
            }
        }
        Err(Error::Store(Failure::Contended))
    }

    fn next(
        &self,
        found: Option<FoundObject>,
        change: &ObjectChange,
        floors: &Floors,
        write: &str,
    ) -> (PutPayload, PutOptions) {
        let (mode, mut attributes, kept) = match found {
            Some(found) => (PutMode::Update(found.version), found.attributes, found.data),
            None => (PutMode::Create, Attributes::new(), None),
        };
        let data = match change {
            ObjectChange::Data(data, given) => {
                given.into_iter().for_each(|(key, value)| {
                    attributes.insert(key.clone(), value.clone());
                });
                Some(data.clone())
            }
            ObjectChange::Delete => None,
            ObjectChange::Raise => kept,
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

    async fn find(&self, path: &Path, part: ObjectPart) -> Result<Option<FoundObject>, Error> {
        let options =
            GetOptions { head: matches!(part, ObjectPart::Head), ..GetOptions::default() };
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
            ObjectPart::Head => None,
            ObjectPart::Whole => {
                let bytes =
                    got.bytes().await.map_err(|error| failed(self.store.as_ref(), error))?;
                let len = bytes
                    .len()
                    .checked_sub(tail)
                    .ok_or_else(|| unreadable("shorter than its tail"))?;
                (!empty).then(|| bytes.slice(..len))
            }
        };
        Ok(Some(FoundObject { floors, write, version, attributes, data }))
    }
}

/// How much of an object to read.
#[derive(Clone, Copy)]
enum ObjectPart {
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

/// Creates 32 hexadecimal digits that no other write has.
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
