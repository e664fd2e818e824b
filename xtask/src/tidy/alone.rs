//! Checks that no file mentions the machines and tools that the project was written with.

use super::source::has_word;
use super::{TidyFindings, Tree};

/// Paths of particular machines. They are split so that this list does not match itself.
const PLACES: &[&str] = &[concat!("/", "work/"), concat!("/", "root/"), concat!("/", "farm/")];

/// Words about how the text was written, matched with their case.
const WORDS: &[&str] = &[concat!("A", "I"), concat!("LL", "M"), concat!("LL", "Ms")];

/// Phrases of the same kind, matched in any case.
const PHRASES: &[&str] = &[
    concat!("clau", "de"),
    concat!("agent ", "session"),
    concat!("agent ", "sessions"),
    concat!("developer ", "session"),
    concat!("developer ", "sessions"),
];

pub(super) fn check(tree: &Tree) -> TidyFindings {
    let mut found = TidyFindings::default();
    for (name, bytes) in tree.bytes() {
        found.checked += 1;
        // A file name is visible text as well.
        check_line(name, None, name, &mut found);
        // Look for paths in corpora and other binary files too; words there are accidents.
        for (index, line) in String::from_utf8_lossy(bytes).lines().enumerate() {
            if let Some(place) = PLACES.iter().find(|place| has_place(line, place)) {
                let what = format!("`{place}` is a place on some machine");
                found.fault(name, Some(index + 1), what);
            }
        }
    }
    for (name, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            check_line(name, Some(index + 1), line, &mut found);
        }
    }
    found
}

fn check_line(name: &str, number: Option<usize>, line: &str, found: &mut TidyFindings) {
    let lower = line.to_lowercase();
    let word = WORDS.iter().find(|word| has_word(line, word));
    let phrase = PHRASES.iter().find(|phrase| has_word(&lower, phrase));
    if let Some(word) = word.or(phrase) {
        found.fault(name, number, format!("`{word}` is not about this project"));
    }
}

/// Whether an absolute path begins there; `a/b/` within a longer path or URL does not count.
fn has_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '*' | '}'))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::faults;
    use super::*;

    #[test]
    fn every_place_is_found() {
        for place in PLACES {
            let text = format!("fine\nsee {place}main\n");
            let expected = format!("a.md:2: `{place}` is a place on some machine");
            assert_eq!(faults(check, &[("a.md", &text)]), [expected]);
        }
    }

    #[test]
    fn every_word_is_found() {
        for word in WORDS.iter().chain(PHRASES) {
            let text = format!("fine\nby {word}, today\n");
            let expected = format!("a.md:2: `{word}` is not about this project");
            assert_eq!(faults(check, &[("a.md", &text)]), [expected]);
        }
        let shouted = PHRASES[0].to_uppercase();
        assert_eq!(faults(check, &[(&format!("{shouted}.md"), "")]).len(), 1);
    }

    #[test]
    fn parts_of_longer_words_and_paths_are_fine() {
        let text = format!("MAIN LLVM target{p}x https://example.org{p}x", p = PLACES[0]);
        assert!(faults(check, &[("a.md", &text)]).is_empty());
    }
}
