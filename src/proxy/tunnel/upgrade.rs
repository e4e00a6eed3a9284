//! WebSocket and other protocol upgrades: one token for the handshake, then bytes both ways.

use std::sync::Arc;

use http::{HeaderValue, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;

use super::{copy, intercept::Activity};
use crate::{
    gate::Entry,
    proxy::{
        Body, ClientConn, Context,
        access::{AccessLine, Tally},
        budget::TunnelSlot,
        context::LiveConfig,
        headers,
        reply::Refused,
        stream::Side,
        upstream::{
            forward::{Outbound, UpstreamResponse},
            pool::GaugeGuard,
        },
    },
};

/// The upgrade that a request may lead to.
#[derive(Debug)]
pub(crate) struct Upgrading {
    client: OnUpgrade,
    /// Its tunnel slot; `None` if it requests no upgrade.
    slot: Option<Arc<TunnelSlot>>,
}

/// Takes a slot for the tunnel that a request may become.
///
/// # Errors
/// There are too many tunnels.
pub(crate) fn admit(
    cx: &Context,
    live: &LiveConfig,
    client_conn: &ClientConn,
    outbound: &Outbound,
    entry: &Arc<Entry>,
    client: OnUpgrade,
) -> Result<Upgrading, Refused> {
    let slot = match &client_conn.inside {
        _ if !outbound.is_upgrade() => None,
        // Inside an intercepted CONNECT with HTTP/1.1, an upgrade keeps the slot of the CONNECT.
        Some(inside) if client_conn.activity.is_none() => Some(Arc::clone(&inside.slot)),
        Some(_) | None => Some(Arc::new(super::take_slot(cx, live, entry)?)),
    };
    Ok(Upgrading { client, slot })
}

/// Connects client and site after the site's 101, which the client gets with the site's fields.
pub(crate) fn join(
    cx: &Arc<Context>,
    live: &LiveConfig,
    client_conn: &ClientConn,
    upgrading: Upgrading,
    answer: UpstreamResponse,
    entry: &Entry,
    mut line: Option<Box<AccessLine>>,
) -> Response<Body> {
    let Upgrading { client, slot } = upgrading;
    let mut response = answer.response;
    let site = hyper::upgrade::on(&mut response);
    let idle = live.settings.timeouts.idle;
    let (end, metrics) = (cx.end.clone(), Arc::clone(&cx.metrics));
    let counted = GaugeGuard::new(&entry.metrics.tunnels);
    let tally = Tally::new(entry);
    if let Some(line) = &mut line {
        line.tunnel_opened(response.status(), &tally);
    }
    let active = client_conn.activity.as_ref().map(Activity::begin);
    cx.tunnels.spawn(async move {
        let (_counted, _active, _slot, _line) = (counted, active, slot, line);
        let copied = async {
            // The client's connection is available only after it got the 101.
            let (site, client) = tokio::try_join!(site, client).map_err(std::io::Error::other)?;
            let (client, site) = (Side::of_client(client), Side::of_site(site));
            copy::both(client, site, None, &tally, idle).await
        };
        tokio::select! {
            ended = copied => if let Err(error) = ended {
                super::ended(&metrics, &error);
            },
            () = end.cancelled() => {}
        }
    });
    relay(response.into_parts().0)
}

/// The site's 101 for the client.
fn relay(mut head: http::response::Parts) -> Response<Body> {
    let protocol = head.headers.get(header::UPGRADE).cloned();
    headers::strip(&mut head.headers);
    head.extensions.clear();
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = head.headers;
    if let Some(protocol) = protocol {
        response.headers_mut().insert(header::UPGRADE, protocol);
    }
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    response
}
