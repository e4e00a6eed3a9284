//! The load client: so many keep-alive connections, each with one request at a time.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};

/// Bytes of the origin's page.
pub(crate) const BODY: usize = 1024;
/// An answer that takes longer is an error.
const ANSWER_AT_MOST: Duration = Duration::from_secs(10);

/// What a load saw.
#[derive(Debug, Default)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) seconds: f64,
    /// Microseconds from request to answer, ascending.
    waits: Vec<u32>,
}

impl Load {
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// Milliseconds within which half of all are answered.
    pub(crate) fn p50(&self) -> f64 {
        self.percentile(50)
    }

    /// Milliseconds within which 99 of 100 are answered.
    pub(crate) fn p99(&self) -> f64 {
        self.percentile(99)
    }

    fn percentile(&self, percent: usize) -> f64 {
        let at = self.waits.len() * percent / 100;
        self.waits.get(at).map_or(f64::NAN, |wait| f64::from(*wait) / 1e3)
    }
}

/// Asks `proxy` for a page of `origin` for so long.
pub(crate) async fn run(
    proxy: SocketAddr,
    origin: SocketAddr,
    connections: usize,
    time: Duration,
) -> Load {
    let until = Instant::now() + time;
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        clients.spawn(async move {
            let mut seen = Load::default();
            if client(proxy, origin, until, &mut seen).await.is_err() {
                seen.errors += 1;
            }
            seen
        });
    }
    let mut all = Load::default();
    while let Some(seen) = clients.join_next().await {
        match seen {
            Ok(seen) => {
                all.requests += seen.requests;
                all.errors += seen.errors;
                all.waits.extend(seen.waits);
            }
            Err(_) => all.errors += 1,
        }
    }
    all.waits.sort_unstable();
    all
}

/// One connection; what is not the page ends it.
async fn client(
    proxy: SocketAddr,
    origin: SocketAddr,
    until: Instant,
    seen: &mut Load,
) -> io::Result<()> {
    let request = format!(
        "GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n"
    );
    let mut stream = TcpStream::connect(proxy).await?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 16 * 1024];
    while Instant::now() < until {
        let start = Instant::now();
        stream.write_all(request.as_bytes()).await?;
        timeout(ANSWER_AT_MOST, answer(&mut stream, &mut buffer)).await??;
        seen.requests += 1;
        seen.waits.push(u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    Ok(())
}

async fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    loop {
        let read = stream.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += read;
        let head = buffer[..filled].windows(4).position(|end| end == b"\r\n\r\n");
        match head.map(|head| head + 4 + BODY) {
            Some(length) if filled >= length && buffer.starts_with(b"HTTP/1.1 200") => {
                return Ok(());
            }
            Some(length) if filled >= length => return Err(io::ErrorKind::InvalidData.into()),
            _ => {}
        }
    }
}
