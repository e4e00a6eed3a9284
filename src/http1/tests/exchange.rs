//! Whole exchanges over loopback, with hyper behind the connection.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use super::*;

/// The body of an answer, with what tells the connection that it is out.
type TrackedResponse =
    Response<http_body_util::combinators::MapErr<Tracked, fn(Infallible) -> Infallible>>;

#[derive(Debug)]
struct Tracked(Full<Bytes>, #[allow(dead_code, reason = "it works by being dropped")] Answering);

impl hyper::body::Body for Tracked {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }
}

/// Answers the path; `/held` only after a notification. A CONNECT and an Upgrade to `/yes` become
/// an echo.
async fn serve(request: Request<Incoming>, handle: Handle, go: Arc<Notify>) -> TrackedResponse {
    let answering = handle.answering();
    let path = request.uri().to_string();
    let (mut status, mut text) = (200, path.clone());
    if path.contains("held") {
        go.notified().await;
    }
    if path.contains("yes") {
        status = if request.method() == "CONNECT" { 200 } else { 101 };
        handle.pass_through();
        text.clear();
        let upgrade = hyper::upgrade::on(request);
        tokio::spawn(async move {
            let (mut from, mut to) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
            tokio::io::copy(&mut from, &mut to).await.unwrap();
            to.shutdown().await.unwrap();
        });
    } else if path.contains("no") {
        status = 403;
    } else if let Err(error) = request.into_body().collect().await {
        text = format!("the body failed: {error}");
    }
    let mut answer = Response::builder().status(status);
    if path.contains("no:1") {
        answer = answer.header("connection", "close");
    }
    if status == 101 {
        answer = answer.header("connection", "upgrade").header("upgrade", "echo");
    }
    let keep: fn(Infallible) -> Infallible = |never| never;
    answer.body(Tracked(Full::new(text.into()), answering).map_err(keep)).unwrap()
}

async fn proxy(go: Arc<Notify>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (connection, handle) = Connection::new(socket, LIMITS, Status);
            let go = Arc::clone(&go);
            let service = service_fn(move |request| {
                let answer = serve(request, handle.clone(), Arc::clone(&go));
                async { Ok::<_, Infallible>(answer.await) }
            });
            let mut builder = http1::Builder::new();
            let served =
                builder.half_close(true).serve_connection(TokioIo::new(connection), service);
            tokio::spawn(served.with_upgrades());
        }
    });
    addr
}

