//! A simple bucket in Redis, as a crawler's author may write it to share one rate between three
//! workers. It ignores blocks.

use std::{net::SocketAddr, time::Duration};

use integration_tests::redis::resp;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Mutex,
};

/// Stores the time of the next request, and returns the microseconds until this one's.
const TAKE: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local at = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now)
redis.call('SET', KEYS[1], string.format('%.0f', at + ARGV[1]))
return at - now";

/// One worker's connection to the bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    call: Vec<u8>,
    stream: Mutex<TcpStream>,
}

impl Bucket {
    /// The bucket called `name`, with this many requests per second.
    pub(crate) async fn connect(redis: SocketAddr, name: &str, rate: f64) -> std::io::Result<Self> {
        let gap = Duration::from_secs(1).div_f64(rate).as_micros().to_string();
        let call = resp(&["EVAL", TAKE, "1", name, &gap]);
        let stream = TcpStream::connect(redis).await?;
        stream.set_nodelay(true)?;
        Ok(Self { call: call.into_bytes(), stream: Mutex::new(stream) })
    }

    /// Takes a token and returns the wait for it; `None` if the store does not reply.
    pub(crate) async fn take(&self) -> Option<Duration> {
        let mut stream = self.stream.lock().await;
        stream.write_all(&self.call).await.ok()?;
        let mut reply = [0; 64];
        let read = stream.read(&mut reply).await.ok()?;
        let micros = std::str::from_utf8(&reply[..read]).ok()?.strip_prefix(':')?;
        Some(Duration::from_micros(micros.trim_end().parse().ok()?))
    }
}
