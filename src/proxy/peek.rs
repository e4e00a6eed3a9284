//! What a client begins to speak inside a CONNECT: told from the first bytes, which are then read
//! again by whoever serves it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// Bytes that are enough to tell; the longest method that anybody registered has 17 letters.
const ENOUGH: usize = 24;

/// Bytes of empty lines before a request line; servers skip some (RFC 9112 section 2.2).
const MAX_EMPTY: usize = 16;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    /// TLS, or what servers that speak TLS take for it.
    Tls,
    /// A request line, perhaps behind empty lines.
    Http,
    /// Something else (SSH, ...).
    Other,
}

/// A stream whose first bytes are read again.
#[derive(Debug)]
pub(super) struct Peeked<S> {
    early: Bytes,
    stream: S,
}

/// Reads until it is clear what the client speaks, at least one byte. `None`: it went away without
/// a word.
///
/// # Errors
/// The stream broke.
pub(super) async fn peek<S: AsyncRead + Unpin>(
    mut stream: S,
    early: Bytes,
) -> io::Result<Option<(Speech, Peeked<S>)>> {
    let mut bytes = BytesMut::from(early);
    let speech = loop {
        if let Some(speech) = tell(&bytes) {
            break speech;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            if bytes.is_empty() {
                return Ok(None);
            }
            break Speech::Other;
        }
    };
    Ok(Some((speech, Peeked { early: bytes.freeze(), stream })))
}

/// What the bytes begin; `None` where more are needed.
fn tell(bytes: &[u8]) -> Option<Speech> {
    if begins_tls(bytes)? {
        return Some(Speech::Tls);
    }
    let empty = bytes.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
    if empty > MAX_EMPTY {
        return Some(Speech::Other);
    }
    let bytes = &bytes[empty..];
    if bytes.is_empty() {
        return None;
    }
    let letters = bytes.iter().take_while(|b| b.is_ascii_uppercase()).count();
    match &bytes[letters..] {
        _ if letters == 0 || letters > ENOUGH => Some(Speech::Other),
        [] | [b' '] => None,
        [b' ', b'/' | b'*' | b'h' | b'H', ..] => Some(Speech::Http),
        _ => Some(Speech::Other),
    }
}

/// Whether `bytes` begin TLS as widely as servers read it; `None` if more are needed. What only
/// some servers take for TLS must not pass as another protocol: rustls refuses it.
fn begins_tls(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [] => None,
        [first, rest @ ..] if is_record_type(*first) => {
            rest.first().map(|major| is_record_version(*major))
        }
        // A hello in the form of SSL 2 (RFC 5246 appendix E.2): its length, its type, the version.
        [0x80..=0xff, _, 1, 3, ..] => Some(true),
        [0x80..=0xff] | [0x80..=0xff, _] | [0x80..=0xff, _, 1] => None,
        _ => Some(false),
    }
}

/// Whether a TLS record can begin with this byte: warnings may come before the hello (RFC 5246
/// section 7.2).
pub(super) const fn is_record_type(byte: u8) -> bool {
    matches!(byte, 0x14..=0x17)
}

/// Whether servers take this for a record's major version. RFC 8446 section 5.1 has them ignore it;
/// Go takes any below 16.
pub(super) const fn is_record_version(major: u8) -> bool {
    major < 16
}

impl<S> From<S> for Peeked<S> {
    fn from(stream: S) -> Self {
        Self::new(stream, Bytes::new())
    }
}

impl<S> Peeked<S> {
    /// A stream of which `early` has been read already.
    pub(super) fn new(stream: S, early: Bytes) -> Self {
        Self { early, stream }
    }

    /// The stream, and the bytes that are to be read first.
    pub(super) fn into_parts(self) -> (S, Bytes) {
        (self.stream, self.early)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Peeked<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.early.is_empty() {
            return Pin::new(&mut this.stream).poll_read(cx, buf);
        }
        let length = this.early.len().min(buf.remaining());
        buf.put_slice(&this.early[..length]);
        this.early.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Peeked<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn speech(text: &[u8]) -> Option<Speech> {
        let (mut client, server) = tokio::io::duplex(64);
        let expected = text.to_vec();
        let text = text.to_vec();
        let sending = async move {
            for byte in text {
                client.write_all(&[byte]).await.expect("the other end reads");
                tokio::task::yield_now().await;
            }
        };
        let peeking = async {
            let (speech, mut peeked) = peek(server, Bytes::new()).await.expect("no errors")?;
            let mut again = Vec::new();
            peeked.read_to_end(&mut again).await.expect("no errors");
            assert_eq!(again, expected, "nothing is lost");
            Some(speech)
        };
        tokio::join!(sending, peeking).1
    }

    #[tokio::test]
    async fn a_protocol_is_told_from_its_first_bytes() {
        for (text, expected) in [
            (&b"\x16\x03\x01\x02\x00"[..], Speech::Tls),
            (b"\x16", Speech::Other),
            (b"\x16\x10", Speech::Other),
            (b"\x18\x03\x01", Speech::Other),
            (b"GET / HTTP/1.1\r\n", Speech::Http),
            (b"OPTIONS * HTTP/1.1\r\n", Speech::Http),
            (b"GET http://h/ HTTP/1.1\r\n", Speech::Http),
            (b"\r\nGET / HTTP/1.1\r\n", Speech::Http),
            (b"\n\r\n\nGET / HTTP/1.1\r\n", Speech::Http),
            (b"\r\n", Speech::Other),
            (b"\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n", Speech::Other),
            (b"\r\n\x16\x03\x01", Speech::Other),
            // A hello in the form of SSL 2, a record of version 2.1, and a warning before the hello.
            (b"\x80\x2e\x01\x03\x01", Speech::Tls),
            (b"\x16\x02\x01\x02\x00", Speech::Tls),
            (b"\x15\x03\x01\x00\x02\x01\x5a", Speech::Tls),
            (b"\x80\x2e\x02\x03\x01", Speech::Other),
            (b"\x80\x2e", Speech::Other),
            (b"get / HTTP/1.1\r\n", Speech::Other),
            (b"SSH-2.0-OpenSSH_9.2\r\n", Speech::Other),
            (b"EHLO", Speech::Other),
            (b"EHLO example\r\n", Speech::Other),
            (b"\0\0\0", Speech::Other),
            (b"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF", Speech::Other),
        ] {
            assert_eq!(speech(text).await, Some(expected), "{}", text.escape_ascii());
        }
        assert_eq!(speech(b"").await, None);
    }
}
