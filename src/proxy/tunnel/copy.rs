//! Copies bytes both ways between a client and a site. Each direction ends separately.

use std::{
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::tcp,
    time::Instant,
};

use super::{Flights, Tally, records::Piece};
use crate::{
    proxy::stream::{Side, Stream},
    runtime::clock,
};

/// Bytes copied at a time. A megabyte takes 0.6 of the CPU time that it takes with tokio's 8 KB. A segment has slightly
/// less than 64 KB (65,483 bytes on loopback). A slightly longer write adds a segment of a few bytes and costs twice as
/// much.
const CHUNK: usize = 56 * 1024;

/// How long a client may stay silent after its site has ended one direction. Most sites have then ended both, which
/// only a write would show.
const AFTER_SITE: Duration = Duration::from_secs(2);

/// Copies until both directions have ended, or nothing moved for `idle`. `flights` decides before bytes go from the
/// client to the site.
///
/// # Errors
/// An end failed or was idle for too long, or the gate refused a flight.
pub(crate) async fn both(
    client: Side,
    site: Side,
    flights: Option<&Flights>,
    tally: &Tally,
    idle: Duration,
) -> io::Result<()> {
    match (client, site) {
        (Side::Tcp(client, client_early), Side::Tcp(site, site_early)) => {
            let (from_client, to_client) = client.into_split();
            let (from_site, to_site) = site.into_split();
            let up = Direction { from: from_client, to: to_site, early: client_early };
            let down = Direction { from: from_site, to: to_client, early: site_early };
            run(up, down, flights, tally, idle).await
        }
        (client, site) => {
            let (client, client_early) = client.boxed();
            let (site, site_early) = site.boxed();
            let (from_client, to_client) = tokio::io::split(client);
            let (from_site, to_site) = tokio::io::split(site);
            let up = Direction { from: from_client, to: to_site, early: client_early };
            let down = Direction { from: from_site, to: to_client, early: site_early };
            run(up, down, flights, tally, idle).await
        }
    }
}

struct Direction<R, W> {
    from: R,
    to: W,
    early: Bytes,
}

