//! The connections to the admin port, and which one is closed when there are too many.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// Most connections: some pages, a scraper, some probes.
const CONNECTIONS: usize = 128;
/// Most connections of one client.
const PER_CLIENT: usize = 64;

/// The open connections, oldest first.
#[derive(Debug, Default)]
pub(super) struct ConnectionTable(Mutex<TableState>);

#[derive(Debug, Default)]
struct TableState {
    next: u64,
    all: BTreeMap<u64, (IpAddr, CancellationToken)>,
}

/// One open connection. Dropping it removes it from the table.
#[derive(Debug)]
pub(super) struct OpenConnection {
    number: u64,
    close: CancellationToken,
    table: Arc<ConnectionTable>,
}

impl ConnectionTable {
    /// Adds a connection from `client`. If there are too many, it asks an older one to close.
    pub(super) fn add(self: &Arc<Self>, client: IpAddr) -> OpenConnection {
        let mut state = self.0.lock();
        state.make_room(client);
        let (number, close) = (state.next, CancellationToken::new());
        state.next += 1;
        state.all.insert(number, (client, close.clone()));
        OpenConnection { number, close, table: Arc::clone(self) }
    }
}

impl TableState {
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
        if let Some((_, close)) = oldest.and_then(|number| self.all.remove(&number)) {
            close.cancel();
        }
    }
}

impl OpenConnection {
    /// Completes when this connection must close.
    pub(super) fn must_close(&self) -> WaitForCancellationFuture<'_> {
        self.close.cancelled()
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.table.0.lock().all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> IpAddr {
        [127, 0, 0, last].into()
    }

    #[test]
    fn the_oldest_connection_of_the_greediest_client_is_closed() {
        let table = Arc::new(ConnectionTable::default());
        let page = table.add(client(1));
        let greedy: Vec<_> = (0..PER_CLIENT).map(|_| table.add(client(2))).collect();
        assert!(greedy.iter().all(|one| !one.close.is_cancelled()));
        let next = table.add(client(2));
        assert!(greedy[0].close.is_cancelled(), "its own oldest one");
        let others: Vec<_> = (3..66).map(|last| table.add(client(last))).collect();
        assert_eq!(table.0.lock().all.len(), CONNECTIONS);
        let probe = table.add(client(100));
        assert!(greedy[1].close.is_cancelled());
        for one in others.iter().chain([&page, &next, &probe]) {
            assert!(!one.close.is_cancelled());
        }
        drop((greedy, others, page, next, probe));
        assert!(table.0.lock().all.is_empty());
    }
}
