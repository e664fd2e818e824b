//! Tests that the store and the proxy refuse stale tokens and malformed requests.

mod calls;
mod forms;
mod proxy;
mod store;
mod together;
mod upstream;
