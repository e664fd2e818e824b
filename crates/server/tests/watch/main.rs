//! Members in one process, watched: does everyone hear everything, once and in order?

mod checker;
mod cluster;
mod ends;
mod jump;
mod order;
mod storm;
