//! A virtual Redis: the real scripts in an embedded Lua 5.1, on tokio's (paused) clock.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant as RealInstant},
};

use mlua::{Function, Lua, MultiValue, Value};
use parking_lot::Mutex;
use tidegate::{
    runtime::clock::{self, exact},
    store::Reply,
};
use tokio::sync::broadcast;

use super::{
    health::{Health, Way},
    keys::{Answer, Keys},
};

/// News waiting to be read by a slow member; as the client to the real one has.
const NEWS: usize = 4_096;

/// What ran, by script.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ran {
    /// Calls.
    pub calls: u64,
    /// Real time spent in the interpreter.
    pub took: Duration,
}

/// A virtual Redis.
#[derive(Debug)]
pub struct VirtualRedis {
    lua: Mutex<Interpreter>,
    keys: Arc<Mutex<Keys>>,
    news: Channels,
    start: clock::Instant,
    /// Where its clock stood at the start, in microseconds.
    offset: Mutex<i64>,
    ran: Mutex<HashMap<&'static str, Ran>>,
    /// Whether it takes calls and answers them, for everybody.
    pub(super) way: Way,
}

/// What a virtual Redis knew at some time.
#[derive(Debug, Clone)]
pub struct Snapshot(Keys);

#[derive(Debug)]
struct Interpreter {
    lua: Lua,
    compiled: HashMap<&'static str, Function>,
    now: Arc<Mutex<i64>>,
}

type Channels = Arc<Mutex<HashMap<String, broadcast::Sender<String>>>>;

impl VirtualRedis {
    /// One whose clock starts at `offset` (microseconds since 1970).
    ///
    /// # Panics
    /// If the interpreter does not start.
    #[must_use]
    pub fn start(offset: i64) -> Arc<Self> {
        let keys = Arc::new(Mutex::new(Keys::default()));
        let news = Arc::new(Mutex::new(HashMap::new()));
        let now = Arc::new(Mutex::new(offset));
        let lua = Interpreter::start(&keys, &news, now);
        Arc::new(Self {
            lua: Mutex::new(lua),
            keys,
            news,
            start: clock::now(),
            offset: Mutex::new(offset),
            ran: Mutex::default(),
            way: Way::default(),
        })
    }

    /// Its clock, in microseconds.
    #[must_use]
    pub fn now(&self) -> i64 {
        *self.offset.lock() + clock::micros(clock::now() - self.start)
    }

    /// When its clock shows so many microseconds.
    #[must_use]
    pub fn when(&self, micros: i64) -> clock::Instant {
        let ahead = micros - self.now();
        let length = clock::from_micros(ahead.abs());
        if ahead > 0 { clock::now() + length } else { clock::now() - length }
    }

    /// Sets its clock back (or, negative, forward).
    pub fn set_back(&self, by: Duration) {
        *self.offset.lock() -= clock::micros(by);
    }

    /// Lets it answer, or not.
    pub fn set(&self, health: Health) {
        self.way.set(health);
    }

    /// Runs a script: atomic, and in no virtual time.
    ///
    /// # Errors
    /// What the script or the interpreter says.
    pub fn run(
        &self,
        name: &'static str,
        text: &'static str,
        keys: Vec<String>,
        arguments: Vec<String>,
    ) -> Result<Reply, String> {
        let now = self.now();
        let started = RealInstant::now();
        let reply = self.lua.lock().run(now, text, keys, arguments);
        let mut ran = self.ran.lock();
        let ran = ran.entry(name).or_default();
        ran.calls += 1;
        ran.took += started.elapsed();
        reply.map_err(|error| format!("{name}: {error}"))
    }

    /// What is published on `channel` from now on. The push takes no time here.
    #[must_use]
    pub fn subscribe(&self, channel: &str) -> broadcast::Receiver<String> {
        let mut news = self.news.lock();
        let sender = news.entry(channel.to_owned()).or_insert_with(|| broadcast::channel(NEWS).0);
        sender.subscribe()
    }

    /// FLUSHALL.
    pub fn flush_all(&self) {
        self.keys.lock().clear();
    }

