//! The client of Redis or Valkey: connection and scripts; `super::push` has the news.
//!
//! By default fred waits forever, queues without bound, and resends a script after a broken connection, which could
//! take a token twice. This client changes all of that: a call succeeds within `timeout`, or fails.

use std::{future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use fred::{
    clients::SubscriberClient,
    interfaces::ClusterInterface as _,
    prelude::{
        Builder, Client, ClientLike, Config, Error as RedisError, EventInterface as _,
        LuaInterface, ReconnectPolicy,
    },
    types::{
        Key, Value,
        config::{Options, Server, UnresponsiveConfig},
    },
    util::redis_keyslot,
};
use futures_core::Stream;
use parking_lot::Mutex;
use socket2::TcpKeepalive;
use tokio::{
    net::TcpStream,
    sync::broadcast::{self, error::RecvError},
};

use super::{
    News,
    failure::Failure,
    push::Push,
    scripts::{self, Call, Script},
    tls,
};
use crate::{rules::settings::RedisSettings, runtime::background::BackgroundRuntime};

/// Host and port of a server.
pub type ServerAddress = (String, u16);

/// Most calls that may wait for Redis. Beyond that, calls fail.
const QUEUE: usize = 10_000;
/// Keys that Redis scans per step. It serves no other client during a step.
const PAGE: u32 = 500;
/// Longest wait for a plain connection. It distinguishes a server without TLS from one that is away.
const KNOCK_AT_MOST: Duration = Duration::from_millis(500);
/// News that may wait to be read. Beyond that, every scope is read again instead.
const NEWS: usize = 4_096;

/// The client.
#[derive(Debug)]
pub(super) struct Redis {
    client: fred::clients::WithOptions<Client>,
    plain: Client,
    subscriber: SubscriberClient,
    pub(super) push: Push,
    /// The runtime of the connections; [`Redis::listen`] must be spawned on it.
    pub(super) background: BackgroundRuntime,
    timeout: Duration,
    /// Why there is no connection. Calls that wait for a connection only see a timeout.
    cause: Arc<Mutex<Option<Failure>>>,
}

/// The possible errors of a URL.
#[derive(Debug, thiserror::Error)]
#[error("the store's URL is not a Redis URL: {0}")]
pub struct BadUrl(String);

/// The brackets of an IPv6 address in a URL (RFC 3986 section 3.2.2).
const BRACKETS: [char; 2] = ['[', ']'];

/// Host and port of every server that the store's URL names (nodes, sentinels).
///
/// # Errors
/// An invalid URL.
pub fn servers(settings: &RedisSettings) -> Result<Vec<ServerAddress>, BadUrl> {
    let config = Config::from_url(settings.url.expose())
        .map_err(|error| BadUrl(error.details().to_owned()))?;
    Ok(config.server.hosts().into_iter().map(place).collect())
}

fn place(server: Server) -> ServerAddress {
    (server.host.trim_matches(BRACKETS).to_owned(), server.port)
}

impl Redis {
    /// Prepares the client; [`Redis::connect`] starts it.
    ///
    /// # Errors
    /// An invalid URL.
    pub(super) fn new(settings: &RedisSettings) -> Result<Self, BadUrl> {
        let url = settings.url.expose();
        let mut config = Config::from_url(url).map_err(|e| BadUrl(e.details().to_owned()))?;
        // A store may be away at the start as well as later: the proxy runs, and joins the store when it comes.
        config.fail_fast = false;
        if let Some(tls) = &mut config.tls {
            tls.connector = tls::connector(&settings.ca);
        }
        let clustered = config.server.is_clustered();
        let timeout = settings.timeout;
        let mut builder = Builder::from_config(config);
        builder
            .with_performance_config(|performance| {
                // A safety net: each call has its own, shorter timeout.
                performance.default_command_timeout = timeout.saturating_mul(2);
                performance.broadcast_channel_capacity = NEWS;
            })
            .with_connection_config(|connection| {
                connection.connection_timeout = Duration::from_millis(500).max(timeout);
                connection.internal_command_timeout = Duration::from_secs(1).max(timeout);
                // One attempt: a script sent twice may take a token twice.
                connection.max_command_attempts = 1;
                // A redirection would be another attempt. If no attempt is left, fred closes its connections for good
                // while a slot moves to another node (ASK).
                connection.max_redirections = 0;
                connection.max_command_buffer_len = QUEUE;
                connection.reconnect_on_auth_error = true;
                connection.unresponsive = UnresponsiveConfig {
                    max_timeout: Some(Duration::from_secs(1).max(timeout.saturating_mul(2))),
                    interval: Duration::from_millis(250),
                };
                connection.tcp.nodelay = Some(true);
                // Keepalive detects dead connections even if they are idle.
                connection.tcp.keepalive = Some(
                    TcpKeepalive::new()
                        .with_time(Duration::from_secs(2))
                        .with_interval(Duration::from_secs(1))
                        .with_retries(2),
                );
            })
            // Retries forever, 50 ms to 1 s apart with jitter, so that members do not reconnect in step.
            .set_policy(ReconnectPolicy::new_exponential(0, 50, 1_000, 2));
        let plain = builder.build().map_err(|e| BadUrl(e.details().to_owned()))?;
        let subscriber =
            builder.build_subscriber_client().map_err(|e| BadUrl(e.details().to_owned()))?;
        let options = Options {
            max_attempts: Some(1),
            fail_fast: true,
            timeout: Some(timeout.saturating_mul(2)),
            ..Options::default()
        };
        let push = Push::new(subscriber.clone(), &settings.prefix, clustered);
        Ok(Self {
            client: plain.with_options(&options),
            plain,
            subscriber,
            push,
            background: BackgroundRuntime::start("store", || {}),
            timeout,
            cause: Arc::default(),
        })
    }

    /// Starts connecting, in the background.
    pub(super) fn connect(&self) {
        tokio::spawn(watch(self.plain.clone(), Arc::clone(&self.cause)));
        drop(self.plain.connect());
        drop(self.subscriber.connect());
    }

    /// Whether this is a Cluster.
    pub(super) fn is_clustered(&self) -> bool {
        self.plain.is_clustered()
    }

    /// The node of a Cluster that has a key, as last known.
    pub(super) fn node_of(&self, key: &str) -> Option<ServerAddress> {
        let slots = self.plain.cached_cluster_state()?;
        slots.get_server(redis_keyslot(key.as_bytes())).cloned().map(place)
    }

    /// Connects for a single survey, and waits for the connection.
    pub(super) async fn connected(&self, at_most: Duration) -> Result<&Client, Failure> {
        let mut errors = self.plain.error_rx();
        drop(self.plain.connect());
        let connected = async {
            tokio::select! {
                result = self.plain.wait_for_connect() => result.map_err(Failure::connecting),
                Ok((error, _)) = errors.recv() => Err(Failure::connecting(error)),
            }
        };
        match tokio::time::timeout(at_most, connected).await {
            Ok(result) => result.map(|()| &self.plain),
            Err(_) => Err(Failure::timeout("connect", at_most)),
        }
    }

    /// Matching keys, at most this many, from every node of a cluster.
    pub(super) async fn keys(&self, pattern: String, most: usize) -> Result<Vec<String>, Failure> {
        type Scan = Pin<Box<dyn Stream<Item = Result<Key, RedisError>> + Send>>;
        let mut scan: Scan = if self.is_clustered() {
            Box::pin(self.plain.scan_cluster_buffered(pattern, Some(PAGE), None))
        } else {
            Box::pin(self.plain.scan_buffered(pattern, Some(PAGE), None))
        };
        let mut keys = Vec::new();
        while keys.len() < most
            && let Some(key) = poll_fn(|context| scan.as_mut().poll_next(context)).await
        {
            keys.extend(key?.into_string());
        }
        Ok(keys)
    }

    /// Runs a script by its digest. A server without it gets the text, which loads the script.
    pub(super) async fn run(
        &self,
        script: &'static Script,
        keys: Vec<String>,
        arguments: Vec<String>,
    ) -> Result<Value, Failure> {
        let call = async {
            let digest = script.digest.clone();
            match self.client.evalsha(digest, keys.clone(), arguments.clone()).await {
                Err(error) if error.details().starts_with("NOSCRIPT") => {
                    self.client.eval(script.text.as_str(), keys, arguments).await
                }
                other => other,
            }
        };
        let result = match tokio::time::timeout(self.timeout, call).await {
            Ok(result) => result.map_err(Failure::from),
            Err(_) => Err(Failure::timeout(script.name, self.timeout)),
        };
        result.map_err(|failure| failure.because(self.cause.lock().clone()))
    }

    /// The same with typed arguments and reply.
    pub(super) async fn call<C: Call>(
        &self,
        keys: C::Keys,
        arguments: C::Arguments,
    ) -> Result<C::Reply, Failure> {
        let (keys, arguments) = (scripts::values(keys), scripts::values(arguments));
        let reply = self.run(C::script(), keys, arguments).await?;
        Ok(scripts::read::<C>(reply)?)
    }

    /// Listens to the news for ever; see [`Push::listen`].
    pub(super) async fn listen(&self, news: broadcast::Sender<News>) {
        self.push.listen(news, || self.connect()).await;
    }

    /// Replaces dead connections. The next heartbeat shows the result.
    pub(super) async fn reconnect(&self) {
        tokio::time::timeout(self.timeout, self.plain.force_reconnection()).await.ok();
        tokio::time::timeout(self.timeout, self.subscriber.force_reconnection()).await.ok();
    }

    /// The connected servers, in a fixed order.
    pub(super) fn places(&self) -> Vec<ServerAddress> {
        let mut places: Vec<ServerAddress> =
            self.plain.active_connections().into_iter().map(place).collect();
        places.sort_unstable();
        places
    }

    pub(super) async fn quit(&self) {
        // Errors of a goodbye do not matter: the connection may be dead.
        self.plain.quit().await.ok();
        self.push.quit().await;
        self.background.end();
    }
}

/// Keeps `cause` current for as long as the client lives.
async fn watch(client: Client, cause: Arc<Mutex<Option<Failure>>>) {
    let (mut errors, mut connections) = (client.error_rx(), client.reconnect_rx());
    loop {
        let now = tokio::select! {
            error = errors.recv() => error.map(|(error, _)| Some(Failure::connecting(error))),
            connection = connections.recv() => connection.map(|_| None),
        };
        match now {
            Ok(Some(failure)) if failure.is_silence() && is_tls_refused(&client).await => {
                *cause.lock() = Some(Failure::no_handshake());
            }
            Ok(now) => *cause.lock() = now,
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// Whether a server that does not respond to a TLS handshake accepts plain connections. A Redis without TLS waits
/// forever for the end of a line.
async fn is_tls_refused(client: &Client) -> bool {
    let config = client.client_config();
    if config.tls.is_none() {
        return false;
    }
    for (host, port) in config.server.hosts().into_iter().map(place) {
        let connecting = TcpStream::connect((host.as_str(), port));
        if tokio::time::timeout(KNOCK_AT_MOST, connecting).await.is_ok_and(|made| made.is_ok()) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{secret::Secret, settings::OnFailure};

    #[test]
    fn every_server_of_the_url_is_known_by_host_and_port() {
        for (url, expected) in [
            ("redis://:secret@127.0.0.1:6380/1", vec![("127.0.0.1", 6380)]),
            ("rediss://cache.example", vec![("cache.example", 6379)]),
            ("redis://[::1]:6381", vec![("::1", 6381)]),
            (
                "redis-sentinel://10.0.0.1:26379?node=10.0.0.2:26380&sentinelServiceName=main",
                vec![("10.0.0.1", 26379), ("10.0.0.2", 26380)],
            ),
            (
                "redis-cluster://10.0.0.1:7000?node=10.0.0.2:7001",
                vec![("10.0.0.1", 7000), ("10.0.0.2", 7001)],
            ),
        ] {
            let settings = RedisSettings {
                url: Secret::new(url),
                prefix: "tidegate".to_owned(),
                timeout: Duration::from_millis(100),
                on_failure: OnFailure::Local,
                local_share: None,
                ca: Vec::new(),
            };
            let mut found = servers(&settings).expect("a URL");
            found.sort_unstable();
            let expected: Vec<_> =
                expected.into_iter().map(|(host, port)| (host.to_owned(), port)).collect();
            assert_eq!(found, expected, "{url}");
        }
    }
}
