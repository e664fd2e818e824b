//! Generates Rust code from etcd's messages, without a `protoc` on the machine.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=proto");
    #[cfg(feature = "etcd")]
    tonic_prost_build::configure()
        .build_server(false)
        .compile_fds(protox::compile(["proto/etcd.proto"], ["proto"])?)?;
    Ok(())
}
