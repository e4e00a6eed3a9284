//! The minimum for a shared limiter: the gate's own script call, sent by a plain blocking loop.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use integration_tests::{
    redis::{Redis, resp},
    sim,
};
use parking_lot::Mutex;
use tidegate::{
    observability::metrics::Metrics,
    store::{Answering, Ask, Reply, ScopeName, ScriptServer, SharedStore, Store as _},
};
use tokio::sync::broadcast;

use super::{Cost, Used, load};

/// Calls in flight that keep the server busy.
const IN_FLIGHT: usize = 64;

/// A connection and the bytes of one call.
#[derive(Debug)]
pub(crate) struct Floor {
    stream: TcpStream,
    call: Vec<u8>,
}

impl Floor {
    pub(crate) fn connect(redis: &Redis) -> anyhow::Result<Self> {
        let [text, keys, arguments] = record()?;
        let mut stream = TcpStream::connect(redis.address())?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(resp(&["SCRIPT", "LOAD", &text[0]]).as_bytes())?;
        let mut reply = [0; 4_096];
        let read = stream.read(&mut reply)?;
        let digest = String::from_utf8_lossy(&reply[..read]);
        let digest = digest.lines().nth(1).context("SCRIPT LOAD answers with a digest")?;
        let count = keys.len().to_string();
        let rest = keys.iter().chain(&arguments).map(String::as_str);
        let call: Vec<&str> = ["EVALSHA", digest, &count].into_iter().chain(rest).collect();
        let call = resp(&call).into_bytes();
        Ok(Self { stream, call })
    }

    /// Sends calls for this long, one after the other.
    pub(crate) fn run(&mut self, redis: &Redis, time: Duration) -> anyhow::Result<Cost> {
        let (before, until, mut grants) = (Used::now(redis)?, Instant::now() + time, 0);
        let mut reply = [0; 4_096];
        while Instant::now() < until {
            self.stream.write_all(&self.call)?;
            let read = self.stream.read(&mut reply)?;
            // The tickets are the only list in the reply.
            ensure!(find(&reply[..read], b"\r\n*1\r\n"), "the script grants nothing");
            grants += 1;
        }
        before.until_now(redis, grants)
    }

    /// Sends calls for this long, many at once: the most that the server handles.
    pub(crate) fn flood(&mut self, redis: &Redis, time: Duration) -> anyhow::Result<Cost> {
        let calls = self.call.repeat(IN_FLIGHT);
        let (before, until, mut grants) = (Used::now(redis)?, Instant::now() + time, 0);
        let mut replies = [0; 64 * 1024];
        while Instant::now() < until {
            self.stream.write_all(&calls)?;
            let mut stars = 0;
            while stars < 2 * IN_FLIGHT {
                let read = self.stream.read(&mut replies)?;
                ensure!(read > 0, "the server closes the connection");
                // Each reply is a list with one list in it, and no field contains a star.
                stars += replies[..read].iter().filter(|byte| **byte == b'*').count();
            }
            grants += IN_FLIGHT as u64;
        }
        before.until_now(redis, grants)
    }
}

fn find(reply: &[u8], part: &[u8]) -> bool {
    reply.windows(part.len()).any(|window| window == part)
}

/// The script, keys and arguments with which the gate's store takes one ticket.
fn record() -> anyhow::Result<[Vec<String>; 3]> {
    let recorder = Recorder::default();
    let seen = Arc::clone(&recorder.0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let settings = sim::settings("redis://recorded");
        let store = SharedStore::over(Box::new(recorder), settings, Metrics::new());
        store.first_word().await;
        let rule = load::rule();
        let name = ScopeName::plain(&rule.name, &"".into());
        let ask = Ask { wanted: 1, bound: 1_000_000, lease: 1_000_000, ..Ask::default() };
        let answer = store.take(&store.scope(name), &rule, &ask).await;
        // The recorder's reply is invalid; only the call matters.
        drop(answer);
    });
    let recorded = seen.lock().take();
    recorded.context("the store takes tickets by a script")
}

/// A server that records the call that takes tickets.
#[derive(Debug, Default)]
struct Recorder(Arc<Mutex<Option<[Vec<String>; 3]>>>);

impl ScriptServer for Recorder {
    fn run<'a>(
        &'a self,
        name: &'static str,
        text: &'static str,
        keys: Vec<String>,
        arguments: Vec<String>,
    ) -> Answering<'a> {
        if name == "take" {
            *self.0.lock() = Some([vec![text.to_owned()], keys, arguments]);
        }
        Box::pin(async { Ok(Reply::members(1)) })
    }

    fn subscribe(&self, _channel: &str) -> broadcast::Receiver<String> {
        broadcast::channel(1).1
    }
}
