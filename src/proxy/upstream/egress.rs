//! The egress guard: where the proxy may connect to.
//!
//! The guard judges the address that is then dialled, without a second lookup. So neither a special spelling nor a
//! changing DNS answer (rebinding) can bypass it. Addresses that are not public are denied unless `egress.allow` names
//! them. `egress.deny` overrides `egress.allow`. The proxy's own listeners and its store can never be reached through
//! it.

mod dial;
mod network;
mod own;
mod ports;

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::StatusCode;
use tokio::net::TcpStream;

pub use self::{network::reached, own::OwnAddresses};
use crate::{
    gate::Client,
    observability::metrics::Reason,
    proxy::upstream::resolve::{Resolver, Unresolved},
    rules::settings::{Egress, EgressPattern},
    runtime::clock::{self, Instant},
    target::Host,
};

/// Why the guard denies a target. The text is for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The proxy itself, its admin port or its store.
    #[error("{0} is the proxy itself or its store, which cannot be reached through it")]
    Own(SocketAddr),
    /// An entry of `egress.deny`.
    #[error("{0} is denied by `egress.deny`")]
    Listed(SocketAddr),
    /// A name that an entry of `egress.deny` covers.
    #[error("{0} is denied by `egress.deny`")]
    ListedName(Host),
    /// A name that no public site has, without an entry of `egress.allow`.
    #[error("{0} is {1}; add it to `egress.allow` if it may be reached")]
    NotPublicName(Host, &'static str),
    /// Not a public address, without an entry of `egress.allow`.
    #[error("{0} is {1}; add it to `egress.allow` if it may be reached")]
    NotPublic(SocketAddr, &'static str),
    /// A CONNECT to a port that is not allowed.
    #[error("CONNECT to port {0} is not allowed (`egress.connect_ports`; 25 never is)")]
    Port(u16),
    /// A port of another protocol. Denied for any kind of request.
    #[error("port {0} is another protocol's, as browsers see it, and {1}")]
    OtherProtocol(u16, &'static str),
}

impl Denied {
    /// The error type for `Proxy-Status` (RFC 9209 section 2.3).
    #[must_use]
    pub const fn proxy_error(&self) -> &'static str {
        match self {
            Self::Own(_)
            | Self::Listed(_)
            | Self::NotPublic(..)
            | Self::ListedName(_)
            | Self::NotPublicName(..) => "destination_ip_prohibited",
            Self::Port(_) | Self::OtherProtocol(..) => "http_request_denied",
        }
    }
}

/// Why there is no connection to a site; a message for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// The name has no address.
    #[error("the name {0} could not be resolved: {1}")]
    Dns(Host, String),
    /// The resolver did not respond in time.
    #[error("the name {0} could not be resolved in time")]
    DnsTimeout(Host),
    /// The site refused the connection.
    #[error("{0} refused the connection on port {1}")]
    Refused(Host, u16),
    /// The guard denies it.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// No connection in time.
    #[error("no connection to {0} on port {1} within {seconds} s", seconds = .2.as_secs_f32())]
    Timeout(Host, u16, Duration),
    /// The process has no descriptor left, or the system has no memory. The site is not the cause.
    #[error("this proxy cannot open another connection: {0}")]
    Short(String),
    /// Anything else (no route, no free port, ...).
    #[error("no connection to {0} on port {1}: {2}")]
    Other(Host, u16, String),
}

impl DialError {
    /// The proxy's own response: its status, the word of `Tidegate-Refused`, and the error type of
    /// `Proxy-Status` (RFC 9209 section 2.3).
    #[must_use]
    pub const fn response(&self) -> (StatusCode, Reason, &'static str) {
        const BAD: StatusCode = StatusCode::BAD_GATEWAY;
        const LATE: StatusCode = StatusCode::GATEWAY_TIMEOUT;
        match self {
            Self::Dns(..) => (BAD, Reason::Dns, "dns_error"),
            Self::DnsTimeout(_) => (LATE, Reason::Dns, "dns_timeout"),
            Self::Refused(..) => (BAD, Reason::Connect, "connection_refused"),
            Self::Denied(denied) => (StatusCode::FORBIDDEN, Reason::Egress, denied.proxy_error()),
            Self::Timeout(..) => (LATE, Reason::Timeout, "connection_timeout"),
            Self::Short(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, Reason::Queue, "connection_limit_reached")
            }
            Self::Other(..) => (BAD, Reason::Connect, "destination_ip_unroutable"),
        }
    }
}

/// Judges targets and connects to them.
pub struct Guard {
    egress: Egress,
    own: Arc<OwnAddresses>,
    resolver: Resolver,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("egress", &self.egress).finish_non_exhaustive()
    }
}

impl Guard {
    /// `own` are the addresses of the proxy's listeners and of its store.
    #[must_use]
    pub fn new(egress: &Egress, own: Arc<OwnAddresses>) -> Self {
        Self { egress: egress.clone(), own, resolver: Resolver::default() }
    }

