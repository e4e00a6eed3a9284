//! The keys outside of the rules.

use super::{
    DEFAULTS, DETECT_ALL,
    Default::{Absent, Is, Required},
    Kind, LOG, RULE, Section, key,
};

const OFF: Kind = Kind::Word(&["off"]);
const NONE: Kind = Kind::Word(&["none"]);
const MEMORY: Kind = Kind::Word(&["memory"]);
const AUTO: Kind = Kind::Word(&["auto"]);

/// The file itself.
pub(in crate::config) static FILE: Section = Section {
    name: "file",
    doc: "The top level of a rule file.",
    keys: &[
        key(
            "listen",
            Kind::Address,
            Is("127.0.0.1:3128"),
            "Where clients connect. Any address but a loopback one needs `auth`.",
        ),
        key(
            "admin",
            Kind::Either(&[OFF, Kind::Address, Kind::Section(&ADMIN)]),
            Is("127.0.0.1:9128"),
            "The admin port: metrics, health, status page, API. `off` disables it; a mapping adds \
             a token.",
        ),
        key(
            "store",
            Kind::Either(&[MEMORY, Kind::StoreUrl, Kind::Section(&STORE)]),
            Is("memory"),
            "Where scopes live: in this process, or in a Redis or Valkey that the fleet shares.",
        ),
        key(
            "rules",
            Kind::List(&Kind::Section(&RULE)),
            Absent("the rule `default` of the built-in file"),
            "The rules. The first that matches a request wins; the last one should match \
             everything.",
        ),
        key(
            "include",
            Kind::OneOrMany(&Kind::Path),
            Is("[]"),
            "Files with more rules, by name or by a pattern such as `rules.d/*.yaml`, in the order \
             of the patterns and names. Their rules come before those of this file.",
        ),
        key("defaults", Kind::Section(&DEFAULTS), Absent("none"), DEFAULTS.doc),
        key(
            "signatures",
            super::rule::SWITCHES,
            Is("{}"),
            "Switches built-in signatures: `off` forgets one, `log` counts its hits without \
             judging by it.",
        ),
        key(
            "auth",
            Kind::Either(&[NONE, Kind::Section(&AUTH)]),
            Is("{}"),
            "Who may use the proxy. `none` says on purpose that anybody who can connect may.",
        ),
        key(
            "egress",
            Kind::Section(&EGRESS),
            Is("{}"),
            "Where the proxy may connect to. What is not public is denied unless it is allowed \
             here.",
        ),
        key("inspect", Kind::Section(&INSPECT), Is("{}"), "How much of a response is looked at."),
        key(
            "detect",
            Kind::Section(&DETECT_ALL),
            Is("{}"),
            "How pages are judged beside signatures.",
        ),
        key("timeouts", Kind::Section(&TIMEOUTS), Is("{}"), "How long each step may take."),
        key("limits", Kind::Section(&LIMITS), Is("{}"), "What is bounded in this process."),
        key(
            "ca_dir",
            Kind::Path,
            Is("~/.local/share/tidegate"),
            "Folder of the local CA, which is made here when a rule with `intercept: true` first \
             needs it.",
        ),
        key(
            "ca",
            Kind::Section(&CA),
            Absent("the local CA in `ca_dir`"),
            "A given CA instead of the local one.",
        ),
        key(
            "upstream_ca",
            Kind::OneOrMany(&Kind::Path),
            Is("[]"),
            "PEM files with roots that are trusted for sites, beside the system's.",
        ),
        key(
            "annotate",
            Kind::Flag,
            Is("true"),
            "Whether relayed responses carry `Tidegate-Verdict`, `Tidegate-Rule` and \
             `Server-Timing`.",
        ),
        key("refuse", Kind::Section(&REFUSE), Is("{}"), "Statuses of the proxy's own refusals."),
        key("log", Kind::Section(&LOG), Is("{}"), "Logging."),
    ],
};

