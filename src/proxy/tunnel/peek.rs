//! Recognises the protocol inside a CONNECT by its first bytes, which are then read again.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::proxy::stream::Peeked;

/// This many bytes suffice: the longest registered method has 17 letters.
const ENOUGH: usize = 24;

/// Bytes of empty lines before a request line that are skipped (RFC 9112 section 2.2).
const MAX_EMPTY: usize = 16;

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// TLS, or bytes that TLS servers accept as TLS.
    Tls,
    /// A request line, perhaps after empty lines.
    Http,
    /// Something else (SSH, ...).
    Other,
}

/// Reads until the protocol is clear, at least one byte. `None` if the client closes without a byte.
///
/// # Errors
/// The stream broke.
pub(crate) async fn peek<S: AsyncRead + Unpin>(
    mut stream: S,
    early: Bytes,
) -> io::Result<Option<(Protocol, Peeked<S>)>> {
    let mut bytes = BytesMut::from(early);
    let protocol = loop {
        if let Some(protocol) = recognise(&bytes) {
            break protocol;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            if bytes.is_empty() {
                return Ok(None);
            }
            break Protocol::Other;
        }
    };
    Ok(Some((protocol, Peeked::new(stream, bytes.freeze()))))
}

/// The protocol that begins with these bytes; `None` if more are needed.
fn recognise(bytes: &[u8]) -> Option<Protocol> {
    if begins_tls(bytes)? {
        return Some(Protocol::Tls);
    }
    let empty = bytes.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
    if empty > MAX_EMPTY {
        return Some(Protocol::Other);
    }
    let bytes = &bytes[empty..];
    if bytes.is_empty() {
        return None;
    }
    let letters = bytes.iter().take_while(|b| b.is_ascii_uppercase()).count();
    match &bytes[letters..] {
        _ if letters == 0 || letters > ENOUGH => Some(Protocol::Other),
        [] | [b' '] => None,
        [b' ', b'/' | b'*' | b'h' | b'H', ..] => Some(Protocol::Http),
        _ => Some(Protocol::Other),
    }
}

/// Whether `bytes` begin TLS by the most generous parser; `None` if more are needed. TLS that only some servers accept
/// must not pass as another protocol. rustls refuses it.
fn begins_tls(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [] => None,
        [first, rest @ ..] if is_record_type(*first) => {
            rest.first().map(|major| is_record_version(*major))
        }
        // A hello in the SSL 2 format (RFC 5246 appendix E.2): its length, its type, the version.
        [0x80..=0xff, _, 1, 3, ..] => Some(true),
        [0x80..=0xff] | [0x80..=0xff, _] | [0x80..=0xff, _, 1] => None,
        _ => Some(false),
    }
}

/// Whether a TLS record can begin with this byte: warnings may come before the hello (RFC 5246
/// section 7.2).
pub(crate) const fn is_record_type(byte: u8) -> bool {
    matches!(byte, 0x14..=0x17)
}

/// Whether servers accept this as a record's major version. RFC 8446 section 5.1 requires them to ignore it; Go accepts
/// any below 16.
pub(crate) const fn is_record_version(major: u8) -> bool {
    major < 16
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    async fn protocol(text: &[u8]) -> Option<Protocol> {
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
            let (protocol, mut peeked) = peek(server, Bytes::new()).await.expect("no errors")?;
            let mut again = Vec::new();
            peeked.read_to_end(&mut again).await.expect("no errors");
            assert_eq!(again, expected, "nothing is lost");
            Some(protocol)
        };
        tokio::join!(sending, peeking).1
    }

    #[tokio::test]
    async fn a_protocol_is_recognised_by_its_first_bytes() {
        for (text, expected) in [
            (&b"\x16\x03\x01\x02\x00"[..], Protocol::Tls),
            (b"\x16", Protocol::Other),
            (b"\x16\x10", Protocol::Other),
            (b"\x18\x03\x01", Protocol::Other),
            (b"GET / HTTP/1.1\r\n", Protocol::Http),
            (b"OPTIONS * HTTP/1.1\r\n", Protocol::Http),
            (b"GET http://h/ HTTP/1.1\r\n", Protocol::Http),
            (b"\r\nGET / HTTP/1.1\r\n", Protocol::Http),
            (b"\n\r\n\nGET / HTTP/1.1\r\n", Protocol::Http),
            (b"\r\n", Protocol::Other),
            (b"\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\n", Protocol::Other),
            (b"\r\n\x16\x03\x01", Protocol::Other),
            // A hello in the SSL 2 format, a record of version 2.1, and a warning before the hello.
            (b"\x80\x2e\x01\x03\x01", Protocol::Tls),
            (b"\x16\x02\x01\x02\x00", Protocol::Tls),
            (b"\x15\x03\x01\x00\x02\x01\x5a", Protocol::Tls),
            (b"\x80\x2e\x02\x03\x01", Protocol::Other),
            (b"\x80\x2e", Protocol::Other),
            (b"get / HTTP/1.1\r\n", Protocol::Other),
            (b"SSH-2.0-OpenSSH_9.2\r\n", Protocol::Other),
            (b"EHLO", Protocol::Other),
            (b"EHLO example\r\n", Protocol::Other),
            (b"\0\0\0", Protocol::Other),
            (b"ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF", Protocol::Other),
        ] {
            assert_eq!(protocol(text).await, Some(expected), "{}", text.escape_ascii());
        }
        assert_eq!(protocol(b"").await, None);
    }
}
