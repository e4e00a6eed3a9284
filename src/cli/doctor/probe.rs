//! Checks the path of a request: the proxy, its store, and a site.

use std::{env, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::Uri;
use percent_encoding::percent_decode_str;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
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
/// Largest head of a response.
const HEAD: usize = 64 * 1024;
/// Variables with a file of roots, each for some clients.
const BUNDLES: [&str; 4] =
    ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"];

/// The head of a response.
struct ResponseHead {
    status: u16,
    fields: Vec<(String, String)>,
}

impl ResponseHead {
    fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// The result of a TLS handshake in a tunnel.
enum Handshake {
    Done(Box<dyn Stream>),
    /// Successful only with the proxy's own CA.
    Untrusted(Box<dyn Stream>),
    Failed(String),
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

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
        let head = format!(
            "GET http://tidegate.local/check HTTP/1.1\r\nhost: tidegate.local\r\n{}connection: \
             close\r\n\r\n",
            self.credentials()
        );
        let asked = async {
            let mut stream = TcpStream::connect(place).await?;
            let text = ask_all(&mut stream, &head).await?;
            // Only Tidegate has this page. Another server may return 200 for anything.
            let is_ours = text.contains("\"proxied\":true");
            let mut answer = parse(text.as_bytes())?;
            if answer.status == 200 && !is_ours {
                answer.status = 404;
            }
            Ok::<_, anyhow::Error>(answer)
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
            Ok(Ok(answer)) if answer.status == 407 => report.bad(
                "proxy",
                format!("{place} requires a user and a password"),
                "put them into the proxy's URL (`tidegate env curl` does): http://USER:PASSWORD@HOST:PORT",
            ),
            Ok(Ok(answer)) if answer.field("tidegate-refused").is_some() => report.bad(
                "proxy",
                format!("{place} refuses this client ({})", answer.status),
                "add the client's address to `auth.networks` in its rule file",
            ),
            Ok(Ok(answer)) if answer.status != 200 => report.bad(
                "proxy",
                format!("{place} responds, but not like Tidegate ({})", answer.status),
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
        let head = format!("GET /healthz HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
        let asked = async {
            let mut stream = TcpStream::connect(admin).await?;
            ask_all(&mut stream, &head).await
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

    async fn ask_http(&self) -> anyhow::Result<Option<ResponseHead>> {
        let mut stream = TcpStream::connect(&self.proxy).await?;
        let head = self.get(&self.url.to_string(), &self.credentials());
        Ok(Some(ask(&mut stream, &head).await?))
    }

    /// Sends a request in a tunnel, or in an intercepted CONNECT. `None` if an error was reported.
    async fn ask_https(
        &self,
        rule: Option<&Arc<Rule>>,
        report: &mut Report,
    ) -> anyhow::Result<Option<ResponseHead>> {
        let site = self.url.host().unwrap_or_default();
        let (mut stream, trusted) = match self.tunnel(&self.trusted_files()).await? {
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
        let answer = ask(&mut stream, &self.get(path, "")).await?;
        let intercepted = answer.field("tidegate-rule").is_some() || !trusted;
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
    async fn tunnel(&self, trusted: &[PathBuf]) -> anyhow::Result<Result<Handshake, ResponseHead>> {
        let mut ours = trusted.to_vec();
        ours.extend(self.ca.exists().then(|| self.ca.clone()));
        let mut why = String::new();
        for (files, is_trusted) in [(trusted, true), (&ours[..], false)] {
            let mut stream = TcpStream::connect(&self.proxy).await?;
            let host = self.url.host().context("the URL has no host")?;
            let place = format!("{host}:{}", self.url.port_u16().unwrap_or(443));
            let head = format!(
                "CONNECT {place} HTTP/1.1\r\nhost: {place}\r\nprefer: wait=10\r\n{}\r\n",
                self.credentials()
            );
            let answer = ask(&mut stream, &head).await?;
            if answer.status != 200 {
                return Ok(Err(answer));
            }
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

    fn get(&self, target: &str, credentials: &str) -> String {
        let host = self
            .url
            .authority()
            .map_or("", |authority| authority.as_str().rsplit('@').next().unwrap_or_default());
        format!(
            "GET {target} HTTP/1.1\r\nhost: {host}\r\nuser-agent: tidegate-doctor\r\naccept: */*\r\n\
             prefer: wait=10\r\n{credentials}connection: close\r\n\r\n"
        )
    }

    fn credentials(&self) -> String {
        self.login.as_ref().map_or_else(String::new, |login| {
            format!("proxy-authorization: Basic {}\r\n", STANDARD.encode(login))
        })
    }
}

/// Reports the result of the request.
fn judge(answer: &ResponseHead, rule: Option<&Arc<Rule>>, report: &mut Report) {
    let status = answer.status;
    if let Some(reason) = answer.field("tidegate-refused") {
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
        let retry = answer.field("retry-after").map(|s| format!(", again in {s} s"));
        let what = format!("refused: {reason} ({status}{})", retry.unwrap_or_default());
        return report.bad("request", what, cure);
    }
    let found = answer.field("tidegate-rule");
    if let (Some(found), Some(rule)) = (found, rule)
        && *found != *rule.name
    {
        let what =
            format!("the proxy put it under rule `{}`: it runs with another file", clean(found));
        report.note("rule file", what, "name the proxy's file: `--config FILE`");
    }
    match answer.field("tidegate-verdict") {
        Some("ok") => report.good("request", format!("{status}, judged ok")),
        Some(verdict) => report.bad(
            "request",
            format!("{status}, judged {}", clean(verdict)),
            "the site blocks already, or a signature is wrong: `tidegate explain URL` says which",
        ),
        None => report.good("request", format!("{status}; the proxy saw no page to judge")),
    }
}

/// Sends a head and reads one.
async fn ask<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    head: &str,
) -> anyhow::Result<ResponseHead> {
    stream.write_all(head.as_bytes()).await?;
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        if read.len() >= HEAD {
            bail!("the response head does not end");
        }
        // Byte by byte, because the bytes after the head belong to the tunnel.
        read.push(stream.read_u8().await.context("the connection ended before a response")?);
    }
    parse(&read)
}

/// Sends a head and reads until the connection closes.
async fn ask_all(stream: &mut TcpStream, head: &str) -> anyhow::Result<String> {
    stream.write_all(head.as_bytes()).await?;
    let mut read = Vec::new();
    stream.take(HEAD as u64).read_to_end(&mut read).await?;
    Ok(String::from_utf8_lossy(&read).into_owned())
}

fn parse(head: &[u8]) -> anyhow::Result<ResponseHead> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let status = first.starts_with("HTTP/1.").then(|| first.split(' ').nth(1)).flatten();
    let status = status.and_then(|status| status.parse().ok()).context("this is not HTTP")?;
    let field = |line: &str| {
        line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
    };
    Ok(ResponseHead { status, fields: lines.filter_map(field).collect() })
}