/// `admin` as a mapping.
pub(in crate::config) static ADMIN: Section = Section {
    name: "admin",
    doc: "The admin port with a token.",
    keys: &[
        key(
            "listen",
            Kind::Address,
            Is("127.0.0.1:9128"),
            "Its address. Any but a loopback one needs a token.",
        ),
        key(
            "token",
            Kind::Secret,
            Absent("none needed (loopback only)"),
            "What API calls carry as `Authorization: Bearer`.",
        ),
    ],
};

/// `store` as a mapping.
pub(in crate::config) static STORE: Section = Section {
    name: "store",
    doc: "A Redis or Valkey store, shared by the fleet.",
    keys: &[
        key(
            "url",
            Kind::StoreUrl,
            Required,
            "`redis://`, `rediss://` (TLS), `redis-cluster://`, `redis-sentinel://`; user and \
             password as in any URL.",
        ),
        key(
            "prefix",
            Kind::Name,
            Is("tidegate"),
            "First part of every key. Fleets with different prefixes share nothing.",
        ),
        key(
            "timeout",
            Kind::Duration("1ms", "10s"),
            Is("100ms"),
            "A slower answer counts as a failure of the store.",
        ),
        key(
            "on_failure",
            Kind::Word(&["local", "open", "closed"]),
            Is("local"),
            "While the store is away: `local` keeps to this member's share of each rate (a member \
             of a fleet holds everything for the first 3 s), `open` lets pass, `closed` refuses \
             with 503.",
        ),
        key(
            "local_share",
            Kind::Either(&[AUTO, Kind::Share]),
            Is("auto"),
            "Share of each rate that a member keeps while the store is away. `auto` is 1 / the \
             members last seen, and a member that has not reached the store since it started holds \
             limited requests. A share such as `25%` lets that member send.",
        ),
        key(
            "ca",
            Kind::OneOrMany(&Kind::Path),
            Is("[]"),
            "PEM files with roots that are trusted for the store's certificate (`rediss://`), \
             beside the system's.",
        ),
    ],
};

/// `auth`.
pub(in crate::config) static AUTH: Section = Section {
    name: "auth",
    doc: "Who may use the proxy: a user with a password, or a client network.",
    keys: &[
        key(
            "users",
            Kind::Map("a user name", &Kind::Secret),
            Is("{}"),
            "Proxy users and their passwords (HTTP Basic).",
        ),
        key(
            "networks",
            Kind::OneOrMany(&Kind::Network),
            Is("[]"),
            "Client networks that need no password.",
        ),
    ],
};

/// `egress`.
pub(in crate::config) static EGRESS: Section = Section {
    name: "egress",
    doc: "Judges the address that is then connected to, on every path, tunnels included. `deny` \
          beats `allow`.",
    keys: &[
        key(
            "allow",
            Kind::OneOrMany(&Kind::Egress),
            Is("[]"),
            "What is allowed although it is not public.",
        ),
        key(
            "deny",
            Kind::OneOrMany(&Kind::Egress),
            Is("[]"),
            "What is denied although it is public.",
        ),
        key(
            "connect_ports",
            Kind::OneOrMany(&Kind::Count(1, 65535)),
            Is("[]"),
            "Ports that a CONNECT may name; of other requests it says nothing. An empty list allows any but \
             those of other protocols that browsers bar (25, 22, 6667, ...): those must be listed here, or \
             be named in `allow`, on every path. 25 is never dialled.",
        ),
    ],
};

/// `inspect`.
pub(in crate::config) static INSPECT: Section = Section {
    name: "inspect",
    doc: "How much of a textual response is looked at for its verdict, after decoding.",
    keys: &[
        key(
            "bytes",
            Kind::Size("0B", "4MiB"),
            Is("16KiB"),
            "Of an ordinary response. 0B judges by status and headers alone.",
        ),
        key("error_bytes", Kind::Size("0B", "4MiB"), Is("128KiB"), "Of a 4xx, a 5xx and a 202."),
        key(
            "delay",
            Kind::Duration("0s", "30s"),
            Is("500ms"),
            "Longest time that a response is held back for its verdict.",
        ),
        key(
            "keep",
            Kind::Path,
            Absent("nothing is kept"),
            "A folder for pages that look like a wall and match no signature: one per site and hour, \
             for `tidegate explain` and `tidegate learn-signature`.",
        ),
        key(
            "most",
            Kind::Count(1, 100_000),
            Is("100"),
            "Files in `keep`: a new one replaces the oldest.",
        ),
    ],
};

