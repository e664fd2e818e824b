//! Parses deny.toml, the policy for crates from elsewhere.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The file, relative to the top of the repository.
pub(crate) const POLICY: &str = "deny.toml";

/// The policy. Other tools may read more fields than these.
#[derive(Debug, Deserialize)]
pub(crate) struct Policy {
    pub(crate) licenses: Licences,
    pub(crate) sources: Sources,
    pub(crate) bans: Bans,
    pub(crate) advisories: Advisories,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Licences {
    pub(crate) allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Sources {
    pub(crate) allow_registry: Vec<String>,
    pub(crate) allow_git: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Bans {
    pub(crate) skip: Vec<SkippedVersion>,
}

/// A second version of a crate that is accepted.
#[derive(Debug, Deserialize)]
pub(crate) struct SkippedVersion {
    /// `name@version`.
    #[serde(rename = "crate")]
    pub(crate) id: String,
    pub(crate) reason: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Advisories {
    pub(crate) ignore: Vec<AcceptedAdvisory>,
}

/// An advisory that is accepted.
#[derive(Debug, Deserialize)]
pub(crate) struct AcceptedAdvisory {
    pub(crate) id: String,
    /// The crate, a colon, and why the advisory does no harm here.
    pub(crate) reason: String,
}

impl AcceptedAdvisory {
    /// The crate that the advisory is about.
    pub(crate) fn package(&self) -> &str {
        self.reason.split_once(':').map_or("", |(package, _)| package)
    }
}

/// Parses the policy. Every allowed licence needs a comment that says why.
pub(crate) fn parse(text: &str) -> Result<Policy> {
    let policy: Policy =
        toml::from_str(text).with_context(|| format!("{POLICY} cannot be parsed"))?;
    for licence in &policy.licenses.allow {
        let quoted = format!("\"{licence}\",");
        let reason = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(&quoted)?.trim().strip_prefix('#'));
        ensure!(
            reason.is_some_and(|reason| !reason.trim().is_empty()),
            "licence {licence} stands without a reason: one line each, with a comment behind it"
        );
    }
    Ok(policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) const SAMPLE: &str = r#"
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
ignore = [{ id = "RUSTSEC-1", reason = "b: not called" }]
"#;

    #[test]
    fn a_policy_is_parsed() {
        let policy = parse(SAMPLE).unwrap();
        assert_eq!(policy.licenses.allow, ["MIT"]);
        assert_eq!(policy.bans.skip[0].id, "b@1.0.0");
        assert_eq!(policy.advisories.ignore[0].package(), "b");
    }

    #[test]
    fn a_licence_without_a_reason_fails() {
        let error = parse(&SAMPLE.replace("# our own", "")).unwrap_err().to_string();
        assert!(error.starts_with("licence MIT stands without a reason"), "{error}");
        assert!(parse("[licenses]").is_err());
    }
}
