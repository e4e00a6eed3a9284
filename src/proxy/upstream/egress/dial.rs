//! Dials several addresses of one site. Each starts 250 ms after the previous one, and the first to accept wins (RFC
//! 8305).

use std::{collections::VecDeque, io, net::SocketAddr, time::Duration};

use tokio::{net::TcpStream, task::JoinSet};

use crate::{
    proxy::upstream::exhaustion::is_exhausted,
    runtime::clock::{self, Instant},
};

/// Head start of each address over the next (RFC 8305 section 8).
const HEAD_START: Duration = Duration::from_millis(250);
/// Most addresses of one site that are tried. Each holds a socket meanwhile.
const MAX_ADDRESSES: usize = 8;

/// Why no address could be connected.
#[derive(Debug)]
pub(super) enum Failed {
    Refused,
    TimedOut,
    Short(io::Error),
    Other(io::Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::TimedOut => Self::TimedOut,
            _ if is_exhausted(&error) => Self::Short(error),
            _ => Self::Other(error),
        }
    }
}

/// Connects to the first of `addresses` that accepts before `deadline`.
pub(super) async fn first(
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<TcpStream, Failed> {
    let dialling = async {
        match addresses {
            [only] => TcpStream::connect(*only).await.map_err(Failed::from),
            several => race(interleaved(several)).await,
        }
    };
    let stream =
        tokio::time::timeout_at(deadline, dialling).await.unwrap_or(Err(Failed::TimedOut))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Connects to the first of `addresses`, which named the request's scope. If that fails within half of the time, tries
/// the others.
pub(super) async fn preferred(
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<TcpStream, Failed> {
    let [preferred, others @ ..] = addresses else { return first(addresses, deadline).await };
    if others.is_empty() {
        return first(addresses, deadline).await;
    }
    let half = clock::now() + deadline.saturating_duration_since(clock::now()) / 2;
    match first(&[*preferred], half).await {
        Ok(stream) => Ok(stream),
        Err(failed) => first(others, deadline).await.map_err(|other| worse(Some(failed), other)),
    }
}

/// Families take turns, beginning with the one that the system prefers (RFC 8305 section 4).
fn interleaved(addresses: &[SocketAddr]) -> VecDeque<SocketAddr> {
    let preferred = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut ours, mut others): (VecDeque<_>, VecDeque<_>) =
        addresses.iter().copied().partition(|addr| addr.is_ipv6() == preferred);
    let mut order = VecDeque::with_capacity(MAX_ADDRESSES);
    while order.len() < MAX_ADDRESSES && !(ours.is_empty() && others.is_empty()) {
        order.extend(ours.pop_front());
        order.extend(others.pop_front());
    }
    order.truncate(MAX_ADDRESSES);
    order
}

async fn race(mut waiting: VecDeque<SocketAddr>) -> Result<TcpStream, Failed> {
    let mut attempts = JoinSet::new();
    let mut failed = None;
    loop {
        if let Some(addr) = waiting.pop_front() {
            attempts.spawn(TcpStream::connect(addr));
        }
        let head_start_ends = clock::now() + HEAD_START;
        tokio::select! {
            ended = attempts.join_next() => match ended {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(error))) => failed = Some(worse(failed, error.into())),
                Some(Err(lost)) => failed = Some(Failed::Other(io::Error::other(lost))),
                None => return Err(failed.unwrap_or(Failed::TimedOut)),
            },
            () = tokio::time::sleep_until(head_start_ends), if !waiting.is_empty() => {}
        }
    }
}

/// The most informative error about the site: first a refusal, then silence, then errors of the local network. If local
/// resources were exhausted, nothing is known about the site.
fn worse(before: Option<Failed>, now: Failed) -> Failed {
    match (before, now) {
        (Some(short @ Failed::Short(_)), _) | (_, short @ Failed::Short(_)) => short,
        (Some(Failed::Refused), _) | (_, Failed::Refused) => Failed::Refused,
        (Some(Failed::TimedOut), _) | (_, Failed::TimedOut) => Failed::TimedOut,
        (_, other) => other,
    }
}
