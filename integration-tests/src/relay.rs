//! A relay between a member and its Redis that injects the faults of networks and servers.
//!
//! It understands enough of RESP to separate commands. So it can reply instead of the server, lose
//! exactly the replies, or send a reply byte by byte. Every connection that it ends is reset.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Mutex, watch},
};

/// The pause between two bytes of a slow reply.
const DRIP: Duration = Duration::from_secs(1);
/// Largest command that is parsed. Scripts have a tenth of it.
const COMMAND_AT_MOST: usize = 1 << 20;

/// The treatment of commands and replies.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Everything passes.
    None,
    /// Connections stay open but transfer nothing, like behind a firewall that drops packets.
    Silence,
    /// All connections are reset, new ones too.
    Reset,
    /// The connection is reset after so many bytes of replies.
    CutAfter(usize),
    /// Replies arrive at one byte per second.
    Drip,
    /// Existing connections transfer nothing, without any error; new ones work.
    Forgotten,
    /// Existing connections with a subscription transfer nothing; all others work.
    Deaf,
    /// Commands are executed, but the connection is reset before the reply to a script.
    LoseReplies,
    /// Each call of a script gets this reply and is not executed.
    Say(Bytes),
}

/// A running relay; it stops with this handle.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    fault: watch::Sender<Fault>,
    connections: Arc<AtomicUsize>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay to `server`.
    ///
    /// # Panics
    /// If loopback cannot be bound.
    #[must_use]
    pub fn before(server: SocketAddr) -> Self {
        let (fault, stop) = (watch::Sender::new(Fault::None), watch::Sender::new(false));
        let connections = Arc::new(AtomicUsize::new(0));
        let (sender, receiver) = mpsc::channel();
        let link = Link { server, fault: fault.subscribe() };
        let (counted, stopped) = (Arc::clone(&connections), stop.subscribe());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime starts");
            runtime.block_on(serve(link, sender, counted, stopped));
        });
        let address = receiver.recv().expect("the relay's thread sends its address");
        Self { address, fault, connections, stop, thread: Some(thread) }
    }

    /// The URL that a member uses as its store.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Changes the fault from now on.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// The number of connections that were opened to it.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// One connection through the relay.
#[derive(Debug, Clone)]
struct Link {
    server: SocketAddr,
    fault: watch::Receiver<Fault>,
}

type Writer = Arc<Mutex<OwnedWriteHalf>>;

async fn serve(
    link: Link,
    sender: mpsc::Sender<SocketAddr>,
    connections: Arc<AtomicUsize>,
    mut stopped: watch::Receiver<bool>,
) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback binds");
    sender
        .send(listener.local_addr().expect("a bound socket has an address"))
        .expect("whoever starts the relay waits for its address");
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                connections.fetch_add(1, Ordering::Relaxed);
                let link = link.clone();
                // Both ends notice how the connection ended.
                tokio::spawn(async move { drop(link.carry(client).await) });
            }
            _ = stopped.changed() => return,
        }
    }
}

impl Link {
    async fn carry(mut self, client: TcpStream) -> std::io::Result<()> {
        client.set_zero_linger()?;
        client.set_nodelay(true)?;
        if matches!(*self.fault.borrow(), Fault::Reset) {
            return Ok(());
        }
        let server = TcpStream::connect(self.server).await?;
        server.set_nodelay(true)?;
        let ((from_client, to_client), (from_server, to_server)) =
            (client.into_split(), server.into_split());
        let to_client = Arc::new(Mutex::new(to_client));
        let (up, down) = (self.clone(), self.clone());
        let born_into_it = matches!(*self.fault.borrow(), Fault::Forgotten | Fault::Deaf);
        let subscribed = AtomicBool::new(false);
        let mut forgets = self.fault.clone();
        let reset = async {
            drop(self.fault.wait_for(|fault| matches!(fault, Fault::Reset)).await);
        };
        let forgotten = async {
            let now = |fault: &Fault| match fault {
                Fault::Forgotten => !born_into_it,
                Fault::Deaf => !born_into_it && subscribed.load(Ordering::Relaxed),
                _ => false,
            };
            drop(forgets.wait_for(now).await);
        };
        let talk = async {
            tokio::select! {
                ended = up.commands(from_client, to_server, Arc::clone(&to_client), &subscribed) => ended,
                ended = down.replies(from_server, to_client) => ended,
            }
        };
        let mut talk = std::pin::pin!(talk);
        tokio::select! {
            // Both ends stay open, with their buffered data, as long as the relay runs.
            () = forgotten => std::future::pending().await,
            ended = &mut talk => ended,
            () = reset => Ok(()),
        }
    }

