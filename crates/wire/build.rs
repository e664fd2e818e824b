//! Compiles the `.proto` files to Rust without a `protoc` on the machine, for builds with the servers.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "server")]
    generate::all()?;
    Ok(())
}

#[cfg(feature = "server")]
mod generate {
    use std::error::Error;
    use std::path::{Path, PathBuf};

    use tonic_prost_build::Builder;

    pub(super) fn all() -> Result<(), Box<dyn Error>> {
        let root = Path::new("proto");
        println!("cargo:rerun-if-changed=proto");

        let mut files: Vec<PathBuf> = std::fs::read_dir(root.join("tenure/v1"))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        files.sort();
        let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);

        let mut compiler = protox::Compiler::new([root])?;
        compiler.include_imports(true).include_source_info(true).open_files(files)?;
        let described = compiler.file_descriptor_set();
        // Without the comments: for reflection, and for users of the SDK.
        compiler.include_source_info(false);
        std::fs::write(out.join("tenure.bin"), compiler.encode_file_descriptor_set())?;
        let bare = compiler.file_descriptor_set();

        let details = || protox::compile([root.join("google/rpc/status.proto")], [root]);
        builder().compile_fds(described)?;
        // The content of `grpc-status-details-bin`. It is not part of our package, so the descriptors leave it out.
        tonic_prost_build::configure().bytes(".").compile_fds(details()?)?;

        // What `generated` must have. A test compares the two.
        let sdk = out.join("sdk");
        std::fs::create_dir_all(&sdk)?;
        builder().build_server(false).out_dir(&sdk).compile_fds(bare)?;
        let status = tonic_prost_build::configure().bytes(".").out_dir(&sdk);
        status.compile_fds(details()?)?;

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

    fn builder() -> Builder {
        tonic_prost_build::configure()
            .bytes(".")
            // Large, and not in the answers of which there are many: those are moved around as a whole.
            .boxed(".tenure.v1.Answer.result.error")
            .boxed(".tenure.v1.Answer.result.explained")
            .boxed(".tenure.v1.Answer.result.lease")
            .boxed(".tenure.v1.AcquireRequest.new_lease")
            .boxed(".tenure.v1.Error.holder")
            .boxed(".tenure.v1.Error.leader")
            .extern_path(".tenure.v1.WatchResponse", "crate::shared::WatchResponse")
    }
}
