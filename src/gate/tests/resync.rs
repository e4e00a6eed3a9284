//! A member that may have lost news.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use tokio::sync::broadcast;

use super::{
    named::{per, site},
    *,
};
use crate::store::{Answering, Reply};

/// How long the server of these tests takes to read a scope.
const READ: Duration = Duration::from_millis(2);

/// A server with open scopes that replies to each read after [`READ`], many reads at once.
#[derive(Debug)]
struct Slow {
    reads: Arc<AtomicUsize>,
    /// Whether the last of the scopes has tripped.
    tripped: Arc<AtomicBool>,
    news: broadcast::Sender<String>,
}

impl ScriptServer for Slow {
    fn run<'a>(
        &'a self,
        name: &'static str,
        _text: &'static str,
        keys: Vec<String>,
        _arguments: Vec<String>,
    ) -> Answering<'a> {
        Box::pin(async move {
            match name {
                "members" => Ok(Reply::members(2)),
                "memory" => Ok(Reply::memory()),
                "peek" => {
                    tokio::time::sleep(READ).await;
                    self.reads.fetch_add(1, Ordering::Relaxed);
                    let (zero, none) = (|| Reply::Whole(0), || Reply::Text(String::new()));
                    let numbers = || Reply::Text("0".to_owned());
                    let is_last = keys.iter().any(|key| key.contains("site-3999."));
                    let closed = is_last && self.tripped.load(Ordering::Relaxed);
                    let (epoch, until) = if closed { (7, 61_000_000) } else { (0, 0) };
                    Ok(Reply::List(vec![
                        Reply::Whole(1_000_000),
                        Reply::Whole(epoch),
                        Reply::Whole(until),
                        zero(),
                        numbers(),
                        numbers(),
                        none(),
                        none(),
                        none(),
                        none(),
                    ]))
                }
                _ => Err("ERR nothing here".to_owned()),
            }
        })
    }

    fn subscribe(&self, _channel: &str) -> broadcast::Receiver<String> {
        self.news.subscribe()
    }
}

#[tokio::test(start_paused = true)]
async fn scopes_are_read_again_many_at_once_and_beside_the_news() {
    const SCOPES: usize = 4_000;
    let reads = Arc::new(AtomicUsize::new(0));
    let news = broadcast::Sender::new(4);
    let tripped = Arc::new(AtomicBool::new(false));
    let server =
        Slow { reads: Arc::clone(&reads), tripped: Arc::clone(&tripped), news: news.clone() };
    let gate = gate_over(server, per(Split::Host, Split::Host)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let entry = gate.find(&target()).expect("the rule matches everything");
    let scopes: Vec<_> = (0..SCOPES).map(|n| entry.scopes.find(&entry, &site(n))).collect();
    let before = reads.load(Ordering::Relaxed);
    let start = clock::now();
    // More news than the subscription holds: some are lost, and one of the others is a trip.
    for n in 0..5 {
        news.send(format!(
            "default\x1fsite-{n}.example\x1f1\x1fstreak\x1f0\x1f1\x1fother\x1f\x1f0\x1f"
        ))
        .expect("it listens");
    }
    wait(|| reads.load(Ordering::Relaxed) > before).await;
    let trip =
        "default\x1fsite-3999.example\x1f7\x1fcooling\x1f60000000\x1f0\x1fother\x1fhand\x1f0\x1f";
    tripped.store(true, Ordering::Relaxed);
    news.send(trip.to_owned()).expect("it listens");
    wait(|| scopes[SCOPES - 1].cooldown.is_closed()).await;
    assert!(reads.load(Ordering::Relaxed) - before < SCOPES, "it did not wait for all reads");
    wait(|| reads.load(Ordering::Relaxed) >= before + SCOPES).await;
    let took = start.elapsed();
    assert!(took < Duration::from_millis(200), "{took:?} for {SCOPES} scopes");
    assert!(
        scopes[SCOPES - 1].cooldown.is_closed(),
        "what was read before the trip does not end it"
    );
}

async fn wait(is_so: impl Fn() -> bool) {
    let so = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), so).await.expect("it becomes so");
}
