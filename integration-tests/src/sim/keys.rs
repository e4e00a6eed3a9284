//! The keys of a virtual Redis: the few commands that the scripts use, on the virtual clock.

use std::collections::{BTreeMap, HashMap};

/// The content of a key.
#[derive(Debug, Clone)]
enum Kind {
    Hash(HashMap<String, String>),
    Sorted(BTreeMap<String, f64>),
}

impl Kind {
    fn is_empty(&self) -> bool {
        match self {
            Self::Hash(hash) => hash.is_empty(),
            Self::Sorted(sorted) => sorted.is_empty(),
        }
    }
}

#[derive(Debug, Clone)]
struct Key {
    kind: Kind,
    /// Microseconds of the virtual clock.
    expires: Option<i64>,
}

/// The reply to a command.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    /// An integer.
    Whole(i64),
    /// An array of strings, some of them nil.
    Row(Vec<Option<String>>),
    /// A message to publish: channel and text.
    Publish(String, String),
}

/// All keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys(HashMap<String, Key>);

impl Keys {
    /// Runs one command at `now` (microseconds).
    ///
    /// # Errors
    /// A command that is not implemented.
    pub(super) fn run(&mut self, now: i64, words: &[String]) -> Result<Answer, String> {
        let answer = self.command(now, words);
        // A key without content does not exist.
        if let Some(name) = words.get(1)
            && self.0.get(name).is_some_and(|key| key.kind.is_empty())
        {
            self.0.remove(name);
        }
        answer
    }

    fn command(&mut self, now: i64, words: &[String]) -> Result<Answer, String> {
        let [command, rest @ ..] = words else { return Err("an empty command".to_owned()) };
        let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
        match (command.as_str(), rest.as_slice()) {
            ("TIME", []) => Ok(Answer::Row(vec![
                Some((now / 1_000_000).to_string()),
                Some((now % 1_000_000).to_string()),
            ])),
            ("PUBLISH", [channel, text]) => {
                Ok(Answer::Publish((*channel).to_owned(), (*text).to_owned()))
            }
            ("HMGET", [key, fields @ ..]) => {
                let hash = self.hash(now, key)?;
                Ok(Answer::Row(fields.iter().map(|field| hash.get(*field).cloned()).collect()))
            }
            ("HSET", [key, pairs @ ..]) if pairs.len() % 2 == 0 => {
                let hash = self.hash(now, key)?;
                for pair in pairs.chunks_exact(2) {
                    hash.insert(pair[0].to_owned(), pair[1].to_owned());
                }
                Ok(Answer::Whole(0))
            }
            ("HGETALL", [key]) => {
                let hash = self.hash(now, key)?;
                let pairs = hash.iter().flat_map(|(field, value)| [field.clone(), value.clone()]);
                Ok(Answer::Row(pairs.map(Some).collect()))
            }
            ("HDEL", [key, field]) => {
                Ok(Answer::Whole(i64::from(self.hash(now, key)?.remove(*field).is_some())))
            }
            ("HLEN", [key]) => {
                Ok(Answer::Whole(i64::try_from(self.hash(now, key)?.len()).unwrap_or(i64::MAX)))
            }
            ("DEL", [key]) => Ok(Answer::Whole(i64::from(self.0.remove(*key).is_some()))),
            ("ZADD", [key, score, member]) => {
                let score = number(score)?;
                let old = self.sorted(now, key)?.insert((*member).to_owned(), score);
                Ok(Answer::Whole(i64::from(old.is_none())))
            }
            ("ZREM", [key, member]) => {
                Ok(Answer::Whole(i64::from(self.sorted(now, key)?.remove(*member).is_some())))
            }
            ("ZREMRANGEBYSCORE", [key, "-inf", most]) => {
                let most = number(most)?;
                self.sorted(now, key)?.retain(|_, score| *score > most);
                Ok(Answer::Whole(0))
            }
            ("ZRANGE", [key, "0", "0"]) => {
                let least = self.sorted(now, key)?.iter().min_by(|a, b| a.1.total_cmp(b.1));
                Ok(Answer::Row(least.map(|(member, _)| Some(member.clone())).into_iter().collect()))
            }
            ("ZCARD", [key]) => {
                Ok(Answer::Whole(i64::try_from(self.sorted(now, key)?.len()).unwrap_or(i64::MAX)))
            }
            ("PEXPIRE", [key, millis]) => {
                let millis: i64 = millis.parse().map_err(|_| format!("PEXPIRE {millis}"))?;
                if let Some(key) = self.0.get_mut(*key) {
                    key.expires = Some(now + millis * 1_000);
                }
                Ok(Answer::Whole(1))
            }
            _ => Err(format!("the virtual Redis has no `{}`", words.join(" "))),
        }
    }

    /// FLUSHALL.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Keys without a TTL.
    pub(super) fn immortal(&self) -> Vec<String> {
        let all = self.0.iter().filter(|(_, key)| key.expires.is_none());
        all.map(|(name, _)| name.clone()).collect()
    }

    fn entry(&mut self, now: i64, name: &str, new: Kind) -> &mut Kind {
        if self.0.get(name).is_some_and(|key| key.expires.is_some_and(|at| at <= now)) {
            self.0.remove(name);
        }
        let key = || Key { kind: new, expires: None };
        &mut self.0.entry(name.to_owned()).or_insert_with(key).kind
    }

    fn hash(&mut self, now: i64, name: &str) -> Result<&mut HashMap<String, String>, String> {
        match self.entry(now, name, Kind::Hash(HashMap::new())) {
            Kind::Hash(hash) => Ok(hash),
            Kind::Sorted(_) => Err(format!("WRONGTYPE {name}")),
        }
    }

    fn sorted(&mut self, now: i64, name: &str) -> Result<&mut BTreeMap<String, f64>, String> {
        match self.entry(now, name, Kind::Sorted(BTreeMap::new())) {
            Kind::Sorted(sorted) => Ok(sorted),
            Kind::Hash(_) => Err(format!("WRONGTYPE {name}")),
        }
    }
}

fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}
