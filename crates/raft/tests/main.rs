//! Drives replicas without a network: three members, hostile messages, disks that went back.

mod disks;
mod hostile;
mod rollback;
#[path = "three/main.rs"]
mod three;