    /// Whether a CONNECT may name `port`.
    ///
    /// # Errors
    /// [`Denied::Port`].
    pub fn judge_connect_port(&self, port: u16) -> Result<(), Denied> {
        let listed = &self.egress.connect_ports;
        if port != ports::SMTP && (listed.is_empty() || listed.contains(&port)) {
            Ok(())
        } else {
            Err(Denied::Port(port))
        }
    }

    /// Whether requests may go to `port`. On a port of another protocol, the server could execute parts of a request.
    /// An entry of `connect_ports`, or one of `allow` that names the port, permits it. Port 25 is always denied.
    ///
    /// # Errors
    /// [`Denied::OtherProtocol`].
    pub fn judge_port(&self, port: u16) -> Result<(), Denied> {
        if port == ports::SMTP {
            return Err(Denied::OtherProtocol(port, "is never dialled"));
        }
        let names = |pattern: &EgressPattern| {
            matches!(pattern, EgressPattern::Network(_, Some(one)) | EgressPattern::Host(_, Some(one))
                if *one == port)
        };
        let Egress { connect_ports, allow, .. } = &self.egress;
        if !ports::is_barred(port) || connect_ports.contains(&port) || allow.iter().any(names) {
            return Ok(());
        }
        Err(Denied::OtherProtocol(port, "an entry of `egress.allow` must name it (`host:port`)"))
    }

    /// Whether the proxy may connect to `addr`, an address of `host`. Pure: looks nothing up.
    ///
    /// # Errors
    /// The reason, as a [`Denied`].
    pub fn judge(&self, host: &Host, addr: SocketAddr) -> Result<(), Denied> {
        let addr = SocketAddr::new(addr.ip().to_canonical(), addr.port());
        let reached = network::reached(addr.ip());
        if self.own.is_at(reached, addr.port()) {
            return Err(Denied::Own(addr));
        }
        let covers = |pattern: &EgressPattern| {
            covers(pattern, host, addr.ip(), addr.port())
                || covers(pattern, host, reached, addr.port())
        };
        if self.egress.deny.iter().any(covers) {
            return Err(Denied::Listed(addr));
        }
        match network::not_public(reached) {
            Some(kind) if !self.egress.allow.iter().any(covers) => {
                Err(Denied::NotPublic(addr, kind))
            }
            _ => Ok(()),
        }
    }

    /// Connects to `host`: resolves it, judges every address, and dials the allowed ones (the first to connect wins,
    /// RFC 8305). Everything together takes at most `connect_timeout`. `client` is the requesting client.
    ///
    /// # Errors
    /// [`DialError`] names the step that failed.
    pub async fn connect(
        &self,
        host: &Host,
        port: u16,
        client: &Client,
        connect_timeout: Duration,
    ) -> Result<TcpStream, DialError> {
        self.judge_port(port)?;
        self.connect_by(host, port, client, connect_timeout, Self::judge).await
    }

    /// Connects to an address of `host` that passes `judge`.
    async fn connect_by(
        &self,
        host: &Host,
        port: u16,
        client: &Client,
        connect_timeout: Duration,
        judge: impl Fn(&Self, &Host, SocketAddr) -> Result<(), Denied>,
    ) -> Result<TcpStream, DialError> {
        let deadline = clock::now() + connect_timeout;
        let addresses = self.addresses(host, client, deadline).await?;
        let vetted = vet(host, port, &addresses, |addr| judge(self, host, addr))?;
        let dialled = dial::first(&vetted, deadline).await;
        self.dialled(dialled, host, port, connect_timeout)
    }

    /// The addresses of `host` that may be dialled, at least one. The lowest comes first, so that all members agree on
    /// it whatever order a name server uses. For a later [`Self::connect_to`].
    ///
    /// # Errors
    /// Like [`Guard::connect`].
    pub async fn look_up(
        &self,
        host: &Host,
        port: u16,
        client: &Client,
        connect_timeout: Duration,
    ) -> Result<Box<[IpAddr]>, DialError> {
        self.judge_port(port)?;
        let addresses = self.addresses(host, client, clock::now() + connect_timeout).await?;
        let vetted = vet(host, port, &addresses, |addr| self.judge(host, addr))?;
        let mut ips: Vec<IpAddr> = vetted.iter().map(SocketAddr::ip).collect();
        ips.sort_unstable();
        Ok(ips.into())
    }

    /// Connects to `host` at the first of these addresses, without a look-up. It uses another address only if the first
    /// does not accept. All are judged again, because a reload may have come since.
    ///
    /// # Errors
    /// Like [`Guard::connect`].
    pub async fn connect_to(
        &self,
        host: &Host,
        port: u16,
        addresses: &[IpAddr],
        connect_timeout: Duration,
    ) -> Result<TcpStream, DialError> {
        self.judge_port(port)?;
        let vetted = vet(host, port, addresses, |addr| self.judge(host, addr))?;
        let dialled = dial::preferred(&vetted, clock::now() + connect_timeout).await;
        self.dialled(dialled, host, port, connect_timeout)
    }

