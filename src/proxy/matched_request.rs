//! A request with its rule, and the permit to send it.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Uri, header::LOCATION, response::Parts};

use super::{
    Context, Refusal, context::LiveConfig, reply::Refused, suspects::Suspects,
    upstream::egress::DialError,
};
use crate::{
    classify::{
        site_limits::{SiteLimit, site_limit},
        verdict::Judgement,
    },
    gate::{Client, Entry, Permit, Preferences, Slot},
    limiter::refusals::PlainRefusal,
    observability::traces::{OpenStep, StepName, Trace},
    rules::Action,
    runtime::clock,
    target::{Host, Target},
};

/// A request, and the rule that it matches.
#[derive(Debug)]
pub(crate) struct MatchedRequest {
    pub(crate) target: Target,
    pub(crate) client: Client,
    pub(crate) entry: Arc<Entry>,
    /// The preferences of the client for its hold.
    preferences: Preferences,
    /// Its spans, if they are exported.
    pub(crate) trace: Option<Arc<Trace>>,
    /// The proxies in its `Via`, to detect an upstream proxy that leads back to one of them.
    pub(crate) passed: Option<Box<[HeaderValue]>>,
    /// The addresses to dial, if they were looked up before the hold.
    pub(crate) addresses: Option<Box<[IpAddr]>>,
}

impl MatchedRequest {
    /// Finds the rule.
    ///
    /// # Errors
    /// No rule matches, or the matching rule says `deny`.
    pub(crate) fn new(
        cx: &Context,
        target: Target,
        client: Client,
        preferences: Preferences,
    ) -> Result<Self, Refused> {
        let entry = cx.gate.find(&target).ok_or_else(Refusal::unruled)?;
        if entry.rule.action == Action::Deny {
            return Err(Refusal::denied(&entry));
        }
        Ok(Self { target, client, entry, preferences, trace: None, passed: None, addresses: None })
    }

    /// A step of the request path that begins now, if its spans are exported.
    pub(crate) fn step(&self, name: StepName) -> Option<OpenStep> {
        self.trace.as_ref().map(|trace| trace.step(name))
    }

    /// Refuses a forbidden port or address before the request is held, so that it takes no token. A name is judged by
    /// its addresses when it is dialled. With `via`, the name itself is judged.
    ///
    /// # Errors
    /// The egress guard denies it.
    pub(crate) fn judge(&self, live: &LiveConfig) -> Result<(), Refused> {
        let Target { host, port, .. } = &self.target;
        let judged = match host {
            _ if self.entry.rule.via.is_some() => live.egress.judge_unseen(host, *port),
            Host::Ip(ip) => live
                .egress
                .judge_port(*port)
                .and_then(|()| live.egress.judge(host, SocketAddr::new(*ip, *port))),
            Host::Name(_) => live.egress.judge_port(*port),
        };
        judged.map_err(|denied| Refused::from(&DialError::Denied(denied)).under(&self.entry))
    }

    /// Waits for the permit to send.
    ///
    /// # Errors
    /// The gate refuses.
    pub(crate) async fn hold(
        &self,
        cx: &Context,
        live: &Arc<LiveConfig>,
    ) -> Result<SendPermit, Refused> {
        let entry = &self.entry;
        if entry.rule.action == Action::Bypass {
            return Ok(self.permit(cx, live, None));
        }
        match cx.gate.hold(entry, &self.target, &self.client, self.preferences).await {
            Ok(permit) => Ok(self.permit(cx, live, Some(permit))),
            Err(refused) => {
                let own = self.preferences.max_wait.filter(|own| *own < entry.rule.max_wait);
                Err(Refusal::gate(&refused, live.settings.refuse, own))
            }
        }
    }

    fn permit(&self, cx: &Context, live: &Arc<LiveConfig>, permit: Option<Permit>) -> SendPermit {
        SendPermit {
            entry: Arc::clone(&self.entry),
            inner: permit,
            target: self.target.clone(),
            suspects: Arc::clone(&cx.suspects),
            live: Arc::clone(live),
            inspecting: None,
        }
    }
}

/// The permit to send one request, with the state that its report needs.
#[derive(Debug)]
pub(crate) struct SendPermit {
    entry: Arc<Entry>,
    /// `None` if the rule says `action: bypass`.
    inner: Option<Permit>,
    target: Target,
    /// The suspects of all sites.
    suspects: Arc<Suspects>,
    live: Arc<LiveConfig>,
    /// The span of the inspection, which ends with the report. Boxed, because most requests have none.
    inspecting: Option<Box<OpenStep>>,
}

