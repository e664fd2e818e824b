//! Authenticates the readers of a store by a bearer token, and the writers of states.

use std::fs;
use std::path::Path;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::listen::StartError;

/// The shortest accepted token: 128 random bits in hexadecimal.
const BYTES_MIN: usize = 32;

/// The tokens of readers. An empty list refuses every reader.
#[derive(Clone)]
pub(crate) struct Readers(Vec<String>);

impl Readers {
    /// Reads a file with one token per line, which a flag names. Empty lines and lines that begin with `#` are
    /// skipped.
    pub(crate) fn open(path: &Path, flag: &str) -> Result<Self, StartError> {
        let text = fs::read_to_string(path);
        let text =
            text.map_err(|source| StartError::Disk { what: path.display().to_string(), source })?;
        let lines = text.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#'));
        let tokens: Vec<String> = lines.map(str::to_owned).collect();
        let usable = |token: &String| {
            token.len() >= BYTES_MIN && token.bytes().all(|it| it.is_ascii_graphic())
        };
        if tokens.is_empty() || !tokens.iter().all(usable) {
            let why = format!("a token per line, of at least {BYTES_MIN} visible characters");
            return Err(StartError::Setting(format!("{flag} {}: {why}", path.display())));
        }
        Ok(Self(tokens))
    }

    /// Whether the request has one `Authorization: Bearer` with one of the tokens.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> bool {
        let mut shown = headers.get_all(AUTHORIZATION).into_iter();
        let (Some(shown), None) = (shown.next(), shown.next()) else { return false };
        let Some((scheme, token)) = shown.to_str().ok().and_then(|text| text.split_once(' '))
        else {
            return false;
        };
        let found = self.has(token);
        scheme.eq_ignore_ascii_case("bearer") && found
    }

    /// Whether this is one of the tokens.
    pub(crate) fn has(&self, token: &str) -> bool {
        // All of them are compared, and all of each: the time tells nothing about a token.
        let is = |known: &String| same(known.as_bytes(), token.as_bytes());
        self.0.iter().fold(false, |found, known| found | is(known))
    }

    #[cfg(test)]
    pub(crate) fn of(tokens: Vec<String>) -> Self {
        Self(tokens)
    }
}

fn same(known: &[u8], shown: &[u8]) -> bool {
    known.len() == shown.len() && known.iter().zip(shown).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bearer_token_of_the_file_is_needed() {
        let (dir, good) = (tempfile::tempdir().unwrap(), "0123456789abcdef0123456789abcdef");
        let path = dir.path().join("readers");
        fs::write(&path, format!("# team a\n{good}\n")).unwrap();
        let readers = Readers::open(&path, "--readers").unwrap();
        let admit = |shown: &[String]| {
            let mut headers = HeaderMap::new();
            for shown in shown {
                headers.append(AUTHORIZATION, shown.parse().unwrap());
            }
            readers.admit(&headers)
        };
        let bearer = format!("Bearer {good}");
        assert!(admit(std::slice::from_ref(&bearer)) && admit(&[format!("bearer {good}")]));
        assert!(!admit(&[]) && !admit(&[bearer.clone(), bearer.clone()]));
        for bad in
            [good.to_owned(), format!("Basic {good}"), format!("{bearer}0"), "Bearer ".to_owned()]
        {
            assert!(!admit(std::slice::from_ref(&bad)), "{bad}");
        }
        fs::write(&path, "short\n").unwrap();
        assert!(Readers::open(&path, "--readers").is_err());
        fs::write(&path, "\n").unwrap();
        assert!(Readers::open(&path, "--readers").is_err());
    }
}
