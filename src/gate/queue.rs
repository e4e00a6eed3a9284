//! The requests that wait for one bucket: their order, and when they time out.
//!
//! - More urgent requests are released first ([`Rank`]).
//! - `fair`: clients take turns among requests of the same urgency, and each client's requests are first in, first out.
//!   So a crawler with a thousand connections does not starve one with a single connection. `fifo`: all requests of the
//!   same urgency are in one line.
//! - A request that lost its permit to a trip keeps its place.
//! - A user over its own limits (`each_user`) is blocked for a while. Its requests keep their order, and those of
//!   others pass them.
//! - Each request belongs to a scope `S`. While a scope is closed its requests are parked: they keep their order, and
//!   the requests of other scopes pass them.

mod lines;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::Hash,
    sync::Arc,
};

use tokio::sync::oneshot;

use self::lines::{Line, Lines};
use super::{Client, Outcome, preferences::Rank};
use crate::{rules::Order, runtime::clock::Instant};

/// One held request.
#[derive(Debug)]
pub(super) struct Waiter<S> {
    /// Its number in the order of arrival. It keeps the number if it returns.
    pub(super) seq: u64,
    /// When it times out, unless the queue decides otherwise.
    pub(super) deadline: Instant,
    /// When it joined the queue.
    pub(super) since: Instant,
    /// Its place among requests of other urgencies.
    pub(super) rank: Rank,
    /// The scope that it belongs to.
    pub(super) scope: S,
    /// Receives its outcome.
    pub(super) sender: oneshot::Sender<Outcome>,
}

/// A held request without a reply of the store so far. It is not refused, however short its deadline is, because it is
/// not yet known when it could be sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unjudged {
    pub(super) deadline: Instant,
    /// Requests in front of it on arrival.
    pub(super) ahead: usize,
    /// Requests released before its arrival.
    pub(super) turns: u64,
}

/// The position of a request.
#[derive(Debug)]
struct Place<S> {
    client: Client,
    line: Line,
    scope: S,
    /// When it times out. Until it is judged, this is later than its own deadline.
    deadline: Instant,
}

/// The requests of a user over its own limits.
#[derive(Debug)]
struct Blocked<S> {
    until: Instant,
    lines: Lines<S>,
}

/// The requests that wait for one bucket in this process.
#[derive(Debug)]
pub(super) struct Queue<S> {
    /// Requests that wait for nothing but a ticket.
    ready: Lines<S>,
    /// Requests of closed scopes.
    parked: HashMap<S, Lines<S>>,
    /// Requests of users over their own limits, of all scopes.
    blocked: HashMap<Arc<str>, Blocked<S>>,
    places: HashMap<u64, Place<S>>,
    /// Requests of each scope.
    counts: HashMap<S, usize>,
    /// The deadline of each request.
    deadlines: BTreeSet<(Instant, u64)>,
    unjudged: BTreeMap<u64, Unjudged>,
}

impl<S> Default for Queue<S> {
    fn default() -> Self {
        Self {
            ready: Lines::default(),
            parked: HashMap::new(),
            blocked: HashMap::new(),
            places: HashMap::new(),
            counts: HashMap::new(),
            deadlines: BTreeSet::new(),
            unjudged: BTreeMap::new(),
        }
    }
}

impl<S: Clone + Eq + Hash> Queue<S> {
    /// How many requests wait.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many requests wait for nothing but a ticket.
    pub(super) fn ready(&self) -> usize {
        self.ready.len
    }

    /// How many requests of `scope` wait.
    pub(super) fn of_scope(&self, scope: &S) -> usize {
        self.counts.get(scope).copied().unwrap_or(0)
    }

    /// The scopes that have requests here.
    pub(super) fn scopes(&self) -> impl Iterator<Item = &S> {
        self.counts.keys()
    }

    /// The scopes with parked requests.
    pub(super) fn parked(&self) -> impl Iterator<Item = &S> {
        self.parked.keys()
    }

    /// The scope of a request.
    pub(super) fn scope_of(&self, seq: u64) -> Option<&S> {
        self.places.get(&seq).map(|place| &place.scope)
    }

    /// How many of the current requests are released before a new one of `client`, `rank` and `scope`, at worst.
    pub(super) fn ahead_of(&self, client: &Client, order: Order, rank: Rank, scope: &S) -> usize {
        let lines = self.parked.get(scope).unwrap_or(&self.ready);
        lines.ahead_of(&Line::new(client, order, rank.urgency), rank)
    }

