//! Upgraded connections of a site: an echo of every byte, or of every message of a WebSocket.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::{body::Incoming, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::body::Script;

/// Hashed together with the client's key (RFC 6455 section 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The bit of the last frame of a message.
const FIN: u8 = 0x80;
/// The opcode that closes a WebSocket.
const CLOSE: u8 = 8;

/// 101, then an echo of every byte.
pub(super) fn bytes(request: Request<Incoming>) -> Response<Script> {
    switch(request, echo_bytes)
}

/// 101 with the reply to the client's key, then an echo of every message.
pub(super) fn messages(request: Request<Incoming>) -> Response<Script> {
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY);
    let key = key.map(|key| [key.as_bytes(), GUID.as_bytes()].concat()).unwrap_or_default();
    let accept = STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &key));
    let accept = HeaderValue::try_from(accept).expect("Base64 makes a field value");
    let mut response = switch(request, echo_messages);
    response.headers_mut().insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    response
}

fn switch<F: Future<Output = std::io::Result<()>> + Send>(
    mut request: Request<Incoming>,
    serve: impl FnOnce(TokioIo<Upgraded>) -> F + Send + 'static,
) -> Response<Script> {
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        // The tests observe the end from the other side.
        drop(serve(TokioIo::new(upgraded)).await);
    });
    let mut response = Response::new(Script::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    response
}

async fn echo_bytes(mut stream: TokioIo<Upgraded>) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            read => stream.write_all(&buffer[..read]).await?,
        }
    }
}

/// Frames of a client are masked, those of a site are not (RFC 6455 section 5.1). Only the shortest
/// form of a length is supported.
async fn echo_messages(mut stream: TokioIo<Upgraded>) -> std::io::Result<()> {
    loop {
        let kind = stream.read_u8().await? & !FIN;
        let length = stream.read_u8().await? & 0x7f;
        let mut mask = [0; 4];
        stream.read_exact(&mut mask).await?;
        let mut payload = vec![0; length.into()];
        stream.read_exact(&mut payload).await?;
        for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= mask;
        }
        stream.write_all(&[&[kind | FIN, length][..], &payload].concat()).await?;
        if kind == CLOSE {
            return stream.shutdown().await;
        }
    }
}
