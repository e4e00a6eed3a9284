//! Records every message of the fleet's news channel, and its time.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{redis::Redis, wait::wait_until};

/// The channel of a store with the default prefix.
const CHANNEL: &str = "tidegate:news";
/// Longest message that is read. Real ones have a tenth of it.
const MESSAGE_AT_MOST: usize = 4096;

/// Waits until `members` members receive the news. They read earlier news later, without the
/// sender.
///
/// # Panics
/// If they do not within a minute.
pub async fn is_heard_by(members: usize, redis: &Redis) {
    let listeners = format!(":{members}\r\n");
    wait_until("all members hear the news", Duration::from_secs(60), async || {
        redis.says(&["PUBSUB", "NUMSUB", CHANNEL], &listeners)
    })
    .await;
}

/// One message.
#[derive(Debug, Clone)]
pub struct Item {
    /// When it was read.
    pub at: Instant,
    /// The scope's epoch.
    pub epoch: u64,
    /// `open`, `clear`, `cooling`, `due` or `streak`.
    pub phase: String,
    /// What is left of the cooldown.
    pub left: Duration,
    /// The sender.
    pub member: String,
}

/// A subscriber on its own thread; it ends with the server.
#[derive(Debug)]
pub struct Listener {
    heard: Arc<Mutex<Vec<Item>>>,
}

impl Listener {
    /// Subscribes.
    ///
    /// # Panics
    /// If the server refuses the subscription.
    #[must_use]
    pub fn start(redis: &Redis) -> Self {
        let mut stream = TcpStream::connect(redis.address()).expect("redis-server accepts");
        let (words, length) = ("*2\r\n$9\r\nSUBSCRIBE\r\n", CHANNEL.len());
        stream
            .write_all(format!("{words}${length}\r\n{CHANNEL}\r\n").as_bytes())
            .expect("redis-server reads");
        let heard: Arc<Mutex<Vec<Item>>> = Arc::default();
        let (ready, subscribed) = mpsc::channel();
        let for_thread = Arc::clone(&heard);
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            while let Some(reply) = reply(&mut reader) {
                match Item::parse(&reply) {
                    Some(item) => for_thread.lock().push(item),
                    None => drop(ready.send(())),
                }
            }
        });
        subscribed.recv_timeout(Duration::from_secs(10)).expect("redis-server confirms");
        Self { heard }
    }

    /// All messages so far.
    #[must_use]
    pub fn messages(&self) -> Vec<Item> {
        self.heard.lock().clone()
    }

    /// Waits for the first message of `phase` in epoch `epoch` or later.
    ///
    /// # Panics
    /// If none arrives in time.
    pub async fn first(&self, phase: &str, epoch: u64, at_most: Duration) -> Item {
        let mut found = None;
        wait_until(&format!("news: {phase} in epoch {epoch}"), at_most, async || {
            let heard = self.heard.lock();
            found = heard.iter().find(|item| item.phase == phase && item.epoch >= epoch).cloned();
            found.is_some()
        })
        .await;
        found.expect("it was waited for")
    }
}

/// The last of the three parts of one reply; `None` at the end.
fn reply(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let mut last = String::new();
    for _ in 0..3 {
        line.clear();
        reader.read_line(&mut line).ok()?;
        last.clear();
        // A number (`:1`) is on one line; a text follows its length (`$5`).
        if let Some(length) = line.strip_prefix('$') {
            let length: usize = length.trim().parse().ok().filter(|n| *n <= MESSAGE_AT_MOST)?;
            let mut bytes = vec![0; length + 2];
            reader.read_exact(&mut bytes).ok()?;
            last = String::from_utf8_lossy(&bytes[..length]).into_owned();
        }
    }
    Some(last)
}

impl Item {
    fn parse(text: &str) -> Option<Self> {
        let at = Instant::now();
        let words: Vec<&str> = text.split('\x1f').collect();
        let [_rule, _key, epoch, phase, left, _streak, member, ..] = words[..] else { return None };
        Some(Self {
            at,
            epoch: epoch.parse().ok()?,
            phase: phase.to_owned(),
            left: Duration::from_micros(left.parse().ok()?),
            member: member.to_owned(),
        })
    }
}
