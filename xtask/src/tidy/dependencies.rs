//! Checks the crates from elsewhere against the policy in deny.toml, without a network.
//!
//! Sources, checksums and second versions are read from Cargo.lock, for every platform. Licences come from the
//! manifests of the crates that this platform builds, because cargo has no others at hand.

use std::collections::{BTreeMap, BTreeSet};

use crate::supply::policy::{self, POLICY, Policy};
use crate::supply::{advisories, compiler, licence, lock};

use super::{TidyFindings, Tree};

const LOCK: &str = "Cargo.lock";
const MANIFEST: &str = "Cargo.toml";

/// Checks sources, second versions, licences and accepted advisories.
pub(super) fn check(tree: &Tree) -> TidyFindings {
    let mut found = TidyFindings::default();
    let (Some(policy), Some(locked)) = (tree.text(POLICY), tree.text(LOCK)) else {
        found.fault(POLICY, None, format!("{POLICY} or {LOCK} is missing"));
        return found;
    };
    let policy = policy::parse(policy).map_err(|error| (POLICY, error));
    let parsed =
        policy.and_then(|policy| Ok((policy, lock::parse(locked).map_err(|error| (LOCK, error))?)));
    match parsed {
        Err((file, error)) => found.fault(file, None, format!("{error:#}")),
        Ok((policy, crates)) => {
            sources(&policy, &crates, &mut found);
            second_versions(&policy, &crates, &mut found);
            licences(&policy, tree, &mut found);
            accepted(&policy, &crates, &mut found);
            advised(&policy, &crates, &mut found);
        }
    }
    found
}

/// Checks the compiler in use, and notes if it is not the recorded one.
pub(super) fn check_compiler(tree: &Tree) -> TidyFindings {
    let mut found = TidyFindings::default();
    let Some(manifest) = tree.text(MANIFEST) else {
        found.fault(MANIFEST, None, "is missing");
        return found;
    };
    found.checked += 1;
    match (compiler::recorded(manifest), compiler::in_use()) {
        (Err(error), _) | (_, Err(error)) => found.fault(MANIFEST, None, format!("{error:#}")),
        (Ok(recorded), Ok((in_use, _))) => {
            if let Err(why) = compiler::compare(&recorded, &in_use) {
                found.fault(MANIFEST, None, why);
            }
            if in_use != recorded.tested {
                let note = format!(
                    "rustc {in_use} is in use; releases are tested with {}",
                    recorded.tested
                );
                found.notes.push(note);
            }
        }
    }
    found
}

fn sources(policy: &Policy, crates: &[lock::LockedCrate], found: &mut TidyFindings) {
    for each in crates {
        found.checked += 1;
        let Some(source) = &each.source else { continue };
        let allowed = match source.split_once('+') {
            Some(("registry", url)) => policy.sources.allow_registry.iter().any(|good| good == url),
            Some(("git", url)) => policy.sources.allow_git.iter().any(|good| url.starts_with(good)),
            _ => false,
        };
        if !allowed {
            found.fault(LOCK, None, format!("{} {} comes from {source}", each.name, each.version));
        } else if each.checksum.is_none() {
            found.fault(LOCK, None, format!("{} {} has no checksum", each.name, each.version));
        }
    }
}

fn second_versions(policy: &Policy, crates: &[lock::LockedCrate], found: &mut TidyFindings) {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for each in crates {
        versions.entry(&each.name).or_default().insert(&each.version);
    }
    let mut skipped = BTreeSet::new();
    for skip in &policy.bans.skip {
        let (name, version) = skip.id.split_once('@').unwrap_or((&skip.id, ""));
        let needed = versions.get(name).is_some_and(|all| all.len() > 1 && all.contains(version));
        if !needed {
            found.fault(POLICY, None, format!("{} is no second version any more", skip.id));
        }
        if skip.reason.trim().is_empty() {
            found.fault(POLICY, None, format!("{} stands without a reason", skip.id));
        }
        skipped.insert((name, version));
    }
    for (name, all) in versions {
        let left: Vec<&str> =
            all.into_iter().filter(|version| !skipped.contains(&(name, *version))).collect();
        if left.len() > 1 {
            let what = format!(
                "{name} is there in versions {}; accept all but one in {POLICY}",
                left.join(" and ")
            );
            found.fault(LOCK, None, what);
        }
    }
}

fn licences(policy: &Policy, tree: &Tree, found: &mut TidyFindings) {
    let mut used = BTreeSet::new();
    for each in &tree.external {
        found.checked += 1;
        let allowed = |id: &str| policy.licenses.allow.iter().any(|good| good == id);
        let expression = each.licence.as_deref().unwrap_or_default();
        if !licence::satisfied(expression, &allowed) {
            let what = format!(
                "{} {} is under `{expression}`, which is not allowed",
                each.name, each.version
            );
            found.fault(LOCK, None, what);
        }
        used.extend(policy.licenses.allow.iter().filter(|good| expression.contains(*good)));
    }
    for unused in policy
        .licenses
        .allow
        .iter()
        .filter(|good| !tree.external.is_empty() && !used.contains(good))
    {
        found.fault(POLICY, None, format!("no crate is under {unused}"));
    }
}

