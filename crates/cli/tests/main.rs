//! Tests members as users start them: `dev`, certificates, backups, leadership by preference, a full disk.

#[path = "common/authority.rs"]
mod authority;
mod backup;
mod common;
mod dev;
mod full_disk;
mod place;
mod tls;
