//! The permit to send one request, from its grant to its report.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    Entry, Outcome, RefusalReason, Refused,
    active_scope::ActiveScope,
    bucket::Slot,
    grant::{Grant, GrantState},
    preferences::Request,
    reports::{self, Seen, deliver},
};
use crate::{
    classify::{
        site_limits::SiteLimit,
        verdict::{Confidence, Evidence, Judgement, Verdict},
    },
    limiter::{
        cooldown::{self, Answer, Named, REFUSAL_WEIGHT, Report},
        learn,
        load::Tally,
        policy::CooldownPolicy,
        refusals::PlainRefusal,
    },
    observability::event::Event,
    runtime::clock,
};

/// The permit to send one request.
#[derive(Debug)]
pub struct Permit {
    grant: Grant,
    request: Request,
    held: Duration,
    observe: bool,
    /// How the response refuses the page, if only its status shows it.
    refusal: Option<PlainRefusal>,
    /// What the site says about its limit. Boxed, because few sites do.
    site_limit: Option<Box<SiteLimit>>,
    /// The time until the first byte of the response.
    took: Option<Duration>,
}

/// A held request. It leaves the queue when its future is dropped.
struct Held<'a> {
    scope: &'a ActiveScope,
    seq: u64,
    answered: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.scope.queue.leave(self.seq);
        }
    }
}

impl Permit {
    pub(super) fn new(grant: Grant, request: Request, held: Duration, observe: bool) -> Self {
        grant.entry.metrics.held_for(request.urgency.level(), held);
        Self { grant, request, held, observe, refusal: None, site_limit: None, took: None }
    }

    /// How long the request was held.
    #[must_use]
    pub fn held(&self) -> Duration {
        self.held
    }

    /// How long from now until the scope is free again, as far as this member knows without a call; `None` under `mode:
    /// observe`, which never holds requests.
    #[must_use]
    pub fn next_in(&self) -> Option<Duration> {
        let Self { grant, request, .. } = self;
        (!self.observe).then(|| grant.scope.queue.next_in(&grant.scope, &request.client))
    }

    /// The rule.
    #[must_use]
    pub fn entry(&self) -> &Arc<Entry> {
        &self.grant.entry
    }

    /// The last check before the first byte goes to the site. False if a cooldown has tripped since the grant, or if
    /// the ticket or the slot is void. Then the request must not be sent; see [`Permit::again`].
    #[must_use]
    pub fn may_send(&mut self) -> bool {
        !self.is_late() && self.may_open()
    }

    /// The slot that counts the request as in flight (`parallel`). Keep it until the response is complete.
    #[must_use]
    pub fn take_slot(&mut self) -> Option<Box<Slot>> {
        self.grant.slot.take()
    }

    /// A new connection took this long. That time does not make the request late. Otherwise every ticket for a distant
    /// site would be void.
    pub fn connected(&mut self, took: Duration) {
        self.grant.ticket.at += took;
    }

    /// Whether its ticket is late by more than the slack.
    #[must_use]
    pub fn is_late(&self) -> bool {
        !self.observe && self.grant.is_late()
    }

    /// The same check for a tunnel, which used its ticket when it began to connect.
    #[must_use]
    pub fn may_open(&mut self) -> bool {
        let slot = self.grant.slot.as_ref().filter(|_| !self.observe);
        let may = self.may_go_on() && slot.is_none_or(|slot| slot.is_good());
        let grant = &mut self.grant;
        if may {
            if grant.ticket.probe && grant.state == GrantState::Unsent {
                reports::probe_sent(&grant.scope, &self.request.target);
            }
            if grant.entry.rule.eases && !self.observe {
                grant.scope.metering.sent();
            }
            grant.state = GrantState::Sent;
            grant.scope.sent.fetch_add(1, Ordering::Relaxed);
            grant.scope.queue.note_used(&grant.entry.rule, &self.request.client, grant.ticket.at);
        }
        may
    }

    /// The request does not go through the proxy. Its ticket is used, and [`super::Gate::report_outside`] reports the
    /// outcome of a probe.
    pub(super) fn go_outside(self) {
        let Grant { scope, ticket, .. } = &self.grant;
        if ticket.probe {
            *scope.outside_probe.lock() = Some((ticket.epoch, ticket.id));
        }
        // A request outside of the proxy is not counted, because its end is not reported.
        drop(self.grant.forget());
    }

