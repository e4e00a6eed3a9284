//! The minimum for a shared limiter: one script call per request, all on one connection.

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

/// A limit that keeps one time per key (GCRA) on the server's clock. Returns 1 if the request may
/// be sent, otherwise 0.
const SCRIPT: &str = "\
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local gap = 1000000 / tonumber(ARGV[1])
local next = math.max(now, tonumber(redis.call('GET', KEYS[1])) or now) + gap
if next - now > gap * tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', next), 'PX', math.ceil((next - now) / 1000) + 1)
return 1
";
/// The rate per second and the burst; never reached.
const NEVER_REACHED: &str = "1000000";
/// Calls per write.
const AT_ONCE: usize = 128;

/// A call, and the sender for its reply.
type Call = (String, oneshot::Sender<bool>);
/// The senders of pending replies, in the order of the calls.
type Waiting = Arc<Mutex<VecDeque<oneshot::Sender<bool>>>>;

/// Calls the script over one shared connection.
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

    /// Whether a request to this host may be sent.
    pub(super) async fn allows(&self, host: &str) -> bool {
        let call = ["EVALSHA", &self.digest, "1", host, NEVER_REACHED, NEVER_REACHED];
        let (reply, receiver) = oneshot::channel();
        self.calls.send((resp(&call), reply)).is_ok() && receiver.await.unwrap_or(false)
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
            for (call, reply) in batch.drain(..) {
                bytes.extend_from_slice(call.as_bytes());
                waiting.push_back(reply);
            }
        }
        writer.write_all(&bytes).await?;
    }
    Ok(())
}

/// Each reply is one line, `:1` or `:0`.
async fn read(mut reader: BufReader<OwnedReadHalf>, waiting: Waiting) -> anyhow::Result<()> {
    let mut line = String::new();
    while reader.read_line(&mut line).await? > 0 {
        let reply = waiting.lock().pop_front().context("a reply without a call")?;
        // A client that has disconnected no longer waits.
        reply.send(line.trim_end() == ":1").ok();
        line.clear();
    }
    Ok(())
}
