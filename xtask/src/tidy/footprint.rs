//! Checks how many crates the SDK adds to a user's project.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use super::{TidyFindings, Tree};
use crate::cargo::cargo;
use crate::repo::Repo;

/// The most crates that the SDK may add to a project that uses Tokio.
const PLAIN_MAX: usize = 60;
const TLS_MAX: usize = 90;
/// The guide that states the numbers.
const GUIDE: &str = "docs/guides/sdk.md";

/// How many crates the SDK adds to a project that uses Tokio, itself not counted.
#[derive(Clone, Copy, Default)]
pub(super) struct Footprint {
    /// Without its feature `tls`.
    plain: usize,
    /// With it.
    tls: usize,
}

/// Counts the crates as cargo resolves them from the lock file, without the network.
pub(super) fn load(repo: &Repo) -> Result<Footprint> {
    let tokio = resolved(repo, &["--package", "tokio"])?;
    let count = |more: &[&str]| {
        let mut found = resolved(repo, &[&["--package", "tenure"], more].concat())?;
        found.retain(|name| !name.starts_with("tenure v"));
        anyhow::Ok(found.difference(&tokio).count())
    };
    Ok(Footprint { plain: count(&["--no-default-features"])?, tls: count(&[])? })
}

/// Every crate, as `name vVERSION`, that compiling a package needs; tests do not count.
fn resolved(repo: &Repo, what: &[&str]) -> Result<BTreeSet<String>> {
    let mut command = cargo(repo, "tree");
    command.args(["--offline", "--edges", "normal,build", "--prefix", "none", "--no-dedupe"]);
    let ran = command.args(what).output().context("cannot start cargo tree")?;
    ensure!(ran.status.success(), "cargo tree: {}", String::from_utf8_lossy(&ran.stderr));
    let text = String::from_utf8(ran.stdout)?;
    let name = |line: &str| {
        let mut words = line.split_whitespace();
        Some(format!("{} {}", words.next()?, words.next()?))
    };
    Ok(text.lines().filter_map(name).collect())
}

pub(super) fn check(tree: &Tree) -> TidyFindings {
    let mut found = TidyFindings { checked: 2, ..TidyFindings::default() };
    let Footprint { plain, tls } = tree.footprint;
    for (count, max, with) in [(plain, PLAIN_MAX, "without TLS"), (tls, TLS_MAX, "with TLS")] {
        if count > max {
            let what = format!(
                "the SDK adds {count} crates {with} to a project that uses Tokio; at most {max}"
            );
            found.fault("crates/client/Cargo.toml", None, what);
        }
    }
    let wanted = sentence(plain, tls);
    if !tree.text(GUIDE).is_some_and(|text| text.contains(&wanted)) {
        found.fault(GUIDE, None, format!("should say: {wanted}"));
    }
    found
}

fn sentence(plain: usize, tls: usize) -> String {
    format!(
        "Without its default feature `tls` the crate brings {plain} others into a project that already uses \
         Tokio, with it {tls};"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(plain: usize, tls: usize, guide: &str) -> Tree {
        Tree::sample(&[(GUIDE, guide)]).with_footprint(Footprint { plain, tls })
    }

    #[test]
    fn too_many_crates_and_an_old_guide_are_faults() {
        let guide = sentence(60, 90);
        assert!(check(&tree(60, 90, &guide)).faults.is_empty());
        let guide = sentence(61, 91);
        assert_eq!(check(&tree(61, 91, &guide)).faults.len(), 2);
        assert_eq!(check(&tree(59, 90, &guide)).faults.len(), 1);
    }
}