    /// Whether no cooldown has tripped since the grant, for traffic that continues under it (a tunnel). Changes
    /// nothing.
    #[must_use]
    pub fn may_go_on(&self) -> bool {
        self.observe || self.grant.allows()
    }

    /// Restarts its wait, for a tunnel that is held by a trip after a long time.
    pub fn renew(&mut self) {
        self.request.since = clock::now();
        self.request.deadline = self.request.since + self.grant.entry.rule.max_wait;
    }

    /// Returns to the head of the queue, after a trip or to retry a blocked response.
    ///
    /// # Errors
    /// As [`super::Gate::hold`]; the time held before counts towards `max_wait`.
    pub async fn again(&mut self) -> Result<(), Refused> {
        let scope = Arc::clone(&self.grant.scope);
        // Returned before the wait, because a quota may need this very token.
        self.grant.return_unused();
        self.grant = wait(&scope, &self.request, true).await?;
        self.held = self.request.since.elapsed();
        Ok(())
    }

    /// Records the limit that the site announces. It is reported with the verdict.
    pub fn hear_limit(&mut self, said: Option<SiteLimit>) {
        self.site_limit = said.map(Box::new);
    }

    /// Records the time until the head of the response.
    pub fn hear_time(&mut self, took: Duration) {
        self.took = Some(took);
    }

    /// Records how the response refuses the page, if only its status shows it.
    pub fn hear_refusal(&mut self, refusal: Option<PlainRefusal>) {
        self.refusal = refusal;
    }

    /// Whether a plain refusal is part of a wall; `None` if the response is not a plain refusal.
    fn is_walled(&mut self, judgement: &Judgement) -> Option<bool> {
        let refusal = self.refusal.take().filter(|_| judgement.verdict == Verdict::Ok)?;
        // A probe must show whether the site has recovered.
        let probes = self.grant.ticket.probe && refusal == PlainRefusal::Busy;
        // An overloaded site lowers the rate instead.
        if self.grant.entry.rule.eases && refusal == PlainRefusal::Busy {
            return Some(probes);
        }
        Some(self.grant.scope.cooldown.refused(refusal, self.address()) || probes)
    }

    /// Reports the request rate that the site's `robots.txt` asks for. Call it after the verdict.
    pub async fn tell_delay(&mut self, said: SiteLimit) {
        let scope = Arc::clone(&self.grant.scope);
        scope.cooldown.note_delay(&said, self.grant.entry.rule.limits.cost);
        self.site_limit = Some(Box::new(said));
        let Some(named) = self.named() else { return };
        let report = self.grant.report(Answer::Nothing, 0);
        let report = Report { probe: 0, named: Some(named), ..report };
        let shared = Arc::clone(&scope.shared);
        shared.store.spawn(deliver(scope, report, None)).await.ok();
    }

    /// What the site says about its limit, if the fleet does not know it yet.
    fn named(&mut self) -> Option<Named> {
        let said = self.site_limit.take()?;
        let Grant { scope, entry, .. } = &self.grant;
        let named = scope.cooldown.name(&said, entry.rule.limits.cost)?;
        if let Some(rate) = scope.cooldown.announces(&named) {
            scope.shared.events.emit(Event::SiteLimit {
                rule: Arc::clone(&entry.rule.name),
                key: Arc::clone(&scope.cooldown.key),
                target: self.request.target.clone(),
                rate,
            });
        }
        Some(named)
    }

