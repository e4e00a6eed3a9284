//! The login of a tunnel or an intercepted CONNECT. Both outlive a reload, which may remove their
//! user or network, so the login is checked again after each reload.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
};

use http::{HeaderMap, HeaderValue, StatusCode, header::PROXY_AUTHORIZATION};

use crate::{
    gate::Client,
    observability::metrics::Reason,
    proxy::{Refusal, context::LiveConfig, reply::Refused},
};

/// The login of a CONNECT, and the settings by which it was last judged.
#[derive(Debug)]
pub(crate) struct TunnelLogin {
    login: HeaderMap,
    peer: IpAddr,
    generation: AtomicU64,
}

impl TunnelLogin {
    /// The login of a CONNECT with these fields, which the settings in `live` allow.
    pub(crate) fn new(headers: &HeaderMap, peer: IpAddr, live: &LiveConfig) -> Self {
        let mut login = HeaderMap::new();
        for value in headers.get_all(PROXY_AUTHORIZATION) {
            let mut value: HeaderValue = value.clone();
            value.set_sensitive(true);
            login.append(PROXY_AUTHORIZATION, value);
        }
        Self { login, peer, generation: AtomicU64::new(live.generation) }
    }

    /// Whether the login was judged by these settings.
    pub(crate) fn is_judged_by(&self, live: &LiveConfig) -> bool {
        self.generation.load(Ordering::Relaxed) == live.generation
    }

    /// Judges the login by the settings in `live`, unless that has been done.
    ///
    /// # Errors
    /// A 403, because a client inside a CONNECT cannot be asked for a login.
    pub(crate) fn judge(&self, live: &LiveConfig, client: &Client) -> Result<(), Refused> {
        if self.is_judged_by(live) {
            return Ok(());
        }
        match live.authenticator.check(&self.login, self.peer) {
            Ok(now) if now == *client => {
                self.generation.store(live.generation, Ordering::Relaxed);
                Ok(())
            }
            Ok(_) | Err(_) => {
                let sentence =
                    "The user who opened this connection may not use this proxy any more.";
                let status = StatusCode::FORBIDDEN;
                Err(Refusal::new(status, Reason::Auth, "http_request_denied", sentence))
            }
        }
    }
}
