//! Whose signatures count?

use std::collections::BTreeMap;

use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;
use tenure_types::{Epoch, Revision};

use super::read::decoded;
use crate::claim::Incarnation;

/// A set is some hundred bytes per member; anything longer is none.
const SET_BYTES_MAX: usize = 1024 * 1024;
/// Keys in a set: more than the members of a cluster can have.
pub(super) const KEYS_MAX: usize = 1_024;
/// Bytes of a public key.
const KEY_BYTES: usize = 32;

/// The public keys of one life of a cluster, as any member serves them at `/.well-known/jwks.json`.
///
/// ```
/// use tenure_fence::ticket::KeySet;
///
/// let set = r#"{"cluster":"5f3a","epoch":0,"incarnation":"0000000000000000","keys":[]}"#;
/// assert_eq!(KeySet::parse(set)?.cluster(), "5f3a");
/// # Ok::<(), tenure_fence::ticket::BadSet>(())
/// ```
#[derive(Clone, Debug)]
pub struct KeySet {
    pub(super) cluster: String,
    pub(super) epoch: Epoch,
    pub(super) incarnation: Incarnation,
    /// Members of before there was one serve none.
    pub(super) revision: Option<Revision>,
    pub(super) keys: BTreeMap<String, UnparsedPublicKey<[u8; KEY_BYTES]>>,
}

/// Why a set of keys is not used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadSet {
    /// It cannot be read.
    #[error("this is no set of keys: {0}")]
    Malformed(String),
    /// It is of another cluster than the one before.
    #[error("the keys are of cluster {said}, not {known}")]
    OtherCluster {
        /// Whose.
        said: String,
        /// Whose the others are.
        known: String,
    },
    /// The cluster was restored since.
    #[error("the keys are of epoch {}, and epoch {} was seen", .said.get(), .known.get())]
    OldEpoch {
        /// Of which.
        said: Epoch,
        /// The one seen.
        known: Epoch,
    },
    /// The same epoch was seen under another incarnation: two restores of one backup are at work.
    #[error("the keys are of incarnation {said}, not {known}")]
    OtherIncarnation {
        /// Of which.
        said: Incarnation,
        /// The one seen.
        known: Incarnation,
    },
    /// A newer set of the same life was seen: the member that serves this one has not heard of it.
    #[error("the keys are of revision {said}, and revision {known} was seen")]
    OldRevision {
        /// Of which.
        said: Revision,
        /// The one seen.
        known: Revision,
    },
    /// It does not say of which revision it is, and others did.
    #[error("the keys are of no revision, and revision {known} was seen")]
    NoRevision {
        /// The one seen.
        known: Revision,
    },
    /// A key is in it that was over already: the member that serves it has not heard how late it is.
    #[error("key `{key}` is among the keys, and its time was over")]
    RetiredKey {
        /// Which.
        key: String,
    },
}

#[derive(Deserialize)]
struct Written {
    cluster: String,
    epoch: u16,
    incarnation: String,
    revision: Option<String>,
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: Option<String>,
    kid: Option<String>,
    x: Option<String>,
    epoch: Option<u16>,
    incarnation: Option<String>,
}

impl KeySet {
    /// Reads a set. Keys of another kind, or of another life of the cluster, are left out.
    pub fn parse(text: &str) -> Result<Self, BadSet> {
        let malformed = |what: &str| BadSet::Malformed(what.to_owned());
        if text.len() > SET_BYTES_MAX {
            return Err(malformed("it is too long"));
        }
        let written: Written =
            serde_json::from_str(text).map_err(|error| BadSet::Malformed(error.to_string()))?;
        if written.keys.len() > KEYS_MAX {
            return Err(malformed("it has too many keys"));
        }
        let epoch = Epoch::new(written.epoch).ok_or_else(|| malformed("its epoch is none"))?;
        let incarnation = Incarnation::parse(&written.incarnation);
        let incarnation = incarnation.ok_or_else(|| malformed("its incarnation is none"))?;
        let revision =
            written.revision.map(|digits| digits.parse::<u64>().map(Revision)).transpose();
        let revision = revision.map_err(|_| malformed("its revision is none"))?;
        let mut keys = BTreeMap::new();
        for key in written.keys {
            let ours = key.kty == "OKP" && key.crv.as_deref() == Some("Ed25519");
            let life = key.epoch == Some(written.epoch)
                && key.incarnation.as_ref() == Some(&written.incarnation);
            if !ours || !life {
                continue;
            }
            let id =
                key.kid.filter(|id| !id.is_empty()).ok_or_else(|| malformed("a key has no id"))?;
            let x = key.x.as_deref().and_then(decoded);
            let x = x.and_then(|x| <[u8; KEY_BYTES]>::try_from(x).ok());
            let x = x.ok_or_else(|| malformed("a key has no 32 bytes"))?;
            if keys.insert(id, UnparsedPublicKey::new(&ED25519, x)).is_some() {
                return Err(malformed("two keys have one id"));
            }
        }
        Ok(Self { cluster: written.cluster, epoch, incarnation, revision, keys })
    }

    /// Whose keys they are.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether this set may take the place of an older one.
    pub(super) fn follows(&self, old: &KeySet) -> Result<(), BadSet> {
        if self.cluster != old.cluster {
            return Err(BadSet::OtherCluster {
                said: self.cluster.clone(),
                known: old.cluster.clone(),
            });
        }
        if self.epoch < old.epoch {
            return Err(BadSet::OldEpoch { said: self.epoch, known: old.epoch });
        }
        if self.epoch > old.epoch {
            return Ok(());
        }
        if self.incarnation != old.incarnation {
            return Err(BadSet::OtherIncarnation {
                said: self.incarnation,
                known: old.incarnation,
            });
        }
        // A member without a quorum serves what it has: a key that was rotated away since may be among it.
        match (self.revision, old.revision) {
            (Some(said), Some(known)) if said < known => Err(BadSet::OldRevision { said, known }),
            (None, Some(known)) => Err(BadSet::NoRevision { known }),
            // What is written is the same. Only time takes keys out of it, by a clock that runs on with the
            // revisions: whoever has one more is behind.
            (Some(said), Some(known)) if said == known => {
                match self.keys.keys().find(|key| !old.keys.contains_key(*key)) {
                    Some(key) => Err(BadSet::RetiredKey { key: key.clone() }),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
