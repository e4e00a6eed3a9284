//! Request bodies stream: each piece reaches the site before the client has written the next one.

use integration_tests::wait::wait_until;

use crate::{
    bench::{Client, SOON, addressed, member},
    origin::{OK, Origin},
};

/// Enough for any buffer that waits to be full to show.
const PIECES: usize = 20;

#[tokio::test]
async fn an_upload_passes_while_it_comes_in_any_framing() {
    let member = member().await;
    let piece = |n: usize| format!("piece-{n:02};");
    let chunk = |n: usize| format!("{:x}\r\n{}\r\n", piece(n).len(), piece(n));
    let length = piece(0).len() * PIECES;
    type Piece<'a> = &'a dyn Fn(usize) -> String;
    let rows: [(String, Piece<'_>, &str); 2] = [
        (format!("Content-Length: {length}"), &piece, ""),
        ("Transfer-Encoding: chunked".to_owned(), &chunk, "0\r\n\r\n"),
    ];
    for (framing, piece_on_the_wire, end) in rows {
        let site = Origin::answering(OK).await;
        let mut client = Client::connect(member.proxy()).await;
        let head = format!("POST http://SITE/up HTTP/1.1\r\nHost: SITE\r\n{framing}\r\n\r\n");
        client.send(addressed(head.as_bytes(), site.address())).await;
        for n in 0..PIECES {
            client.send(piece_on_the_wire(n)).await;
            let what = format!("{framing}: piece {n} is at the site before the next is written");
            wait_until(&what, SOON, async || site.received().contains(&piece(n))).await;
        }
        client.send(end).await;
        assert_eq!(client.answer().await.status(), 200, "{framing}");
        assert_eq!(site.requests().len(), 1, "{framing}");
    }
}
