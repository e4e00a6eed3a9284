//! The client of the admin port of a running proxy.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use super::{Global, Usage};
use crate::rules::secret::Secret;

/// Longest wait for a response. The port responds at once, or something is wrong.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest response: three times that of a fleet of 10,000 scopes.
const ANSWER: usize = 16 * 1024 * 1024;

/// The admin port of a running proxy.
#[derive(Debug)]
pub(super) struct Admin {
    addr: SocketAddr,
    token: Option<Secret>,
    runtime: tokio::runtime::Runtime,
}

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Token {
    /// Token of the admin port [default: the file's `admin.token`]
    #[arg(long, env = "TIDEGATE_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

// A scope, and the token for changing it. clap would show a `///` as the help of the command.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Change {
    /// The scope
    pub(super) scope: String,
    #[command(flatten)]
    token: Token,
}

impl Change {
    /// Changes the scope's `cooldown` or `rate`.
    pub(super) fn send(
        &self,
        global: &Global,
        method: Method,
        part: &str,
        body: &Value,
    ) -> anyhow::Result<Value> {
        let path = scope_path(&self.scope, part)?;
        Admin::new(global, &self.token)?.ask(method, &path, Some(body))
    }

    /// The scope that the proxy changed: a host stands for its domain under `per: domain`.
    pub(super) fn named<'a>(&'a self, answer: &'a Value) -> &'a str {
        answer["scope"].as_str().unwrap_or(&self.scope)
    }
}

impl Admin {
    /// The port from `--admin`, otherwise from the rule file.
    pub(super) fn new(global: &Global, token: &Token) -> anyhow::Result<Self> {
        // `--store` and `--listen` do not matter here. An invalid file only matters if the address
        // is not given.
        let named: Option<SocketAddr> = global.admin.as_deref().and_then(|addr| addr.parse().ok());
        let settings = match global.load() {
            Ok(loaded) => loaded.settings.admin,
            Err(_) if named.is_some() => None,
            Err(problems) => return Err(problems.into()),
        };
        let Some(addr) = named.or(settings.as_ref().map(|admin| admin.listen)) else {
            return Err(Usage(
                "the rule file switches the admin port off; name one with `--admin ADDR`".into(),
            )
            .into());
        };
        let given = token.token.clone().map(Secret::new);
        let token = given.or(settings.and_then(|admin| admin.token));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { addr, token, runtime })
    }

    /// Sends a request. A response other than a success is an error with the port's message.
    pub(super) fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let asked = async {
            tokio::time::timeout(TIMEOUT, self.send(method, path, body))
                .await
                .context("no answer in 10 s")?
        };
        self.runtime.block_on(asked).with_context(|| format!("the admin port {}", self.addr))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let stream = TcpStream::connect(self.addr)
            .await
            .context("is the proxy running? `--admin ADDR` names another port")?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let running = tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.addr.to_string())
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let response = sender.send_request(request.body(Full::new(bytes))?).await?;
        let status = response.status();
        let read = Limited::new(response.into_body(), ANSWER).collect().await;
        let answer = read.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
        running.abort();
        if status == StatusCode::UNAUTHORIZED && self.token.is_some() {
            bail!("the token is wrong: compare TIDEGATE_TOKEN or `--token` with its `admin.token`");
        }
        answered(status, &answer)
    }
}

fn answered(status: StatusCode, answer: &[u8]) -> anyhow::Result<Value> {
    let json: Option<Value> = serde_json::from_slice(answer).ok();
    if status == StatusCode::UNAUTHORIZED {
        bail!("a token is required: set TIDEGATE_TOKEN or `--token`");
    }
    if !status.is_success() {
        let detail = json.as_ref().and_then(|json| json["detail"].as_str());
        bail!("{}", detail.unwrap_or(status.as_str()));
    }
    json.context("the response is not from Tidegate")
}

/// The name of the operator, so that others know whom to ask.
pub(super) fn who() -> Option<String> {
    let name = std::env::var("SUDO_USER").or_else(|_| std::env::var("USER")).ok()?;
    Some(name.chars().take(64).collect())
}

/// The path of a scope's `cooldown` or `rate`.
fn scope_path(scope: &str, part: &str) -> Result<String, Usage> {
    if scope.is_empty() || scope.starts_with('/') || scope.ends_with('/') {
        return Err(Usage(format!("`{scope}` is not a scope: write RULE or RULE/KEY")));
    }
    Ok(format!("/api/v1/scopes/{}/{part}", path_of(scope)))
}

/// Percent-encodes the characters that a path cannot contain (RFC 3986 section 3.3); `/` stays.
fn path_of(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:@!$&'()*+,;=".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
