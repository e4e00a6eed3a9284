//! The clients' side: accepts connections, assigns them to threads, authenticates clients, and sends response bodies to
//! them.

pub(super) mod accept;
pub mod auth;
pub(super) mod body;
pub(super) mod workers;

use std::{net::SocketAddr, sync::Arc};

use parking_lot::Mutex;

use super::{
    tunnel::intercept::{Activity, InterceptedConnect},
    upstream::{pool::PinnedConn, upload::IdleTimer},
};
use crate::http1;

/// A client's connection, and the state that its requests share.
#[derive(Debug)]
pub(crate) struct ClientConn {
    /// Address of the client.
    pub(crate) peer: SocketAddr,
    /// Its HTTP/1.1 connection, which must know when a tunnel begins; `None` for HTTP/2.
    pub(crate) connection: Option<http1::Handle>,
    /// The intercepted CONNECT around its requests, if there is one.
    pub(crate) inside: Option<InterceptedConnect>,
    /// The activity on an HTTP/2 connection.
    pub(crate) activity: Option<Arc<Activity>>,
    /// A timer that each request borrows, so that none has to allocate one.
    pub(crate) response_timer: Mutex<Option<IdleTimer>>,
    /// The connection to a site on which this client has logged in.
    pub(crate) pinned: Arc<PinnedConn>,
}

impl ClientConn {
    pub(crate) fn new(
        peer: SocketAddr,
        connection: Option<http1::Handle>,
        inside: Option<InterceptedConnect>,
    ) -> Self {
        let (response_timer, pinned) = (Mutex::default(), Arc::default());
        Self { peer, connection, inside, activity: None, response_timer, pinned }
    }

    /// Whether hyper may release the connection until the next request.
    pub(crate) fn is_parkable(&self) -> bool {
        self.connection.as_ref().is_some_and(http1::Handle::is_parkable)
    }

    /// The next bytes are not HTTP: a tunnel begins.
    pub(crate) fn pass_through(&self) {
        if let Some(connection) = &self.connection {
            connection.pass_through();
        }
    }
}
