//! One exchange with the site: the connection, the last check of the gate, the request, and the head of the response.

mod answer;
mod failure;
mod shape;

use std::{pin::pin, sync::Arc, time::Duration};

use http::{HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::net::TcpStream;

use self::failure::Failure;
use super::{
    egress::DialError,
    interim::{ContinueWait, Interim},
    pool::{Conn, ConnKey},
    tls,
    upload::{IdleTimer, Progress, Upload},
    via::{self, route::Route},
};
use crate::{
    classify::verdict::{Judgement, Verdict},
    observability::traces::{OpenStep, StepName},
    proxy::{
        ClientConn, Context, MatchedRequest, Refusal, SendPermit,
        context::LiveConfig,
        extended::Accept,
        headers::{self, HeaderFlags},
        reply::Refused,
        stream::Stream,
    },
    runtime::clock::{self, Instant},
    target::{Scheme, Target},
};

/// A request for the site.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// The request without its body. Kept if the request may be sent again.
    head: Request<()>,
    upload: Upload,
    pub(crate) progress: Option<Progress>,
    repeatable: bool,
    upgrades: bool,
    /// Whether it authenticates its client for a whole connection (NTLM, Negotiate).
    logs_in: bool,
    /// The key of a WebSocket handshake, if the client has none.
    accept: Option<Accept>,
    /// Whether the client's HTTP version has interim responses (RFC 9110 section 15.2).
    accepts_interim: bool,
    interim: Interim,
    /// Whether the client waits for `100 Continue` before it sends the body.
    expects_continue: bool,
    /// Ends the wait for the response. The timer belongs to the client's connection, which lends it to each request.
    response_timer: IdleTimer,
}

/// The head of a response, and the connection on which it came.
#[derive(Debug)]
pub(crate) struct UpstreamResponse {
    pub(crate) response: Response<Incoming>,
    /// The flags of its fields.
    pub(crate) flags: HeaderFlags,
    pub(crate) conn: Conn,
    /// The time from the first byte sent to the head of the response.
    pub(crate) took: Duration,
}

impl Outbound {
    /// Rewrites a client's request into the site's: origin-form, the target's authority as Host,
    /// HTTP/1.1, nothing of this hop, and our entry in `Via`. `flags` describes its fields.
    ///
    /// # Errors
    /// None, if the target was parsed from this request.
    pub(crate) fn new(
        cx: &Context,
        idle: Duration,
        target: &Target,
        request: Request<Incoming>,
        flags: HeaderFlags,
    ) -> Result<Self, Refused> {
        let (mut head, body) = request.into_parts();
        let version = head.version;
        let logs_in = headers::logs_a_connection_in(&head.headers);
        let accepts_interim = version == Version::HTTP_11;
        let is_h2 = version == Version::HTTP_2;
        let accept = if is_h2 { head.extensions.remove::<Accept>() } else { None };
        let may_upgrade = version == Version::HTTP_11 || accept.is_some();
        let mut upgrade = None;
        if flags.hop {
            upgrade = headers::upgrade(&head.headers).filter(|_| may_upgrade);
            headers::strip(&mut head.headers);
        }
        if is_h2 {
            headers::join_cookies(&mut head.headers);
        }
        if flags.prefer {
            headers::take_max_wait(&mut head.headers);
        }
        let named = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let is_named = named.is_some_and(|host| {
            // Both are nearly always the same text.
            head.uri.authority().is_some_and(|authority| authority.as_str() == host)
                || target.is_named_by(host)
        });
        head.uri = origin_form(target, &head.uri)?;
        head.version = Version::HTTP_11;
        if !is_named {
            let host = HeaderValue::try_from(target.authority()).map_err(|_| bad_target())?;
            head.headers.insert(header::HOST, host);
        }
        head.headers.append(header::VIA, cx.via.of(version));
        let repeatable = body.is_end_stream();
        if !repeatable && body.size_hint().exact().is_none() {
            // hyper's client drops a body of unknown length from a GET unless its framing is written out.
            let chunked = HeaderValue::from_static("chunked");
            head.headers.insert(header::TRANSFER_ENCODING, chunked);
        }
        let upgrade = upgrade.filter(|_| repeatable);
        let upgrades = upgrade.is_some();
        if let Some(protocol) = upgrade {
            head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            head.headers.insert(header::UPGRADE, protocol);
        }
        let progress = (!repeatable).then(Progress::default);
        let interim = Interim::default();
        let wait = if flags.expect { ContinueWait::new(&head.headers, &interim) } else { None };
        let expects_continue = wait.is_some();
        let upload = match &progress {
            None => Upload::Empty,
            Some(progress) => Upload::Client {
                body,
                idle: IdleTimer::new(idle),
                progress: progress.clone(),
                wait,
            },
        };
        Ok(Self {
            head: Request::from_parts(head, ()),
            upload,
            progress,
            repeatable,
            upgrades,
            logs_in,
            accept,
            accepts_interim,
            interim,
            expects_continue,
            response_timer: IdleTimer::default(),
        })
    }

