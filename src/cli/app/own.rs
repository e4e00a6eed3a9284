//! The addresses of the proxy itself, which no client may reach through it: its listeners and the
//! servers of its store, also those that a cluster or a sentinel adds later.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    observability::event::{Event, Events},
    proxy,
    rules::settings::{Settings, StoreSettings},
    store::{self, ServerAddress},
};

/// Longest lookup of a store's name.
const LOOKUP: Duration = Duration::from_secs(2);

/// The addresses of the listeners and of the servers in the store's URL.
pub(super) async fn addresses(settings: &Settings, events: &Events) -> Vec<SocketAddr> {
    let admin = settings.admin.as_ref().map(|admin| admin.listen);
    let mut own: Vec<SocketAddr> = [Some(settings.listen), admin].into_iter().flatten().collect();
    let StoreSettings::Redis(redis) = &settings.store else { return own };
    for place in store::redis::servers(redis).unwrap_or_default() {
        own.extend(addresses_of(&place, events).await);
    }
    own
}

/// The addresses of one of the store's servers.
async fn addresses_of((host, port): &ServerAddress, events: &Events) -> Vec<SocketAddr> {
    let looking = tokio::net::lookup_host((host.as_str(), *port));
    match tokio::time::timeout(LOOKUP, looking).await {
        Ok(Ok(found)) => found.map(everywhere).collect(),
        Ok(Err(_)) | Err(_) => {
            events.emit(Event::Warned {
                what: format!(
                    "the store's name {host} has no address now, so the egress guard cannot keep \
                     clients from it: deny it in `egress.deny`, or restart once it has one"
                ),
            });
            Vec::new()
        }
    }
}

/// Adds the servers that a cluster or a sentinel names later, for as long as the store lives.
pub(super) async fn follow(
    mut places: watch::Receiver<Vec<ServerAddress>>,
    proxy: Arc<proxy::Context>,
    events: Arc<Events>,
) {
    loop {
        let now = places.borrow_and_update().clone();
        for place in now {
            proxy.own.add(addresses_of(&place, &events).await);
        }
        if places.changed().await.is_err() {
            return;
        }
    }
}

/// A store on a loopback address often listens on all of this machine's addresses. The unspecified
/// address stands for all of them.
fn everywhere(store: SocketAddr) -> SocketAddr {
    if !store.ip().to_canonical().is_loopback() {
        return store;
    }
    SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), store.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config, observability::metrics::Metrics};

    #[tokio::test]
    async fn clients_reach_neither_the_proxy_nor_its_store() {
        let text = "listen: 127.0.0.1:3128\nadmin: 127.0.0.1:9128\n\
                    store: redis-sentinel://[::1]:26379?node=10.0.0.9:26380&sentinelServiceName=x\n";
        let loaded = config::parse(text, "rules.yaml", &|_| None)
            .unwrap_or_else(|problems| panic!("{problems}"));
        let events = Events::new(Metrics::new());
        let own = addresses(&loaded.settings, &events).await;
        for addr in ["127.0.0.1:3128", "127.0.0.1:9128", "0.0.0.0:26379", "10.0.0.9:26380"] {
            let addr: SocketAddr = addr.parse().expect("an address");
            assert!(own.contains(&addr), "{addr} is not among {own:?}");
        }
    }
}