    /// Reports the verdict to the fleet and counts it. Cheap if there is nothing to report.
    ///
    /// The report goes out even if the caller is dropped meanwhile.
    pub async fn report(&mut self, judgement: &Judgement) {
        if self.grant.state == GrantState::Done {
            return;
        }
        let scope = Arc::clone(&self.grant.scope);
        let eases = self.grant.entry.rule.eases;
        let load = if eases { self.strain(judgement) } else { None };
        if self.grant.state == GrantState::Unsent {
            // The connection failed, and the ticket is used up.
            scope.queue.note_used(
                &self.grant.entry.rule,
                &self.request.client,
                self.grant.ticket.at,
            );
        }
        self.grant.state = GrantState::Done;
        let verdict = judgement.verdict;
        self.grant.entry.metrics.verdict(verdict).inc();
        scope.verdicts[verdict as usize].fetch_add(1, Ordering::Relaxed);
        self.count_marks(judgement);
        if !judgement.is_transport() {
            scope.shared.responding_sites.answered(&self.request.target.host);
        }
        let walled;
        let is_busy = self.refusal == Some(PlainRefusal::Busy);
        let (judgement, answer) = match self.is_walled(judgement) {
            None => (judgement, self.weigh(judgement, 0.0)),
            Some(true) => {
                walled = refused(judgement);
                (&walled, self.weigh_run(&walled, is_busy))
            }
            Some(false) => (judgement, self.weigh_refusal(judgement, is_busy)),
        };
        let named = self.named();
        let is_block = matches!(answer, Some(Answer::Block { .. }));
        let rule = &self.grant.entry.rule;
        let error = rule.error_limit(judgement.status).filter(|_| !is_block);
        let has_news = named.is_some() || error.is_some() || load.is_some();
        let Some(answer) = answer.or(has_news.then_some(Answer::Nothing)) else { return };
        let oks = if answer == Answer::Nothing { 0 } else { scope.cooldown.take_oks() };
        let report = Report { named, error, load, ..self.grant.report(answer, oks) };
        let seen = Seen { target: self.request.target.clone(), judgement: judgement.clone() };
        // A separate task, because the client may disconnect.
        let shared = Arc::clone(&scope.shared);
        shared.store.spawn(deliver(scope, report, Some(seen))).await.ok();
    }

    /// The report on the load for the store, if the rule uses it.
    fn strain(&self, judgement: &Judgement) -> Option<Tally> {
        let Grant { scope, entry, state, .. } = &self.grant;
        if self.observe || *state != GrantState::Sent {
            return None;
        }
        // While the rate is eased, all members must be counted.
        let asked = scope.queue.learned().why == learn::RateReason::Overload;
        scope.metering.answered(entry, judgement, self.took, asked)
    }

    /// Reports an answer that cannot be judged (a tunnel, an upgraded connection).
    pub async fn report_unseen(&mut self) {
        let judgement = Judgement::unseen(self.grant.ticket.probe);
        self.report(&judgement).await;
    }

    /// Counts the signatures that matched without deciding, so that a bad signature shows before it decides.
    fn count_marks(&self, judgement: &Judgement) {
        let metrics = &self.grant.scope.shared.metrics;
        for signature in &judgement.decoys {
            metrics.signature_decoys(signature).inc();
        }
        for signature in &judgement.logged {
            metrics.signature_hits(signature).inc();
            let (rule, host) = (&self.grant.entry.rule.name, &self.request.target.host);
            tracing::debug!(%signature, %rule, %host, "a signature that is set to log matched");
        }
    }

    /// The effect of the judgement on the cooldown; `None` if there is nothing to report. A block counts at least
    /// `least`.
    fn weigh(&self, judgement: &Judgement, least: f64) -> Option<Answer> {
        let grant = &self.grant;
        let policy = grant.entry.rule.cooldown.as_ref()?;
        let weight = policy.on.of(judgement.verdict, judgement.status);
        let cooldown = &grant.scope.cooldown;
        let answer = match weight {
            _ if judgement.neutral => Answer::Nothing,
            Some(weight) => {
                self.report_block(judgement);
                if judgement.verdict == Verdict::BlankPage && !cooldown.is_new_blank(self.address())
                {
                    Answer::Nothing
                } else {
                    // A block that also announces the state of the limit names its wait.
                    let hold = self.site_limit.as_ref().and_then(|said| said.hold);
                    let retry_after = judgement.retry_after.or(hold).map_or(0, clock::micros);
                    let (sure, verdict) = (is_sure(judgement), judgement.verdict);
                    Answer::Block { weight: weight.max(least), retry_after, sure, verdict }
                }
            }
            None if judgement.verdict == Verdict::Ok => {
                cooldown.forget_blanks();
                cooldown.answered();
                Answer::Ok
            }
            None => self.silence(judgement, policy).unwrap_or(Answer::Nothing),
        };
        let silent = match answer {
            Answer::Ok => !grant.ticket.probe && cooldown.count_ok(),
            Answer::Nothing => !grant.ticket.probe,
            Answer::Block { .. } | Answer::Silence { .. } | Answer::Refusal { .. } => false,
        };
        (!silent).then_some(answer)
    }

