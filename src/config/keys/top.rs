//! The keys outside of the rules.

use super::{
    AUTO, DETECT_ALL,
    Default::{Absent, Is, Required},
    Kind, OFF, RULE, Section,
};

const NONE: Kind = Kind::Word(&["none"]);
const MEMORY: Kind = Kind::Word(&["memory"]);

section! {
    /// The top level of a rule file.
    FILE = "file" {
        /// The address and port for clients. Any address other than loopback needs `auth`.
        listen: Kind::Address, Is("127.0.0.1:3128");
        /// The admin port: metrics, health, status page, API. `off` disables it. A mapping adds a
        /// token.
        admin: Kind::Either(&[OFF, Kind::Address, Kind::Section(&ADMIN)]), Is("127.0.0.1:9128");
        /// Where scopes are stored: in this process, or in a Redis or Valkey that the fleet shares.
        store: Kind::Either(&[MEMORY, Kind::StoreUrl, Kind::Section(&STORE)]), Is("memory");
        /// The rules. The first rule that matches a request applies. The last rule should match
        /// everything.
        rules: Kind::List(&Kind::Section(&RULE)), Absent("the rule `default` of the built-in file");
        /// Files with more rules: names, or patterns such as `rules.d/*.yaml`, in that order and
        /// then by name. Their rules come before those of this file.
        include: Kind::OneOrMany(&Kind::Path), Is("[]");
        /// Values for every rule that does not set the key, also in included files: any key of a
        /// rule except `name`, `match` and `action`. Mappings are not merged.
        defaults: Kind::Section(&DEFAULTS), Absent("none");
        /// Switches built-in signatures: `off` disables one, `log` counts its matches without a
        /// verdict.
        signatures: super::rule::SWITCHES, Is("{}");
        /// Who may use the proxy. `none` explicitly admits everybody who can connect.
        auth: Kind::Either(&[NONE, Kind::Section(&AUTH)]), Is("{}");
        /// Where the proxy may connect to. Addresses that are not public are denied unless allowed
        /// here.
        egress: Kind::Section(&EGRESS), Is("{}");
        /// How much of a response is inspected.
        inspect: Kind::Section(&INSPECT), Is("{}");
        /// How pages are judged in addition to signatures.
        detect: Kind::Section(&DETECT_ALL), Is("{}");
        /// The longest time for each step.
        timeouts: Kind::Section(&TIMEOUTS), Is("{}");
        /// Limits of this process.
        limits: Kind::Section(&LIMITS), Is("{}");
        /// Folder of the local CA. Tidegate creates the CA when a rule with `intercept: true` first
        /// needs it.
        ca_dir: Kind::Path, Is("~/.local/share/tidegate");
        /// Your own CA, instead of the local one.
        ca: Kind::Section(&CA), Absent("the local CA in `ca_dir`");
        /// PEM files with additional trusted roots for sites.
        upstream_ca: Kind::OneOrMany(&Kind::Path), Is("[]");
        /// Adds `Tidegate-Verdict`, `Tidegate-Rule` and `Server-Timing` to relayed responses, and
        /// [`Tidegate-Next`](api.md#tidegate-next) to them and to refusals.
        annotate: Kind::Flag, Is("true");
        /// Statuses of the proxy's own refusals.
        refuse: Kind::Section(&REFUSE), Is("{}");
        /// Logging.
        log: Kind::Section(&LOG), Is("{}");
    }
}

section! {
    /// The admin port with a token.
    ADMIN = "admin" {
        /// Its address. Any address other than loopback needs a token.
        listen: Kind::Address, Is("127.0.0.1:9128");
        /// The token of API calls, in `Authorization: Bearer`.
        token: Kind::Secret, Absent("none needed (loopback only)");
    }
}

section! {
    /// A Redis or Valkey store, shared by the fleet.
    STORE = "store" {
        /// `redis://`, `rediss://` (TLS), `redis-cluster://` or `redis-sentinel://`, with a login
        /// as usual in URLs.
        url: Kind::StoreUrl, Required;
        /// Prefix of every key. Fleets with different prefixes share nothing.
        prefix: Kind::Name, Is("tidegate");
        /// A slower reply counts as a failure of the store.
        timeout: Kind::Duration("1ms", "10s"), Is("100ms");
        /// While the store is away: `local` keeps to this member's share of each rate, after a
        /// pause of 3 s in a fleet. `open` lets requests pass. `closed` refuses them with 503.
        on_failure: Kind::Word(&["local", "open", "closed"]), Is("local");
        /// Share of each rate that a member uses while the store is away. `auto` is 1 / the last
        /// known number of members; a member that has not reached the store since its start then
        /// holds limited requests. With a share such as `25%` such a member sends too.
        local_share: Kind::Either(&[AUTO, Kind::Share]), Is("auto");
        /// PEM files with additional trusted roots for the store's certificate (`rediss://`).
        ca: Kind::OneOrMany(&Kind::Path), Is("[]");
    }
}

section! {
    /// Who may use the proxy: a user with a password, or a client network.
    AUTH = "auth" {
        /// Proxy users and their passwords (HTTP Basic).
        users: Kind::Map("a user name", &Kind::Secret), Is("{}");
        /// Client networks that need no password.
        networks: Kind::OneOrMany(&Kind::Network), Is("[]");
    }
}

