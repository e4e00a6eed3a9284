//! The path of a request, top to bottom.
//!
//! accept -> target -> authenticate -> rule -> **hold** -> connect -> last check -> send ->
//! **observe** -> report -> relay. `handle_request` follows that order, with one call into a module
//! for each step.

mod access;
mod admission;
mod budget;
mod client;
mod context;
mod extended;
mod headers;
mod inspect;
mod local;
mod matched_request;
mod reply;
mod stream;
mod suspects;
mod tunnel;
mod upstream;

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{HeaderValue, Method, Request, Response, StatusCode, header, response::Parts};
use hyper::body::Incoming;
use tracing::Instrument as _;

use self::{
    access::{AccessLine, RequestIdentity},
    client::ClientConn,
    context::LiveConfig,
    headers::HeaderFlags,
    tunnel::{intercept, upgrade, upgrade::Upgrading},
    upstream::{
        forward,
        forward::{Outbound, UpstreamResponse},
        upload::Progress,
    },
};
pub use self::{
    client::{accept::serve, auth, body::Body, workers::Workers},
    context::Context,
    inspect::SiteBody,
    upstream::{egress, resolve, tls},
};
pub(crate) use self::{
    matched_request::{MatchedRequest, SendPermit},
    reply::{Refusal, Refused},
    upstream::look_up::look_up,
};
use crate::{
    classify::{Head, Reading, robots, verdict::Verdict},
    gate::{Client, Entry},
    http1,
    observability::{metrics::UserMetrics, traces::StepName},
    rules::{Action, Mode, Rule},
    target::Target,
};

/// Fields for which hyper's parser does not allocate.
const HYPER_HEADERS: usize = 100;

/// Handles one request: every outcome is a response.
pub(crate) async fn handle(
    cx: &Arc<Context>,
    client_conn: &ClientConn,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let is_connect = request.method() == Method::CONNECT;
    let is_extended = extended::is_asked_by(&request);
    let answering = client_conn.connection.as_ref().map(http1::Handle::answering);
    let live = cx.live();
    let settings = &live.settings;
    let (logs, annotates) = (settings.log.access, settings.annotate);
    let identity = RequestIdentity::take(request.headers_mut(), logs, cx.traces.as_ref());
    let is_recorded = logs || identity.is_traced();
    let line = is_recorded.then(|| AccessLine::new(client_conn, &request, &identity, logs));
    let mut exchange = Exchange { line, ..Exchange::default() };
    let answer = if identity.span.is_none() {
        handle_request(cx, client_conn, live, request, &mut exchange).await
    } else {
        // Boxed: the instrumented future would be moved several times. Few clients send an id.
        let span = identity.span.clone();
        Box::pin(handle_request(cx, client_conn, live, request, &mut exchange).instrument(span))
            .await
    };
    if let Some(user) = &exchange.user {
        let counter = if answer.is_ok() { &user.relayed } else { &user.refused };
        counter.inc();
    }
    if let (Some(line), Err(refusal)) = (&mut exchange.line, &answer) {
        line.refused(refusal);
    }
    let names = annotates || answer.is_err();
    let mut response = match answer {
        Ok(response) => response,
        Err(refusal) => {
            let next = refusal.next.filter(|_| annotates).map(headers::next_value);
            let mut response = refusal.into_response(&cx.metrics);
            if let Some(next) = next {
                response.headers_mut().insert(headers::NEXT, next);
            }
            response
        }
    };
    if names {
        identity.annotate(response.headers_mut());
    }
    if is_extended {
        extended::fold(&mut response);
    }
    let mut line = exchange.line.take();
    if let Some(line) = &mut line {
        line.answered(response.status(), &exchange);
    }
    if is_connect && !response.status().is_success() {
        // Bytes after a refused CONNECT may have been meant for the tunnel (RFC 9931).
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    } else if is_connect || response.status() == StatusCode::SWITCHING_PROTOCOLS {
        client_conn.pass_through();
    }
    if client_conn.inside.is_some() {
        // Alt-Svc (RFC 7838) would lead clients around the proxy, over HTTP/3.
        response.headers_mut().remove(header::ALT_SVC);
    }
    response.body_mut().set_answering(answering);
    response.body_mut().set_access_line(line);
    Ok(response)
}

