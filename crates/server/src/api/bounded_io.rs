//! Ends a connection whose client does not read, or that exceeds its budget of memory.
//!
//! Every protocol of the port writes through this: HTTP/1.1, HTTP/2, and the WebSocket that a connection may become.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::frame_limit::FrameLimit;
use crate::dispatch::Caller;
use crate::os;

/// How long a client may take nothing of what is written to it.
pub(super) const UNREAD: Duration = Duration::from_secs(30);

/// A stream that fails when its client reads nothing for too long, or is over its budget.
pub(super) struct BoundedIo<S> {
    stream: S,
    caller: Caller,
    /// Runs while a write waits for the client.
    late: Option<Pin<Box<Sleep>>>,
    /// Limits the frames of an HTTP/2 connection.
    frames: Option<FrameLimit>,
}

impl<S> BoundedIo<S> {
    pub(super) fn new(stream: S, caller: Caller) -> Self {
        Self { stream, caller, late: None, frames: None }
    }

    /// Limits the frames of the client, which speaks HTTP/2.
    pub(super) fn limit_frames(mut self) -> Self {
        self.frames = Some(FrameLimit::new(os::now_us()));
        self
    }

    /// Counts what a write has written.
    fn wrote(&mut self, written: &Poll<io::Result<usize>>) {
        if let (Some(frames), Poll::Ready(Ok(bytes))) = (&mut self.frames, written) {
            frames.wrote(*bytes);
        }
    }

    fn check(&self) -> io::Result<()> {
        if self.caller.memory().is_over() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "over its memory budget"));
        }
        Ok(())
    }

    /// Passes on what a write returned, and fails if writes have waited for too long.
    fn timed<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.late = None;
            return written;
        }
        let late = self.late.get_or_insert_with(|| Box::pin(tokio::time::sleep(UNREAD)));
        late.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        let before = to.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, to);
        self.caller.memory().read(to.filled().len() - before);
        if let Some(frames) = self.frames.as_mut().filter(|_| to.filled().len() > before) {
            frames.read(&to.filled()[before..], os::now_us())?;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(&written);
        self.timed(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.timed(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.timed(shut, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.wrote(&written);
        self.timed(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::{ConnectionSources, MemberMemory, PrincipalSources, RequestSource};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn caller() -> Caller {
        let sources =
            ConnectionSources::new(RequestSource::of_address(), PrincipalSources::default());
        Caller::new(sources, MemberMemory::default(), None)
    }

    /// A runtime whose clock moves on by itself when nothing else is left to do.
    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
    }

    #[test]
    fn a_connection_over_its_budget_can_neither_read_nor_write() {
        let (mut client, server) = tokio::io::duplex(1_024);
        let caller = caller();
        let mut bounded = BoundedIo::new(server, caller.clone());
        runtime().block_on(async {
            client.write_all(b"more").await.unwrap();
            bounded.write_all(b"answer").await.unwrap();
            let _charge = caller.memory().charge(usize::MAX / 4);
            assert_eq!(
                bounded.read(&mut [0; 4]).await.unwrap_err().kind(),
                io::ErrorKind::ConnectionAborted
            );
            assert!(bounded.write(b"answer").await.is_err());
        });
    }

    #[test]
    fn a_write_that_goes_on_arms_no_timer_and_one_that_waits_does() {
        let (mut client, server) = tokio::io::duplex(4);
        let mut bounded = BoundedIo::new(server, caller());
        runtime().block_on(async {
            bounded.write_all(b"1234").await.unwrap();
            assert!(bounded.late.is_none());
            let mut context = Context::from_waker(std::task::Waker::noop());
            assert!(Pin::new(&mut bounded).poll_write(&mut context, b"5").is_pending());
            assert!(bounded.late.is_some());
            // The timer has run out: the write fails.
            bounded.late = Some(Box::pin(tokio::time::sleep(Duration::ZERO)));
            let failed = bounded.write(b"5").await.unwrap_err();
            assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
            // A client that reads a little is not late.
            bounded.late = Some(Box::pin(tokio::time::sleep(UNREAD)));
            client.read_u8().await.unwrap();
            bounded.write_all(b"5").await.unwrap();
            assert!(bounded.late.is_none());
        });
    }
}
