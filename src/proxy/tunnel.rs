//! CONNECT: holds the request, connects to the site, responds, and then copies bytes both ways.
//!
//! An open tunnel is limited too. While its scope cools down, no more bytes of a possible request go from client to
//! site. With `tunnel: flights`, each new client flight after a response takes a token. If the client uses TLS, only
//! application data counts; handshake, alerts and control frames pass. Withheld bytes stay in the client's socket,
//! except for one buffer.

pub(crate) mod copy;
mod hello;
pub(crate) mod intercept;
mod login;
pub(crate) mod peek;
mod record_overhead;
mod records;
pub(crate) mod upgrade;

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use parking_lot::Mutex;

use super::{
    Body, Context, MatchedRequest, Refusal, SendPermit,
    access::{AccessLine, Tally},
    budget::TunnelSlot,
    context::LiveConfig,
    reply::{Refused, sentence},
    stream::Side,
    tunnel::login::TunnelLogin,
    upstream::{egress::DialError, forward, look_up::before_hold, pool::GaugeGuard, via},
};
use crate::{
    classify::verdict::Judgement,
    gate::Entry,
    observability::{
        metrics::{Bound, Metrics, Reason},
        traces::StepName,
    },
    rules::{Action, TunnelCount},
    target::{Host, Target},
};
use hello::Hello;
use records::{Piece, Records};

/// If a client has only opened HTTP/2, this many bytes from the site count as a response. The site's own SETTINGS and
/// session tickets are shorter.
const OPENING_ANSWER: usize = 768;

/// Opens the tunnel for a CONNECT. The 200 means that the connection is open (RFC 9110 section
/// 9.3.6).
///
/// # Errors
/// The refusal for the client, which closes the connection (RFC 9931).
pub(crate) async fn open(
    cx: &Arc<Context>,
    live: &Arc<LiveConfig>,
    peer: SocketAddr,
    mut matched: MatchedRequest,
    mut request: Request<Incoming>,
    line: &mut Option<Box<AccessLine>>,
) -> Result<Response<Body>, Refused> {
    if matched.entry.rule.tunnel == TunnelCount::Refuse {
        return Err(Refusal::denied(&matched.entry));
    }
    let slot = admit(cx, live, &matched)?;
    let (site, permit, live) = establish(cx, &mut matched, line.as_deref_mut()).await?;
    let tunnel_login = Arc::new(TunnelLogin::new(request.headers(), peer.ip(), &live));
    let upgrade = hyper::upgrade::on(&mut request);
    let response = Response::new(Body::empty());
    let tally = Tally::new(&matched.entry);
    let mut line = line.take();
    if let Some(line) = &mut line {
        line.tunnel_opened(response.status(), &tally);
    }
    let flights = Flights::new(Arc::clone(cx), live, matched, tunnel_login, permit, tally);
    let end = cx.end.clone();
    cx.tunnels.spawn(async move {
        let (_slot, _line) = (slot, line);
        let serving = async {
            match upgrade.await {
                Ok(upgraded) => serve(Side::of_client(upgraded), site, flights).await,
                Err(error) => tracing::debug!(%error, "the client disconnected before its tunnel \
                                                       started"),
            }
        };
        tokio::select! {
            () = serving => {}
            () = end.cancelled() => {}
        }
    });
    Ok(response)
}

/// The slot of a CONNECT that is admitted.
///
/// # Errors
/// Its port is not allowed, or there are too many tunnels.
pub(crate) fn admit(
    cx: &Context,
    live: &LiveConfig,
    matched: &MatchedRequest,
) -> Result<TunnelSlot, Refused> {
    if let Err(denied) = live.egress.judge_connect_port(matched.target.port) {
        let (status, error) = (StatusCode::FORBIDDEN, denied.proxy_error());
        let sentence = sentence(&denied.to_string());
        return Err(Refusal::new(status, Reason::Egress, error, sentence).under(&matched.entry));
    }
    take_slot(cx, live, &matched.entry)
}

