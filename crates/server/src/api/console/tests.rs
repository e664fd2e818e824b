//! Tests that the files of the console are complete, small, and what their authors published.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ring::digest::digest;

use super::*;

/// The most bytes of all files together. The member sends them without compression; a browser keeps them.
const BYTES_MAX: usize = 256 * 1024;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console")
}

fn files_below(directory: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().unwrap().is_dir() {
            files_below(&entry.path(), &format!("{name}/"), found);
        } else {
            found.insert(name);
        }
    }
}

#[test]
fn every_file_of_the_directory_is_served_but_for_its_papers() {
    let mut found = BTreeSet::new();
    files_below(&directory(), "", &mut found);
    found.retain(|name| !name.starts_with("tests/"));
    for paper in ["README.md", "vendor/LICENSE-htm", "vendor/LICENSE-preact", "vendor/SHA256SUMS"] {
        assert!(found.remove(paper), "{paper} is missing");
    }
    let served: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
    assert_eq!(served, found);
}

#[test]
fn all_files_together_are_small() {
    let bytes: usize = FILES.iter().map(|file| file.bytes.len()).sum();
    println!("console: {bytes} bytes in {} files", FILES.len());
    assert!(bytes <= BYTES_MAX, "{bytes} bytes");
}

#[test]
fn libraries_are_those_that_were_published() {
    let sums = std::fs::read_to_string(directory().join("vendor/SHA256SUMS")).unwrap();
    let vendored = FILES.iter().filter(|file| file.name.starts_with("vendor/"));
    let mut known = 0;
    for file in vendored {
        let digest = digest(&SHA256, file.bytes);
        let sum: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let name = file.name.strip_prefix("vendor/").unwrap();
        assert!(sums.contains(&format!("{sum}  {name}\n")), "{name} has the checksum {sum}");
        known += 1;
    }
    assert_eq!(sums.lines().count(), known, "every checksum is of a file");
}

#[test]
fn the_page_names_the_files_and_has_no_script_or_style_of_its_own() {
    assert!(BUNDLE.page.contains(&format!("src=\"/console/{}/main.js\"", BUNDLE.version)));
    assert!(!BUNDLE.page.contains(PLACE));
    for forbidden in ["<style", "style=", "onload=", "onclick=", "http://", "https://"] {
        assert!(!BUNDLE.page.contains(forbidden), "{forbidden}");
    }
    assert_eq!(BUNDLE.page.matches("<script").count(), 1);
}

#[test]
fn no_file_asks_for_anything_of_another_host() {
    for file in FILES.iter().filter(|file| !file.name.starts_with("vendor/")) {
        let text = std::str::from_utf8(file.bytes).unwrap();
        for (index, line) in text.lines().enumerate() {
            let outside = line.contains("https://") || line.contains("http://");
            // A browser sends no request to the name of an XML namespace.
            let named = line.contains("http://www.w3.org/");
            assert!(!outside || named, "{}:{}: {line}", file.name, index + 1);
        }
    }
}

#[test]
fn only_the_console_is_open() {
    assert!(is_page("/") && is_page("/console/0/main.js"));
    assert!(!is_page("/v1/console") && !is_page("/consoles") && !is_page("/v1/locks"));
}