    async fn addresses(
        &self,
        host: &Host,
        client: &Client,
        deadline: Instant,
    ) -> Result<Arc<[IpAddr]>, DialError> {
        let name = match host {
            Host::Ip(ip) => return Ok(Arc::from([*ip])),
            Host::Name(name) => name,
        };
        self.resolver.lookup(name, client, deadline).await.map_err(|unresolved| match unresolved {
            Unresolved::TimedOut => DialError::DnsTimeout(host.clone()),
            Unresolved::Failed(why) => DialError::Dns(host.clone(), why),
            Unresolved::Short(why) => DialError::Short(why),
        })
    }

    fn dialled(
        &self,
        dialled: Result<TcpStream, dial::Failed>,
        host: &Host,
        port: u16,
        connect_timeout: Duration,
    ) -> Result<TcpStream, DialError> {
        let stream = dialled.map_err(|error| match error {
            dial::Failed::Refused => DialError::Refused(host.clone(), port),
            dial::Failed::TimedOut => DialError::Timeout(host.clone(), port, connect_timeout),
            dial::Failed::Short(error) => DialError::Short(error.to_string()),
            dial::Failed::Other(error) => DialError::Other(host.clone(), port, error.to_string()),
        })?;
        self.refuse_own_machine(&stream, port)?;
        Ok(stream)
    }

    /// Connects to an upstream proxy. The rule file names it, so it may be private and use any port. `egress.deny` and
    /// the proxy's own addresses apply to it.
    ///
    /// # Errors
    /// Like [`Guard::connect`].
    pub async fn connect_upstream(
        &self,
        host: &Host,
        port: u16,
        client: &Client,
        connect_timeout: Duration,
    ) -> Result<TcpStream, DialError> {
        self.connect_by(host, port, client, connect_timeout, Self::judge_upstream).await
    }

    fn judge_upstream(&self, host: &Host, addr: SocketAddr) -> Result<(), Denied> {
        match self.judge(host, addr) {
            Err(Denied::NotPublic(..)) => Ok(()),
            judged => judged,
        }
    }

    /// Whether requests may go to a site whose name an upstream proxy resolves. An address is judged like a dialled
    /// one, a name by itself.
    ///
    /// # Errors
    /// The reason, as a [`Denied`].
    pub fn judge_unseen(&self, host: &Host, port: u16) -> Result<(), Denied> {
        self.judge_port(port)?;
        let name = match host {
            Host::Ip(ip) => return self.judge(host, SocketAddr::new(*ip, port)),
            Host::Name(name) => name,
        };
        let names = |pattern: &EgressPattern| {
            matches!(pattern, EgressPattern::Host(pattern, wanted)
                if pattern.matches(host) && wanted.is_none_or(|wanted| wanted == port))
        };
        if self.egress.deny.iter().any(names) {
            return Err(Denied::ListedName(host.clone()));
        }
        let Some((kind, word)) = network::not_public_name(name) else { return Ok(()) };
        let allow = &self.egress.allow;
        if allow.contains(&word) || allow.iter().any(names) {
            return Ok(());
        }
        Err(Denied::NotPublicName(host.clone(), kind))
    }

    /// A listener on all addresses of this machine also listens on public addresses that the proxy does not know. A
    /// connection with the same address at both ends came back to this machine.
    fn refuse_own_machine(&self, stream: &TcpStream, port: u16) -> Result<(), DialError> {
        if !self.own.is_everywhere_at(port) {
            return Ok(());
        }
        let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else {
            return Ok(());
        };
        if local.ip() == peer.ip() {
            return Err(Denied::Own(peer).into());
        }
        Ok(())
    }
}

/// The addresses that may be dialled, at least one.
fn vet(
    host: &Host,
    port: u16,
    ips: &[IpAddr],
    judge: impl Fn(SocketAddr) -> Result<(), Denied>,
) -> Result<Vec<SocketAddr>, DialError> {
    let mut vetted = Vec::with_capacity(ips.len());
    let mut denied = None;
    for ip in ips {
        let addr = SocketAddr::new(ip.to_canonical(), port);
        match judge(addr) {
            Ok(()) => vetted.push(addr),
            Err(why) => denied = denied.or(Some(why)),
        }
    }
    match denied {
        Some(denied) if vetted.is_empty() => Err(denied.into()),
        _ if vetted.is_empty() => {
            Err(DialError::Dns(host.clone(), "the name has no address".to_owned()))
        }
        _ => Ok(vetted),
    }
}

fn covers(pattern: &EgressPattern, host: &Host, ip: IpAddr, port: u16) -> bool {
    let at_port = |wanted: &Option<u16>| wanted.is_none_or(|wanted| wanted == port);
    match pattern {
        EgressPattern::Loopback => ip.is_loopback(),
        EgressPattern::Private => network::is_private(ip),
        EgressPattern::LinkLocal => network::is_link_local(ip),
        EgressPattern::Network(network, wanted) => network.contains(&ip) && at_port(wanted),
        EgressPattern::Host(pattern, wanted) => pattern.matches(host) && at_port(wanted),
    }
}

#[cfg(test)]
mod tests;
