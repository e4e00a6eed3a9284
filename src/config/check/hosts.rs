//! Parses names, hosts, networks and URLs. Pure.

use std::{net::IpAddr, sync::Arc};

use ipnet::IpNet;
use percent_encoding::percent_decode_str;

use crate::{
    config::{
        range::did_you_mean,
        units::{Read, Wrong, quote},
    },
    rules::{
        HostPattern, UpstreamProxy, normalise,
        secret::Secret,
        settings::EgressPattern,
        upstream::{Login, ProxyScheme},
    },
    target::Host,
};

/// Most characters of a name: a label of the metrics and a part of Redis keys.
const LONGEST_NAME: usize = 64;

/// A name of a rule, a signature or a key prefix.
pub(super) fn name(text: &str) -> Read<Arc<str>> {
    let fits = !text.is_empty()
        && text.len() <= LONGEST_NAME
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    if fits {
        return Ok(Arc::from(text));
    }
    let help = format!("1 to {LONGEST_NAME} letters (ASCII), digits, `_`, `.` or `-`");
    Err(Wrong::new(format!("{} is not a valid name", quote(text)), help))
}

const HOST_HELP: &str = "write `*`, a name (`shop.example`), all below one (`*.shop.example`), or \
                         an address";

/// A host pattern.
pub(super) fn host(text: &str) -> Read<HostPattern> {
    let wrong = |why: &str, help: String| {
        Wrong::new(format!("{} is not a valid host pattern: {why}", quote(text)), help)
    };
    if text == "*" {
        return Ok(HostPattern::Any);
    }
    if let Some((_, rest)) = text.split_once("://") {
        let bare = rest.split(['/', ':']).next().unwrap_or(rest);
        let why = "a host has no scheme";
        return Err(wrong(why, format!("did you mean `{bare}`?")));
    }
    if let Some(bare) = text.strip_prefix('.') {
        return Err(wrong("it begins with a dot", format!("did you mean `*.{bare}`?")));
    }
    if text.parse::<IpNet>().is_ok() {
        return Err(wrong(
            "rules match names and single addresses, not networks",
            HOST_HELP.into(),
        ));
    }
    if let Some((bare, _)) = text.split_once('/') {
        let help = format!(
            "did you mean `{{hosts: [\"{bare}\"], paths: [\"{}*\"]}}`?",
            &text[bare.len()..]
        );
        return Err(wrong("a host pattern has no path", help));
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(HostPattern::Ip(ip.to_canonical()));
    }
    if let Some((bare, port)) = text.rsplit_once(':')
        && !bare.contains(':')
        && port.bytes().all(|b| b.is_ascii_digit())
    {
        return Err(wrong("rules ignore ports", format!("did you mean `{bare}`?")));
    }
    let (below, bare) = match text.strip_prefix("*.") {
        Some(bare) => (true, bare),
        None => (false, text),
    };
    if bare.contains('*') {
        return Err(wrong("`*` can only replace the whole first label", HOST_HELP.into()));
    }
    match Host::parse(bare) {
        Ok(Host::Name(name)) if below => Ok(HostPattern::Below(name)),
        Ok(Host::Name(name)) => Ok(HostPattern::Exact(name)),
        Ok(Host::Ip(ip)) if !below => Ok(HostPattern::Ip(ip.to_canonical())),
        Ok(Host::Ip(_)) => Err(wrong("an address has no subdomains", HOST_HELP.into())),
        // Clients send names in other scripts in this form.
        Err(why) => match idna::domain_to_ascii(bare) {
            Ok(ascii) if !bare.is_ascii() => {
                let below = if below { "*." } else { "" };
                Err(wrong("it is not ASCII", format!("did you mean `{below}{ascii}`?")))
            }
            _ => Err(wrong(&why.to_string(), HOST_HELP.into())),
        },
    }
}

/// A pattern of paths.
pub(super) fn glob(text: &str) -> Read<Arc<str>> {
    if text.len() > 1024 {
        return Err(Wrong::new("the pattern is longer than 1024 bytes", "write a shorter one"));
    }
    if let Some(part) = expression(text) {
        let message = format!(
            "{} looks like a regular expression (`{part}`), but a pattern is literal except for `*`",
            quote(text)
        );
        return Err(Wrong::new(message, "write `*` for any run of characters, such as `/item/*`"));
    }
    if !text.starts_with(['/', '*']) {
        let message = format!("{} matches no path: every path begins with `/`", quote(text));
        return Err(Wrong::new(message, format!("did you mean {}?", quote(&format!("/{text}")))));
    }
    if !text.bytes().all(|b| b.is_ascii_graphic()) {
        let message = format!("{} has characters that paths never contain", quote(text));
        return Err(Wrong::new(message, "write them percent-encoded, as `%20`"));
    }
    Ok(Arc::from(normalise(text)))
}