    /// Adds a request. A request that `returns` (it had a permit) goes to the head of its line, and its line is next.
    pub(super) fn push(&mut self, client: &Client, order: Order, waiter: Waiter<S>, returns: bool) {
        let line = Line::new(client, order, waiter.rank.urgency);
        let scope = waiter.scope.clone();
        *self.counts.entry(scope.clone()).or_default() += 1;
        self.deadlines.insert((waiter.deadline, waiter.seq));
        let (client, deadline) = (client.clone(), waiter.deadline);
        let place = Place { client, line: line.clone(), scope: scope.clone(), deadline };
        self.places.insert(waiter.seq, place);
        self.lines_of(&line, &scope).push(line, waiter, returns);
    }

    /// Puts all requests into the lines of another order, because a reload has changed it.
    pub(super) fn reorder(&mut self, order: Order) {
        let blocked = self.blocked.values_mut().map(|blocked| &mut blocked.lines);
        let ready = std::iter::once(&mut self.ready);
        for lines in ready.chain(self.parked.values_mut()).chain(blocked) {
            let mut old = std::mem::take(lines);
            while let Some((_, waiter)) = old.pop() {
                let Some(place) = self.places.get_mut(&waiter.seq) else { continue };
                place.line = Line::new(&place.client, order, waiter.rank.urgency);
                lines.push(place.line.clone(), waiter, false);
            }
        }
    }

    /// The lines that have the requests of a line and a scope.
    fn lines_of(&mut self, line: &Line, scope: &S) -> &mut Lines<S> {
        let blocked = line.user().and_then(|user| self.blocked.get_mut(user));
        match (blocked, self.parked.get_mut(scope)) {
            (Some(blocked), _) => &mut blocked.lines,
            (None, Some(parked)) => parked,
            (None, None) => &mut self.ready,
        }
    }

    /// The user of the next request that is not parked.
    pub(super) fn next_user(&self) -> Option<Arc<str>> {
        let place = self.places.get(&self.ready.next()?.seq)?;
        place.line.user().map(Arc::clone)
    }

    /// Takes out the next request of this user that is not parked.
    pub(super) fn pop_of_user(&mut self, user: Option<&Arc<str>>) -> Option<Waiter<S>> {
        let (_, waiter) = self.ready.pop_where(|line| line.user() == user)?;
        self.forget(&waiter);
        Some(waiter)
    }

    /// When the user is no longer blocked.
    pub(super) fn blocked_until(&self, user: &str) -> Option<Instant> {
        self.blocked.get(user).map(|blocked| blocked.until)
    }

    /// When the first user is no longer blocked.
    pub(super) fn first_unblocked(&self) -> Option<Instant> {
        self.blocked.values().map(|blocked| blocked.until).min()
    }

    /// Blocks the current and future requests of a user. Returns the numbers of the current ones.
    pub(super) fn block(&mut self, user: &Arc<str>, until: Instant) -> Vec<u64> {
        let is_theirs = |line: &Line| line.user() == Some(user);
        let mut lines = self.blocked.remove(user).map(|old| old.lines).unwrap_or_default();
        for from in std::iter::once(&mut self.ready).chain(self.parked.values_mut()) {
            lines.append(from.extract(is_theirs, |_| true));
        }
        let all = lines.iter().map(|waiter| waiter.seq).collect();
        self.blocked.insert(Arc::clone(user), Blocked { until, lines });
        all
    }

    /// Resumes the users who may get a token again.
    pub(super) fn unblock(&mut self, now: Instant) {
        self.unblock_if(|blocked| blocked.until <= now);
    }

    /// Resumes all users, because the limits have changed.
    pub(super) fn unblock_all(&mut self) {
        self.unblock_if(|_| true);
    }

    fn unblock_if(&mut self, is_due: impl Fn(&Blocked<S>) -> bool) {
        let due: Vec<_> = self.blocked.extract_if(|_, blocked| is_due(blocked)).collect();
        for (_, blocked) in due {
            let mut lines = blocked.lines;
            while let Some((line, waiter)) = lines.pop() {
                let scope = waiter.scope.clone();
                self.lines_of(&line, &scope).push(line, waiter, false);
            }
        }
    }

