//! A connection to a site that belongs to one client's connection.
//!
//! NTLM and Negotiate authenticate a connection instead of a request: the site assigns later requests on it to the same
//! user. Such a connection never returns to the pool. It waits here for the client's next request, and ends with the
//! client's connection.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Conn, ConnKey, Sender};
use crate::gate::Client;

/// Holds one such connection.
#[derive(Debug, Default)]
pub(crate) struct PinnedConn(Mutex<Option<(Conn, Client)>>);

impl PinnedConn {
    /// The connection, if it leads to `key`, belongs to `client` and is of this generation.
    pub(crate) fn take(
        self: &Arc<Self>,
        key: &ConnKey,
        client: &Client,
        generation: u64,
    ) -> Option<Conn> {
        let (mut conn, owner) = self.0.lock().take_if(|(conn, owner)| {
            (&conn.key, &*owner, conn.generation) == (key, client, generation)
        })?;
        let is_open = matches!(&conn.sender, Sender::Http1 { sender, .. } if !sender.is_closed());
        conn.reused = true;
        conn.pin_to(self, &owner);
        is_open.then_some(conn)
    }

    /// Keeps a connection for `client` if it can carry another request.
    pub(super) fn keep(&self, conn: Conn, client: Client) {
        if conn.unwanted.is_none() && matches!(conn.sender, Sender::Http1 { .. }) {
            *self.0.lock() = Some((conn, client));
        }
    }
}