/// Sends `parts` one after the other and reads until the proxy closes.
async fn exchange(parts: &[&str]) -> String {
    let mut socket = TcpStream::connect(proxy(Arc::default()).await).await.unwrap();
    for part in parts {
        socket.write_all(part.as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
    }
    read_to_end(socket).await
}

async fn read_to_end(mut socket: TcpStream) -> String {
    let mut answer = String::new();
    let limit = Duration::from_secs(5);
    tokio::time::timeout(limit, socket.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

fn statuses(answer: &str) -> Vec<&str> {
    answer.match_indices("HTTP/1.1 ").map(|(at, _)| &answer[at + 9..at + 12]).collect()
}

const GET: &str = "GET http://h/one HTTP/1.1\r\nHost: h\r\n\r\n";
const BAD: &str = "GET http://h/two HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n";

#[tokio::test]
async fn earlier_answers_come_before_a_refusal_and_nothing_after_it() {
    let all = [GET, GET, BAD, GET].concat();
    let answer = exchange(&[&all]).await;
    assert_eq!(statuses(&answer), ["200", "200", "400"], "{answer}");
    let answer = exchange(&[GET, BAD, GET]).await;
    assert_eq!(statuses(&answer), ["200", "400"], "{answer}");
}

#[tokio::test]
async fn a_refusal_waits_for_an_answer_that_is_held() {
    let go = Arc::new(Notify::new());
    let mut socket = TcpStream::connect(proxy(Arc::clone(&go)).await).await.unwrap();
    socket.write_all(GET.replace("one", "held").as_bytes()).await.unwrap();
    socket.write_all(BAD.as_bytes()).await.unwrap();
    let mut byte = [0];
    let nothing = tokio::time::timeout(Duration::from_millis(50), socket.read(&mut byte)).await;
    assert!(nothing.is_err(), "answered before its turn");
    go.notify_one();
    let answer = read_to_end(socket).await;
    assert_eq!(statuses(&answer), ["200", "400"], "{answer}");
}

#[tokio::test]
async fn a_malformed_body_fails_for_the_service_and_gets_a_refusal() {
    let post = "POST http://h/ HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello";
    let answer = exchange(&[post, "0\r\n\r\n", GET]).await;
    assert_eq!(statuses(&answer), ["400"], "{answer}");
}

#[tokio::test]
async fn bytes_behind_a_connect_wait_for_the_tunnel() {
    let go = Arc::new(Notify::new());
    let mut socket = TcpStream::connect(proxy(Arc::clone(&go)).await).await.unwrap();
    let early = "x".repeat(100_000);
    let connect = format!("CONNECT yes-held:1 HTTP/1.1\r\nHost: h\r\n\r\n{early}");
    let (mut from, mut to) = socket.split();
    let send = async {
        to.write_all(connect.as_bytes()).await.unwrap();
        to.shutdown().await.unwrap();
    };
    let receive = async {
        go.notify_one();
        let mut answer = String::new();
        from.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let ((), answer) = tokio::join!(send, receive);
    assert_eq!(statuses(&answer), ["200"]);
    assert!(answer.ends_with(&format!("\r\n\r\n{early}")), "{} bytes", answer.len());
}

#[tokio::test]
async fn a_refused_connect_ends_the_connection_and_the_bytes_after_it_are_not_served() {
    let connect = "CONNECT no:1 HTTP/1.1\r\nHost: h\r\n\r\n";
    let answer = exchange(&[&[connect, GET].concat()]).await;
    assert_eq!(statuses(&answer), ["403"], "{answer}");
}

#[tokio::test]
async fn bytes_behind_an_upgrade_pass_once_it_is_accepted() {
    let upgrade =
        "GET http://h/yes HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n";
    let mut socket = TcpStream::connect(proxy(Arc::default()).await).await.unwrap();
    socket.write_all(format!("{upgrade}\r\nearly").as_bytes()).await.unwrap();
    socket.write_all(b" and late").await.unwrap();
    socket.shutdown().await.unwrap();
    let answer = read_to_end(socket).await;
    assert_eq!(statuses(&answer), ["101"]);
    assert!(answer.ends_with("\r\n\r\nearly and late"), "{answer}");
}

#[tokio::test]
async fn a_refused_upgrade_is_followed_by_the_next_request() {
    let upgrade = "GET http://h/no HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: echo\r\n";
    let all = [upgrade, "\r\n", GET, BAD].concat();
    let answer = exchange(&[&all]).await;
    assert_eq!(statuses(&answer), ["403", "200", "400"], "{answer}");
}

#[tokio::test]
async fn a_client_that_disconnects_before_its_response_is_noticed() {
    let connect = "CONNECT held:1 HTTP/1.1\r\nHost: h\r\n\r\n".to_owned();
    let get = GET.replace("one", "held");
    // Also in the middle of its next request.
    for sent in [connect, get.clone(), get + "GET http://h/t"] {
        let go = Arc::new(Notify::new());
        let mut socket = TcpStream::connect(proxy(Arc::clone(&go)).await).await.unwrap();
        socket.write_all(sent.as_bytes()).await.unwrap();
        socket.shutdown().await.unwrap();
        assert_eq!(read_to_end(socket).await, "");
    }
}

#[tokio::test]
async fn a_pipelined_request_is_served_after_the_response_before_it() {
    let held = GET.replace("one", "held");
    let long = GET.replace("one", &"a".repeat(10_000));
    for next in [GET, &long, BAD] {
        for cut in [0, 1, next.len() / 2, next.len()] {
            let go = Arc::new(Notify::new());
            let mut socket = TcpStream::connect(proxy(Arc::clone(&go)).await).await.unwrap();
            for part in [&held, &next[..cut], &next[cut..], BAD] {
                socket.write_all(part.as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
            }
            go.notify_one();
            let answer = read_to_end(socket).await;
            let expected: &[_] = if next == BAD { &["200", "400"] } else { &["200", "200", "400"] };
            assert_eq!(statuses(&answer), expected, "cut at {cut}: {answer}");
        }
    }
}
