//! Defines the Ed25519 keys that sign tickets, and their ids.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

/// Bytes of a seed, and of a public key.
pub(crate) const KEY_BYTES: usize = 32;

/// A public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct TicketPublicKey(pub(crate) [u8; KEY_BYTES]);

/// The id of a key: its thumbprint of RFC 7638, which is a hash of the key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct KeyId(String);

/// A key that signs. Its seed is written only to the file that keeps it.
pub(crate) struct SigningKey {
    pair: Ed25519KeyPair,
    seed: [u8; KEY_BYTES],
    public: TicketPublicKey,
    id: KeyId,
}

impl TicketPublicKey {
    /// Parses the text form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self)
    }

    /// The id of the key.
    pub(crate) fn id(&self) -> KeyId {
        // RFC 7638 hashes the required members in the order of their names, without whitespace.
        let canonical = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{self}"}}"#);
        KeyId(URL_SAFE_NO_PAD.encode(digest(&SHA256, canonical.as_bytes())))
    }
}

impl fmt::Display for TicketPublicKey {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl KeyId {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

impl SigningKey {
    /// Draws a new random key.
    pub(crate) fn draw() -> Self {
        let mut seed = [0; KEY_BYTES];
        getrandom::fill(&mut seed).expect("the system has randomness, or nothing here is safe");
        Self::of_seed(seed)
    }

    fn of_seed(seed: [u8; KEY_BYTES]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("any 32 bytes are a seed");
        let public = pair.public_key().as_ref().try_into().map(TicketPublicKey);
        let public = public.expect("a public key has 32 bytes");
        Self { pair, seed, public, id: public.id() }
    }

    /// The seed as text, for the key file only.
    pub(super) fn secret(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.seed)
    }

    /// Restores a key from its file; none if the seed does not match the public key.
    pub(super) fn parse(secret: &str, public: &str) -> Option<Self> {
        let seed = URL_SAFE_NO_PAD.decode(secret).ok()?.try_into().ok()?;
        Some(Self::of_seed(seed)).filter(|key| Some(key.public) == TicketPublicKey::parse(public))
    }

    pub(crate) fn public(&self) -> TicketPublicKey {
        self.public
    }

    pub(crate) fn id(&self) -> &KeyId {
        &self.id
    }

    pub(super) fn sign(&self, text: &[u8]) -> Vec<u8> {
        self.pair.sign(text).as_ref().to_vec()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_called_as_the_standard_says() {
        // The example of RFC 8037, appendix A.3.
        let key = TicketPublicKey::parse("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo").unwrap();
        assert_eq!(key.id().as_str(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    }

    #[test]
    fn a_secret_belongs_to_one_public_key() {
        let (key, other) = (SigningKey::draw(), SigningKey::draw());
        let back = SigningKey::parse(&key.secret(), &key.public().to_string()).unwrap();
        assert_eq!(back.id(), key.id());
        assert!(SigningKey::parse(&key.secret(), &other.public().to_string()).is_none());
        assert!(SigningKey::parse("AAAA", &key.public().to_string()).is_none());
        assert!(!format!("{key:?}").contains(&key.secret()));
    }
}
