//! Writes the bill of materials of the `tenure` binary in the format of CycloneDX 1.5.
//!
//! It lists what the binary links: normal dependencies, with the features that the binary turns on, for one platform.
//! Build scripts, macros and tests are not part of it. The same sources give the same bytes: it has no time and no
//! random number.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::cargo::cargo;
use crate::repo::Repo;

use super::{compiler, lock};

/// The package of the binary.
const PACKAGE: &str = "tenure-cli";

/// Flags of `cargo xtask sbom`.
#[derive(clap::Args)]
pub(crate) struct SbomArgs {
    /// Write to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// List what is linked for this platform [default: this machine's]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
}

/// One crate that is linked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Linked {
    name: String,
    version: String,
    licence: String,
}

/// The crates, and for each one those that it uses.
type Graph = BTreeMap<Linked, BTreeSet<Linked>>;

/// Prints or writes the bill of materials.
pub(crate) fn run(repo: &Repo, args: &SbomArgs) -> Result<ExitCode> {
    let (rustc, host) = compiler::in_use()?;
    let target = args.target.as_ref().unwrap_or(&host);
    let output = cargo(repo, "tree")
        .args([
            "--locked",
            "--package",
            PACKAGE,
            "--edges",
            "normal,no-proc-macro",
            "--target",
            target,
        ])
        .args(["--prefix", "depth", "--charset", "ascii", "--format", "|{p}|{l}|"])
        .output()
        .context("cannot start cargo tree")?;
    ensure!(
        output.status.success(),
        "cargo tree failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let graph = parse(&String::from_utf8(output.stdout).context("cargo tree printed no text")?)?;
    let locked =
        std::fs::read_to_string(repo.path("Cargo.lock")).context("cannot read Cargo.lock")?;
    let bill = bill(&graph, &lock::parse(&locked)?, &rustc, target)?;
    let text = format!("{}\n", serde_json::to_string_pretty(&bill)?);
    match &args.output {
        None => print!("{text}"),
        Some(path) => {
            std::fs::write(path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
            println!("{} components in {}", graph.len(), path.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Parses lines such as `2|rustls v0.23.1|MIT|`: depth, crate, licence. A crate's dependencies follow its first line.
fn parse(text: &str) -> Result<Graph> {
    let mut graph = Graph::new();
    let mut above: Vec<Linked> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let parts: Vec<&str> = line.split('|').collect();
        let [depth, package, licence, ..] = parts[..] else { bail!("cargo tree printed `{line}`") };
        let depth: usize = depth.parse().with_context(|| format!("cargo tree printed `{line}`"))?;
        let mut words = package.split_whitespace();
        let (Some(name), Some(version)) = (words.next(), words.next()) else {
            bail!("cargo tree printed `{line}`")
        };
        let version = version.trim_start_matches('v').to_owned();
        let linked =
            Linked { name: name.to_owned(), version, licence: licence.replace('/', " OR ") };
        ensure!(depth <= above.len(), "cargo tree printed `{line}` too deep");
        above.truncate(depth);
        if let Some(user) = above.last() {
            graph.entry(user.clone()).or_default().insert(linked.clone());
        }
        graph.entry(linked.clone()).or_default();
        above.push(linked);
    }
    Ok(graph)
}

fn bill(graph: &Graph, locked: &[lock::LockedCrate], rustc: &str, target: &str) -> Result<Value> {
    let root = graph.keys().find(|each| each.name == PACKAGE);
    let root = root.with_context(|| format!("cargo tree did not print {PACKAGE}"))?;
    let mut components = Vec::new();
    for each in graph.keys().filter(|each| *each != root) {
        let mut component = json!({
            "type": "library", "bom-ref": reference(each), "name": each.name, "version": each.version,
            "licenses": [{ "expression": each.licence }],
        });
        let known =
            locked.iter().find(|known| known.name == each.name && known.version == each.version);
        let known =
            known.with_context(|| format!("{} {} is not locked", each.name, each.version))?;
        if known.source.is_some() {
            component["purl"] = json!(reference(each));
        }
        if let Some(checksum) = &known.checksum {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        components.push(component);
    }
    // The standard library is linked as well, and comes with the compiler.
    let std = format!("rust-std@{rustc}");
    components.push(json!({
        "type": "library", "bom-ref": std, "name": "rust-std", "version": rustc,
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
    }));
    let dependencies = graph.iter().map(|(each, uses)| {
        let mut uses: Vec<String> = uses.iter().map(reference).collect();
        if each == root {
            uses.push(std.clone());
        }
        json!({ "ref": reference(each), "dependsOn": uses })
    });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": reference(root), "name": "tenure", "version": root.version,
                "licenses": [{ "expression": root.licence }],
            },
            "properties": [
                { "name": "rustc", "value": rustc },
                { "name": "target", "value": target },
            ],
        },
        "components": components,
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

fn reference(each: &Linked) -> String {
    format!("pkg:cargo/{}@{}", each.name, each.version.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "0|tenure-cli v0.1.0 (/r/crates/cli)|MIT|\n1|a v1.0.0|MIT/ISC|\n\
        2|b v2.0.0+x|MIT|\n1|b v2.0.0+x|MIT| (*)\n";
    const LOCK: &str = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry+x\"\nchecksum = \"ff\"\n\
        [[package]]\nname = \"b\"\nversion = \"2.0.0+x\"\n";

    #[test]
    fn crates_are_listed_once_with_what_they_use() {
        let bill = bill(&parse(TREE).unwrap(), &lock::parse(LOCK).unwrap(), "1.95.0", "t").unwrap();
        let names: Vec<_> =
            bill["components"].as_array().unwrap().iter().map(|each| &each["name"]).collect();
        assert_eq!(names, ["a", "b", "rust-std"]);
        assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR ISC");
        assert_eq!(bill["components"][0]["hashes"][0]["content"], "ff");
        let uses = |at: usize| bill["dependencies"][at]["dependsOn"].clone();
        assert_eq!(uses(0), json!(["pkg:cargo/b@2.0.0%2Bx"]));
        assert_eq!(uses(1), json!([]));
        assert_eq!(
            uses(2),
            json!(["pkg:cargo/a@1.0.0", "pkg:cargo/b@2.0.0%2Bx", "rust-std@1.95.0"])
        );
    }

    #[test]
    fn lines_that_cannot_be_parsed_and_crates_that_are_not_locked_fail() {
        for bad in ["x|a v1|MIT|", "0|a|MIT|", "1|a v1|MIT|", "what"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(bill(&parse(TREE).unwrap(), &[], "1.95.0", "t").is_err());
        assert!(bill(&Graph::new(), &[], "1.95.0", "t").is_err());
    }
}
