//! The input of a member from its store: replies to scripts, and news.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::Mutex;
use tidegate::{
    classify::verdict::{Judgement, Verdict},
    config,
    gate::{Client, Gate, Preferences},
    observability::{event::Events, metrics::Metrics},
    rules::{
        RuleSet,
        secret::Secret,
        settings::{OnFailure, RedisSettings},
    },
    store::{Answering, Backend, Reply, ScriptServer, SharedStore},
    target::Target,
};
use tokio::sync::broadcast;

/// Most lines that are used; a request needs a handful.
const LINES: usize = 100;
/// Longer than any wait of the rule below.
const LONG: Duration = Duration::from_secs(600);

/// Lines with the values of a reply, separated by spaces, or a `!` and the parts of a news message,
/// separated by `|`. Whatever they contain, each request gets its response in time.
pub(super) fn store(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime starts");
    runtime.block_on(converse(&String::from_utf8_lossy(data)));
}

async fn converse(text: &str) {
    let says = Says { replies: Arc::default(), news: broadcast::Sender::new(LINES) };
    let metrics = Metrics::new();
    let store = SharedStore::over(Box::new(says.clone()), settings(), Arc::clone(&metrics));
    store.first_word().await;
    let events = Events::new(Arc::clone(&metrics));
    let gate = Gate::new(rules(), Backend::Shared(store), metrics, events, LONG);
    let target = Target::of_url("http://site.example/").expect("this is a URL");
    let entry = gate.find(&target).expect("the rule matches everything");
    let client = Client::Address([127, 0, 0, 1].into());
    let judgements =
        [Judgement::ok(200), Judgement::transport(Verdict::ConnectionError, "it is broken off")];
    let lines: Vec<_> = text.lines().take(LINES).collect();
    for (some, judgement) in lines.chunks(4).zip(judgements.iter().cycle()) {
        for line in some {
            match line.strip_prefix('!') {
                Some(news) => drop(says.news.send(news.replace('|', "\x1f"))),
                None => says.replies.lock().push_back(reply(line)),
            }
        }
        let hold = gate.hold(&entry, &target, &client, Preferences::default());
        let held = tokio::time::timeout(LONG, hold).await.expect("each has its answer in time");
        if let Ok(mut permit) = held
            && permit.may_send()
        {
            permit.report(judgement).await;
        }
    }
    gate.close().await;
}

fn reply(line: &str) -> Reply {
    let value = |word: &str| match word.parse() {
        Ok(number) => Reply::Whole(number),
        Err(_) => Reply::Text(word.to_owned()),
    };
    Reply::List(line.split(' ').map(value).collect())
}

/// Every part of a reply matters for this rule.
fn rules() -> RuleSet {
    static RULES: OnceLock<RuleSet> = OnceLock::new();
    let text = "rules: [{name: r, match: \"*\", rate: 10/s, burst: 5, quota: [100/h, 1000/d], max_wait: 1m, \
        learn: true, cooldown: {after: 2, for: 10s, on: [connection_error]}}]";
    let read = || config::parse(text, "rules.yaml", &|_| None).expect("the rule is good").rules;
    RULES.get_or_init(read).clone()
}

fn settings() -> RedisSettings {
    RedisSettings {
        url: Secret::new("redis://unused"),
        prefix: "tidegate".to_owned(),
        timeout: Duration::from_millis(100),
        on_failure: OnFailure::Local,
        local_share: None,
        ca: Vec::new(),
    }
}

/// A server that sends the given replies, and then only errors.
#[derive(Debug, Clone)]
struct Says {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    news: broadcast::Sender<String>,
}

impl ScriptServer for Says {
    fn run<'a>(
        &'a self,
        name: &'static str,
        _text: &'static str,
        _keys: Vec<String>,
        _arguments: Vec<String>,
    ) -> Answering<'a> {
        Box::pin(async move {
            let next = || self.replies.lock().pop_front();
            match name {
                "members" => Ok(Reply::members(2)),
                "memory" => Ok(Reply::memory()),
                _ => next().ok_or_else(String::new),
            }
        })
    }

    fn subscribe(&self, _channel: &str) -> broadcast::Receiver<String> {
        self.news.subscribe()
    }
}