/// `timeouts`.
pub(in crate::config) static TIMEOUTS: Section = Section {
    name: "timeouts",
    doc: "How long each step may take.",
    keys: &[
        key(
            "header",
            Kind::Duration("100ms", "10m"),
            Is("15s"),
            "A request head, from its first byte; also how long a new connection may stay silent.",
        ),
        key(
            "connect",
            Kind::Duration("10ms", "10m"),
            Is("10s"),
            "Name look-up, connection and TLS to a site.",
        ),
        key(
            "response",
            Kind::Duration("100ms", "1h"),
            Is("60s"),
            "From the request sent to the response head.",
        ),
        key(
            "idle",
            Kind::Duration("100ms", "24h"),
            Is("90s"),
            "Silence of a body in either direction, of a tunnel, of a kept-alive connection.",
        ),
        key(
            "notice",
            Kind::Duration("0s", "5m"),
            Is("0s"),
            "How long clients are still served when the proxy stops, after `/readyz` has begun to \
             say 503: for a load balancer, longer than its interval of checks.",
        ),
        key(
            "drain",
            Kind::Duration("0s", "1h"),
            Is("30s"),
            "Time to finish what is in flight when the proxy stops.",
        ),
    ],
};

/// `limits`.
pub(in crate::config) static LIMITS: Section = Section {
    name: "limits",
    doc: "What is bounded in this process.",
    keys: &[
        key("connections", Kind::Count(1, 1_000_000), Is("10000"), "Client connections."),
        key(
            "per_client",
            Kind::Count(1, 1_000_000),
            Absent(
                "`connections` on a loopback `listen`, where one machine is everybody; else 1000",
            ),
            "Client connections of one address.",
        ),
        key("tunnels", Kind::Count(1, 1_000_000), Is("5000"), "Open tunnels."),
        key(
            "header_bytes",
            Kind::Size("8KiB", "1MiB"),
            Is("64KiB"),
            "Bytes of a request or response head.",
        ),
        key("headers", Kind::Count(16, 1000), Is("100"), "Fields of a head."),
        key(
            "streams",
            Kind::Count(1, 10_000),
            Is("100"),
            "Requests at a time of one HTTP/2 client connection; held ones count.",
        ),
        key(
            "resets",
            Kind::Count(1, 10_000),
            Is("20"),
            "HTTP/2 streams that a client may open and reset before they are looked at; more end its \
             connection.",
        ),
        key(
            "idle_per_host",
            Kind::Count(0, 10_000),
            Is("2000"),
            "Idle connections kept to one site: at most as many as were in use at once in the last minute.",
        ),
        key(
            "idle_total",
            Kind::Count(0, 100_000),
            Is("2000"),
            "Idle connections kept to all sites.",
        ),
    ],
};

/// `ca`.
pub(in crate::config) static CA: Section = Section {
    name: "ca",
    doc: "A given CA for interception.",
    keys: &[
        key("cert", Kind::Path, Required, "Its certificate (PEM)."),
        key(
            "key",
            Kind::Path,
            Required,
            "Its private key (PEM); nobody else should be able to read it.",
        ),
    ],
};

/// `refuse`.
pub(in crate::config) static REFUSE: Section = Section {
    name: "refuse",
    doc: "Statuses of the proxy's own refusals; some clients read 429 as a ban.",
    keys: &[
        key("limit", Kind::Count(400, 599), Is("429"), "The wait would exceed `max_wait`."),
        key(
            "cooldown",
            Kind::Count(400, 599),
            Is("503"),
            "The cooldown lasts longer than `max_wait`.",
        ),
    ],
};
