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
    health::{Health, HealthState},
    keys::{Answer, Keys},
};

/// Messages that wait for a slow member, as with the real client.
const NEWS: usize = 4_096;

/// Calls of one script.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ran {
    /// Number of calls.
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
    /// The start of its clock, in microseconds.
    offset: Mutex<i64>,
    ran: Mutex<HashMap<&'static str, Ran>>,
    /// The health of the server, for all members.
    pub(super) health: HealthState,
}

/// The data of a virtual Redis at some time.
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
    /// A virtual Redis whose clock starts at `offset` (microseconds since 1970).
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
            health: HealthState::default(),
        })
    }

    /// Its clock, in microseconds.
    #[must_use]
    pub fn now(&self) -> i64 {
        *self.offset.lock() + clock::micros(clock::now() - self.start)
    }

    /// The time at which its clock shows so many microseconds.
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

    /// Sets whether it executes and answers calls.
    pub fn set(&self, health: Health) {
        self.health.set(health);
    }

    /// Runs a script: atomically, and in no virtual time.
    ///
    /// # Errors
    /// The error of the script or the interpreter.
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

    /// Future messages on `channel`. Pushes take no virtual time.
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

    /// Its current data.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.keys.lock().clone())
    }

    /// Replaces the data by an earlier copy: a lagging replica takes over, or the server restarts
    /// from its disk.
    pub fn replace(&self, knows: Snapshot) {
        let mut lua = self.lua.lock();
        *lua = Interpreter::start(&self.keys, &self.news, Arc::clone(&lua.now));
        *self.keys.lock() = knows.0;
    }

    /// Keys without a TTL, which are always a bug.
    #[must_use]
    pub fn immortal_keys(&self) -> Vec<String> {
        self.keys.lock().immortal()
    }

    /// The calls of a script so far.
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

/// Provides `redis.call` and `redis.pcall` to the scripts.
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
                    // An error means that there is no subscriber.
                    sender.send(text).unwrap_or(0)
                });
                Ok(Value::Number(exact(i64::try_from(heard).unwrap_or(i64::MAX))))
            }
            Answer::Row(row) => {
                let table = lua.create_table_with_capacity(row.len(), 0)?;
                for (at, value) in row.into_iter().enumerate() {
                    match value {
                        Some(text) => table.raw_set(at + 1, text)?,
                        // Like Redis does: nil would end the table.
                        None => table.raw_set(at + 1, false)?,
                    }
                }
                Ok(Value::Table(table))
            }
        }
    })?;
    // Behaves as if the user lacked the permission.
    let refused = lua.create_function(|lua, _: MultiValue| lua.create_table())?;
    let redis = lua.create_table()?;
    redis.set("call", call)?;
    redis.set("pcall", refused)?;
    lua.globals().set("redis", redis)
}

/// A script's value as Redis would send it: numbers lose their fraction, and tables end at the
/// first nil.
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
