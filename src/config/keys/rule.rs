//! The keys of a rule.

use super::{
    AUTO, DETECT,
    Default::{Absent, Is, Required},
    Kind, OFF, Section,
};

const SPLIT: Kind = Kind::Word(&["all", "domain", "host", "address"]);

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

/// Consecutive connections without a response.
pub(in crate::config) const SILENCE: Kind = Kind::Count(2, 1000);

const BLOCK_OR_STATUS: Kind = Kind::Either(&[BLOCKS, Kind::Status]);

section! {
    /// Which requests it matches, how fast they may go, and what trips their cooldown.
    RULE = "rule" {
        /// Its unique name, which is also the `rule` label of the metrics.
        name: Kind::Name, Required;
        /// The requests it matches: one host pattern, or hosts and paths. `"*"` matches everything.
        match: Kind::Either(&[Kind::Host, Kind::Section(&MATCH)]), Required;
        /// `bypass` relays without limits or verdicts. `deny` refuses with 403. Neither takes
        /// limits.
        action: Kind::Word(&["limit", "bypass", "deny"]), Is("limit");
        /// How the rule is split into scopes, each with its own bucket: one for all, one per
        /// registrable domain, one per host, or one per
        /// [address](limits.md#limit-the-servers-that-many-hosts-share) that is dialled.
        per: SPLIT, Is("all");
        /// Networks whose hosts keep a scope each under `per: address`, in addition to a built-in
        /// list of content delivery networks.
        address_except: Kind::OneOrMany(&Kind::Network), Is("[]");
        /// Tokens per second, minute, hour or day, for the whole fleet. It is the ceiling if the
        /// rate is learned. `auto` starts low and learns without a ceiling. A delay of 2 s between
        /// requests is `30/m`.
        rate: Kind::Either(&[AUTO, Kind::Rate]), Absent("no rate limit");
        /// Capacity of the bucket: requests that may go at once after a pause.
        burst: Kind::Count(1, 1_000_000),
            Absent("the tokens of one second of `rate` (of `auto`: one), at least `cost`");
        /// Most tokens in a fixed window, in addition to the rate. A window starts with its first
        /// request.
        quota: Kind::OneOrMany(&Kind::Quota), Is("[]");
        /// Tokens that a request takes; at most `burst` and each `quota`.
        cost: Kind::Count(1, 1_000_000), Is("1");
        /// Whether the fleet learns the rate that a site tolerates: a trip lowers it, and calm
        /// raises it again, up to `rate`. On by default if there is a rate and the cooldown is
        /// split like the rule.
        learn: Kind::Either(&[Kind::Flag, Kind::Section(&LEARN)]), Is("true");
        /// Whether limits that a site names count: `RateLimit` and `X-RateLimit` fields of its
        /// responses, and the `Crawl-delay` of a `robots.txt` that a client fetches. They lower
        /// the rate and never raise it. If nothing is left, the scope pauses, up to
        /// `cooldown.max`. The rule needs a cooldown; to lower the rate, one that is split like the
        /// rule.
        site_limits: Kind::Word(&["respect", "ignore"]), Is("respect");
        /// Most concurrent requests of a scope (its concurrency), for the whole fleet. A request
        /// counts until its response is complete, a tunnel until the site answers.
        parallel: Kind::Count(1, 100_000), Absent("no limit");
        /// Limits for each user of `auth.users`, in addition to the rule's. A user who exceeds them
        /// does not hold up the others.
        each_user: Kind::Section(&EACH_USER), Absent("no limits per user");
        /// Most responses with a 4xx status, without blocks, in a sliding window, for walls that
        /// count errors. When they are used up, the scope pauses until the oldest has left the
        /// window. They are counted per cooldown, so the rule needs one.
        errors: Kind::Quota, Absent("no limit");
        /// `ease` lowers the learned rate while the site is overloaded: while its responses come
        /// far later than usual, fail with a 5xx, or do not come. It never trips the cooldown. The
        /// rule needs a learned rate.
        overload: Kind::Word(&["ignore", "ease"]), Is("ignore");
        /// The longest hold. A request that would wait longer is refused at once.
        max_wait: Kind::Duration("0s", "24h"), Is("2m");
        /// The time of day at which requests are sent, in a time zone. At other times they are held
        /// up to `max_wait`, or refused with the time until the next opening.
        hours: Kind::Hours, Absent("at all hours");
        /// Most held requests per scope in this process.
        queue: Kind::Count(0, 1_000_000), Is("10000");
        /// Order of held requests of the same `Priority`. `fair`: clients (by proxy user, otherwise
        /// by address) take turns. `fifo`: first in, first out.
        order: Kind::Word(&["fair", "fifo"]), Is("fair");
        /// `observe` judges and counts everything, but holds and refuses nothing.
        mode: Kind::Word(&["enforce", "observe"]), Is("enforce");
        /// Terminates TLS in the proxy, so that each request inside a tunnel is limited and judged.
        intercept: Kind::Flag, Is("false");
        /// Whether the certificates of these sites are verified.
        verify: Kind::Flag, Is("true");
        /// The [upstream proxy](operations.md#send-requests-through-an-upstream-proxy) of this
        /// rule, exactly one. Its URL begins with `http://`, `https://` or `socks5://` and has a
        /// port and, if needed, a login (`NAME:SECRET@`) before the host.
        via: Kind::ProxyUrl, Absent("a direct connection");
        /// What takes a token in a tunnel. `flights`: everything that the client sends between two
        /// responses. `connect`: only the CONNECT. `refuse` refuses every CONNECT. With
        /// `intercept: true` the key applies to traffic that is neither TLS nor HTTP, which is
        /// refused by default.
        tunnel: Kind::Word(&["flights", "connect", "refuse"]),
            Absent("`flights`; `refuse` with `intercept: true`");
        /// Blocked requests to repeat after the cooldown.
        retry: Kind::Section(&RETRY), Is("{}");
        /// When the scope pauses and how it resumes. `off`: never.
        cooldown: Kind::Either(&[OFF, Kind::Section(&COOLDOWN)]), Is("{}");
        /// Signatures of this rule, checked before the built-in ones.
        detect: Kind::List(&Kind::Section(&DETECT)), Is("[]");
        /// Switches signatures for this rule, on top of the file's `signatures`.
        signatures: SWITCHES, Is("{}");
    }
}

