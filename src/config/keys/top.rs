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
            "The address for clients. Any address other than loopback needs `auth`.",
        ),
        key(
            "admin",
            Kind::Either(&[OFF, Kind::Address, Kind::Section(&ADMIN)]),
            Is("127.0.0.1:9128"),
            "The admin port: metrics, health, status page, API. `off` disables it. A mapping adds \
             a token.",
        ),
        key(
            "store",
            Kind::Either(&[MEMORY, Kind::StoreUrl, Kind::Section(&STORE)]),
            Is("memory"),
            "Where scopes are stored: in this process, or in a Redis or Valkey that the fleet \
             shares.",
        ),
        key(
            "rules",
            Kind::List(&Kind::Section(&RULE)),
            Absent("the rule `default` of the built-in file"),
            "The rules. The first rule that matches a request applies. The last rule should match \
             everything.",
        ),
        key(
            "include",
            Kind::OneOrMany(&Kind::Path),
            Is("[]"),
            "Files with more rules: names, or patterns such as `rules.d/*.yaml`, in that order \
             and then by name. Their rules come before those of this file.",
        ),
        key("defaults", Kind::Section(&DEFAULTS), Absent("none"), DEFAULTS.doc),
        key(
            "signatures",
            super::rule::SWITCHES,
            Is("{}"),
            "Switches built-in signatures: `off` disables one, `log` counts its matches without a \
             verdict.",
        ),
        key(
            "auth",
            Kind::Either(&[NONE, Kind::Section(&AUTH)]),
            Is("{}"),
            "Who may use the proxy. `none` explicitly admits everybody who can connect.",
        ),
        key(
            "egress",
            Kind::Section(&EGRESS),
            Is("{}"),
            "Where the proxy may connect to. Addresses that are not public are denied unless \
             allowed here.",
        ),
        key("inspect", Kind::Section(&INSPECT), Is("{}"), "How much of a response is inspected."),
        key(
            "detect",
            Kind::Section(&DETECT_ALL),
            Is("{}"),
            "How pages are judged in addition to signatures.",
        ),
        key("timeouts", Kind::Section(&TIMEOUTS), Is("{}"), "The longest time for each step."),
        key("limits", Kind::Section(&LIMITS), Is("{}"), "Limits of this process."),
        key(
            "ca_dir",
            Kind::Path,
            Is("~/.local/share/tidegate"),
            "Folder of the local CA. Tidegate creates the CA when a rule with `intercept: true` \
             first needs it.",
        ),
        key(
            "ca",
            Kind::Section(&CA),
            Absent("the local CA in `ca_dir`"),
            "Your own CA, instead of the local one.",
        ),
        key(
            "upstream_ca",
            Kind::OneOrMany(&Kind::Path),
            Is("[]"),
            "PEM files with additional trusted roots for sites.",
        ),
        key(
            "annotate",
            Kind::Flag,
            Is("true"),
            "Adds `Tidegate-Verdict`, `Tidegate-Rule` and `Server-Timing` to relayed responses, and \
             [`Tidegate-Next`](api.md#tidegate-next) to them and to refusals.",
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
            "Its address. Any address other than loopback needs a token.",
        ),
        key(
            "token",
            Kind::Secret,
            Absent("none needed (loopback only)"),
            "The token of API calls, in `Authorization: Bearer`.",
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
            "`redis://`, `rediss://` (TLS), `redis-cluster://` or `redis-sentinel://`, with user \
             and password as usual in URLs.",
        ),
        key(
            "prefix",
            Kind::Name,
            Is("tidegate"),
            "Prefix of every key. Fleets with different prefixes share nothing.",
        ),
        key(
            "timeout",
            Kind::Duration("1ms", "10s"),
            Is("100ms"),
            "A slower reply counts as a failure of the store.",
        ),
        key(
            "on_failure",
            Kind::Word(&["local", "open", "closed"]),
            Is("local"),
            "While the store is away: `local` keeps to this member's share of each rate, after a \
             pause of 3 s in a fleet. `open` lets requests pass. `closed` refuses them with 503.",
        ),
        key(
            "local_share",
            Kind::Either(&[AUTO, Kind::Share]),
            Is("auto"),
            "Share of each rate that a member uses while the store is away. `auto` is 1 / the \
             last known number of members; a member that has not reached the store since its start \
             then holds limited requests. With a share such as `25%` such a member sends too.",
        ),
        key(
            "ca",
            Kind::OneOrMany(&Kind::Path),
            Is("[]"),
            "PEM files with additional trusted roots for the store's certificate (`rediss://`).",
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
    doc: "Checks the address of every connection, including tunnels, directly before it is \
          dialled. `deny` beats `allow`.",
    keys: &[
        key(
            "allow",
            Kind::OneOrMany(&Kind::Egress),
            Is("[]"),
            "Destinations that are allowed although they are not public.",
        ),
        key(
            "deny",
            Kind::OneOrMany(&Kind::Egress),
            Is("[]"),
            "Destinations that are denied although they are public.",
        ),
        key(
            "connect_ports",
            Kind::OneOrMany(&Kind::Count(1, 65535)),
            Is("[]"),
            "Ports that a CONNECT may name. An empty list allows all ports except those of other \
             protocols that browsers block (22, 6667, ...). On every path such a port must be \
             listed here or named in `allow`. Port 25 is never dialled.",
        ),
    ],
};

