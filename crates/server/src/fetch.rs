//! Requests a backup from a running member over gRPC.

use std::error::Error as _;
use std::io::{self, Read};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper_util::rt::TokioIo;
use tenure_wire::status::error_from;
use tenure_wire::v1::maintenance_service_client::MaintenanceServiceClient;
use tenure_wire::v1::{BackupRequest, BackupResponse};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Endpoint;
use tonic::{Code, Streaming};

use crate::tls::{DialTrust, host_of};

/// How long the client waits for the connection, and for each piece of the backup: before the first piece, a quorum
/// confirms the leader and the member makes a pass over the whole state.
const CONNECT: Duration = Duration::from_secs(5);
const PIECE: Duration = Duration::from_secs(60);

/// The bytes of a backup as they arrive.
struct Fetched {
    runtime: tokio::runtime::Runtime,
    pieces: Streaming<BackupResponse>,
    piece: Bytes,
}

/// Requests a backup from the member whose APIs are at `address`. Returns its bytes, or the reason there is none.
///
/// This call blocks and must not be made from within a runtime.
/// A member that does not accept the credentials gives an error of the kind `PermissionDenied`.
pub fn request_backup(
    address: &str,
    trust: Option<&DialTrust>,
    authorization: Option<MetadataValue<Ascii>>,
) -> io::Result<impl Read + use<>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, innermost(&error));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(invalid)?;
    let asked = runtime.block_on(async {
        let endpoint = endpoint.connect_timeout(CONNECT);
        let channel = match trust {
            None => endpoint.connect().await,
            Some(trust) => endpoint.connect_with_connector(under_tls(address, trust)).await,
        };
        let channel = channel.map_err(|error| io::Error::other(innermost(&error)))?;
        let mut member = MaintenanceServiceClient::new(channel);
        let mut request = tonic::Request::new(BackupRequest {});
        if let Some(authorization) = authorization {
            request.metadata_mut().insert("authorization", authorization);
        }
        let asked = tokio::time::timeout(PIECE, member.backup(request));
        asked.await?.map_err(|status| to_io_error(&status))
    });
    Ok(Fetched { pieces: asked?.into_inner(), piece: Bytes::new(), runtime })
}

/// Connects under TLS. The certificate must name the host.
fn under_tls(
    address: &str,
    trust: &DialTrust,
) -> impl tower::Service<
    http::Uri,
    Response = TokioIo<TlsStream<TcpStream>>,
    Error = io::Error,
    Future: Send,
> + Send
+ use<> {
    let (address, connector) = (address.to_owned(), TlsConnector::from(trust.http2()));
    tower::service_fn(move |_: http::Uri| {
        let (address, connector) = (address.clone(), connector.clone());
        async move {
            let name = host_of(&address)
                .map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
            let stream = TcpStream::connect(&address).await?;
            Ok(TokioIo::new(connector.connect(name, stream).await?))
        }
    })
}

impl Read for Fetched {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let next = self.pieces.message();
            let next = self.runtime.block_on(async { tokio::time::timeout(PIECE, next).await })?;
            match next.map_err(|status| to_io_error(&status))? {
                // The first message describes what follows and the last one carries a checksum. The file has a checksum
                // of its own, so neither is read here.
                Some(piece) => self.piece = piece.chunk,
                None => return Ok(0),
            }
        }
        let taken = to.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut to[..taken]);
        Ok(taken)
    }
}

/// The member's error message.
fn to_io_error(status: &tonic::Status) -> io::Error {
    let text = match status.message() {
        "" => status.code().to_string(),
        said => said.to_owned(),
    };
    // Only a member gives details. A port that speaks TLS refuses a plain request with the same code.
    let is_member = error_from(status).is_some();
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied if is_member => {
            io::Error::new(io::ErrorKind::PermissionDenied, text)
        }
        _ => io::Error::other(text),
    }
}

/// The innermost cause, which is the error of the operating system below the library's.
fn innermost(error: &tonic::transport::Error) -> String {
    let mut cause = error.source();
    let mut text = error.to_string();
    while let Some(deeper) = cause {
        text = deeper.to_string();
        cause = deeper.source();
    }
    text
}