/// A part that means something in a regular expression and nothing in a path: an anchor, an escape,
/// or a repetition of anything.
fn expression(text: &str) -> Option<&str> {
    let parts = ["\\", "/.*", ".+", "(?", "[^", "[0-9", "[a-z"];
    let anchor = text.starts_with('^').then_some("^").or(text.ends_with('$').then_some("$"));
    anchor.or_else(|| parts.into_iter().find(|part| text.contains(part)))
}

/// A network, or one address.
pub(super) fn network(text: &str) -> Read<IpNet> {
    let help = "write a network such as `10.0.0.0/8` or `fd00::/8`, or one address";
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(ip));
    }
    let wrong = || Wrong::new(format!("{} is not a valid network", quote(text)), help);
    let net: IpNet = text.parse().map_err(|_| wrong())?;
    if net.trunc() != net {
        let message = format!("{} has bits after its prefix", quote(text));
        let help = format!("did you mean `{}` or `{}`?", net.trunc(), net.addr());
        return Err(Wrong::new(message, help));
    }
    Ok(net)
}

/// An entry of the egress guard: a word, a network or a host pattern, each with or without a port.
pub(super) fn egress(text: &str) -> Read<EgressPattern> {
    match text {
        "loopback" => return Ok(EgressPattern::Loopback),
        "private" => return Ok(EgressPattern::Private),
        "link_local" | "link-local" => return Ok(EgressPattern::LinkLocal),
        _ => {}
    }
    if text.contains("://") {
        return host(text).map(|pattern| EgressPattern::Host(pattern, None));
    }
    let (place, port) = split_port(text)?;
    if place.contains('/') || place.parse::<IpAddr>().is_ok() {
        return network(place).map(|net| EgressPattern::Network(net, port));
    }
    let pattern = host(place)?;
    let words = ["loopback", "private", "link_local"];
    if let HostPattern::Exact(name) = &pattern
        && !name.contains('.')
        && let Some(word) = did_you_mean(name, words.into_iter())
    {
        let help = format!("did you mean `{word}`?");
        return Err(Wrong::new(format!("{} is unknown here", quote(text)), help));
    }
    Ok(EgressPattern::Host(pattern, port))
}

/// Splits `10.0.0.0/8:443`, `[fd00::]/8:443`, `[fd00::/8]:443` and `*.shop.example:443`.
fn split_port(text: &str) -> Read<(&str, Option<u16>)> {
    let read = |port: &str| match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => Err(Wrong::new(format!("{} is not a valid port", quote(port)), "write 1 to 65535")),
    };
    if let Some(rest) = text.strip_prefix('[') {
        let Some((inner, rest)) = rest.split_once(']') else {
            return Err(Wrong::new(format!("{} has no `]`", quote(text)), "`[fd00::/8]:443`"));
        };
        return match rest.strip_prefix(':') {
            Some(port) => Ok((inner, read(port)?)),
            None if rest.is_empty() => Ok((inner, None)),
            None => Err(Wrong::new(
                format!("{} is not a valid network", quote(text)),
                "the brackets belong around the whole network: `[fd00::/8]:443`",
            )),
        };
    }
    match text.split_once(':') {
        Some((place, port)) if !port.contains(':') => Ok((place, read(port)?)),
        _ => Ok((text, None)),
    }
}

