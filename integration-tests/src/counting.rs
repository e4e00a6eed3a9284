//! A site and a client that repeat the same request on kept-alive connections and allocate nothing
//! themselves. So every allocation or instruction between two requests belongs to the proxy.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

/// The end of every response.
const END: &[u8] = b"</html>";

/// A page that the proxy scans.
pub const PAGE: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: 83\r\n\r\n\
    <html><title>A page</title><p>A few words</p><p>and a few &amp; more</p><br></html>";

/// An image, which the proxy does not scan.
pub const IMAGE: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\ncontent-length: 13\r\n\r\n\
    123456</html>";

/// Starts a site that answers every request on every connection with `answer`.
///
/// # Panics
/// If there is no free port on loopback.
#[must_use]
pub fn site(answer: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let at = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut request = [0; 4096];
                // On loopback a head arrives in one piece.
                while stream.read(&mut request).is_ok_and(|read| read > 0)
                    && stream.write_all(answer).is_ok()
                {}
            });
        }
    });
    at
}

/// A client of one kept-alive connection.
#[derive(Debug)]
pub struct Asker {
    stream: TcpStream,
    request: String,
    buffer: Box<[u8]>,
}

impl Asker {
    /// Connects to `proxy`, to request a page of `site`.
    ///
    /// # Panics
    /// If the proxy does not accept.
    #[must_use]
    pub fn connect(proxy: SocketAddr, site: SocketAddr) -> Self {
        let request = format!(
            "GET http://{site}/ HTTP/1.1\r\nHost: {site}\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n"
        );
        let stream = TcpStream::connect(proxy).expect("the proxy accepts");
        Self { stream, request, buffer: vec![0; 16 * 1024].into() }
    }

    /// Sends this many requests, one after the other.
    ///
    /// # Panics
    /// If a response is not a success or is incomplete.
    pub fn ask(&mut self, times: usize) {
        for _ in 0..times {
            self.stream.write_all(self.request.as_bytes()).expect("the proxy reads");
            let mut filled = 0;
            while !self.buffer[..filled].ends_with(END) {
                let read = self.stream.read(&mut self.buffer[filled..]).expect("the proxy answers");
                assert!(read > 0, "the connection was closed");
                filled += read;
            }
            assert!(self.buffer.starts_with(b"HTTP/1.1 200"));
        }
    }
}