/// The path of a request, to the response or the refusal.
async fn handle_request(
    cx: &Arc<Context>,
    client_conn: &ClientConn,
    live: Arc<LiveConfig>,
    mut request: Request<Incoming>,
    exchange: &mut Exchange,
) -> Result<Response<Body>, Refused> {
    if client_conn.activity.is_some() {
        admission::admit_frames(cx, &live, &request)?;
    }
    extended::unfold(&mut request)?;
    let (target, client) = match &client_conn.inside {
        Some(inside) => inside.admit(&live, &request)?,
        None => {
            let target = Target::parse(request.method(), request.uri())?;
            (target, live.authenticator.check(request.headers(), client_conn.peer.ip())?)
        }
    };
    if let Client::User(name) = &client {
        exchange.user = live.users.get(name).cloned();
    }
    exchange.note(|line| line.admitted(&client, &target));
    let flags = HeaderFlags::of(request.headers());
    if let Some(answer) = admission::answer_here(cx, &mut request, flags)? {
        return Ok(answer);
    }
    let is_ours = local::is_ours(&target);
    if is_ours && request.method() != Method::CONNECT {
        return local::answer(cx, client_conn, &request, &target);
    }
    let preferences = headers::hold_preferences(request.headers(), flags);
    let mut matched = MatchedRequest::new(cx, target, client, preferences)?;
    if flags.via {
        matched.passed = Some(request.headers().get_all(header::VIA).iter().cloned().collect());
    }
    exchange.note(|line| {
        line.rule_found(&matched);
        matched.trace = line.trace();
    });
    if request.method() == Method::CONNECT {
        if matched.entry.rule.intercept || is_ours && cx.gate.intercepts() {
            return intercept::open(
                cx,
                &live,
                client_conn.peer,
                matched,
                request,
                &mut exchange.line,
            );
        }
        matched.judge(&live)?;
        let line = &mut exchange.line;
        return Box::pin(tunnel::open(cx, &live, client_conn.peer, matched, request, line)).await;
    }
    matched.judge(&live)?;
    upstream::look_up::before_hold(&mut matched, &live, exchange.line.as_deref_mut()).await?;
    let method = request.method().clone();
    let upgrading = hyper::upgrade::on(&mut request);
    let idle = live.settings.timeouts.idle;
    let share = admission::reserve_memory(cx, client_conn, &request, &matched.entry)?;
    let mut outbound = Outbound::new(cx, idle, &matched.target, request, flags)?;
    let upgrading = upgrade::admit(cx, &live, client_conn, &outbound, &matched.entry, upgrading)?;
    outbound.borrow_timer(client_conn);
    exchange.note(|line| line.hold_began(cx, &matched, outbound.progress.as_ref()));
    let held = matched.hold(cx, &live).await;
    exchange.note(|line| line.hold_ended(&held));
    let permit = held?;
    drop(share);
    // A reload during the hold counts.
    let live = cx.live();
    let granted = Granted { cx, live: &live, client_conn, matched: &matched, method: &method };
    // Boxed: a held request need not carry this state.
    Box::pin(granted.exchange(&mut outbound, permit, upgrading, exchange)).await
}

/// A request with its permit, and everything that sending it needs.
#[derive(Clone, Copy)]
struct Granted<'a> {
    cx: &'a Arc<Context>,
    live: &'a LiveConfig,
    client_conn: &'a ClientConn,
    matched: &'a MatchedRequest,
    method: &'a Method,
}

