//! The bytes that a TLS record has besides its content. They depend on the version and the cipher, which the site's
//! hello contains unencrypted (RFC 8446 section 4.1.3).

/// The overhead of a record, by cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordOverhead {
    /// TLS 1.3 adds a type and a tag. The client's Finished looks like a data record of this length.
    V13 { finished: usize },
    /// An AEAD cipher of TLS 1.2 adds a tag, and a nonce with AES.
    V12 { added: usize },
    /// A cipher with padding, or no hello.
    Unknown,
}

/// A type and a tag (RFC 8446 section 5.2).
const ADDED_V13: usize = 1 + 16;
/// Sizes of HTTP/2 control frames (RFC 9113 section 6): the acknowledgement of SETTINGS, WINDOW_UPDATE and RST_STREAM,
/// PRIORITY, PING; two WINDOW_UPDATE, for a stream and its connection. A request of this size is rare, because all its
/// fields must already be known.
const CONTROL: [usize; 5] = [9, 13, 14, 17, 26];
/// An alert in TLS 1.3, whose type is encrypted.
const ALERT: usize = 2;
/// The client's preface with the head of its SETTINGS (RFC 9113 section 3.4), one setting, and the
/// WINDOW_UPDATE that may follow.
const PREFACE: usize = 24 + 9;
const SETTING: usize = 6;
const WINDOW_UPDATE: usize = 13;
/// The number of defined settings.
const MAX_SETTINGS: usize = 8;

impl RecordOverhead {
    /// Reads the overhead from the first bytes that a site sends.
    pub(super) fn of_hello(bytes: &[u8]) -> Self {
        let Some((cipher, is_v13)) = server_hello(bytes) else { return Self::Unknown };
        if is_v13 {
            // A head of 4 bytes and a hash: SHA-384 only with this cipher (RFC 8446 appendix B.4).
            let hash = if cipher == 0x1302 { 48 } else { 32 };
            return Self::V13 { finished: 4 + hash + ADDED_V13 };
        }
        match cipher {
            // AES-GCM: RFC 5288, RFC 5289.
            0x009c..=0x00a7 | 0xc02b..=0xc032 => Self::V12 { added: 8 + 16 },
            // ChaCha20-Poly1305: RFC 7905.
            0xcca8..=0xccae => Self::V12 { added: 16 },
            _ => Self::Unknown,
        }
    }

    fn content(self, length: usize) -> Option<usize> {
        match self {
            Self::V13 { .. } => length.checked_sub(ADDED_V13),
            Self::V12 { added } => length.checked_sub(added),
            Self::Unknown => None,
        }
    }

    /// Whether a record of data is as long as the client's Finished of TLS 1.3.
    pub(super) fn is_finished(self, length: usize) -> bool {
        matches!(self, Self::V13 { finished } if finished == length)
    }

    /// Whether a record of data is as long as a control frame. No HTTP/1.1 request is so short.
    pub(super) fn is_control(self, length: usize) -> bool {
        let hidden_alert = matches!(self, Self::V13 { .. }).then_some(ALERT);
        self.content(length).is_some_and(|content| {
            CONTROL.contains(&content) || hidden_alert.is_some_and(|alert| alert == content)
        })
    }

    /// Whether a record of data is as long as an acknowledgement of HTTP/2 settings, which every
    /// client sends.
    pub(super) fn is_settings_ack(self, length: usize) -> bool {
        self.content(length) == Some(CONTROL[0])
    }

    /// Whether a record of data is as long as the beginning of an HTTP/2 connection.
    pub(super) fn is_preface(self, length: usize) -> bool {
        self.content(length).is_some_and(|content| {
            let has = |fixed: usize| {
                content.checked_sub(fixed).is_some_and(|settings| {
                    settings % SETTING == 0 && settings / SETTING <= MAX_SETTINGS
                })
            };
            has(PREFACE) || has(PREFACE + WINDOW_UPDATE)
        })
    }
}

/// Cipher suite, and whether it is TLS 1.3, of the site's hello.
fn server_hello(bytes: &[u8]) -> Option<(u16, bool)> {
    let mut rest = Reader(bytes);
    if rest.take(3)?[..2] != [22, 3] {
        return None;
    }
    let length = rest.u16()?;
    let mut record = Reader(rest.take(length.into())?);
    if record.take(4)?[0] != 2 {
        return None;
    }
    record.take(2 + 32)?; // the version that it claims, random bytes
    let session = record.take(1)?[0];
    record.take(session.into())?;
    let cipher = record.u16()?;
    record.take(1)?; // compression
    record.u16(); // length of the extensions, where TLS 1.2 has any
    while let Some(extension) = record.u16() {
        let length = record.u16()?;
        let value = record.take(length.into())?;
        // supported_versions (RFC 8446 section 4.2.1)
        if extension == 43 {
            return Some((cipher, value == [3, 4]));
        }
    }
    Some((cipher, false))
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A site's hello.
    pub(in super::super) fn server_hello(cipher: u16, is_v13: bool) -> Vec<u8> {
        let mut body = vec![2, 0, 0, 0, 3, 3];
        body.extend([7; 32]);
        body.push(32);
        body.extend([8; 32]);
        body.extend(cipher.to_be_bytes());
        let extensions: &[u8] = if is_v13 {
            &[0, 51, 0, 2, 0, 0, 0, 43, 0, 2, 3, 4]
        } else {
            &[0xff, 1, 0, 1, 0, 0, 11, 0, 2, 1, 0]
        };
        body.extend([0, 0, u8::try_from(extensions.len()).expect("few")]);
        body.extend(extensions);
        let mut record = vec![22, 3, 3, 0, u8::try_from(body.len()).expect("short")];
        record.extend(body);
        record
    }

    #[test]
    fn a_hello_shows_the_overhead_of_a_record() {
        for (cipher, is_v13, expected) in [
            (0x1301, true, RecordOverhead::V13 { finished: 53 }),
            (0x1302, true, RecordOverhead::V13 { finished: 69 }),
            (0xc02f, false, RecordOverhead::V12 { added: 24 }),
            (0xcca8, false, RecordOverhead::V12 { added: 16 }),
            (0xc013, false, RecordOverhead::Unknown),
        ] {
            let mut hello = server_hello(cipher, is_v13);
            hello.extend([20, 3, 3, 0, 1, 1]);
            assert_eq!(RecordOverhead::of_hello(&hello), expected, "{cipher:#x}");
        }
    }

    #[test]
    fn a_partial_or_missing_hello_shows_no_overhead() {
        let hello = server_hello(0x1301, true);
        for length in 0..hello.len() {
            assert_eq!(
                RecordOverhead::of_hello(&hello[..length]),
                RecordOverhead::Unknown,
                "{length} bytes"
            );
        }
        assert_eq!(RecordOverhead::of_hello(b"SSH-2.0-OpenSSH_9.2\r\n"), RecordOverhead::Unknown);
    }

    #[test]
    fn prefaces_are_recognised_by_their_length() {
        let overhead = RecordOverhead::V13 { finished: 53 };
        for settings in 0..=8 {
            assert!(overhead.is_preface(24 + 9 + 6 * settings + 17));
            assert!(overhead.is_preface(24 + 9 + 6 * settings + 13 + 17));
        }
        assert!(!overhead.is_preface(24 + 17) && !overhead.is_preface(300));
        assert!(!RecordOverhead::Unknown.is_preface(33));
    }
}
