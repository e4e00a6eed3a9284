//! Checks the path of a request: the proxy, its store, and a site.

use std::{env, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header, request::Builder};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{body::Incoming, client::conn::http1::handshake};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::Report;
use crate::{
    cli::{Global, ca::certificate},
    config::Loaded,
    observability::event::clean,
    rules::{Rule, settings::StoreSettings},
    tls::roots,
};

/// Longest wait for one step. With `Prefer: wait` the proxy refuses a held request earlier.
const STEP: Duration = Duration::from_secs(20);
/// Largest page of the proxy that is read.
const MOST_BODY: usize = 64 * 1024;
/// The field with the reason of a refusal.
const REFUSED: &str = "tidegate-refused";
/// Limits the hold, so that a refusal comes before the step ends.
const PREFER: &str = "prefer";
const WAIT: &str = "wait=10";
/// Variables with a file of roots, each for some clients.
const BUNDLES: [&str; 4] =
    ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"];

/// The result of a TLS handshake in a tunnel.
enum Handshake {
    Done(Box<dyn Stream>),
    /// Successful only with the proxy's own CA.
    Untrusted(Box<dyn Stream>),
    Failed(String),
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Sends requests like a client.
pub(super) struct Probe {
    /// Host and port of the proxy.
    proxy: String,
    login: Option<String>,
    url: Uri,
    admin: Option<String>,
    has_store: bool,
    ca: PathBuf,
}

impl Probe {
    /// For requests to `url` through `proxy`.
    ///
    /// # Errors
    /// `proxy` is not a URL.
    pub(super) fn new(
        proxy: &str,
        url: &Uri,
        loaded: &Loaded,
        global: &Global,
    ) -> anyhow::Result<Self> {
        let text = if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") };
        let uri: Uri = text.parse().context("not a URL")?;
        let authority = uri.authority().context("it has no host")?.as_str();
        if uri.scheme_str() != Some("http") {
            bail!("clients reach the proxy over plain HTTP: write http://HOST:PORT");
        }
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => {
                (Some(percent_decode_str(login).decode_utf8_lossy().into_owned()), place)
            }
            None => (None, authority),
        };
        let port = uri.port_u16().unwrap_or(80);
        let host = place.strip_suffix(&format!(":{port}")).unwrap_or(place);
        let admin = loaded.settings.admin.as_ref().map(|admin| admin.listen.to_string());
        Ok(Self {
            proxy: format!("{host}:{port}"),
            login,
            url: url.clone(),
            admin: global.admin.clone().or(admin),
            has_store: !matches!(loaded.settings.store, StoreSettings::Memory),
            ca: certificate(&loaded.settings),
        })
    }

    /// Checks whether a Tidegate listens at the proxy's address and admits this client.
    pub(super) async fn check_proxy(&self, report: &mut Report) -> bool {
        let place = &self.proxy;
        let asked = async {
            let stream = TcpStream::connect(place).await?;
            let (head, body) =
                ask(stream, self.get("http://tidegate.local/check")?).await?.into_parts();
            // Only Tidegate has this page. Another server may return 200 for anything.
            let is_ours = text(body).await?.contains("\"proxied\":true");
            let status =
                if is_ours || head.status != 200 { head.status } else { StatusCode::NOT_FOUND };
            Ok::<_, anyhow::Error>((status, head.headers.contains_key(REFUSED)))
        };
        match timeout(STEP, asked).await {
            Err(_) => report.bad(
                "proxy",
                format!("{place} accepts connections but does not respond"),
                "another program may listen there: compare with the rule file's `listen`",
            ),
            Ok(Err(error)) => report.bad(
                "proxy",
                format!("cannot reach {place}: {error:#}"),
                "start it (`tidegate --config FILE`), or correct the address",
            ),
            Ok(Ok((StatusCode::PROXY_AUTHENTICATION_REQUIRED, _))) => report.bad(
                "proxy",
                format!("{place} requires a user and a password"),
                "put them into the proxy's URL (`tidegate env curl` does): http://USER:PASSWORD@HOST:PORT",
            ),
            Ok(Ok((status, true))) => report.bad(
                "proxy",
                format!("{place} refuses this client ({})", status.as_u16()),
                "add the client's address to `auth.networks` in its rule file",
            ),
            Ok(Ok((status, false))) if status != StatusCode::OK => report.bad(
                "proxy",
                format!("{place} responds, but not like Tidegate ({})", status.as_u16()),
                "another proxy listens there: correct the address",
            ),
            Ok(Ok(_)) => {
                report.good("proxy", format!("{place} responds and admits this client"));
                return true;
            }
        }
        false
    }

