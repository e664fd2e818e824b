//! Makes, parses and compares API keys: `tenure_<id>_<secret>`.

use ring::digest::{SHA256, digest};

use super::hex;

/// What an API key begins with. A bearer that begins otherwise is a token of an issuer.
pub(crate) const PREFIX: &str = "tenure_";
/// The bytes of an id and of a secret; their texts have two hexadecimal digits for each byte.
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;

/// An API key that a caller presented: its id, and the hash of its secret. The secret itself is not kept.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PresentedKey {
    pub(crate) id: Box<str>,
    hash: [u8; 32],
}

impl PresentedKey {
    /// Parses the text of an API key; none if it is malformed.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let well_formed = is_hex(id, ID_BYTES) && is_hex(secret, SECRET_BYTES);
        well_formed.then(|| Self { id: id.into(), hash: hash(secret) })
    }

    /// Whether the secret has this hash. Takes the same time wherever the hashes differ.
    pub(crate) fn matches(&self, hash: &[u8; 32]) -> bool {
        let different =
            self.hash.iter().zip(hash).fold(0, |all, (ours, theirs)| all | (ours ^ theirs));
        // Hides the intermediate result from the optimiser, which could otherwise leave the loop early.
        std::hint::black_box(different) == 0
    }
}

/// A new API key. Its text is shown once; only the id and the hash are kept.
pub struct NewApiKey {
    /// The whole key, which only its user may know.
    pub text: String,
    /// Its id.
    pub id: String,
    /// The hash of its secret.
    pub hash: [u8; 32],
}

impl NewApiKey {
    /// A key with a random id.
    pub fn random() -> Self {
        let mut id = [0; ID_BYTES];
        fill(&mut id);
        Self::with_id(hex(&id))
    }

    /// A key with this id.
    pub(crate) fn with_id(id: String) -> Self {
        let mut secret = [0; SECRET_BYTES];
        fill(&mut secret);
        let secret = hex(&secret);
        Self { text: format!("{PREFIX}{id}_{secret}"), id, hash: hash(&secret) }
    }
}

fn fill(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system has randomness, or nothing here is safe");
}

fn hash(secret: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    hash
}

fn is_hex(text: &str, bytes: usize) -> bool {
    text.len() == 2 * bytes && text.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_is_read_back_and_matches_its_hash_only() {
        let (one, other) = (NewApiKey::random(), NewApiKey::random());
        let read = PresentedKey::parse(&one.text).unwrap();
        assert_eq!(*read.id, *one.id);
        assert!(read.matches(&one.hash) && !read.matches(&other.hash));
        assert_ne!((one.id, one.text), (other.id, other.text));
    }

    #[test]
    fn the_hash_is_that_of_the_secrets_text() {
        let secret = "00".repeat(32);
        let read = PresentedKey::parse(&format!("tenure_0123456789abcdef_{secret}")).unwrap();
        let known = "60e05bd1b195af2f94112fa7197a5c88289058840ce7c6df9693756bc6250f55";
        assert_eq!((&*read.id, &*hex(&read.hash)), ("0123456789abcdef", known));
    }

    #[test]
    fn malformed_keys_are_none() {
        let (id, secret) = ("0123456789abcdef", "ab".repeat(32));
        assert!(PresentedKey::parse(&format!("tenure_{id}_{secret}")).is_some());
        for bad in [
            String::new(),
            "tenure_".to_owned(),
            format!("tenure_{id}"),
            format!("tenure_{id}_"),
            format!("tenure_{id}_{secret}0"),
            format!("tenure_{id}0_{secret}"),
            format!("tenure_{}_{secret}", id.to_uppercase()),
            format!("tenure_{id}_{}", secret.to_uppercase()),
            format!("tenure_{id}_{secret} "),
            format!("tenure_{id}_{secret}_"),
            format!("Tenure_{id}_{secret}"),
        ] {
            assert!(PresentedKey::parse(&bad).is_none(), "{bad}");
        }
    }
}
