//! `tidegate env`: prints the settings that point a client at the proxy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Global, Outcome, Usage, ca::certificate, out::Out};
use crate::rules::settings::Settings;

/// Clients that differ in how they are given a proxy and a CA.
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
  java $(tidegate env java | grep -v '^#') -jar crawler.jar
  chromium $(tidegate env chrome | grep -v '^#')")]
pub(super) struct Args {
    /// The client
    client: Client,
    /// The client's user in `auth.users` [default: the first]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

pub(super) fn run(global: &Global, args: &Args, out: &Out) -> anyhow::Result<Outcome> {
    let loaded = global.load()?;
    let proxy = reachable(loaded.settings.listen);
    let intercepts = loaded.rules.as_slice().iter().any(|rule| rule.intercept);
    let certificate = certificate(&loaded.settings);
    let trust = intercepts.then(|| Trust {
        // A given CA has no bundle; its owner decides what a bundle contains.
        bundle: match &loaded.settings.ca {
            Some(_) => quoted(&certificate.display().to_string()),
            None => quoted(&certificate.with_file_name("bundle.pem").display().to_string()),
        },
        certificate: quoted(&certificate.display().to_string()),
    });
    let login = login(&loaded.settings, args.user.as_deref())?;
    for line in lines(args.client, proxy, login.as_deref(), trust.as_ref()) {
        out.line(line)?;
    }
    Ok(Outcome::Success)
}

/// `NAME:PASSWORD@` for a URL of the proxy; `None` if clients on this machine need no login.
pub(super) fn login(settings: &Settings, user: Option<&str>) -> Result<Option<String>, Usage> {
    let auth = &settings.auth;
    let own = reachable(settings.listen).ip();
    if user.is_none() && (auth.none || auth.networks.iter().any(|network| network.contains(&own))) {
        return Ok(None);
    }
    let found = auth.users.iter().find(|(name, _)| user.is_none_or(|user| *user == **name));
    match (found, user) {
        (Some((name, password)), _) => {
            let escaped = |text| utf8_percent_encode(text, RESERVED);
            Ok(Some(format!("{}:{}@", escaped(name), escaped(password.expose()))))
        }
        (None, Some(user)) => {
            if auth.users.is_empty() {
                let why = format!("the rule file has no `auth.users`, so there is no {user}");
                return Err(Usage(why));
            }
            let known: Vec<&str> = auth.users.iter().map(|(name, _)| &**name).collect();
            Err(Usage(format!("`auth.users` has no {user}; it has: {}", known.join(", "))))
        }
        (None, None) => Ok(None),
    }
}

/// The characters to encode in a login: all but the unreserved ones of RFC 3986 section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Older versions of Node ignore the variables.
const NODE_NOTE: &str = "# Node 22.21, 24 and newer read NODE_USE_ENV_PROXY; older versions bypass the proxy unless \
                         its code uses an agent (undici's EnvHttpProxyAgent)";
/// Java's key store, in the directory where its program starts. It contains no secrets, so its
/// password is public.
const JAVA_STORE: &str = "tidegate.p12";
const JAVA_PASSWORD: &str = "changeit";

/// The files to trust if a rule intercepts, quoted for a shell.
struct Trust {
    /// The CA alone, for clients that add it to their roots.
    certificate: String,
    /// The system's roots and the CA, for clients that trust one file only.
    bundle: String,
}

/// A client on this machine connects to loopback if the proxy listens on an unspecified address.
pub(super) fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// The lines, for `eval` or for a command line.
fn lines(
    client: Client,
    proxy: SocketAddr,
    login: Option<&str>,
    trust: Option<&Trust>,
) -> Vec<String> {
    let url = quoted(&format!("http://{}{proxy}", login.unwrap_or_default()));
    let mut lines = match client {
        Client::Curl => exports(&url, trust, &["CURL_CA_BUNDLE"], &[]),
        Client::Python => exports(&url, trust, &["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"], &[]),
        Client::Go => exports(&url, trust, &["SSL_CERT_FILE"], &[]),
        Client::Node => {
            let mut lines = exports(&url, trust, &[], &["NODE_EXTRA_CA_CERTS"]);
            lines.push("export NODE_USE_ENV_PROXY=1".to_owned());
            lines.insert(0, NODE_NOTE.to_owned());
            lines
        }
        Client::Java => java(proxy, trust),
        Client::Chrome => chrome(proxy, trust),
    };
    if login.is_some() && matches!(client, Client::Java | Client::Chrome) {
        let note = "# the proxy asks for a user and a password, which this client takes only in a \
                    dialogue or in its own code; `auth.networks` can let its address in without";
        lines.insert(0, note.to_owned());
    }
    lines
}

/// The shell's variables. The proxy is set in both spellings: curl reads `http_proxy` only in lower
/// case, because a `Proxy` header field could set `HTTP_PROXY` of a CGI script.
fn exports(
    proxy: &str,
    trust: Option<&Trust>,
    bundles: &[&str],
    certificates: &[&str],
) -> Vec<String> {
    let mut lines: Vec<String> = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"]
        .map(|name| format!("export {name}={proxy}"))
        .into();
    if let Some(trust) = trust {
        lines.extend(bundles.iter().map(|name| format!("export {name}={}", trust.bundle)));
        lines
            .extend(certificates.iter().map(|name| format!("export {name}={}", trust.certificate)));
    }
    lines
}

/// By default, Java does not use a proxy for loopback. It reads no PEM files, so a comment contains
/// the command that imports the CA into a key store.
fn java(proxy: SocketAddr, trust: Option<&Trust>) -> Vec<String> {
    let (host, port) = (proxy.ip(), proxy.port());
    let option = |scheme| format!("-D{scheme}.proxyHost={host} -D{scheme}.proxyPort={port}");
    let mut lines = vec![option("http"), option("https"), "-Dhttp.nonProxyHosts=".to_owned()];
    if let Some(Trust { certificate, .. }) = trust {
        let store = format!("-keystore {JAVA_STORE} -storetype PKCS12 -storepass {JAVA_PASSWORD}");
        let import = "keytool -importcert -noprompt -alias tidegate";
        lines.insert(0, format!("# once: {import} -file {certificate} {store}"));
        lines.push(format!(
            "-Djavax.net.ssl.trustStore={JAVA_STORE} \
             -Djavax.net.ssl.trustStorePassword={JAVA_PASSWORD}"
        ));
    }
    lines
}

/// Chromium has no option for a CA file. It trusts its user's NSS store, so a comment contains the
/// command that adds the CA there.
fn chrome(proxy: SocketAddr, trust: Option<&Trust>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(trust) = trust {
        let store = "certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n tidegate -i";
        lines.push(format!("# once: {store} {}", trust.certificate));
    }
    // Requests to loopback must use the proxy too.
    lines.push(format!("--proxy-server=http://{proxy} --proxy-bypass-list=<-loopback>"));
    lines
}

/// `text` as one word of a POSIX shell.
fn quoted(text: &str) -> String {
    if text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-:@%~".contains(&b)) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_the_shell() {
        assert_eq!(quoted("/a/b.pem"), "/a/b.pem");
        assert_eq!(quoted("/my dir/it's"), r"'/my dir/it'\''s'");
    }

    #[test]
    fn a_proxy_on_every_address_is_reached_by_loopback() {
        let any = "0.0.0.0:3128".parse().expect("an address");
        assert_eq!(reachable(any).to_string(), "127.0.0.1:3128");
    }
}
