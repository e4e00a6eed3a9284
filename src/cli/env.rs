//! `tidegate env`: the lines that point a client here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Global, Outcome, ca::certificate, out::Out};

/// Clients with different ideas of how a proxy and a CA are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Client {
    Curl,
    Python,
    Node,
    Java,
    Go,
    Chrome,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  eval \"$(tidegate env python)\" && python spider.py
  java $(tidegate env java) -jar crawler.jar
  chromium $(tidegate env chrome)")]
pub(super) struct Args {
    /// The client
    client: Client,
}

pub(super) fn run(global: &Global, args: &Args, out: &Out) -> anyhow::Result<Outcome> {
    let loaded = global.load()?;
    let proxy = reachable(loaded.settings.listen);
    let intercepts = loaded.rules.as_slice().iter().any(|rule| rule.intercept);
    let path = certificate(&loaded.settings).display().to_string();
    let ca = intercepts.then_some(path.as_str());
    for line in lines(args.client, proxy, ca) {
        out.line(line)?;
    }
    Ok(Outcome::Fine)
}

/// A client on this machine reaches an unspecified address by loopback.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// The lines; `ca` is the certificate to trust where a rule intercepts.
fn lines(client: Client, proxy: SocketAddr, ca: Option<&str>) -> Vec<String> {
    let exports = |names: &[&str]| -> Vec<String> {
        // Lower case too: curl reads HTTP_PROXY only so (a CGI script's `Proxy` field must not become a proxy).
        let mut lines: Vec<String> = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"]
            .map(|name| format!("export {name}=http://{proxy}"))
            .into();
        if let Some(ca) = ca {
            lines.extend(names.iter().map(|name| format!("export {name}={}", quoted(ca))));
        }
        lines
    };
    match client {
        Client::Curl => exports(&["CURL_CA_BUNDLE"]),
        Client::Python => exports(&["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"]),
        Client::Go => exports(&["SSL_CERT_FILE"]),
        Client::Node => {
            let mut lines = exports(&["NODE_EXTRA_CA_CERTS"]);
            lines.push("export NODE_USE_ENV_PROXY=1".to_owned());
            lines
        }
        Client::Java => {
            let (host, port) = (proxy.ip(), proxy.port());
            let mut lines: Vec<String> = ["http", "https"]
                .map(|s| format!("-D{s}.proxyHost={host} -D{s}.proxyPort={port}"))
                .into();
            if let Some(ca) = ca {
                lines.push("-Djavax.net.ssl.trustStoreType=PEM".to_owned());
                lines.push(format!("-Djavax.net.ssl.trustStore={ca}"));
            }
            lines
        }
        Client::Chrome => {
            let mut lines = vec![format!("--proxy-server=http://{proxy}")];
            // Chromium takes no CA file on its command line: certutil puts it into the user's store.
            if let Some(ca) = ca {
                let store = "certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n tidegate -i";
                tracing::debug!(ca, store, "chromium trusts what its user's store has");
            }
            // Loopback sites go through the proxy too.
            lines.push("--proxy-bypass-list=<-loopback>".to_owned());
            lines
        }
    }
}

/// `text` as one word of a POSIX shell.
fn quoted(text: &str) -> String {
    if text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b)) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