    /// Borrows the timer of the client's connection.
    pub(crate) fn borrow_timer(&mut self, client_conn: &ClientConn) {
        if let Some(response_timer) = client_conn.response_timer.lock().take() {
            self.response_timer = response_timer;
        }
    }

    /// Returns the timer, for the next request.
    pub(crate) fn return_timer(&mut self, client_conn: &ClientConn) {
        *client_conn.response_timer.lock() = Some(std::mem::take(&mut self.response_timer));
    }

    /// The client's `User-Agent`.
    pub(crate) fn agent(&self) -> String {
        let agent = self.head.headers().get(header::USER_AGENT);
        agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default().to_owned()
    }

    /// Whether it has no body and can be sent again.
    pub(crate) fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    /// Whether it requests a protocol upgrade.
    pub(crate) fn is_upgrade(&self) -> bool {
        self.upgrades
    }

    /// The request to send now. With `keep`, a copy of the head stays here.
    fn request(&mut self, keep: bool) -> Request<Upload> {
        let upload = std::mem::replace(&mut self.upload, Upload::Empty);
        // Sends the original map, because hyper reuses its capacity for the response's fields.
        let kept = if keep { self.head.clone() } else { Request::default() };
        std::mem::replace(&mut self.head, kept).map(|()| upload)
    }

    fn may_repeat(&self) -> bool {
        self.repeatable && self.head.method().is_idempotent()
    }
}

fn bad_target() -> Refused {
    Refusal::malformed(StatusCode::BAD_REQUEST, "The target cannot be written as a request line.")
}

/// The target as origin-form, byte for byte as the client wrote it (RFC 9112 section 3.2.1).
fn origin_form(target: &Target, uri: &Uri) -> Result<Uri, Refused> {
    match uri.path_and_query() {
        Some(path) if path.as_str() == &*target.path => Ok(Uri::from(path.clone())),
        _ => Uri::try_from(&*target.path).map_err(|_| bad_target()),
    }
}