section! {
    /// Checks the address of every connection, including tunnels, directly before it is dialled.
    /// `deny` beats `allow`.
    EGRESS = "egress" {
        /// Destinations that are allowed although they are not public.
        allow: Kind::OneOrMany(&Kind::Egress), Is("[]");
        /// Destinations that are denied although they are public.
        deny: Kind::OneOrMany(&Kind::Egress), Is("[]");
        /// Ports that a CONNECT may name. An empty list allows all ports except those of other
        /// protocols that browsers block (22, 6667, ...). On every path such a port must be listed
        /// here or named in `allow`. Port 25 is never dialled.
        connect_ports: Kind::OneOrMany(&Kind::Count(1, 65535)), Is("[]");
    }
}

section! {
    /// How much of a textual response Tidegate decodes and reads for its verdict.
    INSPECT = "inspect" {
        /// Bytes of an ordinary response. `0B` judges by status and headers only.
        bytes: Kind::Size("0B", "4MiB"), Is("16KiB");
        /// Bytes of a 4xx, a 5xx and a 202.
        error_bytes: Kind::Size("0B", "4MiB"), Is("128KiB");
        /// The longest delay of a response for its verdict.
        delay: Kind::Duration("0s", "30s"), Is("500ms");
        /// A folder for pages that look like a wall but match no signature, one per site and hour.
        /// Use them with `tidegate explain` and `tidegate learn-signature`.
        keep: Kind::Path, Absent("nothing is kept");
        /// The most files in `keep`. A new file replaces the oldest.
        most: Kind::Count(1, 100_000), Is("100");
    }
}

section! {
    /// The longest time for each step.
    TIMEOUTS = "timeouts" {
        /// To receive a request head, from its first byte. Also the longest silence of a new
        /// connection.
        header: Kind::Duration("100ms", "10m"), Is("15s");
        /// To look up a site, connect and finish the TLS handshake.
        connect: Kind::Duration("10ms", "10m"), Is("10s");
        /// From sending the request to the response head.
        response: Kind::Duration("100ms", "1h"), Is("60s");
        /// Silence of a body in either direction, of a tunnel, or of an idle connection.
        idle: Kind::Duration("100ms", "24h"), Is("90s");
        /// On shutdown: how long clients are still served after `/readyz` starts to return 503.
        /// Behind a load balancer, set it above the interval of its checks.
        notice: Kind::Duration("0s", "5m"), Is("0s");
        /// On shutdown: time for requests in flight to finish.
        drain: Kind::Duration("0s", "1h"), Is("30s");
    }
}

section! {
    /// Limits of this process.
    LIMITS = "limits" {
        /// Client connections.
        connections: Kind::Count(1, 1_000_000), Is("10000");
        /// Client connections per address.
        per_client: Kind::Count(1, 1_000_000),
            Absent("`connections` on a loopback `listen`, otherwise 1000");
        /// Open tunnels.
        tunnels: Kind::Count(1, 1_000_000), Is("5000");
        /// Bytes of a request or response head.
        header_bytes: Kind::Size("8KiB", "1MiB"), Is("64KiB");
        /// Fields in a head.
        headers: Kind::Count(16, 1000), Is("100");
        /// Concurrent requests on one HTTP/2 client connection, including held ones.
        streams: Kind::Count(1, 10_000), Is("100");
        /// HTTP/2 streams that a client may open and reset before Tidegate reads them. More end its
        /// connection.
        resets: Kind::Count(1, 10_000), Is("20");
        /// Idle connections kept per site, at most as many as were in use at once during the last
        /// minute.
        idle_per_host: Kind::Count(0, 10_000), Is("2000");
        /// Idle connections kept in total.
        idle_total: Kind::Count(0, 100_000), Is("2000");
    }
}

section! {
    /// Your own CA for interception.
    CA = "ca" {
        /// Its certificate (PEM).
        cert: Kind::Path, Required;
        /// Its private key (PEM). Others must not be able to read it.
        key: Kind::Path, Required;
    }
}

section! {
    /// Statuses of the proxy's own refusals. Some clients treat 429 as a ban.
    REFUSE = "refuse" {
        /// The wait would exceed `max_wait`.
        limit: Kind::Count(400, 599), Is("429");
        /// The cooldown lasts longer than `max_wait`.
        cooldown: Kind::Count(400, 599), Is("503");
    }
}

section! {
    /// Logging.
    LOG = "log" {
        /// `off`, `error`, `warn`, `info`, `debug`, `trace`, or a filter such as
        /// `info,tidegate::store=debug`.
        level: Kind::Text(1000), Is("info");
        /// logfmt (`key=value`), or one JSON object per line with the same fields.
        format: Kind::Word(&["text", "json"]), Is("text");
        /// Adds [one line per request](operations.md#logs).
        access: Kind::Flag, Is("false");
        /// File for these lines; it implies `access`. SIGHUP reopens it after a rotation.
        access_file: Kind::Path, Absent("standard error");
    }
}

/// `defaults`: the keys of a rule except the first three.
pub(in crate::config) static DEFAULTS: Section =
    Section { name: "defaults", doc: "", keys: RULE.keys.split_at(3).1 };

section! {
    /// The top level of a file that `include` names. Keys that begin with `x-` hold anchors.
    INCLUDED = "included" {
        /// Its rules, as in the rule file. The `defaults` of the rule file apply to them too.
        rules: Kind::List(&Kind::Section(&RULE)), Required;
    }
}
