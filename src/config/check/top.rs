//! Everything except the rules.

use std::{net::SocketAddr, sync::Arc};

use super::{FileContext, hosts, paths, store};
use crate::{
    config::{
        cursor::Cursor,
        keys::Kind,
        range::{self, Ranged},
        section::Reader,
        syntax_tree::Value,
        units::{self, Read, Wrong, quote},
    },
    rules::{
        Rule, UpstreamProxy,
        secret::Secret,
        settings::{
            AdminSettings, Auth, Bounds, Egress, Inspect, Keep, Log, RefuseStatuses, Settings,
            Timeouts,
        },
    },
    target::Host,
};

/// Most connections per client if clients have different addresses.
const PER_CLIENT: usize = 1000;
/// Shortest admin token without a warning.
const SHORT_TOKEN: usize = 16;

pub(super) fn settings(reader: &Reader<'_>, context: &FileContext<'_>) -> Settings {
    let listen = reader.read("listen", address);
    let admin = admin(reader, context);
    if let Some(admin) = &admin
        && admin.listen == listen
        && listen.port() != 0
    {
        let help = "use another address for `admin`, or write `admin: off`";
        reader.wrong("admin", Wrong::new(format!("{listen} is `listen` too"), help));
    }
    let auth = auth(reader, context);
    let sizes = reader.section("inspect");
    let refuse = reader.section("refuse");
    let settings = Settings {
        listen,
        admin,
        store: store::settings(reader, context),
        auth,
        egress: egress(&reader.section("egress")),
        inspect: Inspect {
            bytes: sizes.get("bytes"),
            error_bytes: sizes.get("error_bytes"),
            delay: sizes.get("delay"),
            same_page: reader.section("detect").word::<&str>("same_page") == "on",
            keep: keep(&sizes, context),
        },
        timeouts: timeouts(&reader.section("timeouts")),
        limits: limits(&reader.section("limits"), listen),
        ca_dir: reader.read("ca_dir", |text| paths::resolve(text, context)),
        ca: paths::ca(reader, context),
        upstream_ca: paths::roots(reader, "upstream_ca", context),
        annotate: reader.get("annotate"),
        refuse: RefuseStatuses {
            limit: refuse_status(&refuse, "limit"),
            cooldown: refuse_status(&refuse, "cooldown"),
        },
        log: log(&reader.section("log"), context),
    };
    if settings.lacks_auth_on(listen) && !reader.is_wrong("auth") {
        let message = format!("{listen} is reachable from outside, and there is no `auth`");
        let help = "add `auth: {users: {NAME: PASSWORD}}` or `auth: {networks: [...]}`, listen \
                    on 127.0.0.1, or say `auth: none` if everybody may use the proxy";
        reader.wrong("listen", Wrong::new(message, help));
    }
    settings
}

/// The folder for pages. The proxy works without it.
fn keep(section: &Reader<'_>, context: &FileContext<'_>) -> Option<Keep> {
    let folder = section.optional("keep", |text| paths::resolve(text, context))?;
    if let Err(why) = paths::check_folder(&folder) {
        let help = "name a folder that Tidegate can write to, or remove `keep`";
        section.warn("keep", Wrong::new(format!("no page can be kept: {why}"), help));
    }
    Some(Keep { folder, most: section.get("most") })
}

/// An address with a port.
fn address(text: &str) -> Read<SocketAddr> {
    let help = match text.strip_prefix("localhost:") {
        Some(port) => format!("did you mean `127.0.0.1:{port}`?"),
        None if text.starts_with(':') => format!("did you mean `127.0.0.1{text}`?"),
        None if text.parse::<std::net::IpAddr>().is_ok() => "a port is missing".into(),
        None if text.parse::<u16>().is_ok() => format!("did you mean `127.0.0.1:{text}`?"),
        None => "write an address and a port, `127.0.0.1:3128` or `[::1]:3128`".into(),
    };
    text.parse().map_err(|_| Wrong::new(format!("{} is not a valid address", quote(text)), help))
}