    /// A plain refusal among good pages does not count, unless the rule lists its status. With a learned rate, the
    /// share of 503s counts.
    fn weigh_refusal(&self, judgement: &Judgement, is_busy: bool) -> Option<Answer> {
        let rule = &self.grant.entry.rule;
        let policy = rule.cooldown.as_ref()?;
        let listed = policy.on.of(judgement.verdict, judgement.status).is_some();
        if listed || self.grant.ticket.probe {
            return self.weigh(judgement, 0.0);
        }
        let counts = is_busy && rule.limits.learn.is_some() && !rule.eases && !judgement.neutral;
        counts.then_some(Answer::Refusal { weight: REFUSAL_WEIGHT })
    }

    /// A plain refusal that ends a run counts as a whole streak. With a learned rate, the store knows whether a run of
    /// 503s is likely by chance.
    fn weigh_run(&self, walled: &Judgement, is_busy: bool) -> Option<Answer> {
        let rule = &self.grant.entry.rule;
        let after = rule.cooldown.as_ref()?.after;
        let is_scattered = is_busy && rule.limits.learn.is_some() && !self.grant.ticket.probe;
        match self.weigh(walled, after) {
            Some(Answer::Block { weight, .. }) if is_scattered => Some(Answer::Refusal { weight }),
            answer => answer,
        }
    }

    /// A failed connection to a site that answered before.
    fn silence(&self, judgement: &Judgement, policy: &CooldownPolicy) -> Option<Answer> {
        let silence = policy.silence?;
        let verdict = judgement.verdict;
        let Grant { scope, entry, ticket, state, .. } = &self.grant;
        let host = &self.request.target.host;
        let strains = *state == GrantState::Sent && judgement.verdict == Verdict::Timeout;
        if strains && entry.rule.eases {
            return None;
        }
        if !judgement.is_silence() || !scope.shared.responding_sites.is_silent(host, ticket.probe) {
            return None;
        }
        let weight = cooldown::silence_weight(policy.after, silence);
        Some(Answer::Silence { weight, verdict })
    }

    fn report_block(&self, judgement: &Judgement) {
        let Grant { scope, entry, .. } = &self.grant;
        entry.metrics.block(judgement.verdict).inc();
        scope.shared.events.emit(Event::Blocked {
            rule: Arc::clone(&entry.rule.name),
            key: Arc::clone(&scope.cooldown.key),
            target: self.request.target.clone(),
            judgement: judgement.clone(),
        });
    }

    fn address(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.request.target.host, &self.request.target.path).hash(&mut hasher);
        hasher.finish()
    }
}

/// Waits in the queue of its bucket.
pub(super) async fn wait(
    scope: &Arc<ActiveScope>,
    request: &Request,
    returns: bool,
) -> Result<Grant, Refused> {
    let seq = request.seq;
    let refused = |why: RefusalReason, retry_after| Refused {
        why,
        retry_after,
        held: request.since.elapsed(),
        entry: Arc::clone(&scope.entry()),
    };
    if scope.shared.is_stopping() {
        return Err(refused(RefusalReason::Stopping, None));
    }
    let outcome = scope
        .queue
        .enqueue(scope, request, returns)
        .map_err(|(why, retry_after)| refused(why, retry_after))?;
    let mut held = Held { scope, seq, answered: false };
    let outcome = outcome.await;
    held.answered = true;
    match outcome {
        Ok(Outcome::Go(grant)) => Ok(grant),
        Ok(Outcome::Refused(why, retry_after)) => Err(refused(why, retry_after)),
        // The scheduler ends only with an empty queue. If it fails, its guard refuses the rest.
        Err(_) => Err(refused(RefusalReason::Stopping, None)),
    }
}

/// The judgement of a refusal that affects all pages at once.
fn refused(judgement: &Judgement) -> Judgement {
    let status = judgement.status.unwrap_or_default();
    let evidence = Evidence {
        signature: Arc::from("refused-everywhere"),
        vendor: None,
        place: "status".to_owned(),
        excerpt: format!("{status}, for one page after the other"),
    };
    Judgement {
        verdict: Verdict::Forbidden,
        confidence: Confidence::Low,
        evidence: Some(Box::new(evidence)),
        ..judgement.clone()
    }
}

/// A recognised wall, or a block that names its wait, is a sure sign. A plain refusal may concern only one page.
fn is_sure(judgement: &Judgement) -> bool {
    judgement.retry_after.is_some()
        || judgement.confidence == Confidence::High && judgement.verdict != Verdict::BlankPage
}
