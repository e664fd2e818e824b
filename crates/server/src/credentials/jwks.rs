//! Parses the public keys of an issuer from a JWKS document (RFC 7517) and verifies signatures with them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    self, ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RsaParameters,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::Value;

/// The most keys in a document. Issuers have a few: the current one, the next one and those that retire.
const KEYS_MAX: usize = 64;
/// The sizes of RSA moduli that are accepted, in bytes: 2048 to 8192 bits. Shorter ones can be broken.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1_024;
/// The longest exponent, in bytes. Longer ones are slow, and no issuer has one.
const EXPONENT_BYTES_MAX: usize = 4;

/// A signature algorithm that tokens may use. All of them are asymmetric: `none` and the HMAC algorithms do not exist
/// here, so that no public key can serve as a shared secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Es256,
    Es384,
    EdDsa,
}

/// The public keys of one issuer.
#[derive(Debug, Default)]
pub(crate) struct KeySet(Vec<IssuerKey>);

#[derive(Debug)]
struct IssuerKey {
    id: Option<String>,
    /// The only algorithm for which the issuer uses the key, if it says so.
    only: Option<Algorithm>,
    public: JwkPublicKey,
}

#[derive(Debug)]
enum JwkPublicKey {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// An uncompressed point.
    P256(Vec<u8>),
    /// An uncompressed point.
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// A key of a document, as far as it is used.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    used_for: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

impl Algorithm {
    /// The algorithm of this name (RFC 7518, RFC 8037).
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "EdDSA" => Self::EdDsa,
            _ => return None,
        })
    }

    /// The parameters, if this is an algorithm for RSA keys.
    fn rsa(self) -> Option<&'static RsaParameters> {
        match self {
            Self::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
            Self::Es256 | Self::Es384 | Self::EdDsa => None,
        }
    }
}

impl KeySet {
    /// Parses a document. Keys of unknown kinds, keys for encryption and keys that are malformed are left out, as the
    /// standard asks. A document without any usable key is an error.
    pub(crate) fn parse(document: &str) -> Result<Self, &'static str> {
        let document: Document =
            serde_json::from_str(document).map_err(|_| "this is no JWKS document")?;
        if document.keys.len() > KEYS_MAX {
            return Err("the JWKS document has more than 64 keys");
        }
        let keys: Vec<IssuerKey> = document.keys.into_iter().filter_map(IssuerKey::parse).collect();
        if keys.is_empty() {
            return Err("the JWKS document has no key that can verify a signature");
        }
        Ok(Self(keys))
    }

    /// The key with this id that fits the algorithm; without an id, the only key that fits. None if there is no such
    /// key, or several: a token must not choose among keys.
    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&IssuerKey> {
        let named = |key: &&IssuerKey| id.is_none() || key.id.as_deref() == id;
        let mut fitting = self.0.iter().filter(named).filter(|key| key.fits(algorithm));
        fitting.next().filter(|_| fitting.next().is_none())
    }

    /// Whether there is a key with which a token with this id and algorithm could be verified.
    pub(crate) fn has(&self, id: Option<&str>, algorithm: Algorithm) -> bool {
        self.find(id, algorithm).is_some()
    }

    /// Whether the key with this id signed the text by this algorithm.
    pub(crate) fn verifies(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
        text: &[u8],
        signature: &[u8],
    ) -> bool {
        self.find(id, algorithm).is_some_and(|key| key.public.verifies(algorithm, text, signature))
    }
}

impl IssuerKey {
    fn parse(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let signs = jwk.used_for.as_deref().is_none_or(|used_for| used_for == "sig");
        let verifies = |ops: &Vec<String>| ops.iter().any(|op| op == "verify");
        if !signs || !jwk.key_ops.as_ref().is_none_or(verifies) {
            return None;
        }
        let public = JwkPublicKey::parse(&jwk)?;
        // A key for an algorithm that is not known here must not be used with another one.
        let only = match &jwk.alg {
            None => None,
            Some(name) => Some(Algorithm::parse(name)?),
        };
        Some(Self { id: jwk.kid, only, public })
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        self.only.is_none_or(|only| only == algorithm) && self.public.fits(algorithm)
    }
}