    /// Checks whether the proxy reaches its store.
    pub(super) async fn check_store(&self, report: &mut Report) {
        let Some(admin) = &self.admin else {
            let cure = "set `admin: 127.0.0.1:9128` in the rule file to open it";
            return report.note("store", "the admin port is off, so its state is unknown", cure);
        };
        let asked = async {
            let request = Request::get("/healthz").header(header::HOST, admin).body(Empty::new())?;
            let stream = TcpStream::connect(admin).await?;
            text(ask(stream, request).await?.into_body()).await
        };
        let answer = timeout(STEP, asked).await.map_err(anyhow::Error::from).and_then(|done| done);
        match answer {
            Err(_) => {
                let cure = "name another one with `--admin ADDR`";
                report.note("store", format!("cannot reach the admin port {admin}"), cure);
            }
            Ok(text) if text.contains("\"degraded\":true") => report.bad(
                "store",
                "the proxy decides without its store: the fleet does not share its limits",
                "its log and `tidegate status` have the problem with `store` (address, password, \
                 TLS)",
            ),
            Ok(_) if self.has_store => report.good("store", "the proxy reaches its store"),
            Ok(_) => report.good("store", "up (`memory`: this proxy does not share its limits)"),
        }
    }

    /// Sends a request to the site through the proxy.
    pub(super) async fn check_request(&self, rule: Option<&Arc<Rule>>, report: &mut Report) {
        let is_https = self.url.scheme_str() == Some("https");
        let asked = if is_https {
            timeout(STEP, self.ask_https(rule, report)).await
        } else {
            timeout(STEP, self.ask_http()).await
        };
        match asked {
            Err(_) => {
                let cure = "retry later; `tidegate status` shows the held requests";
                report.bad("request", format!("no response in {} s", STEP.as_secs()), cure);
            }
            Ok(Err(error)) => {
                let cure = "see the proxy's log (`log: {access: true}`)";
                report.bad("request", format!("{error:#}"), cure);
            }
            Ok(Ok(None)) => {}
            Ok(Ok(Some(answer))) => judge(&answer, rule, report),
        }
    }

    async fn ask_http(&self) -> anyhow::Result<Option<Response<Incoming>>> {
        let stream = TcpStream::connect(&self.proxy).await?;
        Ok(Some(ask(stream, self.get(&self.url.to_string())?).await?))
    }

    /// Sends a request in a tunnel, or in an intercepted CONNECT. `None` if an error was reported.
    async fn ask_https(
        &self,
        rule: Option<&Arc<Rule>>,
        report: &mut Report,
    ) -> anyhow::Result<Option<Response<Incoming>>> {
        let site = self.url.host().unwrap_or_default();
        let (stream, trusted) = match self.tunnel(&self.trusted_files()).await? {
            Err(refused) => return Ok(Some(refused)),
            Ok(Handshake::Done(stream)) => (stream, true),
            Ok(Handshake::Untrusted(stream)) => (stream, false),
            Ok(Handshake::Failed(why)) => {
                let cure = "no client can trust this certificate; inspect the site with `openssl \
                            s_client`";
                report.bad(
                    "https",
                    format!("the certificate for {site} is not accepted: {why}"),
                    cure,
                );
                return Ok(None);
            }
        };
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        let answer = ask(stream, self.get(path)?).await?;
        let intercepted = field(&answer, "tidegate-rule").is_some() || !trusted;
        match (trusted, intercepted) {
            (false, _) => report.bad(
                "https",
                format!(
                    "the proxy intercepts, but this shell's variables do not trust its CA, {}",
                    self.ca.display()
                ),
                format!("eval \"$(tidegate env curl)\", or set one of {}", BUNDLES.join(", ")),
            ),
            (true, true) => report.good("https", "intercepted, and the proxy's CA is trusted"),
            (true, false) => report.good("https", "tunnelled: the site's own certificate is seen"),
        }
        if rule.is_some_and(|rule| rule.intercept) != intercepted {
            let cure = "name the proxy's file: `--config FILE`";
            report.note("rule file", "the proxy runs with another file", cure);
        }
        Ok(Some(answer))
    }