/// The slot of a new tunnel, taken before the hold and kept until the tunnel ends.
///
/// # Errors
/// All slots of `limits.tunnels` are taken.
pub(crate) fn take_slot(
    cx: &Context,
    live: &LiveConfig,
    entry: &Arc<Entry>,
) -> Result<TunnelSlot, Refused> {
    cx.tunnel_slots.take(1, live.settings.limits.tunnels).ok_or_else(|| {
        cx.metrics.reached(Bound::Tunnels);
        Refusal::busy("tunnels").under(entry)
    })
}

/// Connects a client to the site after its CONNECT was answered.
pub(crate) async fn join(
    cx: &Arc<Context>,
    mut matched: MatchedRequest,
    tunnel_login: Arc<TunnelLogin>,
    client: Side,
    mut line: Option<Box<AccessLine>>,
) {
    match establish(cx, &mut matched, line.as_deref_mut()).await {
        Ok((site, permit, live)) => {
            let tally = Tally::new(&matched.entry);
            if let Some(line) = &mut line {
                line.tunnel_opened(StatusCode::OK, &tally);
            }
            let flights = Flights::new(Arc::clone(cx), live, matched, tunnel_login, permit, tally);
            serve(client, site, flights).await;
        }
        Err(refused) => {
            tracing::debug!(%refused, "a tunnel is refused after its CONNECT");
            if let Some(line) = &mut line {
                line.refused(&refused);
            }
        }
    }
}

/// A connection to the site, the permit to use it now, and the settings under which it was made.
async fn establish(
    cx: &Arc<Context>,
    matched: &mut MatchedRequest,
    mut line: Option<&mut AccessLine>,
) -> Result<(SiteSide, SendPermit, Arc<LiveConfig>), Refused> {
    before_hold(matched, &cx.live(), line.as_deref_mut()).await?;
    if let Some(line) = &mut line {
        line.hold_began(cx, matched, None);
    }
    let held = matched.hold(cx, &cx.live()).await;
    if let Some(line) = &mut line {
        line.hold_ended(&held);
    }
    let mut permit = held?;
    loop {
        // Uses the current settings, because they may have changed during the wait.
        let live = cx.live();
        let step = matched.step(StepName::Connect);
        let dialled = connect_site(cx, &live, matched, &mut permit).await;
        forward::ended(step, &dialled);
        let site = dialled?;
        if permit.may_open() {
            cx.warn_of_tunnel(&matched.entry.rule);
            return Ok((site, permit, live));
        }
        drop(site);
        let _holding = matched.step(StepName::Hold);
        permit.again(&live).await?;
    }
}

/// A connection to the site, and the dialled address (`None` with `via`).
type SiteSide = (Side, Option<SocketAddr>);

async fn connect_site(
    cx: &Context,
    live: &LiveConfig,
    matched: &MatchedRequest,
    permit: &mut SendPermit,
) -> Result<SiteSide, Refused> {
    let rule = Arc::clone(&permit.entry().rule);
    if let Some(proxy) = &rule.via {
        return Ok((via::tunnel_side(cx, live, matched, permit, proxy).await?, None));
    }
    let site = forward::dial(live, matched, permit).await?;
    let address = site.peer_addr().ok();
    Ok((Side::Tcp(site, Bytes::new()), address))
}

async fn serve(client: Side, (site, address): SiteSide, mut flights: Flights) {
    flights.site = address;
    let _counted = GaugeGuard::new(&flights.matched.entry.metrics.tunnels);
    let idle = flights.live.settings.timeouts.idle;
    if let Err(error) = copy::both(client, site, Some(&flights), &flights.tally, idle).await {
        ended(&flights.cx.metrics, &error);
    }
}

/// Reports why a tunnel or an upgraded connection ended early.
pub(crate) fn ended(metrics: &Metrics, error: &io::Error) {
    if error.kind() == io::ErrorKind::TimedOut {
        metrics.reached(Bound::IdleTunnel);
    }
    tracing::debug!(%error, "a tunnel ended");
}

