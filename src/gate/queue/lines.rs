//! Requests in lines. Each line is first in, first out, and lines of the same urgency take turns.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use super::Waiter;
use crate::{
    gate::{
        Client,
        preferences::{Rank, Urgency},
    },
    rules::Order,
    runtime::clock::Instant,
};

/// Requests of one urgency that go first in, first out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Line {
    urgency: Urgency,
    /// The client of these requests; `None` if all clients share them (`fifo`).
    client: Option<Client>,
}

impl Line {
    pub(super) fn new(client: &Client, order: Order, urgency: Urgency) -> Self {
        Self { urgency, client: (order == Order::Fair).then(|| client.clone()) }
    }

    pub(super) fn user(&self) -> Option<&Arc<str>> {
        self.client.as_ref().and_then(Client::user)
    }
}

/// Requests in lines: those of one urgency take turns.
#[derive(Debug)]
pub(super) struct Lines<S> {
    lines: HashMap<Line, VecDeque<Waiter<S>>>,
    turns: BTreeMap<Urgency, VecDeque<Line>>,
    pub(super) len: usize,
}

impl<S> Default for Lines<S> {
    fn default() -> Self {
        Self { lines: HashMap::new(), turns: BTreeMap::new(), len: 0 }
    }
}

impl<S> Lines<S> {
    pub(super) fn push(&mut self, line: Line, waiter: Waiter<S>, returns: bool) {
        let waiters = self.lines.entry(line.clone()).or_default();
        let new_line = waiters.is_empty();
        let at = waiters.partition_point(|other| other.seq < waiter.seq);
        waiters.insert(at, waiter);
        self.len += 1;
        let turns = self.turns.entry(line.urgency).or_default();
        if returns {
            turns.retain(|other| *other != line);
            turns.push_front(line);
        } else if new_line {
            turns.push_back(line);
        }
    }

    pub(super) fn next(&self) -> Option<&Waiter<S>> {
        let next_of = |turns: &VecDeque<Line>| self.lines.get(turns.front()?)?.front();
        self.turns.values().filter_map(next_of).min_by_key(|waiter| waiter.rank)
    }

    pub(super) fn pop(&mut self) -> Option<(Line, Waiter<S>)> {
        self.pop_where(|_| true)
    }

    /// Takes the next waiter out of the lines of a kind. The next turn of its line comes after all others.
    pub(super) fn pop_where(
        &mut self,
        is_one: impl Fn(&Line) -> bool,
    ) -> Option<(Line, Waiter<S>)> {
        let first = |(urgency, turns): (&Urgency, &VecDeque<Line>)| {
            let at = turns.iter().position(&is_one)?;
            Some((self.lines.get(&turns[at])?.front()?.rank, *urgency, at))
        };
        let (_, urgency, at) = self.turns.iter().filter_map(first).min()?;
        let line = self.turns.get_mut(&urgency)?.remove(at)?;
        let waiters = self.lines.get_mut(&line)?;
        let waiter = waiters.pop_front()?;
        self.len -= 1;
        if waiters.is_empty() {
            self.lines.remove(&line);
        } else {
            self.turns.entry(urgency).or_default().push_back(line.clone());
        }
        self.forget_empty(urgency);
        Some((line, waiter))
    }

    fn forget_empty(&mut self, urgency: Urgency) {
        if self.turns.get(&urgency).is_some_and(VecDeque::is_empty) {
            self.turns.remove(&urgency);
        }
    }

    pub(super) fn remove(&mut self, line: &Line, seq: u64) -> Option<Waiter<S>> {
        let waiters = self.lines.get_mut(line)?;
        let at = waiters.binary_search_by_key(&seq, |waiter| waiter.seq).ok()?;
        let waiter = waiters.remove(at)?;
        self.len -= 1;
        if waiters.is_empty() {
            self.lines.remove(line);
            self.turns.entry(line.urgency).or_default().retain(|other| other != line);
            self.forget_empty(line.urgency);
        }
        Some(waiter)
    }

    pub(super) fn append(&mut self, mut others: Self) {
        while let Some((line, waiter)) = others.pop() {
            self.push(line, waiter, false);
        }
    }

    /// Takes out all waiters of a kind from the lines of a kind, in their order.
    pub(super) fn extract(
        &mut self,
        of_line: impl Fn(&Line) -> bool,
        is_one: impl Fn(&Waiter<S>) -> bool,
    ) -> Self {
        let mut taken = Self::default();
        for line in self.turns.values().flatten().filter(|line| of_line(line)) {
            let Some(waiters) = self.lines.get_mut(line) else { continue };
            for waiter in std::mem::take(waiters) {
                if is_one(&waiter) {
                    taken.push(line.clone(), waiter, false);
                } else {
                    waiters.push_back(waiter);
                }
            }
        }
        self.len -= taken.len;
        self.lines.retain(|_, waiters| !waiters.is_empty());
        self.turns.retain(|_, turns| {
            turns.retain(|line| self.lines.contains_key(line));
            !turns.is_empty()
        });
        taken
    }

    /// How many of the current waiters are released before a new waiter of `line`, at worst.
    pub(super) fn ahead_of(&self, line: &Line, rank: Rank) -> usize {
        let own = self.lines.get(line).map_or(0, VecDeque::len);
        let lines = self.turns.get(&line.urgency).map_or(0, VecDeque::len) + usize::from(own == 0);
        if self.turns.keys().all(|urgency| *urgency == line.urgency) {
            return self.len.min((own + 1) * lines - 1);
        }
        let (mut alike, mut others) = (0, 0);
        for (other, waiters) in &self.lines {
            if other.urgency == line.urgency {
                alike += waiters.len();
            } else {
                others += waiters.partition_point(|waiter| waiter.rank <= rank);
            }
        }
        others + alike.min((own + 1) * lines - 1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiter<S>> {
        self.lines.values().flatten()
    }

    pub(super) fn oldest(&self) -> Option<Instant> {
        self.lines.values().filter_map(|line| line.front()).map(|waiter| waiter.since).min()
    }
}
