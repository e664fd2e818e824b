//! Detects the version of HTTP from the first bytes of a connection.
//!
//! The HTTP library could detect it, but would wait for ever for bytes that do not come. Here they are read within a
//! time limit and passed on to the code that serves the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// The first bytes of every HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The detected protocol, and the bytes that were read.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum DetectedProtocol {
    Nothing,
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
        let common = read.iter().zip(PREFACE).take_while(|(read, word)| read == word).count();
        if common == PREFACE.len() {
            return Ok(DetectedProtocol::Http2(read.freeze()));
        }
        if common < read.len() {
            return Ok(DetectedProtocol::Http1(read.freeze()));
        }
    }
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
    fn heard(first: &[u8], then: &[u8]) -> DetectedProtocol {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut from = AsyncReadExt::chain(first, then);
        runtime.block_on(detect(&mut from)).unwrap()
    }

    #[test]
    fn both_versions_are_told_by_their_beginning() {
        let bytes = |bytes: &'static [u8]| Bytes::from_static(bytes);
        assert_eq!(heard(b"", b""), DetectedProtocol::Nothing);
        assert_eq!(heard(b"P", b""), DetectedProtocol::Nothing);
        assert_eq!(heard(b"P", b"UT /"), DetectedProtocol::Http1(bytes(b"PUT /")));
        assert_eq!(heard(b"GET", b""), DetectedProtocol::Http1(bytes(b"GET")));
        assert_eq!(heard(&PREFACE[..7], &PREFACE[7..]), DetectedProtocol::Http2(bytes(PREFACE)));
        assert_eq!(
            heard(b"PRI *", b" HTTP/1.1"),
            DetectedProtocol::Http1(bytes(b"PRI * HTTP/1.1"))
        );
    }
}