impl JwkPublicKey {
    fn parse(jwk: &Jwk) -> Option<Self> {
        let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let point = |len: usize| {
            let (x, y) = (bytes(&jwk.x)?, bytes(&jwk.y)?);
            (x.len() == len && y.len() == len).then(|| [vec![4], x, y].concat())
        };
        match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => {
                // Some issuers write a sign byte, which is not part of the number.
                let unsigned = |bytes: Vec<u8>| match bytes.iter().position(|byte| *byte != 0) {
                    Some(at) => bytes[at..].to_vec(),
                    None => Vec::new(),
                };
                let (modulus, exponent) = (unsigned(bytes(&jwk.n)?), unsigned(bytes(&jwk.e)?));
                let sized = RSA_BYTES.contains(&modulus.len())
                    && (1..=EXPONENT_BYTES_MAX).contains(&exponent.len());
                sized.then_some(Self::Rsa { modulus, exponent })
            }
            ("EC", Some("P-256")) => point(32).map(Self::P256),
            ("EC", Some("P-384")) => point(48).map(Self::P384),
            ("OKP", Some("Ed25519")) => bytes(&jwk.x).filter(|x| x.len() == 32).map(Self::Ed25519),
            _ => None,
        }
    }

    /// Whether the algorithm is one for keys of this kind.
    fn fits(&self, algorithm: Algorithm) -> bool {
        match self {
            Self::Rsa { .. } => algorithm.rsa().is_some(),
            Self::P256(_) => algorithm == Algorithm::Es256,
            Self::P384(_) => algorithm == Algorithm::Es384,
            Self::Ed25519(_) => algorithm == Algorithm::EdDsa,
        }
    }

    fn verifies(&self, algorithm: Algorithm, text: &[u8], signature: &[u8]) -> bool {
        let verified = match self {
            Self::Rsa { modulus, exponent } => {
                let Some(parameters) = algorithm.rsa() else { return false };
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                return key.verify(parameters, text, signature).is_ok();
            }
            Self::P256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point),
            Self::P384(point) => UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point),
            Self::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key),
        };
        self.fits(algorithm) && verified.verify(text, signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(keys: &Value) -> Result<KeySet, &'static str> {
        KeySet::parse(&json!({ "keys": keys }).to_string())
    }

    fn okp(kid: &str) -> Value {
        json!({"kty": "OKP", "crv": "Ed25519", "kid": kid,
            "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"})
    }

    /// A modulus whose private key is gone, and signatures of `text` made with it by OpenSSL.
    const MODULUS: &str = "wpOMN5OhDvzWgP55e6MUiuA5KnH3KzlXOwcZOw53y21gAPdlhnpFFcvmDq8P1\
        MihdUN-RvkBQ0r78Lg4ezWIBMeYWy7BVuJDgCif\
        _0UaP_o-aEFdrVzEWC2niKDhciHzObag65RIq_i0ltvZvgAB8nSP0rm27U1KXgH54ezp9xuluhxR6XY_oa8Reix4MuczgdGSnD_2\
        S1SkNEG3gpOGW9jbSH7e_6M-KLlfummYovabZISlCsxu5rwrl2NdaDyNim1wX7Qp4BtId8pdIUzHtAtP48pi5vOjHHIDeLWVC0Qg\
        pXG9ZYnWN4sbyqPSzZCDc34UYFHSGCPrD2fbs54-Gw";
    const SIGNATURES: [(Algorithm, &str); 4] = [
        (
            Algorithm::Rs256,
            "GnIZSBoewtbUhvS30-wzd3pmu2G6sMCizkHIMcJD7R3WVRTiy6aOxC6lvfpQK-0x3MXBG76_k93dk1ghMqxJ_838e3VaKzSZRsxu\
             231JMM6cdyiDD7ndm2BdUB_BATGzBwPc-pypE48XM6yixKFqz7JG8nkkXLfs2P5MJchfyOgk4T-qL1aV4ANO0Dbfe4oVV33mqWsM\
             vIUzE-yXfsxAuZSlgLfgPXWmexKdp7ka8-SWTAoAkfJae70h3rUKo_3VrOVYuBmjnGyPI-0yo1dUMkL3JwnyQ2UFMwObj-GAqhTp\
             G9xy19TTjT_0wzaeubZlibLt2pta9s5pxA0daRfUEQ",
        ),
        (
            Algorithm::Rs384,
            "hIDkHwftp7hDagkmz79u4SMRbifLNi8SPlC_caLYK3bheKeupXt70Pvcli6PiZesOUe9l6WjVxBLBjFmtnANITP8uUxozci_61Q9\
             --DLwZWeZA4qUIyUge6r1hQe3rPwRDgO4e0rtp2nhMTTofRnt4tpN5mJG6-VfB8QDhQ6o83MIy--ygoFLqcI_LIZCcVt0aF6my7m\
             M9wqTtA4mCfO4diAHOJxJc9tQz4EHnfONGZ6w446wg5bHrzzJfUeyB3-zkts_TcbZL3amaN-8Y5YqnCH915QHsVUk8dlBzFicK-Y\
             cnRksnlizTLLgyFlSBI4eLBQXew4MresgFVTm2YATw",
        ),
        (
            Algorithm::Rs512,
            "uK-7HI_ZLxBIdI8UnCZKCFOdOKUTtLepej1cuJ3Hjo4hYCf1QNbiGNvrHy_zg-TJ9I8z7el9Txy5LumzDCkTEBi3s8oGCl3olM9D\
             Gea90EmVB7k8GRX_iauJQWMgWjdQA_ZbpEyNapyYNLkzhQmYuU7HsgI_hb5aYQUhBoAqUahCPQU2AmKYJYN0D-vCFNwBtu1uHvJu\
             JYPGNsWknrrROmAqIkkUU-YIEo_qClq8MISq6NxsdTJgh3U3lQ5rBxJw2M6gmPOHGPsL7Mj1f8E5nKEj6gVyX_RZeCL8WEkN-s8j\
             2bwr-pHbrGdVqNOtsGrOw0bbdYOHVqTlWqWmjdzZrg",
        ),
        (
            Algorithm::Ps256,
            "qj5DtkXowc-RZb5Dsvrf7aRONPaS6lsXJu3wgHXb7QfFpzKVVp7l9MrWzlOgJwId-TCDxKPSY8ILyPBgencozOQV816Z68BecuoK\
             MEK_na66OWIfr8qfcCQ9boTlpp_ARRfRZybvEFb9q1TqSrxB4gcm0GwKTKCwuoVAFTD9dcQU5-myDfh-tlL8bu2dJ6cG3hUKrvqB\
             9Mv0Hc9rzPJKwQ_XvxVim5WLSxmniiAniweYWmYrEzkoJpFzw4LGw7LHkchcbP7DgVVEnGJEfp1H-FhA2zTn84PwEgw9yDK5qrhu\
             aawXhKt7LMmW5drw1zj8WvzW_6XSygHFm3ENNwNizw",
        ),
    ];

    #[test]
    fn signatures_of_rsa_keys_verify_by_their_own_algorithm_only() {
        let key = json!({"kty": "RSA", "n": MODULUS, "e": "AQAB"});
        let keys = set(&json!([key])).unwrap();
        for (signed_by, signature) in SIGNATURES {
            let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            for (algorithm, _) in SIGNATURES {
                let verifies = keys.verifies(None, algorithm, b"text", &signature);
                assert_eq!(verifies, algorithm == signed_by, "{signed_by:?} {algorithm:?}");
            }
            assert!(!keys.verifies(None, signed_by, b"Text", &signature));
            assert!(!keys.verifies(None, signed_by, b"text", &signature[1..]));
        }
    }

    #[test]
    fn the_example_of_the_standard_verifies() {
        // RFC 8037, appendix A.4 and A.5.
        let text = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
        let signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhij\
            cNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let keys = set(&json!([okp("a")])).unwrap();
        let verifies = |id| keys.verifies(id, Algorithm::EdDsa, text, &signature);
        assert!(verifies(Some("a")) && verifies(None));
        assert!(!verifies(Some("b")));
        assert!(!keys.verifies(Some("a"), Algorithm::EdDsa, b"other", &signature));
        assert!(!keys.verifies(Some("a"), Algorithm::Es256, text, &signature));
    }

    #[test]
    fn keys_that_cannot_verify_are_left_out() {
        let with = |name: &str, value: Value| {
            let mut key = okp("a");
            key[name] = value;
            set(&json!([key])).is_ok()
        };
        assert!(with("use", json!("sig")) && with("key_ops", json!(["sign", "verify"])));
        assert!(with("alg", json!("EdDSA")));
        assert!(!with("use", json!("enc")) && !with("key_ops", json!(["encrypt"])));
        assert!(!with("alg", json!("HS256")) && !with("alg", json!("none")));
        assert!(!with("kty", json!("oct")) && !with("crv", json!("X25519")));
        assert!(!with("x", json!("AAAA")) && !with("x", json!("not base64!")));
        assert!(!with("x", json!(7)), "a member of the wrong type spoils one key");
        let short = json!({"kty": "RSA", "n": URL_SAFE_NO_PAD.encode([0xff; 128]), "e": "AQAB"});
        assert!(set(&json!([short])).is_err(), "1024 bits");
        let long = URL_SAFE_NO_PAD.encode([0xff; 256]);
        let slow = json!({"kty": "RSA", "n": long, "e": URL_SAFE_NO_PAD.encode([0xff; 256])});
        assert!(set(&json!([slow])).is_err(), "a huge exponent");
        assert!(set(&json!([short, okp("a")])).is_ok(), "the others remain");
    }

    #[test]
    fn a_token_cannot_choose_among_keys_of_one_id() {
        let keys = set(&json!([okp("a"), okp("a"), okp("b")])).unwrap();
        assert!(!keys.has(Some("a"), Algorithm::EdDsa));
        assert!(keys.has(Some("b"), Algorithm::EdDsa));
        assert!(!keys.has(None, Algorithm::EdDsa), "without an id only one key may fit");
    }

    #[test]
    fn documents_are_bounded_and_must_be_documents() {
        let many: Vec<Value> = (0..=KEYS_MAX).map(|number| okp(&number.to_string())).collect();
        assert!(set(&json!(many)).is_err());
        for bad in ["", "{}", "[]", r#"{"keys": 7}"#, r#"{"keys": []}"#, r#"{"keys": [7]}"#] {
            assert!(KeySet::parse(bad).is_err(), "{bad}");
        }
    }
}