section! {
    /// A request matches if one of the hosts and one of the paths match.
    MATCH = "match" {
        /// Host patterns. `*.shop.example` matches every name below `shop.example`, but not
        /// `shop.example`. Empty: every host.
        hosts: Kind::OneOrMany(&Kind::Host), Is("[]");
        /// Patterns of path and query; `*` is any run of characters. Empty: every path. Paths are
        /// compared in a normal form: `/%61/../b//c` is `/b/c`. A tunnel has no path, so `https`
        /// requests match only if a rule with `intercept: true` takes their CONNECT.
        paths: Kind::OneOrMany(&Kind::Glob), Is("[]");
    }
}

section! {
    /// The limits of each user in a scope.
    EACH_USER = "each_user" {
        /// Tokens per second, minute, hour or day, for the whole fleet.
        rate: Kind::Rate, Absent("no rate limit");
        /// Capacity of the bucket.
        burst: Kind::Count(1, 1_000_000),
            Absent("the tokens of one second of `rate`, at least the rule's `cost`");
        /// Most tokens in a fixed window, in addition to the rate.
        quota: Kind::OneOrMany(&Kind::Quota), Is("[]");
    }
}

section! {
    /// How the rate that a site tolerates is learned. `true` uses all defaults.
    LEARN = "learn" {
        /// The initial rate.
        start: Kind::Rate, Absent("`rate`; `0.5/s` for `rate: auto`");
        /// The lowest rate.
        floor: Kind::Rate, Absent("a hundredth of `rate`; `0.02/s` for `rate: auto`");
        /// Factor for the throughput before a trip; the fleet continues at the product.
        back_off: Kind::Factor(0.1, 0.99), Is("0.87");
        /// Calm before the first try above the known rate. It grows after each failed try.
        patience: Kind::Duration("1s", "1h"), Is("60s");
    }
}

section! {
    /// When all members stop sending requests of a scope, and how the scope resumes.
    COOLDOWN = "cooldown" {
        /// How cooldowns are split; `domain` keeps one site's wall from stopping the others.
        per: SPLIT, Absent("as the rule's `per`");
        /// Consecutive blocks that trip the cooldown (the sum of their weights).
        after: Kind::Factor(0.1, 1e9), Is("3");
        /// Also trips if blocks reach this share of the last verdicts, for walls that let some pages
        /// through.
        ratio: Kind::Either(&[OFF, Kind::Ratio]), Is("50% of 20");
        /// Also trips after this many consecutive connections that were dropped, refused or not
        /// answered. The site must have answered within the last ten minutes, and other sites must
        /// not fall silent too.
        silence: Kind::Either(&[OFF, SILENCE]), Is("5");
        /// Verdicts that are blocks. A mapping gives weights. `503` or `5xx` adds a status whose
        /// verdict is `ok`.
        on: Kind::Either(&[
                Kind::List(&BLOCK_OR_STATUS),
                Kind::Map("a verdict or status", &Kind::Factor(0.1, 1000.0)),
            ]),
            Is("[cloudflare_challenge, captcha, 403_forbidden, 429_rate_limited, blank_page]");
        /// Length of the first cooldown, drawn uniformly, once for the whole fleet.
        for: Kind::Span("100ms", "24h"), Is("30s-60s");
        /// A streak without new blocks for this time is forgotten.
        forget_after: Kind::Duration("1s", "7d"), Is("10m");
        /// Whether a single request goes first when a cooldown ends.
        probe: Kind::Flag, Is("true");
        /// Factor for the next cooldown after a failed probe.
        grow: Kind::Factor(1.0, 100.0), Is("2");
        /// The longest cooldown.
        max: Kind::Duration("100ms", "24h"), Is("10m");
        /// Whether a block with a `Retry-After` trips at once, for exactly that wait, up to `max`.
        respect_retry_after: Kind::Flag, Is("true");
        /// Time in which the rate climbs back to its full value after a cooldown.
        ramp: Kind::Duration("0s", "1h"), Is("10s");
    }
}

section! {
    /// Blocked requests that the proxy repeats itself, after the cooldown.
    RETRY = "retry" {
        /// The most repetitions; 0 switches them off.
        attempts: Kind::Count(0, 10), Is("0");
        /// The verdicts to repeat.
        on: Kind::OneOrMany(&BLOCKS),
            Is("[cloudflare_challenge, captcha, 403_forbidden, 429_rate_limited, blank_page]");
        /// The methods to repeat. List only methods that a site may safely receive twice.
        methods: Kind::OneOrMany(&Kind::Method), Is("[GET, HEAD]");
    }
}
