//! What a grant costs: both stores beside a bare EVALSHA of the same script from a plain loop, which is the limit of
//! one round trip. Ratios of one run mean something on any machine; the absolute numbers only on this one.
#![allow(clippy::print_stdout, reason = "the figures are what a person runs this for")]

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};

use integration_tests::{
    redis::Redis,
    sim::{Plan, settings, target},
};
use parking_lot::Mutex;
use tidegate::{
    event::Events,
    gate::{Client, Gate},
    metrics::Metrics,
    rules::RuleSet,
    store::{Answering, Ask, Backend, Memory, Reply, ScopeName, ScriptServer, Shared, Store as _},
};
use tokio::{sync::broadcast, task::JoinSet};

const GRANTS: u32 = 20_000;
const AT_ONCE: u32 = 500;

/// Notes the first call of `take`, so that the bare loop sends exactly what the store sends.
#[derive(Debug, Default, Clone)]
struct Recorder(Arc<Mutex<Option<Vec<String>>>>);

impl ScriptServer for Recorder {
    fn run<'a>(
        &'a self,
        name: &'static str,
        text: &'static str,
        keys: Vec<String>,
        arguments: Vec<String>,
    ) -> Answering<'a> {
        if name == "take" {
            let count = keys.len().to_string();
            let words = [vec![text.to_owned(), count], keys, arguments].concat();
            *self.0.lock() = Some(words);
        }
        Box::pin(std::future::ready(Ok(Reply::Whole(1))))
    }

    fn subscribe(&self, _channel: &str) -> broadcast::Receiver<String> {
        broadcast::channel(1).1
    }
}

/// Processor time of this process so far, in seconds; ticks are a hundredth each on Linux.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux tells");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(12) + ticks(13)) / 100.0
}

struct Cost {
    each: f64,
    processor: f64,
}

fn show(what: &str, start: (Instant, f64), bare: Option<&Cost>) -> Cost {
    let each = start.0.elapsed().as_secs_f64() / f64::from(GRANTS);
    let cost = Cost { each, processor: (processor() - start.1) / f64::from(GRANTS) };
    let beside = bare.map_or(1.0, |bare| bare.each / cost.each);
    println!(
        "{what}: {:>8.0} grants/s, {:>5.2} x the bare loop, {:>6.1} us of processor time each",
        1.0 / each,
        beside,
        cost.processor * 1e6
    );
    cost
}

async fn recorded(plan: &Plan) -> Vec<String> {
    let recorder = Recorder::default();
    let store = Shared::over(Box::new(recorder.clone()), settings(""), Metrics::new());
    while !store.is_up() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let rule = plan.rule();
    let name = ScopeName { rule: Arc::clone(&rule.name), bucket: "".into(), cooldown: "".into() };
    let ask = Ask { wanted: 1, ..Ask::default() };
    // The recorder's answer is none that the store could read; only the call matters.
    drop(store.take(&store.scope(name), &rule, &ask).await);
    let words = recorder.0.lock().take();
    words.expect("the store has asked")
}

fn bare(redis: &Redis, words: &[String]) -> Cost {
    let encode = |words: &[String]| {
        let all = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), all.collect::<String>())
    };
    let mut stream = TcpStream::connect(redis.address()).expect("redis-server listens");
    stream.set_nodelay(true).expect("a socket takes it");
    let mut ask = |words: &[String]| {
        stream.write_all(encode(words).as_bytes()).expect("redis-server reads");
        let mut reply = [0; 4_096];
        let read = stream.read(&mut reply).expect("redis-server answers");
        String::from_utf8_lossy(&reply[..read]).into_owned()
    };
    let loaded = ask(&["SCRIPT".to_owned(), "LOAD".to_owned(), words[0].clone()]);
    let digest = loaded.lines().nth(1).expect("a digest").to_owned();
    let call = [vec!["EVALSHA".to_owned(), digest], words[1..].to_vec()].concat();
    let start = (Instant::now(), processor());
    for _ in 0..GRANTS {
        assert!(ask(&call).starts_with('*'), "the script runs");
    }
    show("bare EVALSHA loop          ", start, None)
}

fn gate(plan: &Plan, store: Backend, metrics: Arc<Metrics>) -> Arc<Gate> {
    let events = Events::new(Arc::clone(&metrics));
    let rules = RuleSet::new(vec![plan.rule()]);
    Gate::new(rules, store, metrics, events, Duration::from_secs(90))
}

async fn hold(gate: &Gate, times: u32) {
    let target = target();
    let entry = gate.find(&target).expect("the rule matches everything");
    let client = Client::User(Arc::from("bench"));
    for _ in 0..times {
        let mut permit = gate.hold(&entry, &target, &client, None).await.expect("there is room");
        assert!(permit.may_send(), "nothing cools down");
    }
}

async fn hold_many(gate: &Arc<Gate>) {
    let mut crawlers = JoinSet::new();
    for _ in 0..AT_ONCE {
        let gate = Arc::clone(gate);
        crawlers.spawn(async move { hold(&gate, GRANTS / AT_ONCE).await });
    }
    crawlers.join_all().await;
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut plan = Plan::new(1, 1e6, 0);
    plan.burst = 1_000_000;
    let redis = Redis::start();
    let loop_ = bare(&redis, &recorded(&plan).await);
    let metrics = Metrics::new();
    let store = Shared::start(settings(&redis.url()), Arc::clone(&metrics)).expect("a Redis URL");
    while !store.is_up() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let shared = gate(&plan, Backend::Shared(store), metrics);
    let start = (Instant::now(), processor());
    hold(&shared, GRANTS).await;
    show("gate on Redis, one by one  ", start, Some(&loop_));
    let start = (Instant::now(), processor());
    hold_many(&shared).await;
    show("gate on Redis, 500 at once ", start, Some(&loop_));
    let memory = gate(&plan, Backend::Memory(Memory::default()), Metrics::new());
    let start = (Instant::now(), processor());
    hold(&memory, GRANTS).await;
    show("gate in memory, one by one ", start, Some(&loop_));
    let start = (Instant::now(), processor());
    hold_many(&memory).await;
    show("gate in memory, 500 at once", start, Some(&loop_));
}
