//! Checks the third-party crates that become part of Tenure, and whether two builds of the binary give the same bytes.

pub(crate) mod advisories;
pub(crate) mod compiler;
pub(crate) mod external;
pub(crate) mod licence;
pub(crate) mod lock;
pub(crate) mod policy;
pub(crate) mod reproducible;
pub(crate) mod sbom;