impl Granted<'_> {
    /// The rest of the path: to the site and back.
    async fn exchange(
        self,
        outbound: &mut Outbound,
        mut permit: SendPermit,
        upgrading: Upgrading,
        exchange: &mut Exchange,
    ) -> Result<Response<Body>, Refused> {
        let Self { cx, live, client_conn, matched, method } = self;
        let asks_robots = &*matched.target.path == "/robots.txt" && matched.entry.rule.site_limits;
        let agent = asks_robots.then(|| outbound.agent());
        loop {
            exchange.held = permit.held();
            let again =
                outbound.is_repeatable() && exchange.sent < retries(&matched.entry.rule, method);
            let sent =
                forward::send(cx, live, client_conn, matched, outbound, &mut permit, again).await;
            let metrics = &matched.entry.metrics;
            metrics.bytes_up.inc_by(outbound.progress.as_ref().map_or(0, Progress::bytes));
            let answer = sent.map_err(|refusal| refusal.next(permit.next_in()))?;
            metrics.response(answer.response.status().as_u16()).inc();
            (exchange.took, exchange.held, exchange.sent) =
                (answer.took, permit.held(), exchange.sent + 1);
            exchange.unread = answer.conn.unwanted.is_some();
            if answer.response.status() == StatusCode::SWITCHING_PROTOCOLS {
                permit.report_unseen().await;
                let entry = &matched.entry;
                let mut line = exchange.line.take();
                if let Some(line) = &mut line {
                    line.answered(answer.response.status(), exchange);
                }
                return Ok(upgrade::join(cx, live, client_conn, upgrading, answer, entry, line));
            }
            let UpstreamResponse { response, flags, conn, .. } = answer;
            let (head, body) = response.into_parts();
            if flags.limit {
                permit.note_limit(&head.headers);
            }
            if matched.entry.rule.eases {
                permit.note_time(exchange.took);
            }
            if !head.status.is_success() {
                permit.note_refusal(&head);
            }
            let idle = live.settings.timeouts.idle;
            let mut body = SiteBody::new(body, conn, idle, permit.take_slot());
            let judged = match matched.entry.rule.action {
                Action::Bypass => None,
                Action::Limit | Action::Deny => self.observe(&head, &mut body, permit).await,
            };
            if live.settings.annotate {
                let permit = judged.as_ref().map(|(_, permit)| permit).or_else(|| body.permit());
                exchange.next = permit.and_then(SendPermit::next_in);
            }
            if let Some((verdict, mut judged_permit)) = judged {
                if let Some(agent) = agent.as_ref().filter(|_| head.status == StatusCode::OK) {
                    Box::pin(self.read_robots(&head, &mut body, agent, &mut judged_permit)).await;
                }
                let blocked = again && matched.entry.rule.retry.on.contains(&verdict);
                exchange.verdict = Some(verdict);
                let holding = if blocked { matched.step(StepName::Hold) } else { None };
                if blocked {
                    body.end_slot();
                }
                // Without time for another attempt, the client gets the blocked response.
                if blocked && judged_permit.again(live).await.is_ok() {
                    permit = judged_permit;
                    continue;
                }
                drop(holding);
            }
            if body.is_cut_off() {
                return Err(Refusal::cut_off().under(&matched.entry));
            }
            outbound.return_timer(client_conn);
            return Ok(self.relay(head, flags, body, exchange));
        }
    }

    /// Judges the response and reports the verdict: at once, or while the body passes if the
    /// verdict is not clear in time.
    async fn observe(
        self,
        head: &Parts,
        body: &mut SiteBody,
        permit: SendPermit,
    ) -> Option<(Verdict, SendPermit)> {
        let Self { live, matched, method, .. } = self;
        let inspect = &live.settings.inspect;
        let limits = inspect.limits();
        let (status, headers) = (head.status, &head.headers);
        let seen = Head { method, target: &matched.target, status, headers };
        let mut permit = permit;
        permit.inspects(matched);
        let (mut judgement, mut permit) = match matched.entry.rule.classifier.read(seen, limits) {
            Reading::Judged(judgement) => (judgement, permit),
            Reading::Scan(scan) => {
                body.watch(scan, permit);
                if !inspect::may_wait(headers) {
                    return None;
                }
                body.look(inspect.delay).await?
            }
        };
        permit.report(&mut judgement).await;
        Some((judgement.verdict, permit))
    }

    /// Reads the `Crawl-delay` of a `robots.txt`.
    async fn read_robots(
        self,
        head: &Parts,
        body: &mut SiteBody,
        agent: &str,
        permit: &mut SendPermit,
    ) {
        let text = body.read(robots::MOST, self.live.settings.inspect.delay).await;
        if let Some(said) = robots::crawl_delay(&head.headers, &text, agent) {
            permit.report_delay(said).await;
        }
    }

    /// The site's response for the client: without hop-by-hop fields, with our entry in `Via` and
    /// our own fields.
    fn relay(
        self,
        mut head: Parts,
        flags: HeaderFlags,
        body: SiteBody,
        exchange: &Exchange,
    ) -> Response<Body> {
        if flags.coding {
            // A message with both would have two lengths; the coding was used to read it (RFC 9112
            // section 6.3).
            head.headers.remove(header::CONTENT_LENGTH);
        }
        if flags.hop {
            headers::strip_answer(&mut head.headers);
        }
        head.headers.append(header::VIA, self.cx.via.of(head.version));
        head.version = http::Version::HTTP_11;
        if exchange.unread {
            head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if self.live.settings.annotate {
            exchange.annotate(&mut head.headers, &self.matched.entry);
        }
        Response::from_parts(head, Body::site(body, &self.matched.entry))
    }
}

/// How often a blocked request may be repeated.
fn retries(rule: &Rule, method: &Method) -> u32 {
    let retry = &rule.retry;
    // `mode: observe` holds and changes nothing, so the client gets a blocked response.
    let enforced = rule.action == Action::Limit && rule.mode == Mode::Enforce;
    if enforced && retry.methods.contains(method) { retry.attempts } else { 0 }
}

/// The record of an exchange.
#[derive(Debug, Default)]
struct Exchange {
    /// `None` if the response was relayed before its verdict was clear.
    verdict: Option<Verdict>,
    held: Duration,
    took: Duration,
    /// How long until the scope is free again.
    next: Option<Duration>,
    /// How often the request was sent.
    sent: u32,
    /// The site never requested the body, so the client's connection must end.
    unread: bool,
    /// `None` if neither the access log nor traces are wanted.
    line: Option<Box<AccessLine>>,
    /// The metrics of its user; `None` if nobody logged in.
    user: Option<Arc<UserMetrics>>,
}

impl Exchange {
    /// Records something for the access log, if it is wanted.
    fn note(&mut self, note: impl FnOnce(&mut AccessLine)) {
        if let Some(line) = &mut self.line {
            note(line);
        }
    }

    fn annotate(&self, headers: &mut http::HeaderMap, entry: &Entry) {
        if let Some(verdict) = self.verdict {
            headers.insert(headers::VERDICT, HeaderValue::from_static(verdict.as_str()));
        }
        if let Some(name) = &entry.name {
            headers.insert(headers::RULE, name.clone());
        }
        if let Some(next) = self.next {
            headers.insert(headers::NEXT, headers::next_value(next));
        }
        if self.sent > 1 {
            headers.insert(headers::ATTEMPTS, self.sent.into());
        }
        if let Some(timing) = headers::server_timing(self.held, self.took) {
            headers.append(headers::SERVER_TIMING, timing);
        }
    }
}

#[cfg(test)]
mod tests;
