//! The queue of one scope: who waits, in which order they go, when they give up.
//!
//! `fair`: clients take turns, each first in first out, so that one crawler with a thousand connections does not
//! starve another with one. `fifo`: all in one line. A request that had its leave and lost it to a trip keeps its place.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use tokio::sync::oneshot;

use super::{Client, Outcome};
use crate::{rules::Order, runtime::clock::Instant};

/// One held request.
#[derive(Debug)]
pub(super) struct Waiter {
    /// Its place in the order of arrival, kept when it has to come back.
    pub(super) seq: u64,
    /// When it gives up.
    pub(super) deadline: Instant,
    /// When it came into the queue.
    pub(super) since: Instant,
    /// Where its outcome goes.
    pub(super) tell: oneshot::Sender<Outcome>,
}

/// Whose turn: a client, or everybody (`fifo`).
type Line = Option<Client>;

/// What is remembered of a held request until the store's first answer after its arrival: before that answer nobody
/// knows when it could go, so it is not refused, however short its deadline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unjudged {
    pub(super) deadline: Instant,
    /// Requests before it when it came.
    pub(super) ahead: usize,
    /// Requests that had been let go when it came.
    pub(super) turns: u64,
}

/// The queue of one scope in this process.
#[derive(Debug, Default)]
pub(super) struct Queue {
    lines: HashMap<Line, VecDeque<Waiter>>,
    turns: VecDeque<Line>,
    /// The line of each held request, by its place in the order of arrival.
    places: HashMap<u64, Line>,
    /// When each gives up.
    deadlines: BTreeSet<(Instant, u64)>,
    unjudged: BTreeMap<u64, Unjudged>,
}

impl Queue {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many go before a newcomer of `client`, at the worst.
    pub(super) fn ahead_of(&self, client: &Client, order: Order) -> usize {
        if order == Order::Fifo {
            return self.len();
        }
        let own = self.lines.get(&Some(client.clone())).map_or(0, VecDeque::len);
        let clients = self.turns.len() + usize::from(own == 0);
        self.len().min((own + 1) * clients - 1)
    }

    /// Adds a request. One that `returns` (it had its leave) goes to the head of its line, and its line goes next.
    pub(super) fn push(&mut self, client: Client, order: Order, waiter: Waiter, returns: bool) {
        let line = (order == Order::Fair).then_some(client);
        self.places.insert(waiter.seq, line.clone());
        self.deadlines.insert((waiter.deadline, waiter.seq));
        let waiters = self.lines.entry(line.clone()).or_default();
        let new_line = waiters.is_empty();
        let at = waiters.partition_point(|other| other.seq < waiter.seq);
        waiters.insert(at, waiter);
        if returns {
            self.turns.retain(|other| *other != line);
            self.turns.push_front(line);
        } else if new_line {
            self.turns.push_back(line);
        }
    }

