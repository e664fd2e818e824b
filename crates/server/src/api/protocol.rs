//! Detects the version of HTTP from the first bytes of a connection.
//!
//! The HTTP library could detect it, but would wait for ever for bytes that do not come. Here they are read within a
//! time limit and passed on to the code that serves the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

/// The first bytes of every HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first byte of every TLS client. No request begins with it.
const TLS_HANDSHAKE: u8 = 0x16;
/// The alert that ends the handshake of such a client: handshake_failure.
const TLS_ALERT: &[u8] = &[0x15, 3, 3, 0, 2, 2, 40];
/// What a client without TLS is told at a port that requires it.
const TLS_ONLY: &str = "this port accepts only TLS: use https://";
/// How long a client of the wrong protocol has to read why it is refused.
const FAREWELL: Duration = Duration::from_secs(1);

/// The detected protocol, and the bytes that were read.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum DetectedProtocol {
    Nothing,
    /// The client begins a TLS handshake at a port without TLS.
    Tls,
    Http1(Bytes),
    Http2(Bytes),
}

/// Reads until the protocol is known.
pub(super) async fn detect(from: &mut (impl AsyncRead + Unpin)) -> io::Result<DetectedProtocol> {
    let mut read = BytesMut::with_capacity(1024);
    loop {
        if from.read_buf(&mut read).await? == 0 {
            // The client has closed within the HTTP/2 preface.
            return Ok(DetectedProtocol::Nothing);
        }
        if read[0] == TLS_HANDSHAKE {
            return Ok(DetectedProtocol::Tls);
        }
        let common = read.iter().zip(PREFACE).take_while(|(read, word)| read == word).count();
        if common == PREFACE.len() {
            return Ok(DetectedProtocol::Http2(read.freeze()));
        }
        if common < read.len() {
            return Ok(DetectedProtocol::Http1(read.freeze()));
        }
    }
}

/// Waits for the first byte of a connection, and returns whether it begins a TLS handshake.
pub(super) async fn begins_tls(from: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    // A client that closes without a byte is left to the handshake.
    Ok(from.peek(&mut first).await? == 0 || first[0] == TLS_HANDSHAKE)
}

/// Tells a client without TLS, in its protocol, that the port requires TLS.
pub(super) async fn refuse_plain(mut stream: TcpStream) -> io::Result<()> {
    let mut first = [0; 3];
    let read = stream.peek(&mut first).await?;
    let refusal = if PREFACE.starts_with(&first[..read]) {
        // Empty settings, then GOAWAY with INADEQUATE_SECURITY and the text as debug data.
        let length = u8::try_from(8 + TLS_ONLY.len()).unwrap_or(u8::MAX);
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let go_away = [0, 0, length, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12];
        [&settings[..], &go_away, TLS_ONLY.as_bytes()].concat()
    } else {
        let length = TLS_ONLY.len() + 1;
        let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close";
        format!("{head}\r\nContent-Length: {length}\r\n\r\n{TLS_ONLY}\n").into_bytes()
    };
    write_reply(&mut stream, &refusal).await
}

/// Ends the handshake of a client with TLS at a port without it.
pub(super) async fn refuse_tls(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> io::Result<()> {
    write_reply(stream, TLS_ALERT).await
}

/// Writes the last bytes, and reads until the client has closed: what is unread would reset the connection.
async fn write_reply(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    bytes: &[u8],
) -> io::Result<()> {
    let saying = async {
        stream.write_all(bytes).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        Ok(())
    };
    tokio::time::timeout(FAREWELL, saying).await.unwrap_or(Ok(()))
}

/// A stream that returns the bytes already read before the rest.
pub(super) struct Rewound<S> {
    read: Bytes,
    stream: S,
}

impl<S> Rewound<S> {
    pub(super) fn new(read: Bytes, stream: S) -> Self {
        Self { read, stream }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, to);
        }
        let length = self.read.len().min(to.remaining());
        to.put_slice(&self.read[..length]);
        self.read.advance(length);
        if self.read.is_empty() {
            // The bytes are not needed again, and most connections live long, so release them.
            self.read = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The protocol detected from bytes that arrive in two parts.
    fn detected(first: &[u8], then: &[u8]) -> DetectedProtocol {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut from = AsyncReadExt::chain(first, then);
        runtime.block_on(detect(&mut from)).unwrap()
    }

    #[test]
    fn both_versions_are_told_by_their_beginning() {
        let bytes = |bytes: &'static [u8]| Bytes::from_static(bytes);
        assert_eq!(detected(b"", b""), DetectedProtocol::Nothing);
        assert_eq!(detected(b"\x16\x03", b"\x01"), DetectedProtocol::Tls);
        assert_eq!(detected(b"P", b""), DetectedProtocol::Nothing);
        assert_eq!(detected(b"P", b"UT /"), DetectedProtocol::Http1(bytes(b"PUT /")));
        assert_eq!(detected(b"GET", b""), DetectedProtocol::Http1(bytes(b"GET")));
        assert_eq!(detected(&PREFACE[..7], &PREFACE[7..]), DetectedProtocol::Http2(bytes(PREFACE)));
        assert_eq!(
            detected(b"PRI *", b" HTTP/1.1"),
            DetectedProtocol::Http1(bytes(b"PRI * HTTP/1.1"))
        );
    }
}