impl SendPermit {
    /// The rule.
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// How long the request was held.
    pub(crate) fn held(&self) -> Duration {
        self.inner.as_ref().map_or(Duration::ZERO, Permit::held)
    }

    /// How long from now until the scope is free again; `None` if its rule holds nothing.
    pub(crate) fn next_in(&self) -> Option<Duration> {
        self.inner.as_ref().and_then(Permit::next_in)
    }

    /// False once a cooldown has tripped since the grant, or once the ticket is void.
    pub(crate) fn may_send(&mut self) -> bool {
        self.inner.as_mut().is_none_or(Permit::may_send)
    }

    /// Records how long a new connection for it took.
    pub(crate) fn connected(&mut self, took: Duration) {
        if let Some(permit) = &mut self.inner {
            permit.connected(took);
        }
    }

    /// Whether its ticket is void because it is late.
    pub(crate) fn is_late(&self) -> bool {
        self.inner.as_ref().is_some_and(Permit::is_late)
    }

    /// Like [`Self::may_send`], for a tunnel.
    pub(crate) fn may_open(&mut self) -> bool {
        self.inner.as_mut().is_none_or(Permit::may_open)
    }

    /// Like [`Self::may_send`], for the rest of a request in flight.
    pub(crate) fn may_go_on(&self) -> bool {
        self.inner.as_ref().is_none_or(Permit::may_go_on)
    }

    /// Restarts the measurement of its wait.
    pub(crate) fn renew(&mut self) {
        if let Some(permit) = &mut self.inner {
            permit.renew();
        }
    }

    /// The slot that counts the request as in flight. Keep it until the response is complete.
    pub(crate) fn take_slot(&mut self) -> Option<Box<Slot>> {
        self.inner.as_mut().and_then(Permit::take_slot)
    }

    /// Waits for another permit.
    ///
    /// # Errors
    /// The gate refuses.
    pub(crate) async fn again(&mut self, live: &LiveConfig) -> Result<(), Refused> {
        let Some(permit) = &mut self.inner else { return Ok(()) };
        permit.again().await.map_err(|refused| Refusal::gate(&refused, live.settings.refuse, None))
    }

    /// The head of the response has arrived; its body is inspected next.
    pub(crate) fn inspects(&mut self, matched: &MatchedRequest) {
        self.inspecting = matched.step(StepName::Inspect).map(Box::new);
    }

    /// Reads the limit that the site may announce in these fields. It is reported with the verdict.
    pub(crate) fn note_limit(&mut self, headers: &HeaderMap) {
        if let Some(permit) = self.inner.as_mut().filter(|_| self.entry.rule.site_limits) {
            permit.hear_limit(site_limit(headers, clock::wall()));
        }
    }

    /// Reports the `Crawl-delay` of the site's `robots.txt`.
    pub(crate) async fn report_delay(&mut self, said: SiteLimit) {
        if let Some(permit) = &mut self.inner {
            permit.tell_delay(said).await;
        }
    }

    /// Records the time until the head of the response.
    pub(crate) fn note_time(&mut self, took: Duration) {
        if let Some(permit) = &mut self.inner {
            permit.hear_time(took);
        }
    }

    /// Records whether the response is a plain refusal, judged only by its status or the target of its redirect.
    pub(crate) fn note_refusal(&mut self, head: &Parts) {
        let leads_home = || {
            let location = head.headers.get(LOCATION).and_then(|value| value.to_str().ok());
            let path = location.and_then(|text| text.trim().parse::<Uri>().ok());
            path.is_some_and(|uri| uri.path() == "/" && uri.query().is_none())
        };
        let refusal = match head.status.as_u16() {
            503 => Some(PlainRefusal::Busy),
            400 => Some(PlainRefusal::Unclear),
            301 | 302 | 303 | 307 if &*self.target.path != "/" && leads_home() => {
                Some(PlainRefusal::Unclear)
            }
            _ => None,
        };
        if let Some(permit) = &mut self.inner {
            permit.hear_refusal(refusal);
        }
    }

    /// Reports the verdict to the fleet. `judgement` becomes a block if many of the site's pages are the same suspect.
    pub(crate) async fn report(&mut self, judgement: &mut Judgement) {
        let inspect = &self.live.settings.inspect;
        self.suspects.judge(&self.entry, &self.target, inspect, judgement);
        if let Some(mut step) = self.inspecting.take() {
            step.verdict(judgement.verdict);
        }
        if let Some(permit) = &mut self.inner {
            permit.report(judgement).await;
        }
    }

    /// Reports a response that cannot be judged.
    pub(crate) async fn report_unseen(&mut self) {
        if let Some(permit) = &mut self.inner {
            permit.report_unseen().await;
        }
    }
}
