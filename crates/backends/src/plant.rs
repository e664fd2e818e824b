//! Plants bugs in the handle over other stores, to show that its tests would find them.
//!
//! Only this crate's tests contain them. A test chooses one for its thread. In every other build `mutant!` is the
//! constant `false`, so the shipped code has none.

tenure_types::plant_for_thread!();
