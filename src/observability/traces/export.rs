//! Exports finished requests to the collector in batches, as JSON over HTTP (OTLP/HTTP).

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::counter::Counter;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::{mpsc, oneshot},
    time::{sleep, timeout, timeout_at},
};
use tokio_rustls::TlsConnector;

use super::{BadSetting, Finished, OtlpSettings, json};
use crate::{runtime::clock, tls::roots};

/// Requests per export: a few hundred KiB of JSON.
const BATCH: usize = 256;
/// How often a batch is sent before it is dropped.
const ATTEMPTS: u32 = 3;
/// The wait before the second attempt; it doubles.
const PAUSE: Duration = Duration::from_secs(1);
/// Most bytes of a response that are read.
const ANSWER: usize = 64 * 1024;

/// A message to the exporter.
#[derive(Debug)]
pub(super) enum Message {
    Finished(Box<Finished>),
    /// Export all queued spans, then reply.
    Flush(oneshot::Sender<()>),
}

/// Sends spans to the collector.
pub(super) struct Exporter {
    settings: OtlpSettings,
    tls: Option<TlsConnector>,
    /// The connection, kept between exports.
    connection: Option<SendRequest<Full<Bytes>>>,
    exported: Counter,
    dropped: Counter,
    /// Whether the last batch failed, which has been logged.
    is_failing: bool,
}

/// Why an export failed.
#[derive(Debug)]
enum Failed {
    /// Another attempt may succeed.
    Transient(String),
    /// The collector rejects the batch.
    Refused(String),
}

impl Exporter {
    pub(super) fn new(
        settings: OtlpSettings,
        exported: Counter,
        dropped: Counter,
    ) -> Result<Self, BadSetting> {
        let tls = if settings.endpoint.scheme_str() == Some("https") {
            let trusted = roots::with(settings.roots.as_slice());
            let trusted = trusted
                .map_err(|bad| BadSetting(format!("OTEL_EXPORTER_OTLP_CERTIFICATE: {bad}")))?;
            let config = roots::client(roots::provider())
                .with_root_certificates(trusted)
                .with_no_client_auth();
            Some(TlsConnector::from(Arc::new(config)))
        } else {
            None
        };
        Ok(Self { settings, tls, connection: None, exported, dropped, is_failing: false })
    }

    /// Exports until all senders are gone.
    pub(super) async fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        loop {
            let (batch, flush) = self.gather(&mut messages).await;
            if !batch.is_empty() {
                self.export(&batch).await;
            }
            match flush {
                Next::Batch => {}
                Next::Flushed(done) => drop(done.send(())),
                Next::End => return,
            }
        }
    }

    /// The next batch, which is full or as old as allowed.
    async fn gather(&self, messages: &mut mpsc::Receiver<Message>) -> (Vec<Box<Finished>>, Next) {
        let mut batch = Vec::new();
        let mut until = None;
        while batch.len() < BATCH {
            let message = match until {
                None => messages.recv().await,
                Some(until) => match timeout_at(until, messages.recv()).await {
                    Ok(message) => message,
                    Err(_) => return (batch, Next::Batch),
                },
            };
            match message {
                Some(Message::Finished(finished)) => batch.push(finished),
                Some(Message::Flush(done)) => return (batch, Next::Flushed(done)),
                None => return (batch, Next::End),
            }
            until.get_or_insert_with(|| clock::now() + self.settings.delay);
        }
        (batch, Next::Batch)
    }

    async fn export(&mut self, batch: &[Box<Finished>]) {
        let spans = batch.iter().map(|finished| finished.count()).sum();
        let body = Bytes::from(json::export(&self.settings.resource, batch).to_string());
        match self.send(&body).await {
            Ok(()) => {
                self.exported.inc_by(spans);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the collector accepts spans again");
                }
            }
            Err(error) => {
                self.dropped.inc_by(spans);
                if !std::mem::replace(&mut self.is_failing, true) {
                    let endpoint = self.authority();
                    tracing::warn!(
                        endpoint,
                        error,
                        "spans do not reach the collector and are dropped"
                    );
                }
            }
        }
    }

    /// Sends one body, again if a retry may succeed.
    async fn send(&mut self, body: &Bytes) -> Result<(), String> {
        let mut pause = PAUSE;
        for attempt in 1.. {
            let once = timeout(self.settings.timeout, self.post(body.clone())).await;
            let once = once.unwrap_or_else(|_| Err(Failed::Transient("no answer in time".into())));
            match once {
                Ok(()) => return Ok(()),
                Err(Failed::Refused(why)) => return Err(why),
                Err(Failed::Transient(why)) => {
                    self.connection = None;
                    // While the collector is away, each batch gets a single attempt.
                    if attempt >= ATTEMPTS || self.is_failing {
                        return Err(why);
                    }
                }
            }
            sleep(pause).await;
            pause *= 2;
        }
        Ok(())
    }

    async fn post(&mut self, body: Bytes) -> Result<(), Failed> {
        let transient = |error: anyhow::Error| Failed::Transient(format!("{error:#}"));
        let response = self.answer(body).await.map_err(transient)?;
        let status = response.status();
        // Read completely, so that the connection can be reused.
        let read = Limited::new(response.into_body(), ANSWER).collect().await;
        let text = read.map(|read| read.to_bytes()).unwrap_or_default();
        if status.is_success() {
            return Ok(());
        }
        let start = String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned();
        let why = format!("the collector answered {status}: {start}");
        // The statuses that the OTLP specification allows a client to retry.
        let again = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ];
        Err(if again.contains(&status) { Failed::Transient(why) } else { Failed::Refused(why) })
    }

    async fn answer(&mut self, body: Bytes) -> anyhow::Result<Response<Incoming>> {
        let open = self.connection.take().filter(|connection| !connection.is_closed());
        let mut sender = match open {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        sender.ready().await?;
        let endpoint = &self.settings.endpoint;
        let path = endpoint.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::post(path)
            .header(header::HOST, self.authority())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("tidegate/", env!("CARGO_PKG_VERSION")));
        for (name, value) in &self.settings.headers {
            request = request.header(name, value);
        }
        let response = sender.send_request(request.body(Full::new(body))?).await?;
        self.connection = Some(sender);
        Ok(response)
    }

    async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let endpoint = &self.settings.endpoint;
        let host = host(endpoint);
        let port = endpoint.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await.context("cannot connect")?;
        match &self.tls {
            None => speak(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned())?;
                speak(tls.connect(name, stream).await.context("TLS")?).await
            }
        }
    }

    /// Host and port of the collector.
    fn authority(&self) -> &str {
        // Without user name and password.
        let authority =
            self.settings.endpoint.authority().map_or("", |authority| authority.as_str());
        authority.rsplit('@').next().unwrap_or_default()
    }
}

/// What to do after a batch.
enum Next {
    Batch,
    Flushed(oneshot::Sender<()>),
    End,
}

/// The host, an IPv6 address without its brackets.
fn host(endpoint: &Uri) -> &str {
    endpoint.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to the collector ended");
        }
    });
    Ok(sender)
}