/// Sends `outbound` and waits for the head of the response.
///
/// A site may close a kept-alive connection at the moment of its use. Then the request is sent once more on a new
/// connection, without a second token, if that is safe: nothing was sent, or the request is idempotent and has no body.
///
/// `again`: the caller may send the same request later.
///
/// # Errors
/// The refusal for the client. The failure has already been reported to the fleet.
pub(crate) async fn send(
    cx: &Arc<Context>,
    live: &LiveConfig,
    client_conn: &ClientConn,
    matched: &MatchedRequest,
    outbound: &mut Outbound,
    permit: &mut SendPermit,
    again: bool,
) -> Result<UpstreamResponse, Refused> {
    let target = &matched.target;
    let mut returned = None;
    let mut wanted = Wanted {
        http1_only: outbound.upgrades || outbound.logs_in,
        fresh: outbound.upgrades,
        own: outbound.logs_in,
    };
    loop {
        let mut conn = connect(cx, live, client_conn, matched, permit, wanted).await?;
        let fresh = wanted.fresh;
        let mut request = match returned.take() {
            Some(request) => request,
            None => outbound.request(again || (conn.reused && outbound.may_repeat())),
        };
        shape::fit(&mut request, target, conn.is_h2(), conn.names_the_site());
        outbound.interim.listen(&mut request, conn.is_h2(), cx.via.of(Version::HTTP_11));
        let mut step = matched.step(StepName::Send);
        let started = clock::now();
        let sending = pin!(conn.send(request));
        let limit = live.settings.timeouts.response;
        let client = client_conn.connection.as_ref();
        let failure = match answer::wait(sending, outbound, client, started, limit).await {
            Ok(mut response) => {
                if conn.names_the_site().is_some() {
                    via::judge_answer(cx, &response, permit)?;
                }
                conn.unwanted = outbound.interim.answered(outbound.expects_continue);
                let took = clock::now() - started;
                if let Some(step) = &mut step {
                    step.status(response.status().as_u16());
                }
                permit.entry().metrics.upstream_seconds.observe(took.as_secs_f64());
                let flags = answer::check(outbound, &mut response)?;
                return Ok(UpstreamResponse { response, flags, conn, took });
            }
            Err(failure) => failure,
        };
        if let Some(mut step) = step {
            step.failed(&failure.refusal());
        }
        let failure = match failure {
            Failure::Unsent(request) if conn.reused && !fresh => {
                returned = Some(*request);
                None
            }
            Failure::Broken(_) if conn.reused && !fresh && outbound.may_repeat() => None,
            failure => Some(failure),
        };
        if let Some(failure) = failure {
            if let Some(bound) = failure.bound() {
                cx.metrics.reached(bound);
            }
            if let Some(error) = conn.names_the_site().and_then(|_| failure.of_the_connection()) {
                // The other end is the upstream proxy, so nothing is known about the site.
                cx.upstream_failed(&permit.entry().rule, &error);
                return Err(error.refusal().under(permit.entry()));
            }
            return Err(Box::pin(failure.report(permit)).await);
        }
        cx.metrics.member.upstream_retries.inc();
        wanted.fresh = true;
    }
}

/// How long a new connection waits for its request's next ticket.
const KEPT_UNUSED: Duration = Duration::from_secs(5);

/// The kind of connection that a request needs.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    /// A new one.
    fresh: bool,
    /// Not HTTP/2.
    http1_only: bool,
    /// A connection for this client only, because the site assigns all requests on it to this client.
    own: bool,
}

/// A connection, and the permit to use it now. The cooldown is checked for the last time between connecting and
/// sending.
async fn connect(
    cx: &Arc<Context>,
    live: &LiveConfig,
    client_conn: &ClientConn,
    matched: &MatchedRequest,
    permit: &mut SendPermit,
    wanted: Wanted,
) -> Result<Conn, Refused> {
    let target = &matched.target;
    let rule = &permit.entry().rule;
    let verify = rule.verify;
    let tls = target.scheme == Scheme::Https;
    let via = rule.via.as_ref().map(|proxy| Route::new(proxy, target, wanted.http1_only));
    let (host, server) = (target.host.clone(), target.server.clone());
    let key = ConnKey { tls, verify, via, host, server, port: target.port };
    let mut late = None;
    loop {
        let pinned = || match &key.via {
            None => client_conn.pinned.take(&key, &matched.client, live.generation),
            // The client has logged in to the site itself.
            Some(via) => {
                let key = ConnKey { via: Some(Route::to_the_site(&via.proxy)), ..key.clone() };
                client_conn.pinned.take(&key, &matched.client, live.generation)
            }
        };
        let pooled = || if wanted.own { None } else { cx.pool.take(&key, live.generation) };
        let again = late.take();
        let kept = if wanted.fresh { again } else { again.or_else(pinned).or_else(pooled) };
        let mut conn = match kept {
            Some(conn) => conn,
            // Boxed, because few requests reach this path.
            None => {
                let step = matched.step(StepName::Connect);
                let began = clock::now();
                let opened =
                    Box::pin(open(cx, live, matched, permit, key.clone(), wanted.http1_only)).await;
                ended(step, &opened);
                permit.connected(began.elapsed());
                opened?
            }
        };
        if wanted.own {
            conn.pin_to(&client_conn.pinned, &matched.client);
        }
        if permit.may_send() {
            return Ok(conn);
        }
        // If the ticket expired meanwhile, the connection is kept for the next ticket, but not for long: most sites
        // close an idle connection before a cooldown ends.
        late = permit.is_late().then_some(conn);
        let asked = clock::now();
        let _holding = matched.step(StepName::Hold);
        Box::pin(permit.again(live)).await?;
        late = late.filter(|_| asked.elapsed() < KEPT_UNUSED);
        // The site may already be closing it.
        late.iter_mut().for_each(|conn| conn.reused = true);
    }
}