fn admin(reader: &Reader<'_>, context: &FileContext<'_>) -> Option<AdminSettings> {
    let cursor = reader.cursor("admin")?;
    if cursor.is_word("off") {
        return None;
    }
    let settings = if cursor.is_map() {
        let reader = cursor.open();
        let listen = reader.read("listen", address);
        AdminSettings { listen, token: token(&reader, context) }
    } else {
        let listen = cursor.scalar(|text| {
            address(text).map_err(|wrong| match units::flag(text) {
                Ok(false) => Wrong::new(wrong.message, "did you mean `off`?"),
                _ => wrong,
            })
        })?;
        AdminSettings { listen, token: None }
    };
    if settings.token.is_none() && !settings.listen.ip().is_loopback() {
        let message = format!("{} is reachable from outside, and has no token", settings.listen);
        let help = "write `admin: {listen: ADDRESS, token: \"${ADMIN_TOKEN}\"}`, or listen on \
                    127.0.0.1";
        if !cursor.node.get("token").is_some_and(|node| matches!(node.value, Value::Broken { .. }))
        {
            reader.wrong("admin", Wrong::new(message, help));
        }
    }
    Some(settings)
}

fn token(reader: &Reader<'_>, context: &FileContext<'_>) -> Option<Secret> {
    let cursor = reader.given_cursor("token")?;
    let token = cursor.scalar(|text| match text {
        "" => Err(Wrong::new("the token is empty", "omit it, or set one")),
        text if !text.bytes().all(|b| b.is_ascii_graphic()) => Err(Wrong::new(
            "the token has characters that a header cannot contain",
            "use ASCII, no blanks",
        )),
        text => Ok(Secret::new(text)),
    })?;
    paths::warn_if_exposed(&cursor, context);
    if token.expose().len() < SHORT_TOKEN {
        let message = format!("the token is shorter than {SHORT_TOKEN} characters");
        cursor.warn(Wrong::new(message, "generate one with `openssl rand -hex 16`"));
    }
    Some(token)
}

fn auth(reader: &Reader<'_>, context: &FileContext<'_>) -> Auth {
    let Some(cursor) = reader.cursor("auth") else { return Auth::default() };
    if !cursor.is_map() {
        cursor.diagnostics.hide_all(&cursor.node);
    }
    if cursor.is_word("none") {
        return Auth { none: true, ..Auth::default() };
    }
    let section = cursor.open();
    let mut users = Vec::new();
    for (name, password) in section.cursor("users").map_or_else(Vec::new, |users| users.entries()) {
        if name.text.is_empty() || name.text.len() > 128 || name.text.contains([':', '\n', '\r']) {
            let help = "1 to 128 characters without `:` (RFC 7617 section 2)";
            let message = format!("{} is not a valid user name", quote(&name.text));
            password.wrong(Wrong::new(message, help));
        }
        let secret = password.scalar(|text| match text {
            "" => Err(Wrong::new("the password is empty", "set one")),
            text if text.len() > 1024 => {
                Err(Wrong::new("the password is longer than 1024 bytes", "set a shorter one"))
            }
            text if text.strip_prefix("sha256:").is_some_and(|hash| !is_sha256(hash)) => {
                let help = "write 64 hexadecimal digits: `printf %s PASSWORD | sha256sum`";
                Err(Wrong::new("this is not a SHA-256 hash", help))
            }
            text => Ok(Secret::new(text)),
        });
        paths::warn_if_exposed(&password, context);
        users.extend(secret.map(|secret| (Arc::from(name.text.as_str()), secret)));
    }
    Auth { users, networks: section.many("networks", hosts::network), none: false }
}

