//! The variables of this shell: which proxy they name, which hosts bypass it, and whether Node uses
//! them.

use std::{env, net::IpAddr, process::Command};

use http::Uri;
use ipnet::IpNet;

use super::Report;

/// The fix that points a shell at the proxy.
const POINT: &str =
    "eval \"$(tidegate env curl)\" in this shell (`tidegate env --help` lists other clients)";
/// First versions of Node that read `NODE_USE_ENV_PROXY`.
const NODE_OLD: (u32, u32) = (22, 21);
const NODE_NEW: (u32, u32) = (24, 0);

/// The variables that matter for one URL.
#[derive(Debug)]
pub(super) struct Environment {
    host: String,
    is_https: bool,
    /// The proxy in the variables.
    pub(super) proxy: Option<String>,
    /// It is only in the variable that curl does not read.
    upper_only: bool,
    no_proxy: String,
}

impl Environment {
    /// The variables of this process, for `url`.
    pub(super) fn of_process(url: &Uri) -> Self {
        let is_https = url.scheme_str() == Some("https");
        let read = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let (lower, upper) =
            if is_https { ("https_proxy", "HTTPS_PROXY") } else { ("http_proxy", "HTTP_PROXY") };
        let (lower, upper) = (read(lower), read(upper));
        Self {
            host: url.host().unwrap_or_default().to_ascii_lowercase(),
            is_https,
            upper_only: lower.is_none() && upper.is_some() && !is_https,
            proxy: lower.or(upper),
            no_proxy: read("no_proxy").or_else(|| read("NO_PROXY")).unwrap_or_default(),
        }
    }

    /// Checks whether they lead a client to the proxy.
    pub(super) fn check(&self, report: &mut Report) {
        let name = if self.is_https { "https_proxy" } else { "http_proxy" };
        match &self.proxy {
            None => report.bad(
                "environment",
                format!("{name} is not set: programs in this shell bypass the proxy"),
                POINT,
            ),
            Some(_) if self.upper_only => report.bad(
                "environment",
                "HTTP_PROXY is set, but curl and others read http_proxy in lower case only",
                POINT,
            ),
            Some(proxy) => {
                let place = proxy.split_once("://").map_or(&**proxy, |(_, place)| place);
                let shown = place.rsplit_once('@').map_or(place, |(_, place)| place);
                report.good("environment", format!("{name} names {shown}"));
            }
        }
        if let Some(entry) = self.no_proxy.split(',').map(str::trim).find(|e| self.is_past(e)) {
            report.bad(
                "no_proxy",
                format!("`{entry}` in NO_PROXY makes requests to {} bypass the proxy", self.host),
                "remove it from NO_PROXY and no_proxy (`unset NO_PROXY no_proxy`)",
            );
        }
    }

    /// Whether an entry of `NO_PROXY` matches the host, as most clients interpret it.
    fn is_past(&self, entry: &str) -> bool {
        let entry = entry.to_ascii_lowercase();
        let address = self.host.trim_matches(['[', ']']).parse::<IpAddr>();
        if let (Ok(network), Ok(address)) = (entry.parse::<IpNet>(), address) {
            return network.contains(&address);
        }
        let name = entry.trim_start_matches('*').trim_start_matches('.');
        match name {
            "" => entry.starts_with('*'),
            name => self.host == name || self.host.ends_with(&format!(".{name}")),
        }
    }

    /// Checks the flag and the version that Node needs.
    pub(super) fn check_node(&self, report: &mut Report) {
        let flag = env::var("NODE_USE_ENV_PROXY").is_ok_and(|value| value == "1");
        let Ok(output) = Command::new("node").arg("--version").output() else { return };
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let knows = reads_flag(&version);
        let cure =
            "use Node 22.21, 24 or newer, or an agent in the code (undici's EnvHttpProxyAgent)";
        match (flag, knows) {
            (true, true) => report.good("node", format!("{version}, with NODE_USE_ENV_PROXY=1")),
            (true, false) => report.bad(
                "node",
                format!("{version} does not support NODE_USE_ENV_PROXY and bypasses the proxy"),
                cure,
            ),
            (false, true) => report.note(
                "node",
                format!("{version} reads the proxy's variables only with NODE_USE_ENV_PROXY=1"),
                "eval \"$(tidegate env node)\", if the crawler runs on Node",
            ),
            (false, false) => {
                report.note("node", format!("{version} does not read the proxy's variables"), cure)
            }
        }
    }
}

/// Whether a version of Node, such as `v22.21.0`, supports `NODE_USE_ENV_PROXY`.
fn reads_flag(version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map_while(|n| n.parse().ok());
    let found: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    found >= NODE_NEW || found.0 == NODE_OLD.0 && found >= NODE_OLD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_is_read_like_clients_read_it() {
        let url = "http://www.shop.example/".parse().expect("a URL");
        let environment = Environment { no_proxy: String::new(), ..Environment::of_process(&url) };
        for (entry, past) in [
            ("shop.example", true),
            (".shop.example", true),
            ("*.shop.example", true),
            ("*", true),
            ("www.shop.example", true),
            ("op.example", false),
            ("", false),
            ("other.example", false),
        ] {
            assert_eq!(environment.is_past(entry), past, "{entry}");
        }
    }

    #[test]
    fn an_entry_of_no_proxy_can_be_a_network() {
        let url = "http://10.1.2.3:8080/".parse().expect("a URL");
        let environment = Environment { no_proxy: String::new(), ..Environment::of_process(&url) };
        for (entry, past) in [("10.0.0.0/8", true), ("10.1.2.3", true), ("192.168.0.0/16", false)] {
            assert_eq!(environment.is_past(entry), past, "{entry}");
        }
    }

    #[test]
    fn a_version_of_node_knows_the_flag_or_not() {
        for (version, knows) in [
            ("v20.19.0", false),
            ("v22.20.9", false),
            ("v22.21.0", true),
            ("v23.9.0", false),
            ("v24.0.0", true),
        ] {
            assert_eq!(reads_flag(version), knows, "{version}");
        }
    }
}