    /// Until when a request can wait.
    pub(super) fn deadline_of(&self, seq: u64) -> Option<Instant> {
        let unjudged = self.unjudged.get(&seq).map(|unjudged| unjudged.deadline);
        unjudged.or_else(|| self.places.get(&seq).map(|place| place.deadline))
    }

    /// Parks the current and future requests of a closed scope.
    pub(super) fn park(&mut self, scope: &S) {
        if self.parked.contains_key(scope) {
            return;
        }
        let lines = match self.of_scope(scope) {
            0 => Lines::default(),
            all if all == self.ready.len && self.blocked.is_empty() => {
                std::mem::take(&mut self.ready)
            }
            _ => self.ready.extract(|_| true, |waiter| waiter.scope == *scope),
        };
        self.parked.insert(scope.clone(), lines);
    }

    /// Resumes a scope: its requests wait for a ticket like all others.
    pub(super) fn resume(&mut self, scope: &S) {
        let Some(lines) = self.parked.remove(scope) else { return };
        if self.ready.len == 0 {
            self.ready = lines;
            return;
        }
        self.ready.append(lines);
    }

    /// When the request that has waited longest came.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let blocked = self.blocked.values().map(|blocked| &blocked.lines);
        let all = std::iter::once(&self.ready).chain(self.parked.values()).chain(blocked);
        all.filter_map(Lines::oldest).min()
    }

    /// The scope of the next request that is not parked.
    pub(super) fn next_scope(&self) -> Option<&S> {
        self.ready.next().map(|waiter| &waiter.scope)
    }

    /// Takes out the next request that is not parked.
    pub(super) fn pop(&mut self) -> Option<Waiter<S>> {
        let (_, waiter) = self.ready.pop()?;
        self.forget(&waiter);
        Some(waiter)
    }

    /// Takes out the next request of a scope, parked or not.
    pub(super) fn pop_of(&mut self, scope: &S) -> Option<Waiter<S>> {
        let waiter = match self.parked.get_mut(scope) {
            Some(lines) if lines.len > 0 => lines.pop()?.1,
            _ => {
                let blocked = self.blocked.values().flat_map(|blocked| blocked.lines.iter());
                let all = self.ready.iter().chain(blocked);
                let own = all.filter(|waiter| waiter.scope == *scope);
                let first = own.min_by_key(|waiter| (waiter.rank, waiter.seq))?.seq;
                return self.remove(first);
            }
        };
        self.forget(&waiter);
        Some(waiter)
    }

    /// Takes out any request, parked or not.
    pub(super) fn pop_any(&mut self) -> Option<Waiter<S>> {
        let seq = *self.places.keys().next()?;
        self.remove(seq)
    }

    /// Marks a new request that cannot be judged before the store replies. If no reply judges it, it waits until
    /// `latest`.
    pub(super) fn judge_later(&mut self, seq: u64, unjudged: Unjudged, latest: Instant) {
        self.unjudged.insert(seq, unjudged);
        self.set_deadline(seq, latest);
    }

    /// The requests that have not been judged, in the order of their arrival.
    pub(super) fn unjudged(&self) -> Vec<(u64, Unjudged)> {
        self.unjudged.iter().map(|(seq, unjudged)| (*seq, *unjudged)).collect()
    }

    /// Marks a request that will be released in time. It times out at `by` otherwise.
    pub(super) fn set_judged(&mut self, seq: u64, by: Instant) {
        if self.unjudged.remove(&seq).is_some() {
            self.set_deadline(seq, by);
        }
    }

    fn set_deadline(&mut self, seq: u64, by: Instant) {
        let Some(place) = self.places.get_mut(&seq) else { return };
        self.deadlines.remove(&(std::mem::replace(&mut place.deadline, by), seq));
        self.deadlines.insert((by, seq));
    }

    /// Removes a request; `None` if it is no longer here.
    pub(super) fn remove(&mut self, seq: u64) -> Option<Waiter<S>> {
        let Place { line, scope, .. } = self.places.get(&seq)?;
        let (line, scope) = (line.clone(), scope.clone());
        let waiter = self.lines_of(&line, &scope).remove(&line, seq)?;
        self.forget(&waiter);
        Some(waiter)
    }

    /// When the next request times out.
    pub(super) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The latest deadline of all requests.
    pub(super) fn last_deadline(&self) -> Option<Instant> {
        let unjudged = self.unjudged.values().map(|unjudged| unjudged.deadline).max();
        let judged = |(_, seq): &&(Instant, u64)| !self.unjudged.contains_key(seq);
        self.deadlines.iter().rev().find(judged).map(|(deadline, _)| *deadline).max(unjudged)
    }

    /// Removes a request whose deadline is before `moment`.
    pub(super) fn pop_hopeless(&mut self, moment: Instant) -> Option<Waiter<S>> {
        let (deadline, seq) = *self.deadlines.first()?;
        if deadline >= moment { None } else { self.remove(seq) }
    }

    /// Removes the parked requests of a scope whose deadlines are before `moment`.
    pub(super) fn take_hopeless(&mut self, scope: &S, moment: Instant) -> Vec<Waiter<S>> {
        let Some(lines) = self.parked.get(scope) else { return Vec::new() };
        let is_late = |seq: &u64| self.places.get(seq).is_some_and(|at| at.deadline < moment);
        let late: Vec<u64> = lines.iter().map(|waiter| waiter.seq).filter(is_late).collect();
        late.into_iter().filter_map(|seq| self.remove(seq)).collect()
    }

    fn forget(&mut self, waiter: &Waiter<S>) {
        if let Some(place) = self.places.remove(&waiter.seq) {
            self.deadlines.remove(&(place.deadline, waiter.seq));
        }
        self.unjudged.remove(&waiter.seq);
        if let Some(count) = self.counts.get_mut(&waiter.scope) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&waiter.scope);
                self.parked.remove(&waiter.scope);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, time::Duration};

    use super::*;
    use crate::{gate::Urgency, runtime::clock};

    fn client(last: u8) -> Client {
        Client::Address(IpAddr::from([10, 0, 0, last]))
    }

    fn waiter(seq: u64) -> Waiter<char> {
        of('a', seq)
    }

    fn of(scope: char, seq: u64) -> Waiter<char> {
        let deadline = clock::now() + Duration::from_secs(60 + seq);
        Waiter {
            seq,
            deadline,
            since: clock::now(),
            rank: rank(3),
            scope,
            sender: oneshot::channel().0,
        }
    }

    /// The rank of a request that arrives at `arrival`, if a step of urgency takes a second.
    fn rank_at(arrival: Instant, urgency: u8) -> Rank {
        let urgency = Urgency::new(urgency).expect("0 to 7");
        Rank::new(arrival, urgency, Duration::from_secs(10))
    }

    /// The rank of a request that arrives now.
    fn rank(urgency: u8) -> Rank {
        rank_at(clock::now(), urgency)
    }

    fn urgent(seq: u64, urgency: u8, ago: f64) -> Waiter<char> {
        let arrival = clock::now() - Duration::from_secs_f64(ago);
        Waiter { rank: rank_at(arrival, urgency), ..waiter(seq) }
    }

    /// A request that had its permit.
    fn back(seq: u64) -> Waiter<char> {
        Waiter { rank: Rank::FIRST, ..waiter(seq) }
    }

    fn order_of(queue: &mut Queue<char>) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop().map(|waiter| waiter.seq)).collect()
    }

    #[test]
    fn clients_take_turns_and_each_goes_first_in_first_out() {
        let mut queue = Queue::default();
        for seq in 0..4 {
            queue.push(&client(1), Order::Fair, waiter(seq), false);
        }
        queue.push(&client(2), Order::Fair, waiter(4), false);
        assert_eq!(queue.ahead_of(&client(3), Order::Fair, rank(3), &'a'), 2);
        assert_eq!(queue.ahead_of(&client(1), Order::Fair, rank(3), &'a'), 5);
        assert_eq!(order_of(&mut queue), [0, 4, 1, 2, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn urgent_requests_go_first_and_each_rises_a_step_with_every_tenth_of_its_wait() {
        for order in [Order::Fair, Order::Fifo] {
            let mut queue = Queue::default();
            // Urgency 7 has risen by four and a half steps, so it is now between 2 and 3.
            let all = [(7, 4.5), (6, 2.5), (3, 0.0), (2, 0.0), (0, 0.0)];
            for (seq, (urgency, ago)) in (1..).zip(all) {
                queue.push(&client(urgency), order, urgent(seq, urgency, ago), false);
            }
            assert_eq!(queue.ahead_of(&client(9), order, rank(1), &'a'), 1);
            assert_eq!(queue.ahead_of(&client(9), order, rank(3), &'a'), 4);
            queue.push(&client(1), order, back(0), true);
            assert_eq!(order_of(&mut queue), [0, 5, 4, 1, 3, 2], "{order:?}");
        }
    }

    #[test]
    fn clients_take_turns_within_an_urgency() {
        let mut queue = Queue::default();
        for (seq, (who, urgency)) in (0..).zip([(1, 5), (1, 5), (2, 5), (1, 2), (1, 2), (2, 2)]) {
            queue.push(&client(who), Order::Fair, urgent(seq, urgency, 0.0), false);
        }
        queue.park(&'a');
        assert_eq!((queue.ready(), queue.of_scope(&'a')), (0, 6));
        queue.resume(&'a');
        assert_eq!(order_of(&mut queue), [3, 5, 4, 0, 2, 1]);
    }

    /// Even under a constant load of urgent requests, another request is released once it has risen above them.
    #[test]
    fn no_client_starves() {
        let mut queue = Queue::default();
        let start = clock::now();
        queue.push(&client(1), Order::Fair, urgent(0, 7, 0.0), false);
        let gone = (1..100).find(|seq| {
            // One arrives and one is released every tenth of a step.
            let now =
                start + Duration::from_millis(100) * u32::try_from(*seq).expect("it is small");
            let rank = rank_at(now, 0);
            queue.push(&client(2), Order::Fair, Waiter { rank, ..waiter(*seq) }, false);
            queue.pop().is_some_and(|waiter| waiter.seq == 0)
        });
        assert_eq!(gone, Some(71), "seven steps later");
    }

    #[test]
    fn fifo_keeps_one_queue() {
        let mut queue = Queue::default();
        queue.push(&client(1), Order::Fifo, waiter(0), false);
        queue.push(&client(1), Order::Fifo, waiter(1), false);
        queue.push(&client(2), Order::Fifo, waiter(2), false);
        assert_eq!(order_of(&mut queue), [0, 1, 2]);
    }

    #[test]
    fn held_requests_take_the_order_of_a_new_rule_file() {
        let mut queue = Queue::default();
        for (seq, who) in (0..).zip(["alice", "alice", "bob", "alice"]) {
            queue.push(&user(who), Order::Fifo, of(['a', 'b'][usize::from(seq > 2)], seq), false);
        }
        queue.park(&'b');
        queue.reorder(Order::Fair);
        assert_eq!(queue.next_user(), Some("alice".into()));
        assert_eq!(queue.pop().map(|waiter| waiter.seq), Some(0));
        assert_eq!(queue.next_user(), Some("bob".into()), "users take turns");
        queue.resume(&'b');
        assert_eq!(queue.block(&"alice".into(), clock::now()), [1, 3], "parked or not");
        queue.unblock_all();
        queue.reorder(Order::Fifo);
        assert_eq!(queue.remove(2).map(|waiter| waiter.seq), Some(2), "its client leaves");
        assert_eq!(order_of(&mut queue), [1, 3]);
    }

    #[test]
    fn a_returning_request_goes_first() {
        let mut queue = Queue::default();
        queue.push(&client(1), Order::Fair, waiter(5), false);
        queue.push(&client(2), Order::Fair, waiter(6), false);
        queue.push(&client(2), Order::Fair, back(1), true);
        assert_eq!(order_of(&mut queue), [1, 5, 6]);
    }

    #[test]
    fn a_returning_request_goes_first_even_if_its_client_has_no_other() {
        for order in [Order::Fair, Order::Fifo] {
            let mut queue = Queue::default();
            queue.push(&client(1), order, waiter(5), false);
            queue.push(&client(2), order, waiter(6), false);
            queue.push(&client(3), order, back(1), true);
            assert_eq!(order_of(&mut queue), [1, 5, 6], "{order:?}");
        }
    }

    #[test]
    fn a_request_without_a_reply_of_the_store_does_not_give_up() {
        let mut queue = Queue::default();
        let (deadline, late) = (clock::now(), clock::now() + Duration::from_secs(1));
        let now = Waiter {
            seq: 0,
            deadline,
            since: deadline,
            rank: rank(3),
            scope: 'a',
            sender: oneshot::channel().0,
        };
        queue.push(&client(1), Order::Fair, now, false);
        queue.judge_later(0, Unjudged { deadline, ahead: 0, turns: 0 }, late);
        assert!(queue.pop_hopeless(late).is_none());
        assert_eq!((queue.first_deadline(), queue.last_deadline()), (Some(late), Some(deadline)));
        queue.set_judged(0, late);
        assert!(queue.unjudged().is_empty() && queue.pop_hopeless(late).is_none());
        assert_eq!(queue.first_deadline(), Some(late));
        assert!(queue.pop_hopeless(late + Duration::from_secs(1)).is_some() && queue.is_empty());
    }

    #[test]
    fn a_request_that_leaves_or_gives_up_frees_its_place() {
        let mut queue = Queue::default();
        let gone = waiter(0);
        let seq = gone.seq;
        queue.push(&client(1), Order::Fair, gone, false);
        queue.push(&client(2), Order::Fair, waiter(1), false);
        assert_eq!(queue.len(), 2);
        assert!(queue.remove(seq).is_some());
        assert!(queue.remove(seq).is_none() && queue.len() == 1);
        assert!(queue.pop_hopeless(clock::now()).is_none());
        let late = clock::now() + Duration::from_secs(120);
        assert_eq!(queue.pop_hopeless(late).map(|waiter| waiter.seq), Some(1));
        assert!(queue.is_empty() && queue.pop().is_none());
    }

    #[test]
    fn requests_of_a_closed_scope_let_others_pass_and_keep_their_places() {
        let mut queue = Queue::default();
        for (seq, scope) in (0..).zip(['a', 'b', 'a', 'b', 'a']) {
            queue.push(&client(1), Order::Fair, of(scope, seq), false);
        }
        queue.park(&'a');
        assert_eq!((queue.len(), queue.ready(), queue.of_scope(&'a')), (5, 2, 3));
        queue.push(&client(2), Order::Fair, of('a', 5), false);
        assert_eq!(queue.ahead_of(&client(1), Order::Fair, rank(3), &'a'), 4);
        assert_eq!(queue.pop().map(|waiter| waiter.seq), Some(1));
        assert_eq!(queue.pop_of(&'a').map(|waiter| waiter.seq), Some(0));
        assert_eq!(queue.pop_of(&'a').map(|waiter| waiter.seq), Some(5));
        queue.resume(&'a');
        assert_eq!(queue.pop_of(&'a').map(|waiter| waiter.seq), Some(2), "open or not");
        assert_eq!(order_of(&mut queue), [3, 4]);
    }

    #[test]
    fn the_only_scope_keeps_its_turns_while_it_is_closed() {
        let mut queue = Queue::default();
        for (seq, last) in (0..).zip([1, 1, 1, 2]) {
            queue.push(&client(last), Order::Fair, waiter(seq), false);
        }
        assert_eq!(queue.pop().map(|waiter| waiter.seq), Some(0));
        queue.park(&'a');
        assert_eq!((queue.ready(), queue.next_scope()), (0, None));
        queue.resume(&'a');
        assert_eq!(order_of(&mut queue), [3, 1, 2]);
    }

    #[test]
    fn only_requests_of_a_closed_scope_that_cannot_wait_are_refused() {
        let mut queue = Queue::default();
        for (seq, scope) in (0..).zip(['a', 'b', 'a']) {
            queue.push(&client(1), Order::Fair, of(scope, seq), false);
        }
        queue.park(&'a');
        let end = clock::now() + Duration::from_secs(61);
        let gone: Vec<_> = queue.take_hopeless(&'a', end).iter().map(|w| w.seq).collect();
        assert_eq!((gone, queue.len()), (vec![0], 2));
        assert!(queue.remove(2).is_some() && queue.parked().next().is_none());
        assert_eq!(queue.pop_any().map(|waiter| waiter.seq), Some(1));
        assert_eq!(queue.scopes().count(), 0);
    }

    fn user(name: &str) -> Client {
        Client::User(Arc::from(name))
    }

    #[test]
    fn requests_of_a_blocked_user_keep_their_order_and_others_pass_them() {
        let mut queue = Queue::default();
        let (alice, now) = (Arc::from("alice"), clock::now());
        for (seq, (who, scope)) in
            (0..).zip([("alice", 'a'), ("alice", 'b'), ("bob", 'a'), ("alice", 'a')])
        {
            queue.push(&user(who), Order::Fair, of(scope, seq), false);
        }
        assert_eq!(queue.next_user(), Some(Arc::clone(&alice)));
        let until = now + Duration::from_secs(5);
        assert_eq!(queue.block(&alice, until).len(), 3);
        queue.push(&user("alice"), Order::Fair, of('a', 4), false);
        assert_eq!((queue.len(), queue.ready(), queue.first_unblocked()), (5, 1, Some(until)));
        assert_eq!(queue.pop_of_user(Some(&alice)).map(|waiter| waiter.seq), None);
        assert_eq!(queue.remove(3).map(|waiter| waiter.seq), Some(3), "its client leaves");
        queue.park(&'a');
        assert_eq!(queue.pop_of(&'a').map(|waiter| waiter.seq), Some(2), "the probe is anybody's");
        assert_eq!(queue.pop_of(&'a').map(|waiter| waiter.seq), Some(0), "a blocked user's, too");
        queue.unblock(until);
        assert_eq!((queue.ready(), queue.blocked_until("alice")), (1, None), "one is parked");
        queue.resume(&'a');
        assert_eq!(order_of(&mut queue), [1, 4]);
    }

    #[test]
    fn each_request_is_released_once_and_in_the_order_of_its_queue() {
        for seed in 0..100 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut queue = Queue::default();
            // Client, scope and urgency of each request so far, and whether it is still here.
            let mut all: Vec<((usize, char, u8), bool)> = Vec::new();
            let clients = [user("alice"), user("bob"), client(1)];
            let (now, later) = (clock::now(), clock::now() + Duration::from_secs(9));
            let mut closed = [false; 2];
            let mut over = [false; 2];
            for _ in 0..400 {
                let (who, urgency) = (random.usize(0..3), random.u8(2..4));
                let scope = ['a', 'b'][random.usize(0..2)];
                let at = usize::from(scope == 'b');
                match random.u8(0..10) {
                    0..4 => {
                        let seq = all.len() as u64;
                        let waiter = Waiter { rank: rank_at(now, urgency), ..of(scope, seq) };
                        queue.push(&clients[who], Order::Fair, waiter, false);
                        all.push(((who, scope, urgency), true));
                    }
                    4 => {
                        if closed[at] {
                            queue.resume(&scope)
                        } else {
                            queue.park(&scope)
                        }
                        // A scope without requests is not remembered as parked.
                        closed[at] = queue.parked().any(|parked| *parked == scope);
                    }
                    5 if who < 2 => {
                        let name = Arc::from(["alice", "bob"][who]);
                        if over[who] {
                            queue.unblock(later);
                            over = [false; 2];
                        } else {
                            queue.block(&name, later);
                            over[who] = true;
                        }
                    }
                    6 if !all.is_empty() => {
                        let seq = random.usize(0..all.len());
                        let was_here = std::mem::take(&mut all[seq].1);
                        assert_eq!(queue.remove(seq as u64).is_some(), was_here, "seed {seed}");
                    }
                    _ => {
                        for (at, scope) in ['a', 'b'].into_iter().enumerate() {
                            closed[at] = queue.parked().any(|parked| *parked == scope);
                        }
                        let may_go = |((who, scope, _), here): &((usize, char, u8), bool)| {
                            let is_over = *who < 2 && over[*who];
                            *here && !closed[usize::from(*scope == 'b')] && !is_over
                        };
                        let first = queue.pop().map(|waiter| waiter.seq);
                        assert_eq!(first.is_some(), all.iter().any(may_go), "seed {seed}");
                        let Some(seq) = first.and_then(|seq| usize::try_from(seq).ok()) else {
                            continue;
                        };
                        assert!(may_go(&all[seq]), "seed {seed}: {seq}");
                        let ((who, _, urgency), _) = all[seq];
                        let before = all[..seq].iter().filter(|one| may_go(one));
                        let mut before = before.map(|((other, _, level), _)| (*other, *level));
                        assert!(!before.any(|line| line == (who, urgency)), "seed {seed}: {seq}");
                        all[seq].1 = false;
                    }
                }
                let here = all.iter().filter(|(_, here)| *here).count();
                assert_eq!(queue.len(), here, "seed {seed}");
            }
        }
    }
}