/// A URL of Redis or Valkey. Messages never show it: it may hold a password.
pub(super) fn store_url(text: &str) -> Read<Secret> {
    const SCHEMES: [&str; 6] =
        ["redis", "rediss", "redis-cluster", "rediss-cluster", "redis-sentinel", "rediss-sentinel"];
    let help = "write `memory`, or a URL such as `redis://127.0.0.1:6379`";
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(Wrong::new("this is not a valid store URL", help));
    };
    if !SCHEMES.contains(&scheme) {
        let near = did_you_mean(scheme, SCHEMES.into_iter());
        let help = near.map_or_else(
            || format!("one of: {}", SCHEMES.join(", ")),
            |near| format!("did you mean `{near}://`?"),
        );
        return Err(Wrong::new(format!("{} is not a valid store scheme", quote(scheme)), help));
    }
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    if text.contains(char::is_whitespace) || place.is_empty() || place.starts_with(':') {
        return Err(Wrong::new("the store's URL has no host", help));
    }
    let port = place.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    if port.is_some_and(|(_, port)| !matches!(port.parse::<u16>(), Ok(1..))) {
        return Err(Wrong::new("the port of the store's URL is invalid", help));
    }
    let path = rest.split(['?', '#']).next().and_then(|rest| rest.split_once('/'));
    if let Some((_, database)) = path.filter(|(_, path)| !path.is_empty())
        && database.parse::<u8>().is_err()
    {
        let help = "write a number from 0 to 255 after the port, or nothing: \
                    `redis://127.0.0.1:6379/1`";
        return Err(Wrong::new("the store's URL has an impossible database number", help));
    }
    Ok(Secret::new(text))
}

/// The longest user and password that SOCKS 5 can carry (RFC 1929).
const LONGEST_LOGIN: usize = 255;

/// A URL of an upstream proxy. Messages never show it: it may hold a password.
pub(super) fn upstream(text: &str) -> Read<UpstreamProxy> {
    let help = "write `http://HOST:PORT`, `https://HOST:PORT` or `socks5://HOST:PORT`";
    let wrong = |why: &str| Err(Wrong::new(why, help));
    let Some((scheme, rest)) = text.split_once("://") else {
        return wrong("this is not the URL of an upstream proxy");
    };
    let scheme = match scheme {
        "http" => ProxyScheme::Http,
        "https" => ProxyScheme::Https,
        "socks5" => ProxyScheme::Socks5,
        "socks5h" | "socks" => {
            let help = "write `socks5://`: names are always resolved by the proxy";
            return Err(Wrong::new(format!("`{scheme}` is not a scheme of `via`"), help));
        }
        other => {
            return Err(Wrong::new(format!("{} is not a scheme of `via`", quote(other)), help));
        }
    };
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (Some(self::login(login)?), place),
        None => (None, rest),
    };
    if scheme == ProxyScheme::Socks5
        && login.as_ref().is_some_and(|login| login.password.expose().is_empty())
    {
        return wrong("SOCKS 5 has no login without a password");
    }
    let Some((host, port)) = place.strip_suffix('/').unwrap_or(place).rsplit_once(':') else {
        return wrong("the upstream proxy has no port");
    };
    let Ok(host) = Host::parse(host) else {
        return wrong("the host of the upstream proxy is invalid");
    };
    match port.parse() {
        Ok(port @ 1..) => Ok(UpstreamProxy { scheme, host, port, login }),
        Ok(_) | Err(_) => wrong("the port of the upstream proxy is invalid"),
    }
}