async fn run<CR: Source, CW: Sink, SR: Source, SW: Sink>(
    mut up: Direction<CR, SW>,
    mut down: Direction<SR, CW>,
    flights: Option<&Flights>,
    tally: &Tally,
    idle: Duration,
) -> io::Result<()> {
    let progress = Progress::new(tally);
    let up = async {
        let mut buffer = Vec::from(up.early);
        loop {
            progress.send(&mut up.to, &mut buffer, flights).await?;
            if up.from.next(&mut buffer).await? == 0 {
                break;
            }
        }
        up.to.write_all(&buffer).await?;
        tally.up(buffer.len());
        up.to.shutdown().await
    };
    let down = async {
        if !down.early.is_empty() {
            down.to.write_all(&down.early).await?;
            tally.down(down.early.len());
        }
        let mut buffer = Vec::new();
        while down.from.next(&mut buffer).await? > 0 {
            if let Some(flights) = flights {
                flights.answered(&buffer).await;
            }
            down.to.write_all(&buffer).await?;
            tally.down(buffer.len());
            buffer.clear();
            progress.record();
        }
        down.to.shutdown().await
    };
    let ended = async {
        let (mut up, mut down) = (pin!(up), pin!(down));
        tokio::select! {
            ended = &mut up => {
                ended?;
                down.await
            }
            ended = &mut down => {
                ended?;
                progress.record();
                tokio::select! {
                    ended = up => ended,
                    () = progress.idle_for(idle.min(AFTER_SITE)) => Ok(()),
                }
            }
        }
    };
    tokio::select! {
        ended = ended => ended,
        () = progress.idle_for(idle) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// A source of bytes. It appends to a buffer; 0 bytes mean the end.
trait Source: Send {
    fn next(&mut self, buffer: &mut Vec<u8>) -> impl Future<Output = io::Result<usize>> + Send;
}

trait Sink: AsyncWrite + Unpin + Send {}
impl<W: AsyncWrite + Unpin + Send> Sink for W {}

/// Reserves room for one read and no more (see [`CHUNK`]).
fn reserve_chunk(buffer: &mut Vec<u8>) {
    buffer.reserve_exact(CHUNK);
}

impl Source for tcp::OwnedReadHalf {
    async fn next(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        poll_fn(|cx| {
            while self.as_ref().poll_read_ready(cx)?.is_ready() {
                reserve_chunk(buffer);
                if let Poll::Ready(read) = pin!(self.read_buf(buffer)).poll(cx) {
                    return Poll::Ready(read);
                }
            }
            buffer.shrink_to_fit(); // thousands of idle tunnels must not keep theirs
            Poll::Pending
        })
        .await
    }
}

impl<S: Stream> Source for tokio::io::ReadHalf<S> {
    async fn next(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        poll_fn(|cx| {
            reserve_chunk(buffer);
            let read = pin!(self.read_buf(buffer)).poll(cx);
            if read.is_pending() {
                buffer.shrink_to_fit(); // as above
            }
            read
        })
        .await
    }
}

/// When bytes last moved, in either direction, and how many.
struct Progress<'t> {
    tally: &'t Tally,
    start: Instant,
    last_ms: AtomicU64,
    held: AtomicBool,
}

impl<'t> Progress<'t> {
    fn new(tally: &'t Tally) -> Self {
        let (last_ms, held) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { tally, start: clock::now(), last_ms, held }
    }

    fn record(&self) {
        let since = clock::now().duration_since(self.start).as_millis();
        self.last_ms.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Sends the part of `bytes` that can already be classified. The rest is kept.
    async fn send<W: Sink>(
        &self,
        to: &mut W,
        bytes: &mut Vec<u8>,
        flights: Option<&Flights>,
    ) -> io::Result<()> {
        if !bytes.is_empty() && !flights.map_or(Ok(true), |flights| flights.may_begin(bytes))? {
            return Ok(());
        }
        let mut passed = 0;
        while passed < bytes.len() {
            let rest = &bytes[passed..];
            let piece = flights.map_or(Some((Piece::Free, rest.len())), |all| all.piece(rest));
            let Some((piece, length)) = piece else { break };
            self.send_piece(to, &rest[..length], piece, flights).await?;
            passed += length;
        }
        bytes.drain(..passed);
        Ok(())
    }

    /// There is no wait between the check of the cooldown and each write. So a trip also holds the rest of a flight
    /// that the site reads slowly.
    async fn send_piece<W: Sink>(
        &self,
        to: &mut W,
        mut bytes: &[u8],
        mut piece: Piece,
        flights: Option<&Flights>,
    ) -> io::Result<()> {
        let flights = flights.filter(|_| piece != Piece::Free);
        while !bytes.is_empty() {
            self.hold(flights, piece).await?;
            if piece == Piece::Request {
                piece = Piece::Counted; // the rest of it is no other one
            }
            let sent = poll_fn(|cx| {
                if flights.is_some_and(|flights| !flights.may_go_on()) {
                    return Poll::Ready(Ok(None));
                }
                Pin::new(&mut *to).poll_write(cx, bytes).map_ok(Some)
            });
            match sent.await? {
                None => {}
                Some(0) => return Err(io::ErrorKind::WriteZero.into()),
                Some(sent) => {
                    self.tally.up(sent);
                    bytes = &bytes[sent..];
                }
            }
            self.record();
        }
        Ok(())
    }

    /// Waits for the gate. A held tunnel is not idle.
    async fn hold(&self, flights: Option<&Flights>, piece: Piece) -> io::Result<()> {
        let Some(flights) = flights else { return Ok(()) };
        self.held.store(true, Ordering::Relaxed);
        let go = flights.before(piece).await;
        self.record();
        self.held.store(false, Ordering::Relaxed);
        go
    }

    async fn idle_for(&self, idle: Duration) {
        loop {
            let end =
                self.start + Duration::from_millis(self.last_ms.load(Ordering::Relaxed)) + idle;
            let now = clock::now();
            if now < end {
                tokio::time::sleep_until(end).await;
            } else if self.held.load(Ordering::Relaxed) {
                tokio::time::sleep(idle).await;
            } else {
                return;
            }
        }
    }
}
