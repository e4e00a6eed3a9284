//! A socket that fails if its client stops reading.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Longest time without progress of a write.
const WRITE: Duration = Duration::from_secs(10);

/// The socket.
#[derive(Debug)]
pub(super) struct Limited<S> {
    stream: S,
    /// Runs while a write makes no progress.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Limited<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, stalled: None }
    }

    fn progress<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.stalled = None;
            return poll;
        }
        ready!(self.stalled.get_or_insert_with(|| Box::pin(sleep(WRITE))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.progress(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Flushing a socket says nothing about its client.
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_cut_off_and_a_slow_one_is_not() {
        let (mut client, server) = tokio::io::duplex(16);
        let mut limited = Limited::new(server);
        let slow = async {
            for _ in 0..4 {
                sleep(WRITE / 2).await;
                let _: usize = client.read(&mut [0; 16]).await.expect("it is open");
            }
        };
        let (written, ()) = tokio::join!(limited.write_all(&[b'x'; 64]), slow);
        written.expect("a slow client gets its answer");
        let cut = limited.write_all(&[b'x'; 64]).await.expect_err("nobody reads");
        assert_eq!(cut.kind(), io::ErrorKind::TimedOut);
    }
}
