//! The violations of a malformed request.

/// Why a request is refused; a message for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Another protocol, often TLS or SOCKS.
    #[error(
        "this is not an HTTP request: this port takes proxy requests over plain HTTP, so the URL of \
         the proxy begins with http://, also for https sites"
    )]
    NotHttp,
    /// RFC 9112 section 3.
    #[error("the request line is not `METHOD target HTTP/1.1`")]
    RequestLine,
    /// RFC 9112 section 2.3.
    #[error("only HTTP/1.1 and HTTP/1.0 are spoken here")]
    Version,
    /// RFC 9112 section 2.2.
    #[error("a line does not end in CR LF, or has a stray CR in it")]
    LineEnd,
    /// RFC 9110 section 5.5.
    #[error("a line has a control character in it")]
    Control,
    /// RFC 9112 sections 5.1 and 5.2.
    #[error("a field is not `Name: value` on one line")]
    Field,
    /// RFC 9112 section 3.2.
    #[error("there is no Host field, or more than one, or it names no host")]
    Host,
    /// RFC 9112 section 6.3.
    #[error("Content-Length is not one plain number")]
    ContentLength,
    /// RFC 9112 section 6.1: a sign of request smuggling.
    #[error("the length of the body is given twice (Transfer-Encoding and Content-Length)")]
    TwoLengths,
    /// RFC 9112 section 6.1.
    #[error("Transfer-Encoding does not end in one `chunked`, or stands in an HTTP/1.0 request")]
    TransferEncoding,
    /// RFC 9112 section 6.1.
    #[error("no transfer coding but `chunked` is understood here")]
    TransferCoding,
    /// RFC 9112 section 7.1.
    #[error("the chunks of the body are not well formed")]
    Chunk,
    /// RFC 9112 section 7.1.1: extensions mean nothing to a proxy, but can hide things.
    #[error("the chunk extensions of the body are too long")]
    ChunkExtensions,
    /// RFC 9110 section 9.3.6.
    #[error("a CONNECT has no body")]
    ConnectBody,
    /// RFC 6585 section 5.
    #[error("the request head is too large")]
    HeadTooLarge,
    /// RFC 6585 section 5.
    #[error("the request has too many fields")]
    TooManyFields,
    /// RFC 6585 section 5.
    #[error("the trailer fields are too large")]
    TrailersTooLarge,
    /// RFC 9110 section 15.5.15.
    #[error("the request line is too long")]
    TargetTooLong,
}

impl Violation {
    /// The status of the response, and its reason phrase.
    #[must_use]
    pub const fn status(self) -> (u16, &'static str) {
        match self {
            Self::NotHttp
            | Self::RequestLine
            | Self::LineEnd
            | Self::Control
            | Self::Field
            | Self::Host
            | Self::ContentLength
            | Self::TwoLengths
            | Self::TransferEncoding
            | Self::Chunk
            | Self::ChunkExtensions
            | Self::ConnectBody => (400, "Bad Request"),
            Self::TargetTooLong => (414, "URI Too Long"),
            Self::HeadTooLarge | Self::TooManyFields | Self::TrailersTooLarge => {
                (431, "Request Header Fields Too Large")
            }
            Self::TransferCoding => (501, "Not Implemented"),
            Self::Version => (505, "HTTP Version Not Supported"),
        }
    }
}
