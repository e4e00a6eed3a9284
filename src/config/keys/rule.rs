//! The keys of a rule.

use super::{
    DETECT,
    Default::{Absent, Is, Required},
    Kind, Section, key,
};

const OFF: Kind = Kind::Word(&["off"]);
const AUTO: Kind = Kind::Word(&["auto"]);
const SPLIT: Kind = Kind::Word(&["all", "domain", "host"]);

/// Verdicts that may count as blocks.
const BLOCKS: Kind = Kind::Word(&[
    "403_forbidden",
    "429_rate_limited",
    "captcha",
    "cloudflare_challenge",
    "blank_page",
    "connection_error",
    "timeout",
]);

/// Signatures by name, and how they are switched.
pub(super) const SWITCHES: Kind = Kind::Map("the id of a signature", &Kind::Word(&["off", "log"]));

const BLOCK_OR_STATUS: Kind = Kind::Either(&[BLOCKS, Kind::Status]);

/// One rule.
pub(in crate::config) static RULE: Section = Section {
    name: "rule",
    doc: "Which requests, how fast they may go, what trips their cooldown.",
    keys: &[
        key(
            "name",
            Kind::Name,
            Required,
            "Its name, unique in the file; the `rule` label of the metrics.",
        ),
        key(
            "match",
            Kind::Either(&[Kind::Host, Kind::Section(&MATCH)]),
            Required,
            "Which requests: one host pattern, or hosts and paths. `\"*\"` is everything.",
        ),
        key(
            "action",
            Kind::Word(&["limit", "bypass", "deny"]),
            Is("limit"),
            "`bypass` lets through without gate or verdict, `deny` refuses with 403; both take no \
             limits.",
        ),
        key(
            "per",
            SPLIT,
            Is("all"),
            "How the rule is split into scopes, each with its own bucket: one for all, one per \
             registrable domain, one per host.",
        ),
        key(
            "rate",
            Kind::Either(&[AUTO, Kind::Rate]),
            Absent("no rate limit"),
            "Tokens per second, minute, hour or day, over the whole fleet; the ceiling where the \
             rate is learned. `auto`: no ceiling that matters, starts low and is learned.",
        ),
        key(
            "burst",
            Kind::Count(1, 1_000_000),
            Absent("the tokens of one second of `rate` (of `auto`: one), at least `cost`"),
            "Capacity of the bucket: what may go at once after a pause.",
        ),
        key(
            "quota",
            Kind::OneOrMany(&Kind::Quota),
            Is("[]"),
            "Fixed windows on top of the rate: at most so many tokens each. A window starts with \
             its first request.",
        ),
        key(
            "cost",
            Kind::Count(1, 1_000_000),
            Is("1"),
            "Tokens that one request takes; at most `burst` and every `quota`.",
        ),
        key(
            "learn",
            Kind::Either(&[Kind::Flag, Kind::Section(&LEARN)]),
            Is("true"),
            "Whether the fleet learns the rate that a site bears: a trip lowers it, calm raises it \
             again, up to `rate`. By default only where there is a rate, and a cooldown that is \
             split as the rule is.",
        ),
        key(
            "max_wait",
            Kind::Duration("0s", "24h"),
            Is("2m"),
            "Longest hold. A request that would have to wait longer is refused at once, not after \
             waiting.",
        ),
        key(
            "hours",
            Kind::Hours,
            Absent("at all hours"),
            "The time of day at which requests go, by the wall clock of a time zone. At other times they \
             are held up to `max_wait`, or refused with the time until the next opening.",
        ),
        key(
            "queue",
            Kind::Count(0, 1_000_000),
            Is("10000"),
            "Most held requests of a scope in this process.",
        ),
        key(
            "order",
            Kind::Word(&["fair", "fifo"]),
            Is("fair"),
            "Order of held requests: `fair` lets clients (proxy user, else address) take turns, \
             `fifo` is first in, first out.",
        ),
        key(
            "mode",
            Kind::Word(&["enforce", "observe"]),
            Is("enforce"),
            "`observe` judges and counts everything, but holds and refuses nothing.",
        ),
        key(
            "intercept",
            Kind::Flag,
            Is("false"),
            "Whether TLS is ended in the proxy, so that requests inside tunnels are limited and \
             judged one by one.",
        ),
        key("verify", Kind::Flag, Is("true"), "Whether certificates of these sites are verified."),
        key(
            "tunnel",
            Kind::Word(&["flights", "connect", "refuse"]),
            Absent("`flights`; `refuse` with `intercept: true`"),
            "What a tunnel counts: each new flight of the client after an answer, or only the \
             CONNECT. `refuse`: a CONNECT is refused. With `intercept: true` the key is about traffic \
             that is neither TLS nor HTTP; by default it is refused.",
        ),
        key(
            "retry",
            Kind::Section(&RETRY),
            Is("{}"),
            "Blocked answers to send again after the cooldown.",
        ),
        key(
            "cooldown",
            Kind::Either(&[OFF, Kind::Section(&COOLDOWN)]),
            Is("{}"),
            "When the scope's traffic stops, and how it comes back. `off`: never.",
        ),
        key(
            "detect",
            Kind::List(&Kind::Section(&DETECT)),
            Is("[]"),
            "Signatures of this rule, tried before the built-in ones.",
        ),
        key(
            "signatures",
            SWITCHES,
            Is("{}"),
            "Switches signatures for this rule, on top of the file's `signatures`.",
        ),
    ],
};