/// Asks the gate before bytes go from a tunnel's client to its site.
///
/// A flight is the data that the client sends after the site has sent something. The permit of the CONNECT covers the
/// first flight. The content cannot be judged, so the report on a flight is neutral: neither a block nor a sign of
/// health. For a probe, the site's response opens the scope, because a tunnel shows no better evidence.
///
/// A reload takes effect with the next of these bytes.
pub(crate) struct Flights {
    cx: Arc<Context>,
    live: Arc<LiveConfig>,
    matched: MatchedRequest,
    tunnel_login: Arc<TunnelLogin>,
    /// The dialled address; `None` with `via`.
    site: Option<SocketAddr>,
    /// For a CONNECT to an address: the name in the client's hello, once it has arrived, must match the same rule.
    awaits_name: AtomicBool,
    records: Mutex<Records>,
    /// Empty only while the gate decides.
    under_way: Mutex<Option<Flight>>,
    /// Bytes that have passed.
    tally: Arc<Tally>,
}

struct Flight {
    permit: SendPermit,
    /// Bytes that the site must send until this flight counts as answered.
    unanswered: usize,
    /// A request was sent with it.
    used: bool,
}

impl Flights {
    fn new(
        cx: Arc<Context>,
        live: Arc<LiveConfig>,
        matched: MatchedRequest,
        tunnel_login: Arc<TunnelLogin>,
        permit: SendPermit,
        tally: Arc<Tally>,
    ) -> Self {
        let awaits_name = AtomicBool::new(matches!(matched.target.host, Host::Ip(_)));
        let under_way = Mutex::new(Some(Flight::new(permit)));
        let records = Mutex::default();
        Self { cx, live, matched, tunnel_login, site: None, awaits_name, records, under_way, tally }
    }

    /// Whether the client's first bytes may pass; false if more bytes are needed to decide.
    ///
    /// # Errors
    /// They name a host of another rule, or begin a hello that cannot be parsed.
    pub(crate) fn may_begin(&self, bytes: &[u8]) -> io::Result<bool> {
        if !self.awaits_name.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let MatchedRequest { target, entry, .. } = &self.matched;
        let may_pass = match hello::read(bytes) {
            Hello::Partial => return Ok(false),
            Hello::Nameless => true,
            Hello::Unreadable => false,
            Hello::Named(host) => {
                let named = self.cx.gate.find(&Target { host, ..target.clone() });
                named.is_some_and(|named| named.rule.name == entry.rule.name)
            }
        };
        self.awaits_name.store(false, Ordering::Relaxed);
        if may_pass {
            return Ok(true);
        }
        entry.metrics.refused(Reason::Denied).inc();
        Err(io::Error::other("a CONNECT to an address asks for a name under another rule"))
    }

    /// Whether the settings in force would let the tunnel be opened.
    fn judge(&self) -> Result<(), Refused> {
        let live = self.cx.live();
        if self.tunnel_login.is_judged_by(&live) {
            return Ok(());
        }
        let MatchedRequest { target, client, entry, .. } = &self.matched;
        let found = self.cx.gate.find(target).ok_or_else(Refusal::unruled)?;
        if found.rule.action == Action::Deny || found.rule.tunnel == TunnelCount::Refuse {
            return Err(Refusal::denied(&found));
        }
        let judged = match self.site {
            Some(site) => {
                let judged = live.egress.judge_port(target.port);
                judged.and_then(|()| live.egress.judge(&target.host, site))
            }
            None => live.egress.judge_unseen(&target.host, target.port),
        };
        judged.map_err(|denied| Refused::from(&DialError::Denied(denied)).under(entry))?;
        self.tunnel_login.judge(&live, client)
    }

    /// The kind and number of the next bytes in `bytes`; `None` if there are too few to decide.
    /// Must be called once for the same bytes.
    pub(crate) fn piece(&self, bytes: &[u8]) -> Option<(Piece, usize)> {
        self.records.lock().piece(bytes)
    }

