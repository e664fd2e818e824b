//! Runs the comparison of Tenure with etcd, ZooKeeper and Redis.

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use anyhow::Result;
use clap::{Parser, Subcommand};
use tenure_bench::peers::{self, AnyPeer, PeersArguments, RedisPeer, TenurePeer};

/// The same allocator as in the shipped binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "tenure-peers", about = "Measures Tenure beside other lock systems")]
struct PeersCli {
    #[command(subcommand)]
    program: PeersProgram,
}

#[derive(Subcommand)]
enum PeersProgram {
    /// Compare them
    Peers(PeersArguments),
}

fn main() -> Result<()> {
    let PeersProgram::Peers(arguments) = PeersCli::parse().program;
    let tenure = TenurePeer { program: arguments.tenure.clone() };
    let systems: Vec<Box<dyn AnyPeer>> = vec![
        Box::new(tenure),
        #[cfg(feature = "etcd")]
        Box::new(etcd::EtcdPeer::default()),
        #[cfg(feature = "zookeeper")]
        Box::new(zookeeper::ZooKeeperPeer::default()),
        Box::new(RedisPeer::default()),
    ];
    peers::run(&arguments, systems)
}
