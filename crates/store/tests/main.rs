//! Tests the log and the snapshots against faults, crashes, damage and old files.

mod corruption_sweep;
mod crash_sweep;
mod disk_faults;
mod disk_full;
mod golden;
mod notes;
mod random_programs;
mod real_disk;
mod snapshots;
mod support;