    /// Waits until bytes of this kind may go from the client to the site.
    ///
    /// # Errors
    /// The gate refuses: the tunnel is to be closed.
    pub(crate) async fn before(&self, piece: Piece) -> io::Result<()> {
        self.judge().map_err(|refused| io::Error::other(refused.to_string()))?;
        let mut under_way = self.under_way.lock().take();
        if let (Some(flight), Piece::Request) = (&mut under_way, piece) {
            flight.end_for_next().await;
        }
        let mut flight = match under_way {
            Some(flight) if flight.may_go_on(self.matched.entry.rule.tunnel) => flight,
            ended => {
                // Boxed, because most bytes of a tunnel do not wait.
                let next = Box::pin(self.next(ended)).await;
                next.map_err(|refused| io::Error::other(refused.to_string()))?
            }
        };
        flight.sends(piece);
        *self.under_way.lock() = Some(flight);
        Ok(())
    }

    /// Whether no cooldown has tripped since the last decision of the gate.
    pub(crate) fn may_go_on(&self) -> bool {
        self.under_way.lock().as_ref().is_some_and(|flight| flight.permit.may_go_on())
    }

    /// Waits for a new flight, or for the rest of a flight that a cooldown interrupted.
    async fn next(&self, ended: Option<Flight>) -> Result<Flight, Refused> {
        let (gate, MatchedRequest { entry, target, .. }) = (&self.cx.gate, &self.matched);
        let is_recorded = self.cx.live().settings.log.access || self.matched.trace.is_some();
        let waiting = is_recorded.then(|| gate.watch_hold(entry, target));
        let step = self.matched.step(StepName::Hold);
        let next = self.next_permit(ended).await;
        forward::ended(step, &next);
        if let Some(waiting) = &waiting {
            self.tally.flight(waiting);
        }
        Ok(Flight::new(next?))
    }

    async fn next_permit(&self, ended: Option<Flight>) -> Result<SendPermit, Refused> {
        let mut permit = match ended {
            Some(Flight { mut permit, unanswered: 1.., .. }) => {
                permit.renew();
                permit.again(&self.live).await?;
                permit
            }
            _ => self.matched.hold(&self.cx, &self.live).await?,
        };
        while !permit.may_send() {
            permit.again(&self.live).await?;
        }
        Ok(permit)
    }

    /// The site has sent `bytes`. If they complete the response to a flight, the client's next bytes are a new flight.
    pub(crate) async fn answered(&self, bytes: &[u8]) {
        let may_be = {
            let mut records = self.records.lock();
            records.site_says(bytes);
            records.may_be_answered()
        };
        let under_way = self.under_way.lock().take();
        let Some(mut flight) = under_way else { return };
        if may_be && flight.count_response(bytes.len()) {
            flight.permit.report_unseen().await;
            drop(flight.permit.take_slot());
        }
        *self.under_way.lock() = Some(flight);
    }
}

impl Flight {
    fn new(permit: SendPermit) -> Self {
        Self { permit, unanswered: 1, used: false }
    }

    fn sends(&mut self, piece: Piece) {
        if piece == Piece::Opening {
            self.unanswered = OPENING_ANSWER;
        } else {
            self.unanswered = self.unanswered.min(1);
            self.used = true;
        }
    }

    /// Counts bytes from the site; true if they complete a response.
    fn count_response(&mut self, length: usize) -> bool {
        let waits = self.unanswered > 0;
        self.unanswered = self.unanswered.saturating_sub(length);
        waits && self.unanswered == 0
    }

    /// An HTTP/2 request does not wait for the previous response, so the responses cannot be distinguished.
    async fn end_for_next(&mut self) {
        if self.used && self.unanswered > 0 {
            self.unanswered = 0;
            self.permit.report(&mut Judgement::unseen(false)).await;
            drop(self.permit.take_slot());
        }
    }

    fn may_go_on(&self, counted: TunnelCount) -> bool {
        let goes_on = counted == TunnelCount::Connect || self.unanswered > 0;
        goes_on && self.permit.may_go_on()
    }
}
