//! What stands between a member and its Redis, and can go wrong as networks and servers do.
//!
//! It understands as much of RESP as it takes to tell one command from the next, so that it can answer in the server's
//! stead, lose exactly the replies, or let them come a byte at a time. Every connection that it ends, ends by a reset.

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

/// Between two bytes of a reply that drips.
const DRIP: Duration = Duration::from_secs(1);
/// Largest command that is looked at; scripts are a tenth of it.
const COMMAND_AT_MOST: usize = 1 << 20;

/// What becomes of the commands and replies from now on.
#[derive(Debug, Clone)]
pub enum Fault {
    /// They pass.
    None,
    /// Connections stay open and nothing moves in them, as behind a firewall that drops.
    Silence,
    /// Connections are reset, new ones too.
    Reset,
    /// So many bytes of replies pass, and then the connection is reset.
    CutAfter(usize),
    /// Replies come a byte a second.
    Drip,
    /// Nothing moves any more in the connections that there are, and nobody is told; new ones work.
    Forgotten,
    /// The same, but for those connections alone that have subscribed to something.
    Deaf,
    /// Commands are carried out, and before the reply to a script comes, the connection is reset.
    LoseReplies,
    /// Each call of a script gets this instead of being carried out.
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
    /// Starts one before `server`.
    ///
    /// # Panics
    /// If loopback cannot be bound.
    #[must_use]
    pub fn before(server: SocketAddr) -> Self {
        let (fault, stop) = (watch::Sender::new(Fault::None), watch::Sender::new(false));
        let connections = Arc::new(AtomicUsize::new(0));
        let (tell, told) = mpsc::channel();
        let line = Line { server, fault: fault.subscribe() };
        let (counted, stopped) = (Arc::clone(&connections), stop.subscribe());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime starts");
            runtime.block_on(serve(line, tell, counted, stopped));
        });
        let address = told.recv().expect("the relay's thread tells its address");
        Self { address, fault, connections, stop, thread: Some(thread) }
    }

    /// What a member gets as its store.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// From now on.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// Connections that were opened to it.
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

/// Where a connection leads, and what goes wrong on the way.
#[derive(Debug, Clone)]
struct Line {
    server: SocketAddr,
    fault: watch::Receiver<Fault>,
}

type Writer = Arc<Mutex<OwnedWriteHalf>>;

async fn serve(
    line: Line,
    tell: mpsc::Sender<SocketAddr>,
    connections: Arc<AtomicUsize>,
    mut stopped: watch::Receiver<bool>,
) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback binds");
    tell.send(listener.local_addr().expect("a bound socket has an address"))
        .expect("whoever starts the relay waits for its address");
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                connections.fetch_add(1, Ordering::Relaxed);
                let line = line.clone();
                // However it ends, the ends of the line see it.
                tokio::spawn(async move { drop(line.carry(client).await) });
            }
            _ = stopped.changed() => return,
        }
    }
}

impl Line {
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
            // Both ends stay open, with what they hold, for as long as the relay does.
            () = forgotten => std::future::pending().await,
            ended = &mut talk => ended,
            () = reset => Ok(()),
        }
    }

    /// Waits while nothing moves.
    async fn moves(&mut self) -> Fault {
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
                match self.moves().await {
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
            match self.moves().await {
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
                // A reply to a script is an array, a number or an error; greetings are simple strings.
                Fault::LoseReplies if matches!(read.first(), Some(b'*' | b':' | b'-')) => {
                    return Ok(());
                }
                _ => to.lock().await.write_all(&read.split()).await?,
            }
        }
    }
}

/// The length of the first command in `bytes`, once it is whole: `*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n`.
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
    fn commands_are_told_apart_once_they_are_whole() {
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
