//! CONNECT and other tunnels.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::bench::{Bench, until};

/// A site that sends back what it gets, in capitals, until the end.
async fn echo() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(size @ 1..) = stream.read(&mut buffer).await {
                    buffer[..size].make_ascii_uppercase();
                    stream.write_all(&buffer[..size]).await.unwrap();
                }
                stream.write_all(b"the end").await.unwrap();
            });
        }
    });
    addr
}

#[tokio::test]
async fn a_connect_opens_a_tunnel_and_early_bytes_go_through() {
    let site = echo().await;
    let bench = Bench::start().await;
    let mut client = bench.connect().await;
    client.send(&format!("CONNECT {site} HTTP/1.1\r\nhost: {site}\r\n\r\nearly")).await;
    let answer = client.head().await;
    assert_eq!(answer.status(), 200);
    assert_eq!((answer.field("content-length"), answer.field("transfer-encoding")), (None, None));
    client.read_to("EARLY").await;
    client.send(" late").await;
    client.read_to(" LATE").await;
    assert_eq!(bench.metric(r#"tidegate_tunnels{rule="default"}"#), 1.0);
    client.stream.shutdown().await.unwrap();
    assert_eq!(client.rest().await, "the end", "a half-closed tunnel still answers");
    until("the tunnel is gone", || bench.cx.tunnels.is_empty()).await;
}
