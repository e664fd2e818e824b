//! Do the store and the proxy refuse the dead, and whatever else they should?

mod calls;
mod forms;
mod proxy;
mod store;
mod together;
mod upstream;
