//! Probes whether a store can be fenced, and what its versions distinguish.
//!
//! Trusting a store that ignores a condition would be worse than having no fence, so the fence tries it out.

use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions,
    PutPayload, UpdateVersion,
};

use super::{Error, FLOOR, Failure, Versions, failed, lost_race, nonce};

/// Tries everything that a fence relies on.
pub(super) async fn versions(store: &dyn ObjectStore) -> Result<Versions, Error> {
    let path = Path::from(format!("tenure-fence-probe/{}", nonce()?));
    let found = Probe { store, path: &path }.run().await;
    // A leftover probe object is harmless, and not every writer has the permission to delete.
    let _ = store.delete(&path).await;
    found
}

pub(super) fn unfit(store: &dyn ObjectStore, why: &str) -> Error {
    Error::Store(Failure::Unfit { store: store.to_string(), why: why.to_owned() })
}

struct Probe<'a> {
    store: &'a dyn ObjectStore,
    path: &'a Path,
}

impl Probe<'_> {
    async fn run(&self) -> Result<Versions, Error> {
        let first = self.put(PutMode::Create, "same", "1").await?;
        let first = first.map_err(|()| self.unfit("a new object could not be created"))?;
        if self.put(PutMode::Create, "same", "1").await?.is_ok() {
            return Err(self.unfit("it creates an object although there is one"));
        }
        let second = self.put(PutMode::Update(first.clone()), "same", "2").await?;
        let second = second.map_err(|()| self.unfit("it refuses the version that it gave"))?;
        let options = GetOptions { head: true, ..GetOptions::default() };
        let read =
            self.store.get_opts(self.path, options).await.map_err(|e| failed(self.store, e))?;
        if read.attributes.get(&attribute()).map(AsRef::as_ref) != Some("2") {
            return Err(self.unfit("it does not keep an object's metadata"));
        }
        let versions = if alike(&first, &second) { Versions::Contents } else { Versions::Writes };
        if versions == Versions::Contents {
            let third = self.put(PutMode::Update(second), "other", "3").await?;
            let third = third.map_err(|()| self.unfit("it refuses the version that it gave"))?;
            if alike(&first, &third) {
                return Err(self.unfit("its versions do not change with the content"));
            }
        }
        if self.put(PutMode::Update(first), "late", "4").await?.is_ok() {
            return Err(self.unfit("it updates an object on condition of a version that is gone"));
        }
        Ok(versions)
    }

    /// Writes the probe object, and returns its new version, or that the condition did not hold.
    async fn put(
        &self,
        mode: PutMode,
        data: &'static str,
        floor: &'static str,
    ) -> Result<Result<UpdateVersion, ()>, Error> {
        let attributes = Attributes::from_iter([(attribute(), floor)]);
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        match self
            .store
            .put_opts(self.path, PutPayload::from_static(data.as_bytes()), options)
            .await
        {
            Ok(put) if put.e_tag.is_none() && put.version.is_none() => {
                Err(self.unfit("its objects have no version"))
            }
            Ok(put) => Ok(Ok(put.into())),
            Err(error) if lost_race(&error) => Ok(Err(())),
            Err(error) => Err(failed(self.store, error)),
        }
    }

    fn unfit(&self, why: &str) -> Error {
        unfit(self.store, why)
    }
}

fn attribute() -> Attribute {
    Attribute::Metadata(FLOOR.into())
}

fn alike(one: &UpdateVersion, other: &UpdateVersion) -> bool {
    // S3 compares only the ETag, even where it has versions; other stores have only one of the two.
    match (&one.e_tag, &other.e_tag) {
        (Some(one), Some(other)) => one == other,
        _ => one.version == other.version,
    }
}