async fn open(
    cx: &Arc<Context>,
    live: &LiveConfig,
    matched: &MatchedRequest,
    permit: &mut SendPermit,
    key: ConnKey,
    http1_only: bool,
) -> Result<Conn, Refused> {
    let deadline = clock::now() + live.settings.timeouts.connect;
    if let Some(via) = &key.via {
        let stream = via::connect(via, cx, live, matched, permit, deadline).await?;
        return speak(cx, live, matched, permit, key, (http1_only, deadline), stream).await;
    }
    let stream = dial(live, matched, permit).await?;
    speak(cx, live, matched, permit, key, (http1_only, deadline), stream).await
}

/// Starts HTTP over `stream`, which leads to `key`: HTTP/2 if the site chooses it. TLS must be established before the
/// deadline.
async fn speak<S: Stream + 'static>(
    cx: &Arc<Context>,
    live: &LiveConfig,
    matched: &MatchedRequest,
    permit: &mut SendPermit,
    key: ConnKey,
    (http1_only, deadline): (bool, Instant),
    stream: S,
) -> Result<Conn, Refused> {
    let (limits, generation) = (live.settings.limits, live.generation);
    let (bytes, fields) = (limits.header_bytes, limits.headers);
    let opened = if key.tls {
        let verify = key.verify;
        let host = &matched.target.host;
        match live.tls.connect(host, stream, verify, http1_only, deadline).await {
            Ok(stream) if tls::is_h2(&stream) => cx.pool.open_h2(key, generation, stream).await,
            Ok(stream) => cx.pool.open(key, generation, stream, bytes, fields).await,
            Err(error) => {
                permit.report(&mut error.judgement()).await;
                return Err(error.refusal().under(permit.entry()));
            }
        }
    } else {
        cx.pool.open(key, generation, stream, bytes, fields).await
    };
    opened.map_err(|error| Failure::Broken(error).refusal().under(permit.entry()))
}

/// Ends the span of a step. The step has failed if its outcome is a refusal.
pub(crate) fn ended<T>(step: Option<OpenStep>, outcome: &Result<T, Refused>) {
    if let (Some(mut step), Err(refusal)) = (step, outcome) {
        step.failed(refusal);
    }
}

/// Connects to the site; the guard judges the address that is dialled.
pub(crate) async fn dial(
    live: &LiveConfig,
    matched: &MatchedRequest,
    permit: &mut SendPermit,
) -> Result<TcpStream, Refused> {
    let timeout = live.settings.timeouts.connect;
    let MatchedRequest { target, client, addresses, .. } = matched;
    let (host, port) = (&target.host, target.port);
    let dialled = match addresses {
        Some(addresses) => live.egress.connect_to(host, port, addresses, timeout).await,
        None => live.egress.connect(host, port, client, timeout).await,
    };
    match dialled {
        Ok(stream) => Ok(stream),
        Err(error) => {
            if let Some(mut judgement) = dial_verdict(&error) {
                permit.report(&mut judgement).await;
            }
            Err(Refused::from(&error).under(permit.entry()))
        }
    }
}

/// The verdict on a site that could not be connected; `None` if this proxy is the cause.
pub(crate) fn dial_verdict(error: &DialError) -> Option<Judgement> {
    let verdict = match error {
        DialError::Denied(_) | DialError::Short(_) => return None,
        DialError::DnsTimeout(_) => {
            return Some(Judgement::unresolved(Verdict::Timeout, &error.to_string()));
        }
        DialError::Dns(..) => {
            return Some(Judgement::unresolved(Verdict::ConnectionError, &error.to_string()));
        }
        DialError::Timeout(..) => Verdict::Timeout,
        DialError::Refused(..) | DialError::Other(..) => Verdict::ConnectionError,
    };
    Some(Judgement::transport(verdict, &error.to_string()))
}
