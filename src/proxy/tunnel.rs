//! CONNECT: held first, then dialled, then answered, then bytes both ways.
//!
//! An open tunnel is part of the traffic: nothing more goes from client to site while its scope
//! cools down, and with `tunnel: flights` each new client flight after an answer takes a token.
//! What is withheld stays in the client's socket, but for one buffer.

pub(super) mod copy;

use std::{io, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::net::TcpStream;

use super::{
    Asking, Body, Context, Pass, Refusal,
    context::Live,
    forward,
    pool::Counted,
    reply::{Refused, sentence},
};
use crate::{
    metrics::{Bound, Metrics, Reason},
    rules::TunnelCount,
};

/// Opens the tunnel that a CONNECT asks for; the 200 stands for a connection that is there (RFC
/// 9110 section 9.3.6).
///
/// # Errors
/// The refusal for the client, which closes the connection (RFC 9931).
pub(super) async fn open(
    cx: &Arc<Context>,
    live: &Arc<Live>,
    asking: Asking,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Refused> {
    admit(cx, live, &asking)?;
    let (site, pass) = establish(cx, live, &asking).await?;
    let upgrade = hyper::upgrade::on(&mut request);
    let flights = Flights::new(Arc::clone(cx), Arc::clone(live), asking, pass);
    let end = cx.end.clone();
    cx.tunnels.spawn(async move {
        let serving = async {
            match upgrade.await {
                Ok(upgraded) => serve(copy::Side::of_client(upgraded), site, flights).await,
                Err(error) => tracing::debug!(%error, "the client left before its tunnel began"),
            }
        };
        tokio::select! {
            () = serving => {}
            () = end.cancelled() => {}
        }
    });
    Ok(Response::new(Body::empty()))
}

/// Whether a CONNECT is let in at all.
///
/// # Errors
/// Its port is not allowed, or there are too many tunnels.
pub(super) fn admit(cx: &Context, live: &Live, asking: &Asking) -> Result<(), Refused> {
    if let Err(denied) = live.egress.judge_connect_port(asking.target.port) {
        let (status, error) = (http::StatusCode::FORBIDDEN, denied.proxy_error());
        let sentence = sentence(&denied.to_string());
        return Err(Refusal::new(status, Reason::Egress, error, sentence).under(&asking.entry));
    }
    if cx.tunnels.len() >= live.settings.limits.tunnels {
        cx.metrics.reached(Bound::Tunnels);
        return Err(Refusal::busy("tunnels").under(&asking.entry));
    }
    Ok(())
}

/// Joins a client whose CONNECT is answered already to the site.
pub(super) async fn join(cx: &Arc<Context>, live: &Arc<Live>, asking: Asking, client: copy::Side) {
    match establish(cx, live, &asking).await {
        Ok((site, pass)) => {
            let flights = Flights::new(Arc::clone(cx), Arc::clone(live), asking, pass);
            serve(client, site, flights).await;
        }
        Err(refused) => tracing::debug!(%refused, "a tunnel is refused after its CONNECT"),
    }
}

/// A connection to the site, and leave to use it now.
async fn establish(
    cx: &Arc<Context>,
    live: &Arc<Live>,
    asking: &Asking,
) -> Result<(TcpStream, Pass), Refused> {
    let mut pass = asking.hold(cx, live).await?;
    loop {
        let site = forward::dial(live, &asking.target, &mut pass).await?;
        if pass.may_send() {
            cx.tunnel_begins(&asking.entry.rule);
            return Ok((site, pass));
        }
        drop(site);
        pass.again(live).await?;
    }
}

async fn serve(client: copy::Side, site: TcpStream, flights: Flights) {
    let _counted = Counted::new(&flights.asking.entry.metrics.tunnels);
    let idle = flights.live.settings.timeouts.idle;
    let site = copy::Side::Tcp(site, Bytes::new());
    if let Err(error) = copy::both(client, site, Some(&flights), idle).await {
        ended(&flights.cx.metrics, &error);
    }
}

/// Tells why a tunnel, or what an upgrade made one, did not end by itself.
pub(super) fn ended(metrics: &Metrics, error: &io::Error) {
    if error.kind() == io::ErrorKind::TimedOut {
        metrics.reached(Bound::IdleTunnel);
    }
    tracing::debug!(%error, "a tunnel ended");
}

/// Asks the gate before bytes go from a tunnel's client to its site.
///
/// A flight is what the client sends after the site has spoken. What is inside is not for us to
/// judge, so the report on a flight is neutral: neither a block nor a sign of health. Only where it
/// is the probe, the site's answer opens the scope: nothing better will ever be seen in a tunnel.
pub(super) struct Flights {
    cx: Arc<Context>,
    live: Arc<Live>,
    asking: Asking,
    /// Empty only while the gate is asked.
    under_way: Mutex<Option<Flight>>,
}

struct Flight {
    pass: Pass,
    answered: bool,
}

impl Flights {
    fn new(cx: Arc<Context>, live: Arc<Live>, asking: Asking, pass: Pass) -> Self {
        let first = Flight { pass, answered: false };
        Self { cx, live, asking, under_way: Mutex::new(Some(first)) }
    }

    /// Waits until more bytes may go from the client to the site.
    ///
    /// # Errors
    /// The gate refuses: the tunnel is to be closed.
    pub(super) async fn before(&self) -> io::Result<()> {
        let under_way = self.under_way.lock().take();
        let flight = match under_way {
            Some(flight) if flight.may_go_on(self.asking.entry.rule.tunnel) => flight,
            ended => {
                self.next(ended).await.map_err(|refused| io::Error::other(refused.to_string()))?
            }
        };
        *self.under_way.lock() = Some(flight);
        Ok(())
    }

    /// Whether no cooldown has tripped since the gate was last asked.
    pub(super) fn may_go_on(&self) -> bool {
        self.under_way.lock().as_ref().is_some_and(|flight| flight.pass.may_go_on())
    }

    /// Leave for a new flight, or for the rest of one that a cooldown interrupted.
    async fn next(&self, ended: Option<Flight>) -> Result<Flight, Refused> {
        let mut pass = match ended {
            Some(Flight { mut pass, answered: false }) => {
                pass.again(&self.live).await?;
                pass
            }
            _ => self.asking.hold(&self.cx, &self.live).await?,
        };
        while !pass.may_send() {
            pass.again(&self.live).await?;
        }
        Ok(Flight { pass, answered: false })
    }

    /// The site has spoken: the client's next bytes are a new flight.
    pub(super) async fn answered(&self) {
        let under_way = self.under_way.lock().take();
        let Some(mut flight) = under_way else { return };
        if !flight.answered {
            flight.answered = true;
            flight.pass.report_unseen().await;
        }
        *self.under_way.lock() = Some(flight);
    }
}

impl Flight {
    fn may_go_on(&self, counted: TunnelCount) -> bool {
        let goes_on = counted == TunnelCount::Connect || !self.answered;
        goes_on && self.pass.may_go_on()
    }
}
