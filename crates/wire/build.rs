//! Compiles the `.proto` files to Rust without a `protoc` on the machine.

use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new("proto");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=proto");

    let mut files: Vec<PathBuf> = std::fs::read_dir(root.join("tenure/v1"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);

    let mut compiler = protox::Compiler::new([root])?;
    compiler.include_imports(true).include_source_info(true).open_files(files)?;
    let described = compiler.file_descriptor_set();
    // For reflection, without the comments.
    std::fs::write(
        out.join("tenure.bin"),
        compiler.include_source_info(false).encode_file_descriptor_set(),
    )?;

    tonic_prost_build::configure()
        .bytes(".")
        .boxed(".tenure.v1.AcquireRequest.new_lease")
        .boxed(".tenure.v1.Error.holder")
        .boxed(".tenure.v1.Error.leader")
        .extern_path(".tenure.v1.WatchResponse", "crate::shared::WatchResponse")
        .compile_fds(described)?;
    // The content of `grpc-status-details-bin`. It is not part of our package, so the descriptors leave it out.
    let details = protox::compile([root.join("google/rpc/status.proto")], [root])?;
    tonic_prost_build::configure().bytes(".").compile_fds(details)?;

    // Generates watch responses a second time, as they would be without `shared.rs`. Its tests compare the two.
    let plain = out.join("plain");
    std::fs::create_dir_all(&plain)?;
    tonic_prost_build::configure()
        .bytes(".")
        .boxed(".tenure.v1.Error.holder")
        .boxed(".tenure.v1.Error.leader")
        .build_client(false)
        .build_server(false)
        .out_dir(plain)
        .compile_fds(protox::compile([root.join("tenure/v1/lock.proto")], [root])?)?;
    Ok(())
}