/// `inspect`.
pub(in crate::config) static INSPECT: Section = Section {
    name: "inspect",
    doc: "How much of a textual response Tidegate decodes and reads for its verdict.",
    keys: &[
        key(
            "bytes",
            Kind::Size("0B", "4MiB"),
            Is("16KiB"),
            "Bytes of an ordinary response. `0B` judges by status and headers only.",
        ),
        key(
            "error_bytes",
            Kind::Size("0B", "4MiB"),
            Is("128KiB"),
            "Bytes of a 4xx, a 5xx and a \
                                                                    202.",
        ),
        key(
            "delay",
            Kind::Duration("0s", "30s"),
            Is("500ms"),
            "The longest delay of a response for its verdict.",
        ),
        key(
            "keep",
            Kind::Path,
            Absent("nothing is kept"),
            "A folder for pages that look like a wall but match no signature, one per site and \
             hour. Use them with `tidegate explain` and `tidegate learn-signature`.",
        ),
        key(
            "most",
            Kind::Count(1, 100_000),
            Is("100"),
            "The most files in `keep`. A new file replaces the oldest.",
        ),
    ],
};

/// `timeouts`.
pub(in crate::config) static TIMEOUTS: Section = Section {
    name: "timeouts",
    doc: "The longest time for each step.",
    keys: &[
        key(
            "header",
            Kind::Duration("100ms", "10m"),
            Is("15s"),
            "To receive a request head, from its first byte. Also the longest silence of a new \
             connection.",
        ),
        key(
            "connect",
            Kind::Duration("10ms", "10m"),
            Is("10s"),
            "To look up a site, connect and finish the TLS handshake.",
        ),
        key(
            "response",
            Kind::Duration("100ms", "1h"),
            Is("60s"),
            "From sending the request to the response head.",
        ),
        key(
            "idle",
            Kind::Duration("100ms", "24h"),
            Is("90s"),
            "Silence of a body in either direction, of a tunnel, or of an idle connection.",
        ),
        key(
            "notice",
            Kind::Duration("0s", "5m"),
            Is("0s"),
            "On shutdown: how long clients are still served after `/readyz` starts to return 503. \
             Behind a load balancer, set it above the interval of its checks.",
        ),
        key(
            "drain",
            Kind::Duration("0s", "1h"),
            Is("30s"),
            "On shutdown: time for requests in flight to finish.",
        ),
    ],
};

/// `limits`.
pub(in crate::config) static LIMITS: Section = Section {
    name: "limits",
    doc: "Limits of this process.",
    keys: &[
        key("connections", Kind::Count(1, 1_000_000), Is("10000"), "Client connections."),
        key(
            "per_client",
            Kind::Count(1, 1_000_000),
            Absent("`connections` on a loopback `listen`, otherwise 1000"),
            "Client connections per address.",
        ),
        key("tunnels", Kind::Count(1, 1_000_000), Is("5000"), "Open tunnels."),
        key(
            "header_bytes",
            Kind::Size("8KiB", "1MiB"),
            Is("64KiB"),
            "Bytes of a request or response head.",
        ),
        key("headers", Kind::Count(16, 1000), Is("100"), "Fields in a head."),
        key(
            "streams",
            Kind::Count(1, 10_000),
            Is("100"),
            "Concurrent requests on one HTTP/2 client connection, including held ones.",
        ),
        key(
            "resets",
            Kind::Count(1, 10_000),
            Is("20"),
            "HTTP/2 streams that a client may open and reset before Tidegate reads them. More end \
             its connection.",
        ),
        key(
            "idle_per_host",
            Kind::Count(0, 10_000),
            Is("2000"),
            "Idle connections kept per site, at most as many as were in use at once during the \
             last minute.",
        ),
        key("idle_total", Kind::Count(0, 100_000), Is("2000"), "Idle connections kept in total."),
    ],
};

/// `ca`.
pub(in crate::config) static CA: Section = Section {
    name: "ca",
    doc: "Your own CA for interception.",
    keys: &[
        key("cert", Kind::Path, Required, "Its certificate (PEM)."),
        key(
            "key",
            Kind::Path,
            Required,
            "Its private key (PEM). Others must not be able to read it.",
        ),
    ],
};

/// `refuse`.
pub(in crate::config) static REFUSE: Section = Section {
    name: "refuse",
    doc: "Statuses of the proxy's own refusals. Some clients treat 429 as a ban.",
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
