//! Looks up sites for the API, if the rule is split by address.

use std::sync::Arc;

use super::{Context, reply::Problem};
use crate::{gate::Client, proxy::look_up, target::Target};

/// Looks up the server of `target` under `per: address`, as the proxy does before it holds a
/// request.
///
/// # Errors
/// The name could not be resolved, or the egress guard denies its addresses.
pub(super) async fn locate(cx: &Context, target: &mut Target) -> Result<(), Problem> {
    let Some(entry) = cx.gate.find(target) else { return Ok(()) };
    let client = Client::Caller(Arc::from("api"));
    let found = look_up(&cx.proxy.live(), &entry.rule, target, &client).await;
    found.map(drop).map_err(|error| {
        let (status, reason, _) = error.response();
        Problem::new(status, error.to_string()).with("reason", reason.as_str())
    })
}
