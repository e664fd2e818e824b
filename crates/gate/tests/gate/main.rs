//! Tests that the store and the proxy refuse stale tokens and malformed requests.

mod calls;
mod exposed;
mod forms;
mod proxy;
mod repair;
mod state_cluster;
mod state_locks;
mod state_versions;
mod states;
mod store;
mod together;
mod upstream;