fn is_sha256(hex: &str) -> bool {
    hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn egress(section: &Reader<'_>) -> Egress {
    let port = |text: &str| Ranged::parse(&PORT, text);
    let deny = section.many("deny", hosts::egress);
    let allow = section.cursor("allow").map_or_else(Vec::new, |cursor| cursor.one_or_many());
    let allow = allow.iter().filter_map(|item| {
        let entry = item.scalar(hosts::egress)?;
        if deny.contains(&entry) {
            let message = "allowed here and denied in `egress.deny`, which decides";
            item.warn(Wrong::new(message, "remove one of the two"));
        }
        Some(entry)
    });
    Egress { allow: allow.collect(), connect_ports: section.many("connect_ports", port), deny }
}

/// Checks a rule against the settings outside of the rules.
pub(super) fn check_rule(cursor: &Cursor<'_>, rule: &Rule, settings: &Settings) {
    let for_users = rule.each_user.is_some() && !cursor.is_wrong("each_user");
    if for_users && settings.auth.users.is_empty() {
        let message = "`each_user` has no effect without `auth.users`: requests have no user";
        let help = "add users to `auth`, or remove `each_user`";
        cursor.open().warn("each_user", Wrong::new(message, help));
    }
    if rule.via.as_ref().is_some_and(|via| is_own(via, settings.listen)) {
        let message = "this is the proxy's own `listen`: each request would come back to it";
        let help = "name the address of another proxy, or remove `via`";
        cursor.open().wrong("via", Wrong::new(message, help));
    }
}

/// Whether the upstream proxy is the listener at `listen`.
fn is_own(via: &UpstreamProxy, listen: SocketAddr) -> bool {
    let local = match &via.host {
        Host::Ip(ip) => *ip == listen.ip() || ip.is_loopback() && listen.ip().is_unspecified(),
        Host::Name(name) => {
            &**name == "localhost" && (listen.ip().is_loopback() || listen.ip().is_unspecified())
        }
    };
    local && via.port == listen.port()
}

/// A port.
static PORT: Kind = Kind::Count(1, 65535);

fn timeouts(section: &Reader<'_>) -> Timeouts {
    Timeouts {
        header: section.get("header"),
        connect: section.get("connect"),
        response: section.get("response"),
        idle: section.get("idle"),
        notice: section.get("notice"),
        drain: section.get("drain"),
    }
}

fn limits(section: &Reader<'_>, listen: SocketAddr) -> Bounds {
    let connections = section.get("connections");
    let per_client = section.optional_get("per_client");
    // All workers of a crawler on the proxy's machine have the same address.
    let unless_said = if listen.ip().is_loopback() { connections } else { PER_CLIENT };
    Bounds {
        connections,
        per_client: per_client.unwrap_or(unless_said),
        tunnels: section.get("tunnels"),
        header_bytes: section.get("header_bytes"),
        headers: section.get("headers"),
        streams: section.get("streams"),
        resets: section.get("resets"),
        idle_per_host: section.get("idle_per_host"),
        idle_total: section.get("idle_total"),
    }
}

fn refuse_status(section: &Reader<'_>, key: &str) -> u16 {
    let status = section.get(key);
    if matches!(status, 401 | 407) {
        let help = "clients respond to it with credentials; use 429, 503 or another status";
        section.wrong(key, Wrong::new(format!("{status} asks for a login"), help));
    }
    status
}

fn log(section: &Reader<'_>, context: &FileContext<'_>) -> Log {
    let format = section.word("format");
    let access_file = section.optional("access_file", |text| paths::resolve(text, context));
    let access = section.get("access") || access_file.is_some() && !section.has("access");
    Log { level: section.read("level", log_level), format, access, access_file }
}

/// A level, or a filter of `tracing-subscriber`.
fn log_level(text: &str) -> Read<String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let help = "write `info`, or a filter such as `info,tidegate::store=debug`";
    let wrong = |part: &str| Wrong::new(format!("{} is not a valid log level", quote(part)), help);
    for part in text.split(',').map(str::trim) {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        if !LEVELS.contains(&level) {
            let near = range::did_you_mean(level, LEVELS.into_iter());
            return Err(match near {
                Some(near) => Wrong::new(wrong(level).message, format!("did you mean `{near}`?")),
                None => wrong(level),
            });
        }
    }
    let filter = text.parse::<tracing_subscriber::filter::Targets>();
    filter.map(|_| text.to_owned()).map_err(|_| wrong(text))
}
