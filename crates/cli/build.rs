//! Records the compiler, the platform and the profile, which `tenure --version` prints.

use std::env;
use std::ffi::OsString;
use std::process::Command;

fn main() {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let output = Command::new(rustc).arg("--version").output();
    let version = output.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let version =
        version.map_or_else(|| "an unknown compiler".to_owned(), |text| text.trim().to_owned());
    let named = |name: &str| env::var(name).unwrap_or_else(|_| "unknown".to_owned());
    println!("cargo::rustc-env=TENURE_BUILT_BY={version}");
    println!("cargo::rustc-env=TENURE_BUILT_FOR={}", named("TARGET"));
    println!("cargo::rustc-env=TENURE_BUILT_AS={}", named("PROFILE"));
    println!("cargo::rerun-if-changed=build.rs");
}
