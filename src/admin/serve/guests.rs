//! The connections to the admin port, and which one is closed when there are too many.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// Connections at once: some pages, a scraper, some probes.
const CONNECTIONS: usize = 128;
/// Those of one client.
const PER_CLIENT: usize = 64;

/// The connections, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Guests(Mutex<Inside>);

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    all: BTreeMap<u64, (IpAddr, CancellationToken)>,
}

/// One connection; it is gone when this is dropped.
#[derive(Debug)]
pub(super) struct Guest {
    number: u64,
    leave: CancellationToken,
    guests: Arc<Guests>,
}

impl Guests {
    /// Accepts a connection from `client`. If there are too many, an older one is asked to close.
    pub(super) fn enter(self: &Arc<Self>, client: IpAddr) -> Guest {
        let mut inside = self.0.lock();
        inside.make_room(client);
        let (number, leave) = (inside.next, CancellationToken::new());
        inside.next += 1;
        inside.all.insert(number, (client, leave.clone()));
        Guest { number, leave, guests: Arc::clone(self) }
    }
}

impl Inside {
    fn make_room(&mut self, client: IpAddr) {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (one, _) in self.all.values() {
            *counts.entry(*one).or_default() += 1;
        }
        let greedy = if counts.get(&client).is_some_and(|own| *own >= PER_CLIENT) {
            Some(client)
        } else if self.all.len() >= CONNECTIONS {
            counts.into_iter().max_by_key(|(_, count)| *count).map(|(one, _)| one)
        } else {
            None
        };
        let Some(greedy) = greedy else { return };
        let oldest =
            self.all.iter().find(|(_, (one, _))| *one == greedy).map(|(number, _)| *number);
        if let Some((_, leave)) = oldest.and_then(|number| self.all.remove(&number)) {
            leave.cancel();
        }
    }
}

impl Guest {
    /// Ready when this connection has to end for another one.
    pub(super) fn makes_room(&self) -> WaitForCancellationFuture<'_> {
        self.leave.cancelled()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.guests.0.lock().all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> IpAddr {
        [127, 0, 0, last].into()
    }

    #[test]
    fn the_oldest_connection_of_the_greediest_client_makes_room() {
        let guests = Arc::new(Guests::default());
        let page = guests.enter(client(1));
        let greedy: Vec<_> = (0..PER_CLIENT).map(|_| guests.enter(client(2))).collect();
        assert!(greedy.iter().all(|one| !one.leave.is_cancelled()));
        let next = guests.enter(client(2));
        assert!(greedy[0].leave.is_cancelled(), "its own oldest one");
        let others: Vec<_> = (3..66).map(|last| guests.enter(client(last))).collect();
        assert_eq!(guests.0.lock().all.len(), CONNECTIONS);
        let probe = guests.enter(client(100));
        assert!(greedy[1].leave.is_cancelled());
        for one in others.iter().chain([&page, &next, &probe]) {
            assert!(!one.leave.is_cancelled());
        }
        drop((greedy, others, page, next, probe));
        assert!(guests.0.lock().all.is_empty());
    }
}