    /// What it knows now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.keys.lock().clone())
    }

    /// Another server takes its place, and knows what this one knew at some time: a replica that lagged behind, or the
    /// same after a crash, with what it had on its disk.
    pub fn replace(&self, knows: Snapshot) {
        let mut lua = self.lua.lock();
        *lua = Interpreter::start(&self.keys, &self.news, Arc::clone(&lua.now));
        *self.keys.lock() = knows.0;
    }

    /// Keys without a time to live: always a bug.
    #[must_use]
    pub fn immortal_keys(&self) -> Vec<String> {
        self.keys.lock().immortal()
    }

    /// What ran so far.
    #[must_use]
    pub fn ran(&self, name: &str) -> Ran {
        self.ran.lock().get(name).copied().unwrap_or_default()
    }
}

impl Interpreter {
    fn start(keys: &Arc<Mutex<Keys>>, news: &Channels, now: Arc<Mutex<i64>>) -> Self {
        let lua = Lua::new();
        provide(&lua, keys, news, &now).expect("a fresh interpreter takes a function");
        Self { lua, compiled: HashMap::new(), now }
    }

    fn run(
        &mut self,
        now: i64,
        text: &'static str,
        keys: Vec<String>,
        arguments: Vec<String>,
    ) -> mlua::Result<Reply> {
        *self.now.lock() = now;
        let globals = self.lua.globals();
        globals.set("KEYS", keys)?;
        globals.set("ARGV", arguments)?;
        let script = match self.compiled.get(text) {
            Some(script) => script.clone(),
            None => {
                let script = self.lua.load(text).into_function()?;
                self.compiled.insert(text, script.clone());
                script
            }
        };
        Ok(reply(&script.call::<Value>(())?))
    }
}

/// Gives the scripts `redis.call` and `redis.pcall`.
fn provide(
    lua: &Lua,
    keys: &Arc<Mutex<Keys>>,
    news: &Channels,
    now: &Arc<Mutex<i64>>,
) -> mlua::Result<()> {
    let (keys, news, now) = (Arc::clone(keys), Arc::clone(news), Arc::clone(now));
    let call = lua.create_function(move |lua, words: MultiValue| {
        let words: Vec<String> =
            words.iter().map(|word| word.to_string()).collect::<mlua::Result<_>>()?;
        let answer = keys.lock().run(*now.lock(), &words).map_err(mlua::Error::runtime)?;
        match answer {
            Answer::Whole(number) => Ok(Value::Number(exact(number))),
            Answer::Publish(channel, text) => {
                let heard = news.lock().get(&channel).map_or(0, |sender| {
                    // An error means that nobody listens.
                    sender.send(text).unwrap_or(0)
                });
                Ok(Value::Number(exact(i64::try_from(heard).unwrap_or(i64::MAX))))
            }
            Answer::Row(row) => {
                let table = lua.create_table_with_capacity(row.len(), 0)?;
                for (at, value) in row.into_iter().enumerate() {
                    match value {
                        Some(text) => table.raw_set(at + 1, text)?,
                        // As Redis does: nil would end the table.
                        None => table.raw_set(at + 1, false)?,
                    }
                }
                Ok(Value::Table(table))
            }
        }
    })?;
    // As if the user were not allowed what is only tried.
    let refused = lua.create_function(|lua, _: MultiValue| lua.create_table())?;
    let redis = lua.create_table()?;
    redis.set("call", call)?;
    redis.set("pcall", refused)?;
    lua.globals().set("redis", redis)
}

/// A script's value as Redis would send it: numbers lose their fraction, tables end at the first nil.
#[allow(clippy::cast_possible_truncation, reason = "this is what Redis does")]
fn reply(value: &Value) -> Reply {
    match value {
        Value::Integer(number) => Reply::Whole(*number),
        Value::Number(number) => Reply::Whole(*number as i64),
        Value::Table(table) => {
            let values = table.sequence_values::<Value>().map_while(Result::ok);
            Reply::List(values.map(|value| reply(&value)).collect())
        }
        other => Reply::Text(other.to_string().unwrap_or_default()),
    }
}
