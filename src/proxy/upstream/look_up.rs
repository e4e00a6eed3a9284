//! Looks up a site before its request is held, for rules whose scopes are named by addresses.
//!
//! Tidegate dials the addresses that were found here, without a second look-up. The guard judges them before the hold,
//! so that a denied request takes no token, and again before they are dialled.

use std::net::IpAddr;

use super::{
    egress::{self, DialError},
    forward::dial_verdict,
};
use crate::{
    gate::Client,
    proxy::{MatchedRequest, access::AccessLine, context::LiveConfig, reply::Refused},
    rules::Rule,
    target::Target,
};

/// Looks up the site of `target` if an address names its scope under `rule`, and records its server in `target`.
/// Returns the addresses to dial; none if they do not name the scope.
///
/// # Errors
/// The name could not be resolved, or the egress guard denies its addresses.
pub(crate) async fn look_up(
    live: &LiveConfig,
    rule: &Rule,
    target: &mut Target,
    client: &Client,
) -> Result<Option<Box<[IpAddr]>>, DialError> {
    if !rule.is_per_address() {
        return Ok(None);
    }
    let timeout = live.settings.timeouts.connect;
    let found = live.egress.look_up(&target.host, target.port, client, timeout).await?;
    target.server = found.first().map(|ip| rule.server(&target.host, egress::reached(*ip)));
    Ok(Some(found))
}

/// Looks up the site of a request before its hold, if an address names its scope. A failure takes no token and belongs
/// to no scope, so it is counted but not reported.
///
/// # Errors
/// The refusal.
pub(crate) async fn before_hold(
    matched: &mut MatchedRequest,
    live: &LiveConfig,
    line: Option<&mut AccessLine>,
) -> Result<(), Refused> {
    let MatchedRequest { entry, target, client, .. } = matched;
    if !entry.rule.is_per_address() {
        return Ok(());
    }
    // Boxed, so that a held request does not carry its state.
    match Box::pin(look_up(live, &entry.rule, target, client)).await {
        Ok(addresses) => matched.addresses = addresses,
        Err(error) => {
            if let Some(judgement) = dial_verdict(&error) {
                entry.metrics.verdict(judgement.verdict).inc();
            }
            return Err(Refused::from(&error).under(entry));
        }
    }
    if let Some(line) = line {
        line.rule_found(matched);
    }
    Ok(())
}
