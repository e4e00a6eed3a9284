//! Requests that do not go through the proxy: they take their token here and report their response
//! here.

use std::{sync::Arc, time::Duration};

use super::{
    Client, Entry, Gate, Preferences, Refused, Urgency, bucket::Ticket, grant::Grant,
    permit::Permit, preferences::Request,
};
use crate::{classify::verdict::Judgement, runtime::clock, store::Store as _, target::Target};

impl Gate {
    /// Holds a request that does not go through the proxy, and returns how long it was held. Its token is used. A probe
    /// stays in flight until [`Self::report_outside`] reports its response or its lease ends.
    ///
    /// # Errors
    /// As [`Self::hold`].
    pub async fn acquire(
        &self,
        entry: &Arc<Entry>,
        target: &Target,
        client: &Client,
        preferences: Preferences,
    ) -> Result<Duration, Refused> {
        let mut permit = self.hold(entry, target, client, preferences).await?;
        while !permit.may_send() {
            permit.again().await?;
        }
        let held = permit.held();
        permit.go_outside();
        Ok(held)
    }

    /// Counts a response that did not go through the proxy (`POST /api/v1/report`).
    pub async fn report_outside(&self, target: &Target, judgement: &Judgement) -> bool {
        let Some(entry) = self.find(target) else { return false };
        let scope = entry.scopes.find(&entry, target);
        let since = clock::now();
        let request = Request {
            target: target.clone(),
            client: Client::Caller(Arc::from("report")),
            since,
            deadline: since,
            seq: 0,
            urgency: Urgency::default(),
        };
        let asked = clock::now();
        if scope.cooldown.open_epoch().is_none()
            && let Ok(peeked) = self.shared.store.peek(&scope.stored).await
        {
            // A client that has not acquired a token knows no epoch, and a report without an epoch would count as late.
            scope.cooldown.peeked(&peeked, asked);
        }
        let probe = scope.outside_probe.lock().take();
        let ticket = match probe.filter(|(epoch, _)| scope.cooldown.allows(*epoch, true)) {
            Some((epoch, id)) => Ticket { at: since, id, epoch, probe: true },
            None => Ticket { at: since, id: 0, epoch: scope.cooldown.epoch(), probe: false },
        };
        let grant = Grant::new(&scope, &entry, ticket, None);
        Permit::new(grant, request, Duration::ZERO, true).report(judgement).await;
        true
    }
}