    /// Opens a tunnel with TLS. The inner error is the refusal of the CONNECT.
    async fn tunnel(
        &self,
        trusted: &[PathBuf],
    ) -> anyhow::Result<Result<Handshake, Response<Incoming>>> {
        let mut ours = trusted.to_vec();
        ours.extend(self.ca.exists().then(|| self.ca.clone()));
        let mut why = String::new();
        for (files, is_trusted) in [(trusted, true), (&ours[..], false)] {
            let host = self.url.host().context("the URL has no host")?;
            let place = format!("{host}:{}", self.url.port_u16().unwrap_or(443));
            let request = Request::connect(&*place).header(header::HOST, &place);
            let request = self.with_login(request).header(PREFER, WAIT).body(Empty::new())?;
            let answer = ask(TcpStream::connect(&self.proxy).await?, request).await?;
            if answer.status() != StatusCode::OK {
                return Ok(Err(answer));
            }
            let stream = TokioIo::new(hyper::upgrade::on(answer).await?);
            let config = roots::client(roots::provider())
                .with_root_certificates(roots::with(files)?)
                .with_no_client_auth();
            let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
            match TlsConnector::from(Arc::new(config)).connect(name, stream).await {
                Ok(stream) if is_trusted => return Ok(Ok(Handshake::Done(Box::new(stream)))),
                Ok(stream) => return Ok(Ok(Handshake::Untrusted(Box::new(stream)))),
                Err(error) => why = error.to_string(),
            }
        }
        Ok(Ok(Handshake::Failed(why)))
    }

    /// The files of roots in this shell's variables.
    fn trusted_files(&self) -> Vec<PathBuf> {
        let named = BUNDLES.into_iter().filter_map(env::var_os).map(PathBuf::from);
        named.filter(|path| roots::check(path).is_ok()).collect()
    }

    /// A request for a URL (through the proxy) or a path (in a tunnel).
    fn get(&self, target: &str) -> anyhow::Result<Request<Empty<Bytes>>> {
        let target: Uri = target.parse()?;
        let authority = target.authority().or(self.url.authority()).map_or("", |a| a.as_str());
        let request = Request::get(&target)
            .header(header::HOST, authority.rsplit('@').next().unwrap_or_default())
            .header(header::USER_AGENT, "tidegate-doctor")
            .header(header::ACCEPT, "*/*")
            .header(header::CONNECTION, "close");
        let in_tunnel = target.authority().is_none();
        let request = if in_tunnel { request } else { self.with_login(request) };
        Ok(request.header(PREFER, WAIT).body(Empty::new())?)
    }

    fn with_login(&self, request: Builder) -> Builder {
        match &self.login {
            Some(login) => {
                let basic = format!("Basic {}", STANDARD.encode(login));
                request.header(header::PROXY_AUTHORIZATION, basic)
            }
            None => request,
        }
    }
}

/// Reports the result of the request.
fn judge(answer: &Response<Incoming>, rule: Option<&Arc<Rule>>, report: &mut Report) {
    let status = answer.status().as_u16();
    if let Some(reason) = field(answer, REFUSED) {
        let cure = match reason {
            "cooldown" => "a site of this rule blocks: see `tidegate status`",
            "limit" | "queue" => "the rule is at its limit: retry later, or raise it",
            "dns" => "the proxy's machine cannot resolve the name: check DNS there",
            "egress" => "add the address to `egress.allow` in the rule file",
            "tls" => "the site's certificate is not accepted: add its root to `upstream_ca`",
            "denied" => "a rule denies it: see `rule` above",
            "store" => "repair the store, or choose another `on_failure`",
            _ => "see the response body and the proxy's log",
        };
        let retry = field(answer, "retry-after").map(|s| format!(", again in {s} s"));
        let what = format!("refused: {reason} ({status}{})", retry.unwrap_or_default());
        return report.bad("request", what, cure);
    }
    let found = field(answer, "tidegate-rule");
    if let (Some(found), Some(rule)) = (found, rule)
        && *found != *rule.name
    {
        let what =
            format!("the proxy put it under rule `{}`: it runs with another file", clean(found));
        report.note("rule file", what, "name the proxy's file: `--config FILE`");
    }
    match field(answer, "tidegate-verdict") {
        Some("ok") => report.good("request", format!("{status}, judged ok")),
        Some(verdict) => report.bad(
            "request",
            format!("{status}, judged {}", clean(verdict)),
            "the site blocks already, or a signature is wrong: `tidegate explain URL` says which",
        ),
        None => report.good("request", format!("{status}; the proxy saw no page to judge")),
    }
}

fn field<'a>(answer: &'a Response<Incoming>, name: &str) -> Option<&'a str> {
    answer.headers().get(name)?.to_str().ok()
}

/// Sends a request and reads the head of its response.
async fn ask(
    stream: impl Stream + 'static,
    request: Request<Empty<Bytes>>,
) -> anyhow::Result<Response<Incoming>> {
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    sender.send_request(request).await.context("there is no response in HTTP")
}

/// A whole body.
async fn text(body: Incoming) -> anyhow::Result<String> {
    let read = Limited::new(body, MOST_BODY).collect().await;
    let bytes = read.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