/// `match` as a mapping.
pub(in crate::config) static MATCH: Section = Section {
    name: "match",
    doc: "A request is meant where one of the hosts and one of the paths match.",
    keys: &[
        key(
            "hosts",
            Kind::OneOrMany(&Kind::Host),
            Is("[]"),
            "Host patterns. `*.shop.example` is every name below, not the name itself. Empty: \
             every host.",
        ),
        key(
            "paths",
            Kind::OneOrMany(&Kind::Glob),
            Is("[]"),
            "Patterns of path and query, `*` for any run of characters. Empty: every path. Paths are \
             compared in a normal form: `/%61/../b//c` is `/b/c`. A tunnel has no path: `https` \
             requests are matched only if a rule with `intercept: true` takes their CONNECT.",
        ),
    ],
};

/// `learn` as a mapping.
pub(in crate::config) static LEARN: Section = Section {
    name: "learn",
    doc: "How the rate is learned that a site bears; `true` is all by default.",
    keys: &[
        key(
            "start",
            Kind::Rate,
            Absent("`rate`; `0.5/s` for `rate: auto`"),
            "Rate at the very beginning.",
        ),
        key(
            "floor",
            Kind::Rate,
            Absent("a hundredth of `rate`; `0.02/s` for `rate: auto`"),
            "Never slower than this.",
        ),
        key(
            "back_off",
            Kind::Factor(0.1, 0.99),
            Is("0.87"),
            "Part of what went well before a trip that is kept after it.",
        ),
        key(
            "patience",
            Kind::Duration("1s", "1h"),
            Is("60s"),
            "Calm before the first try above what is known to go well; it grows each time such a \
             try trips.",
        ),
    ],
};

/// `cooldown`.
pub(in crate::config) static COOLDOWN: Section = Section {
    name: "cooldown",
    doc: "When nothing of a scope is sent any more, by any member, and how the scope comes back.",
    keys: &[
        key(
            "per",
            SPLIT,
            Absent("as the rule's `per`"),
            "How cooldowns are split; `domain` keeps one site's wall from stopping the others.",
        ),
        key(
            "after",
            Kind::Factor(0.1, 1e9),
            Is("3"),
            "Consecutive blocks (the sum of their weights) that trip.",
        ),
        key(
            "ratio",
            Kind::Either(&[OFF, Kind::Ratio]),
            Is("50% of 20"),
            "Trips also on this share of the last verdicts, for walls that let a page through now \
             and then.",
        ),
        key(
            "on",
            Kind::Either(&[
                Kind::List(&BLOCK_OR_STATUS),
                Kind::Map("a verdict or status", &Kind::Factor(0.1, 1000.0)),
            ]),
            Is("[cloudflare_challenge, captcha, 403_forbidden, 429_rate_limited, blank_page]"),
            "What is a block; a mapping gives weights. `503` or `5xx` list a status whose verdict \
             is `ok`.",
        ),
        key(
            "for",
            Kind::Span("100ms", "24h"),
            Is("30s-60s"),
            "Length of a first cooldown, drawn uniformly, once for the whole fleet.",
        ),
        key(
            "forget_after",
            Kind::Duration("1s", "7d"),
            Is("10m"),
            "A streak without news for so long is forgotten.",
        ),
        key(
            "probe",
            Kind::Flag,
            Is("true"),
            "Whether one request goes first when a cooldown ends.",
        ),
        key(
            "grow",
            Kind::Factor(1.0, 100.0),
            Is("2"),
            "Factor by which a failed probe multiplies the next cooldown.",
        ),
        key(
            "max",
            Kind::Duration("100ms", "24h"),
            Is("10m"),
            "Longest cooldown, however it came about.",
        ),
        key(
            "respect_retry_after",
            Kind::Flag,
            Is("true"),
            "Whether a block that names its own wait trips at once and gets that wait, up to \
             `max`.",
        ),
        key(
            "ramp",
            Kind::Duration("0s", "1h"),
            Is("10s"),
            "Time to climb back to the full rate after a cooldown.",
        ),
    ],
};

/// `retry`.
pub(in crate::config) static RETRY: Section = Section {
    name: "retry",
    doc: "Blocked answers that the proxy sends again itself, after the cooldown.",
    keys: &[
        key("attempts", Kind::Count(0, 10), Is("0"), "How often; 0 switches it off."),
        key(
            "on",
            Kind::OneOrMany(&BLOCKS),
            Is("[cloudflare_challenge, captcha, 403_forbidden, 429_rate_limited, blank_page]"),
            "Which verdicts.",
        ),
        key(
            "methods",
            Kind::OneOrMany(&Kind::Method),
            Is("[GET, HEAD]"),
            "Which methods. Only list what a site may safely see twice.",
        ),
    ],
};
