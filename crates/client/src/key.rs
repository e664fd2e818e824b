//! Reads and writes keys of the small key-value store beside the locks, optionally guarded by a lock.

use bytes::Bytes;
use tenure_types::Revision;
use tenure_wire::{convert, v1};
use v1::answer::Result as Answer;
use v1::expect::How;
use v1::request::Command;

use crate::client::Client;
use crate::error::{Error, RequestId, strange};
use crate::guard::Guard;
use crate::lease::Lease;
use crate::shared::RequestIdentity;

/// A key and its value.
///
/// ```no_run
/// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
/// if let Some(it) = client.key("config").get().await? {
///     println!("{:?} since revision {}", it.value, it.modified);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KeyValue {
    /// The value.
    pub value: Bytes,
    /// The revision that created the key.
    pub created: Revision,
    /// The revision that last wrote the key.
    pub modified: Revision,
    /// How often the key was written since it was created.
    pub version: u64,
}

/// A key to be read or written. Set the conditions before the operation.
///
/// ```no_run
/// # async fn example(client: tenure::Client, guard: tenure::Guard) -> Result<(), tenure::Error> {
/// client.key("config").if_absent().put("v1").await?;
/// client.key("config").guarded_by(&guard).put("v2").await?;   // only while the lock is held under this token
/// # Ok(()) }
/// ```
#[must_use = "nothing happens until it is read or written"]
pub struct Key {
    client: Client,
    key: String,
    expect: Option<How>,
    guard: Option<v1::Guard>,
    lease: Option<v1::LeaseName>,
    identity: RequestIdentity,
}

impl Client {
    /// Returns a key of the small store beside the locks.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// client.key("greeting").put("hello").await?;
    /// # Ok(()) }
    /// ```
    pub fn key(&self, key: impl Into<String>) -> Key {
        let (client, key) = (self.clone(), key.into());
        Key {
            client,
            key,
            expect: None,
            guard: None,
            lease: None,
            identity: RequestIdentity::key(),
        }
    }
}

impl Key {
    /// Requires that the key does not exist.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// client.key("first").if_absent().put("me").await?;
    /// # Ok(()) }
    /// ```
    pub fn if_absent(mut self) -> Self {
        self.expect = Some(How::Absent(true));
        self
    }

    /// Requires that the key was last written at this revision.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client, it: tenure::KeyValue) -> Result<(), tenure::Error> {
    /// client.key("config").if_modified(it.modified).put("v3").await?;
    /// # Ok(()) }
    /// ```
    pub fn if_modified(mut self, revision: Revision) -> Self {
        self.expect = Some(How::Modified(convert::revision(revision)));
        self
    }

    /// Requires that the key has this value.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// client.key("state").if_value("old").put("new").await?;
    /// # Ok(()) }
    /// ```
    pub fn if_value(mut self, value: impl Into<Bytes>) -> Self {
        self.expect = Some(How::Value(value.into()));
        self
    }

    /// Requires that the guard's lock is still held under its token: the cluster itself is the fence.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client, guard: tenure::Guard) -> Result<(), tenure::Error> {
    /// client.key("ledger").guarded_by(&guard).put("paid").await?;
    /// # Ok(()) }
    /// ```
    pub fn guarded_by(mut self, guard: &Guard) -> Self {
        let lock = guard.locks().next().map(|lock| lock.name.clone()).unwrap_or_default();
        self.guard = Some(v1::Guard { lock, token: guard.token().get() });
        self
    }

    /// Binds the key to this lease: when the lease ends, the key is deleted.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client, lease: tenure::Lease) -> Result<(), tenure::Error> {
    /// client.key("workers/7").with_lease(&lease).put("here").await?;
    /// # Ok(()) }
    /// ```
    pub fn with_lease(mut self, lease: &Lease) -> Self {
        self.lease = Some(lease.held.name());
        self
    }

    /// Repeats a write whose outcome is not known, under its original id: the write takes effect once, and the
    /// repetition returns its outcome. The cluster remembers the id for five minutes. Everything else about the request
    /// must be the same.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let written = match client.key("config").put("v1").await {
    ///     Err(tenure::Error::Unknown { request: Some(request), .. }) => {
    ///         client.key("config").again(request).put("v1").await?
    ///     }
    ///     other => other?,
    /// };
    /// # Ok(()) }
    /// ```
    pub fn again(mut self, request: RequestId) -> Self {
        self.identity = RequestIdentity::Key(request.to_string());
        self
    }

    /// Reads the key. Returns `None` if it does not exist.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let found = client.key("config").get().await?;
    /// # Ok(()) }
    /// ```
    pub async fn get(self) -> Result<Option<KeyValue>, Error> {
        let ask = Command::GetKey(v1::GetKeyRequest { key: self.key, stale: false });
        let (answer, _) = self.client.shared.call(ask, RequestIdentity::Harmless).await?;
        let Answer::Key(it) = answer else { return Err(strange()) };
        let revision = |number| convert::revision_from(number).unwrap_or(Revision(0));
        Ok(it.kv.map(|kv| KeyValue {
            value: kv.value,
            created: revision(kv.create_revision),
            modified: revision(kv.mod_revision),
            version: kv.version,
        }))
    }

    /// Writes the key exactly once, and returns the revision of the write.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let revision = client.key("config").put("v1").await?;
    /// # Ok(()) }
    /// ```
    pub async fn put(self, value: impl Into<Bytes>) -> Result<Revision, Error> {
        let lease = self.lease.unwrap_or_default();
        let put = Command::Put(v1::PutRequest {
            key: self.key,
            value: value.into(),
            lease_slot: lease.lease_slot,
            lease_generation: lease.lease_generation,
            lease: lease.lease,
            expect: self.expect.map(|how| v1::Expect { how: Some(how) }),
            guard: self.guard,
        });
        let (answer, revision) = self.client.shared.call(put, self.identity).await?;
        let Answer::Put(_) = answer else { return Err(strange()) };
        Ok(convert::revision_from(revision).unwrap_or(Revision(0)))
    }

    /// Deletes the key exactly once, and returns whether it existed.
    ///
    /// ```no_run
    /// # async fn example(client: tenure::Client) -> Result<(), tenure::Error> {
    /// let existed = client.key("config").delete().await?;
    /// # Ok(()) }
    /// ```
    pub async fn delete(self) -> Result<bool, Error> {
        let delete = Command::Delete(v1::DeleteRequest {
            key: self.key,
            expect: self.expect.map(|how| v1::Expect { how: Some(how) }),
            guard: self.guard,
        });
        let (answer, _) = self.client.shared.call(delete, self.identity).await?;
        let Answer::Deleted(it) = answer else { return Err(strange()) };
        Ok(it.existed)
    }
}