    /// When the one that has waited longest came.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.lines.values().filter_map(|line| line.front()).map(|waiter| waiter.since).min()
    }

    /// The next to go.
    pub(super) fn pop(&mut self) -> Option<Waiter> {
        let line = self.turns.pop_front()?;
        let waiters = self.lines.get_mut(&line)?;
        let waiter = waiters.pop_front()?;
        if waiters.is_empty() {
            self.lines.remove(&line);
        } else {
            self.turns.push_back(line);
        }
        self.forget(&waiter);
        Some(waiter)
    }

    /// The request that was just added cannot be judged before the store answers; for an answer that judges nothing, it
    /// waits until `latest`.
    pub(super) fn judge_later(&mut self, seq: u64, unjudged: Unjudged, latest: Instant) {
        self.unjudged.insert(seq, unjudged);
        self.set_deadline(seq, latest);
    }

    /// Those that have not been judged, in the order of their arrival.
    pub(super) fn unjudged(&self) -> Vec<(u64, Unjudged)> {
        self.unjudged.iter().map(|(seq, unjudged)| (*seq, *unjudged)).collect()
    }

    /// A request will go in time; `by` is when it gives up if it does not.
    pub(super) fn set_judged(&mut self, seq: u64, by: Instant) {
        if self.unjudged.remove(&seq).is_some() {
            self.set_deadline(seq, by);
        }
    }

    fn set_deadline(&mut self, seq: u64, by: Instant) {
        let Some(waiters) = self.places.get(&seq).and_then(|line| self.lines.get_mut(line)) else {
            return;
        };
        if let Ok(at) = waiters.binary_search_by_key(&seq, |waiter| waiter.seq) {
            self.deadlines.remove(&(waiters[at].deadline, seq));
            waiters[at].deadline = by;
            self.deadlines.insert((by, seq));
        }
    }

    /// Takes out a request; `None` where it is not here any more.
    pub(super) fn remove(&mut self, seq: u64) -> Option<Waiter> {
        let line = self.places.get(&seq)?.clone();
        let waiter = self.take_from(&line, seq)?;
        self.forget(&waiter);
        Some(waiter)
    }

    /// When the next one gives up.
    pub(super) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The latest moment at which one of them may go.
    pub(super) fn last_deadline(&self) -> Option<Instant> {
        let unjudged = self.unjudged.values().map(|unjudged| unjudged.deadline).max();
        let judged = |(_, seq): &&(Instant, u64)| !self.unjudged.contains_key(seq);
        self.deadlines.iter().rev().find(judged).map(|(deadline, _)| *deadline).max(unjudged)
    }

    /// Takes out one whose deadline is before `moment`.
    pub(super) fn pop_hopeless(&mut self, moment: Instant) -> Option<Waiter> {
        let (deadline, seq) = *self.deadlines.first()?;
        if deadline >= moment { None } else { self.remove(seq) }
    }

    fn forget(&mut self, waiter: &Waiter) {
        self.places.remove(&waiter.seq);
        self.deadlines.remove(&(waiter.deadline, waiter.seq));
        self.unjudged.remove(&waiter.seq);
    }

    fn take_from(&mut self, line: &Line, seq: u64) -> Option<Waiter> {
        let waiters = self.lines.get_mut(line)?;
        let at = waiters.binary_search_by_key(&seq, |waiter| waiter.seq).ok()?;
        let waiter = waiters.remove(at);
        if waiters.is_empty() {
            self.lines.remove(line);
            self.turns.retain(|other| other != line);
        }
        waiter
    }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, time::Duration};

    use super::*;
    use crate::runtime::clock;

    fn client(last: u8) -> Client {
        Client::Address(IpAddr::from([10, 0, 0, last]))
    }

    fn waiter(seq: u64) -> Waiter {
        let deadline = clock::now() + Duration::from_secs(60 + seq);
        Waiter { seq, deadline, since: clock::now(), tell: oneshot::channel().0 }
    }

    fn order_of(queue: &mut Queue) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop().map(|waiter| waiter.seq)).collect()
    }

    #[test]
    fn clients_take_turns_and_each_goes_first_in_first_out() {
        let mut queue = Queue::default();
        for seq in 0..4 {
            queue.push(client(1), Order::Fair, waiter(seq), false);
        }
        queue.push(client(2), Order::Fair, waiter(4), false);
        assert_eq!(queue.ahead_of(&client(3), Order::Fair), 2);
        assert_eq!(queue.ahead_of(&client(1), Order::Fair), 5);
        assert_eq!(order_of(&mut queue), [0, 4, 1, 2, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn fifo_keeps_one_line() {
        let mut queue = Queue::default();
        queue.push(client(1), Order::Fifo, waiter(0), false);
        queue.push(client(1), Order::Fifo, waiter(1), false);
        queue.push(client(2), Order::Fifo, waiter(2), false);
        assert_eq!(order_of(&mut queue), [0, 1, 2]);
    }

    #[test]
    fn a_request_that_comes_back_goes_first() {
        let mut queue = Queue::default();
        queue.push(client(1), Order::Fair, waiter(5), false);
        queue.push(client(2), Order::Fair, waiter(6), false);
        queue.push(client(2), Order::Fair, waiter(1), true);
        assert_eq!(order_of(&mut queue), [1, 5, 6]);
    }

    #[test]
    fn a_request_that_comes_back_goes_first_also_where_nobody_of_its_client_waits() {
        for order in [Order::Fair, Order::Fifo] {
            let mut queue = Queue::default();
            queue.push(client(1), order, waiter(5), false);
            queue.push(client(2), order, waiter(6), false);
            queue.push(client(3), order, waiter(1), true);
            assert_eq!(order_of(&mut queue), [1, 5, 6], "{order:?}");
        }
    }

    #[test]
    fn who_has_not_been_judged_does_not_give_up() {
        let mut queue = Queue::default();
        let (deadline, late) = (clock::now(), clock::now() + Duration::from_secs(1));
        let now = Waiter { seq: 0, deadline, since: deadline, tell: oneshot::channel().0 };
        queue.push(client(1), Order::Fair, now, false);
        queue.judge_later(0, Unjudged { deadline, ahead: 0, turns: 0 }, late);
        assert!(queue.pop_hopeless(late).is_none());
        assert_eq!((queue.first_deadline(), queue.last_deadline()), (Some(late), Some(deadline)));
        queue.set_judged(0, late);
        assert!(queue.unjudged().is_empty() && queue.pop_hopeless(late).is_none());
        assert_eq!(queue.first_deadline(), Some(late));
        assert!(queue.pop_hopeless(late + Duration::from_secs(1)).is_some() && queue.is_empty());
    }

    #[test]
    fn who_leaves_or_gives_up_frees_the_place() {
        let mut queue = Queue::default();
        let gone = waiter(0);
        let seq = gone.seq;
        queue.push(client(1), Order::Fair, gone, false);
        queue.push(client(2), Order::Fair, waiter(1), false);
        assert_eq!(queue.len(), 2);
        assert!(queue.remove(seq).is_some());
        assert!(queue.remove(seq).is_none() && queue.len() == 1);
        assert!(queue.pop_hopeless(clock::now()).is_none());
        let late = clock::now() + Duration::from_secs(120);
        assert_eq!(queue.pop_hopeless(late).map(|waiter| waiter.seq), Some(1));
        assert!(queue.is_empty() && queue.pop().is_none());
    }
}