    /// Waits while the connection is stalled.
    async fn until_moving(&mut self) -> Fault {
        match self.fault.wait_for(|fault| !matches!(fault, Fault::Silence)).await {
            Ok(fault) => fault.clone(),
            Err(_) => Fault::Reset,
        }
    }

    async fn commands(
        mut self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        back: Writer,
        subscribed: &AtomicBool,
    ) -> std::io::Result<()> {
        let mut read = BytesMut::new();
        loop {
            while let Some(length) = command(&read) {
                let command = read.split_to(length).freeze();
                subscribed.fetch_or(begins(&command, "SUBSCRIBE"), Ordering::Relaxed);
                match self.until_moving().await {
                    Fault::Say(reply) if begins(&command, "EVAL") => {
                        back.lock().await.write_all(&reply).await?;
                    }
                    _ => to.write_all(&command).await?,
                }
            }
            if read.len() > COMMAND_AT_MOST || from.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
        }
    }

    async fn replies(mut self, mut from: OwnedReadHalf, to: Writer) -> std::io::Result<()> {
        let mut read = BytesMut::new();
        loop {
            if from.read_buf(&mut read).await? == 0 {
                return Ok(());
            }
            match self.until_moving().await {
                Fault::CutAfter(bytes) => {
                    let some = bytes.min(read.len());
                    return to.lock().await.write_all(&read[..some]).await;
                }
                Fault::Drip => {
                    while read.has_remaining() && matches!(*self.fault.borrow(), Fault::Drip) {
                        to.lock().await.write_all(&read.split_to(1)).await?;
                        tokio::time::sleep(DRIP).await;
                    }
                    to.lock().await.write_all(&read.split()).await?;
                }
                // A reply to a script is an array, a number or an error. Replies during the login
                // are simple strings.
                Fault::LoseReplies if matches!(read.first(), Some(b'*' | b':' | b'-')) => {
                    return Ok(());
                }
                _ => to.lock().await.write_all(&read.split()).await?,
            }
        }
    }
}

/// The length of the first command in `bytes`, once it is complete:
/// `*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n`.
fn command(bytes: &[u8]) -> Option<usize> {
    let number = |at: usize| {
        let line = bytes.get(at..)?;
        let end = line.windows(2).position(|two| two == b"\r\n")?;
        let digits = std::str::from_utf8(line.get(1..end)?).ok()?;
        Some((digits.parse::<usize>().ok()?, at + end + 2))
    };
    let (words, mut at) = number(0)?;
    for _ in 0..words {
        let (length, start) = number(at)?;
        at = start + length + 2;
    }
    (at <= bytes.len()).then_some(at)
}

/// Whether the name of a command begins with `word`.
fn begins(command: &[u8], word: &str) -> bool {
    let start = String::from_utf8_lossy(&command[..command.len().min(32)]).to_ascii_uppercase();
    start.contains(&format!("\r\n{word}"))
}

#[cfg(test)]
mod tests {
    use super::{begins, command};

    #[test]
    fn complete_commands_are_distinguished() {
        let two = b"*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n*1\r\n$4\r\nPING\r\n";
        assert_eq!(command(two), Some(22));
        assert_eq!(command(&two[22..]), Some(14));
        for cut in 0..22 {
            assert_eq!(command(&two[..cut]), None, "{cut}");
        }
        assert!(begins(b"*3\r\n$7\r\nEVALSHA\r\n$1\r\nx\r\n$1\r\n0\r\n", "EVAL"));
        assert!(!begins(two, "EVAL"));
    }
}
