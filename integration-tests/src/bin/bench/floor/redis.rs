//! The least that a shared limiter costs: one script call for each request, all on one connection.

use std::{collections::VecDeque, io, net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use integration_tests::redis::resp;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot},
};

/// A limit that keeps one moment per key (GCRA) on the server's clock: 1 where the request may go, else 0.
const SCRIPT: &str = "\
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local gap = 1000000 / tonumber(ARGV[1])
local next = math.max(now, tonumber(redis.call('GET', KEYS[1])) or now) + gap
if next - now > gap * tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', next), 'PX', math.ceil((next - now) / 1000) + 1)
return 1
";
/// Tokens per second, and at once: never reached.
const NEVER_REACHED: &str = "1000000";
/// Calls that go out in one write.
const AT_ONCE: usize = 128;

/// A call, and who waits for what it says.
type Call = (String, oneshot::Sender<bool>);
/// Who waits for an answer, in the order of the calls.
type Waiting = Arc<Mutex<VecDeque<oneshot::Sender<bool>>>>;

/// Calls the script, on one connection for all.
#[derive(Debug, Clone)]
pub(super) struct Limiter {
    calls: mpsc::UnboundedSender<Call>,
    digest: Arc<str>,
}

impl Limiter {
    pub(super) async fn connect(at: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(at).await?;
        stream.set_nodelay(true)?;
        let (reader, mut writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        writer.write_all(resp(&["SCRIPT", "LOAD", SCRIPT]).as_bytes()).await?;
        let (mut length, mut digest) = (String::new(), String::new());
        reader.read_line(&mut length).await?;
        reader.read_line(&mut digest).await?;
        anyhow::ensure!(length.starts_with('$'), "SCRIPT LOAD: {length}");
        let digest = digest.trim();
        let (calls, receiver) = mpsc::unbounded_channel();
        let waiting = Waiting::default();
        tokio::spawn(write(writer, receiver, Arc::clone(&waiting)));
        tokio::spawn(read(reader, waiting));
        Ok(Self { calls, digest: digest.into() })
    }

    /// Whether a request to this host may go.
    pub(super) async fn allows(&self, host: &str) -> bool {
        let call = ["EVALSHA", &self.digest, "1", host, NEVER_REACHED, NEVER_REACHED];
        let (told, tells) = oneshot::channel();
        self.calls.send((resp(&call), told)).is_ok() && tells.await.unwrap_or(false)
    }
}

async fn write(
    mut writer: OwnedWriteHalf,
    mut calls: mpsc::UnboundedReceiver<Call>,
    waiting: Waiting,
) -> io::Result<()> {
    let (mut batch, mut bytes) = (Vec::new(), Vec::new());
    while calls.recv_many(&mut batch, AT_ONCE).await > 0 {
        bytes.clear();
        {
            let mut waiting = waiting.lock();
            for (call, told) in batch.drain(..) {
                bytes.extend_from_slice(call.as_bytes());
                waiting.push_back(told);
            }
        }
        writer.write_all(&bytes).await?;
    }
    Ok(())
}

/// Each answer is one line, `:1` or `:0`.
async fn read(mut reader: BufReader<OwnedReadHalf>, waiting: Waiting) -> anyhow::Result<()> {
    let mut line = String::new();
    while reader.read_line(&mut line).await? > 0 {
        let told = waiting.lock().pop_front().context("an answer that nobody asked for")?;
        // A client that left does not wait any more.
        told.send(line.trim_end() == ":1").ok();
        line.clear();
    }
    Ok(())
}
