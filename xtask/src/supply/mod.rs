//! Knows which crates from elsewhere become part of Tenure, and how the binary is built from them.

pub(crate) mod advisories;
pub(crate) mod compiler;
pub(crate) mod external;
pub(crate) mod licence;
pub(crate) mod lock;
pub(crate) mod policy;
pub(crate) mod reproducible;
pub(crate) mod sbom;
