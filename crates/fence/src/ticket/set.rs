//! Holds the public keys of a cluster, and decides which set of them is newer.

use std::collections::BTreeMap;

use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;
use tenure_types::{Epoch, Revision};

use super::read::decoded;
use crate::claim::Incarnation;

/// The maximum size of a set. A real one has some hundred bytes per member.
const SET_BYTES_MAX: usize = 1024 * 1024;
/// The maximum number of keys in a set: more than the members of a cluster can have.
pub(super) const KEYS_MAX: usize = 1_024;
/// The length of a public key.
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
    /// The revision of the set. Members of versions without this field serve none.
    pub(super) revision: Option<Revision>,
    pub(super) keys: BTreeMap<String, UnparsedPublicKey<[u8; KEY_BYTES]>>,
}

/// Why a set of keys is not used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadSet {
    /// The set cannot be parsed.
    #[error("this is not a key set: {0}")]
    Malformed(String),
    /// The set is of another cluster than the previous one.
    #[error("the keys are of cluster {said}, not {known}")]
    OtherCluster {
        /// The cluster of the new set.
        said: String,
        /// The cluster of the previous set.
        known: String,
    },
    /// The cluster was restored since.
    #[error("the keys are of epoch {}, and epoch {} was seen", .said.get(), .known.get())]
    OldEpoch {
        /// The epoch of the new set.
        said: Epoch,
        /// The newest epoch that was seen.
        known: Epoch,
    },
    /// The same epoch was seen under another incarnation: two restores of one backup are running.
    #[error("the keys are of incarnation {said}, not {known}")]
    OtherIncarnation {
        /// The incarnation of the new set.
        said: Incarnation,
        /// The incarnation that was seen.
        known: Incarnation,
    },
    /// A newer set of the same life was seen: the member that serves this one lags behind.
    #[error("the keys are of revision {said}, and revision {known} was seen")]
    OldRevision {
        /// The revision of the new set.
        said: Revision,
        /// The newest revision that was seen.
        known: Revision,
    },
    /// The set carries no revision, and earlier ones did.
    #[error("the keys are of no revision, and revision {known} was seen")]
    NoRevision {
        /// The newest revision that was seen.
        known: Revision,
    },
    /// The set contains a key that had already ended: the clock of the member that serves it lags behind.
    #[error("the key set contains key `{key}`, which had already been retired")]
    RetiredKey {
        /// The id of the key.
        key: String,
    },
}

#[derive(Deserialize)]
struct KeySetDocument {
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
    /// Parses a set. Keys of another kind, or of another life of the cluster, are left out.
    pub fn parse(text: &str) -> Result<Self, BadSet> {
        let malformed = |what: &str| BadSet::Malformed(what.to_owned());
        if text.len() > SET_BYTES_MAX {
            return Err(malformed("it is too long"));
        }
        let written: KeySetDocument =
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

    /// Returns the cluster of the keys.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the set has no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Checks that this set may replace an older one.
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
        // A member without a quorum serves what it has, which may include a key that was rotated away since.
        match (self.revision, old.revision) {
            (Some(said), Some(known)) if said < known => Err(BadSet::OldRevision { said, known }),
            (None, Some(known)) => Err(BadSet::NoRevision { known }),
            // The same revision has the same keys in the log. Only time removes keys from the set, by a clock that
            // advances with the revisions. A set with an additional key is therefore behind.
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