fn accepted(policy: &Policy, crates: &[lock::LockedCrate], found: &mut TidyFindings) {
    for each in &policy.advisories.ignore {
        found.checked += 1;
        if !crates.iter().any(|locked| locked.name == each.package()) {
            let what = format!("{}: its reason names no crate of {LOCK} before a colon", each.id);
            found.fault(POLICY, None, what);
        }
    }
}

fn advised(policy: &Policy, crates: &[lock::LockedCrate], found: &mut TidyFindings) {
    let Some(database) = advisories::find() else {
        let variable = advisories::VARIABLE;
        found.notes.push(format!(
            "no advisory database here: advisories were not looked up; {variable} names one"
        ));
        return;
    };
    let hits = match advisories::hits(&database, crates) {
        Ok(hits) => hits,
        Err(error) => return found.fault(POLICY, None, format!("{error:#}")),
    };
    for hit in &hits {
        let accepted = policy
            .advisories
            .ignore
            .iter()
            .any(|each| each.id == hit.id && each.package() == hit.package);
        if !accepted {
            let what = format!("{} concerns {} {}", hit.id, hit.package, hit.version);
            found.fault(LOCK, None, what);
        }
    }
    for each in &policy.advisories.ignore {
        if !hits.iter().any(|hit| hit.id == each.id) {
            found.fault(POLICY, None, format!("{} concerns no locked crate any more", each.id));
        }
    }
    let note = format!("{} advisories of {} concern locked crates", hits.len(), database.display());
    found.notes.push(note);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supply::external::ExternalCrate;

    const GOOD: &str = r#"
[licenses]
allow = [
    "MIT", # our own
]
[sources]
allow-registry = ["https://index"]
allow-git = []
[bans]
skip = [{ crate = "b@1.0.0", reason = "a asks for it" }]
[advisories]
ignore = []
"#;

    const LOCKED: &str = r#"
[[package]]
name = "a"
version = "0.1.0"
[[package]]
name = "b"
version = "1.0.0"
source = "registry+https://index"
checksum = "ff"
[[package]]
name = "b"
version = "2.0.0"
source = "registry+https://index"
checksum = "ee"
"#;

    fn check(policy: &str, locked: &str, licence: &str) -> Vec<String> {
        let external = |version: &str, licence: &str| ExternalCrate {
            name: "b".to_owned(),
            version: version.to_owned(),
            licence: Some(licence.to_owned()),
        };
        let mut tree = Tree::sample(&[(POLICY, policy), (LOCK, locked)]);
        tree.external = vec![external("1.0.0", licence), external("2.0.0", "MIT")];
        let mut found = TidyFindings::default();
        let (policy, crates) = (policy::parse(policy).unwrap(), lock::parse(locked).unwrap());
        sources(&policy, &crates, &mut found);
        second_versions(&policy, &crates, &mut found);
        licences(&policy, &tree, &mut found);
        accepted(&policy, &crates, &mut found);
        found.faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_the_policy_allows_passes() {
        assert!(check(GOOD, LOCKED, "MIT OR X").is_empty());
    }

    #[test]
    fn other_sources_and_missing_checksums_fail() {
        let git = LOCKED.replacen("registry+https://index", "git+https://index", 1);
        assert_eq!(check(GOOD, &git, "MIT"), ["Cargo.lock: b 1.0.0 comes from git+https://index"]);
        let bare = LOCKED.replace("checksum = \"ff\"", "");
        assert_eq!(check(GOOD, &bare, "MIT"), ["Cargo.lock: b 1.0.0 has no checksum"]);
    }

    #[test]
    fn a_new_second_version_fails_and_so_does_an_exception_that_is_not_needed() {
        let third = format!("{LOCKED}[[package]]\nname = \"b\"\nversion = \"3.0.0\"\n");
        let expected =
            ["Cargo.lock: b is there in versions 2.0.0 and 3.0.0; accept all but one in deny.toml"];
        assert_eq!(check(GOOD, &third, "MIT"), expected);
        let gone = LOCKED.replace("1.0.0", "2.0.0");
        assert_eq!(check(GOOD, &gone, "MIT"), ["deny.toml: b@1.0.0 is no second version any more"]);
        let silent = GOOD.replace("a asks for it", " ");
        assert_eq!(check(&silent, LOCKED, "MIT"), ["deny.toml: b@1.0.0 stands without a reason"]);
    }

    #[test]
    fn other_licences_fail_and_so_does_one_that_no_crate_has() {
        let expected = ["Cargo.lock: b 1.0.0 is under `GPL-3.0`, which is not allowed"];
        assert_eq!(check(GOOD, LOCKED, "GPL-3.0"), expected);
        let more = GOOD.replace("    \"MIT\"", "    \"ISC\", # why not\n    \"MIT\"");
        assert_eq!(check(&more, LOCKED, "MIT"), ["deny.toml: no crate is under ISC"]);
    }

    #[test]
    fn an_accepted_advisory_names_a_locked_crate() {
        let of = |reason: &str| {
            GOOD.replace(
                "ignore = []",
                &format!("ignore = [{{ id = \"R-1\", reason = \"{reason}\" }}]"),
            )
        };
        assert!(check(&of("b: not called"), LOCKED, "MIT").is_empty());
        let expected = ["deny.toml: R-1: its reason names no crate of Cargo.lock before a colon"];
        assert_eq!(check(&of("c: not called"), LOCKED, "MIT"), expected);
        assert_eq!(check(&of("not called"), LOCKED, "MIT"), expected);
    }
}