/// `user:password`, percent-decoded.
fn login(text: &str) -> Read<Login> {
    let help = "write user, `:`, password and `@` before the host, with `%3A`, `%40` and `%25` for `:`, `@` and `%`";
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let decoded = |part: &str| percent_decode_str(part).decode_utf8().map(String::from);
    let (Ok(user), Ok(password)) = (decoded(user), decoded(password)) else {
        return Err(Wrong::new("the login of the upstream proxy is not UTF-8", help));
    };
    let fits = |part: &str| {
        part.len() <= LONGEST_LOGIN && !part.bytes().any(|byte| byte.is_ascii_control())
    };
    // A login's user ends at the first colon (RFC 7617).
    if user.is_empty() || user.contains(':') || !fits(&user) || !fits(&password) {
        return Err(Wrong::new("the login of the upstream proxy is invalid", help));
    }
    Ok(Login { user, password: Secret::new(password) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn host_patterns_are_read_in_their_normal_form() {
        assert_eq!(host("*").unwrap(), HostPattern::Any);
        assert_eq!(host("Shop.Example.").unwrap(), HostPattern::Exact("shop.example".into()));
        assert_eq!(host("*.Shop.example").unwrap(), HostPattern::Below("shop.example".into()));
        assert_eq!(host("[::1]").unwrap(), HostPattern::Ip("::1".parse().unwrap()));
    }

    #[test]
    fn an_invalid_host_pattern_gets_a_suggestion() {
        let cases = [
            ("https://shop.example/x", "did you mean `shop.example`?"),
            (".shop.example", "did you mean `*.shop.example`?"),
            ("shop.example:443", "did you mean `shop.example`?"),
            ("shop.example/a", r#"did you mean `{hosts: ["shop.example"], paths: ["/a*"]}`?"#),
            ("*shop*", HOST_HELP),
            ("Bücher.example", "did you mean `xn--bcher-kva.example`?"),
            ("*.bücher.example", "did you mean `*.xn--bcher-kva.example`?"),
            ("10.0.0.0/8", HOST_HELP),
            ("*.10.0.0.1", HOST_HELP),
        ];
        for (text, help) in cases {
            assert_eq!(host(text).unwrap_err().help.as_deref(), Some(help), "{text}");
        }
    }

    #[test]
    fn a_path_that_is_a_regular_expression_is_refused() {
        for text in ["^/search", "/a$", r"/item/\d+", "/shop/.*", "/a.+", "/[0-9]+", "/(?:a|b)"] {
            let wrong = glob(text).unwrap_err();
            assert!(wrong.message.contains("regular expression"), "{text}: {wrong:?}");
        }
        for text in ["/feed.*", "/a(b)*", "/list?ids[]=*", "/c++", "/$metadata", "*.pdf", "/a|b"] {
            assert!(glob(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn egress_entries_are_words_networks_and_hosts_with_or_without_port() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        assert_eq!(egress("private").unwrap(), EgressPattern::Private);
        let cases = [
            ("10.1.2.0/24", net("10.1.2.0/24"), None),
            ("10.1.2.0/24:80", net("10.1.2.0/24"), Some(80)),
            ("127.0.0.1:8080", net("127.0.0.1/32"), Some(8080)),
            ("[fd00::/8]:443", net("fd00::/8"), Some(443)),
            ("fd00::/8", net("fd00::/8"), None),
        ];
        for (text, net, port) in cases {
            assert_eq!(egress(text).unwrap(), EgressPattern::Network(net, port), "{text}");
        }
        let below = HostPattern::Below("corp.example".into());
        assert_eq!(egress("*.corp.example:1").unwrap(), EgressPattern::Host(below, Some(1)));
        assert!(egress("loopbak").is_err());
        assert!(egress("10.1.2.3/24").is_err());
    }

    #[test]
    fn an_upstream_proxy_has_a_scheme_a_port_and_perhaps_a_login() {
        let proxy = upstream("socks5://10.0.0.7:1080").unwrap();
        assert_eq!((proxy.scheme, proxy.port, &proxy.login), (ProxyScheme::Socks5, 1080, &None));
        let proxy = upstream("https://crawl%3Aer:a@b%25c@Proxy.Example:443/").unwrap_err();
        assert!(proxy.message.contains("login"), "a user with a colon: {proxy:?}");
        let proxy = upstream("https://crawler:a@b%25:c@Proxy.Example:443/").unwrap();
        assert_eq!(proxy.to_string(), "https://proxy.example:443");
        let login = proxy.login.unwrap();
        assert_eq!((&*login.user, login.password.expose()), ("crawler", "a@b%:c"));
        assert_eq!(upstream("http://[fd00::7]:3128").unwrap().port, 3128);
        for (text, part) in [
            ("10.0.0.7:1080", "not the URL"),
            ("socks5h://u:hunter2@h:1", "`socks5h`"),
            ("ftp://u:hunter2@h:1", "`ftp`"),
            ("http://u:hunter2@h", "no port"),
            ("http://u:hunter2@h:0", "port"),
            ("http://u:hunter2@h:3128/path", "port"),
            ("http://u:hunter2@:3128", "host"),
            ("http://:hunter2@h:3128", "login"),
            ("socks5://hunter2@h:1080", "without a password"),
        ] {
            let wrong = upstream(text).unwrap_err();
            assert!(wrong.message.contains(part), "{text}: {wrong:?}");
            assert!(!format!("{wrong:?}").contains("hunter2"), "{wrong:?}");
        }
    }

    #[test]
    fn a_store_url_that_is_wrong_is_never_shown() {
        for text in [
            "redis:/u:hunter2@h",
            "http://u:hunter2@h",
            "redis://u:hunter2@h:99999",
            "redis://u:hunter2@h/99999",
            "redis://u:hunter2@h/shop",
        ] {
            let wrong = store_url(text).unwrap_err();
            assert!(!format!("{wrong:?}").contains("hunter2"), "{wrong:?}");
        }
        assert!(store_url("rediss-cluster://u:p@h:6379,h2:6379").is_ok());
        assert!(store_url("redis-sentinel://h:26379/15?sentinelServiceName=m").is_ok());
    }
}
