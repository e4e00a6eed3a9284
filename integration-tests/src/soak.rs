//! Crawls, abuses and breaks a fleet of three for minutes. Then it checks the bounds, that every
//! request got a response, that nothing is left behind, and that nothing panicked.

use std::{
    collections::BTreeMap,
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    bound::worst_window_excess,
    member::{Member, RuleFile},
    redis::Redis,
    site::{Page, Site},
    wait::wait_until,
};

mod traffic;
mod trouble;

/// The limit of the even site.
const RATE: f64 = 20.0;
const BURST: f64 = 5.0;
/// How far a site may see more than the bound although no grant exceeded it, because requests were
/// in flight for different times. At 20 per second, four requests are a fifth of a second.
const JITTER: f64 = 4.0;
/// What a loss of the store, or a frozen member, may add: half a second's worth of tickets, and a
/// burst.
const DISTURBANCE: f64 = RATE / 2.0 + BURST;
/// How long after a disturbance the strict bound applies again.
const SETTLES: Duration = Duration::from_secs(3);
/// How long a member may take to become idle again.
const COMES_TO_REST: Duration = Duration::from_secs(40);
/// Memory that a member may gain between the first fifth and the end, for caches and the allocator.
const MEMORY_GROWTH: u64 = 24 << 20;
/// Descriptors that may be open at the end in addition to those at the start, such as a new
/// connection to Redis.
const DESCRIPTOR_GROWTH: usize = 8;

/// The length and the seed.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How long the load lasts.
    pub length: Duration,
    /// The seed of all random choices.
    pub seed: u64,
}

/// One position in the fleet, whose member may be replaced.
#[derive(Debug)]
struct Slot {
    proxy: Mutex<SocketAddr>,
    /// Even while its member serves; odd while it is frozen, stopped or started.
    generation: AtomicUsize,
}

impl Slot {
    /// Whether a request that began at `generation` may stay without a response.
    fn excuses(&self, generation: usize) -> bool {
        generation % 2 == 1 || self.generation.load(Ordering::SeqCst) != generation
    }
}

/// The data shared by traffic and faults.
#[derive(Debug)]
struct World {
    slots: Vec<Slot>,
    even: Site,
    rough: Site,
    garbage: SocketAddr,
    over: AtomicBool,
    tally: Mutex<Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    /// Responses by kind of traffic and result.
    answers: BTreeMap<(&'static str, String), usize>,
    /// Requests without a response although their member ran all the time.
    lost: Vec<String>,
    /// Requests without a response whose member was stopped or frozen.
    excused: usize,
    waits: Vec<Duration>,
    troubles: BTreeMap<&'static str, usize>,
    /// When the store or a member was disturbed.
    disturbed: Vec<(Instant, Instant)>,
    granted: f64,
    panics: f64,
    ended: usize,
}

/// The figures of an idle member.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    memory: u64,
    descriptors: usize,
    busy: f64,
}

impl Figures {
    async fn of(member: &Member) -> Self {
        let metrics = member.metrics().await;
        let busy = ["client_connections", "upstream_connections", "held_requests", "tunnels"];
        let busy = busy.map(|name| metrics.sum(&format!("tidegate_{name}"), &[]));
        Self {
            memory: member.resident_bytes(),
            descriptors: member.descriptors(),
            // This request itself uses the admin port, which is not counted.
            busy: busy.iter().sum(),
        }
    }
}

/// The results.
#[derive(Debug)]
pub struct Report {
    plan: Plan,
    tally: Tally,
    arrivals: usize,
    strict: f64,
    whole: f64,
    before: Figures,
    warm: Figures,
    after: Vec<Figures>,
}

/// Runs it.
///
/// # Panics
/// If a process does not start or does not become idle.
pub async fn run(plan: Plan) -> Report {
    let redis = Redis::start();
    let fleet = Member::fleet(3, &rule_file(&redis)).await;
    wait_until("the fleet is whole", COMES_TO_REST, async || {
        fleet[0].metric("tidegate_members", &[]).await > 2.5
    })
    .await;
    let before = Figures::of(&fleet[0]).await;
    let slot = |member: &Member| Slot {
        proxy: Mutex::new(member.proxy()),
        generation: AtomicUsize::new(0),
    };
    let world = Arc::new(World {
        slots: fleet.iter().map(slot).collect(),
        even: Site::start(),
        rough: rough_site(),
        garbage: traffic::garbage().await,
        over: AtomicBool::new(false),
        tally: Mutex::default(),
    });
    let crawlers = traffic::start(&world, plan.seed);
    let mut trouble = trouble::Trouble::new(Arc::clone(&world), redis, fleet, plan.seed);
    trouble.make(plan.length / 5).await;
    let warm = Figures::of(&trouble.fleet[0]).await;
    trouble.make(plan.length - plan.length / 5).await;
    world.over.store(true, Ordering::Relaxed);
    crawlers.join_all().await;
    // The store runs until the members are idle.
    let (fleet, _redis) = trouble.end().await;
    let mut after = Vec::new();
    for member in &fleet {
        wait_until("a member comes to rest", COMES_TO_REST, async || {
            Figures::of(member).await.busy < 0.5
        })
        .await;
        after.push(Figures::of(member).await);
    }
    let tally = std::mem::take(&mut *world.tally.lock());
    let times = world.even.times();
    let whole = worst_window_excess(&times, RATE, BURST);
    let strict = strict_excess(&times, &tally.disturbed);
    Report { plan, tally, arrivals: times.len(), strict, whole, before, warm, after }
}

fn rule_file(redis: &Redis) -> RuleFile {
    let rules = "- {name: even, match: {hosts: [\"127.0.0.1\"]}, rate: 20/s, burst: 5, learn: false}\n\
                 - {name: rough, match: \"*\", per: host, rate: 300/s, learn: false, \
                 cooldown: {after: 3, for: 500ms-1s, max: 2s, ramp: 0s}}";
    RuleFile::new(rules)
        .store(&format!("{{url: \"{}\", timeout: 250ms}}", redis.url()))
        .with("timeouts: {connect: 2s, response: 2s, idle: 5s, drain: 5s}")
}

/// A site with many kinds of responses.
fn rough_site() -> Site {
    let site = Site::start();
    for (path, page) in [
        ("/hang", Page::Hang),
        ("/reset", Page::Reset),
        ("/cut", Page::CutOff(64)),
        ("/slow", Page::Slow(Duration::from_millis(300))),
        ("/drip", Page::Chunked { times: 20, pause: Duration::from_millis(20) }),
        ("/large", Page::Mebibytes(2)),
        ("/wall", Page::Forbidden),
        ("/missing", Page::NotFound),
    ] {
        site.on(path, page);
    }
    site
}

/// The worst window without a disturbance.
fn strict_excess(times: &[Instant], disturbed: &[(Instant, Instant)]) -> f64 {
    let mut calm: Vec<Vec<Instant>> = vec![Vec::new()];
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    for at in sorted {
        let touched = disturbed.iter().any(|(from, to)| at >= *from && at <= *to + SETTLES);
        let last = calm.last_mut().expect("there is one from the start");
        match (touched, last.is_empty()) {
            (false, _) => last.push(at),
            (true, false) => calm.push(Vec::new()),
            (true, true) => {}
        }
    }
    calm.iter().map(|times| worst_window_excess(times, RATE, BURST)).fold(-BURST, f64::max)
}

impl Report {
    /// The broken promises, as messages; empty if there are none.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "these are thousands")]
    pub fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let mut check = |fine: bool, what: String| {
            if !fine {
                broken.push(what);
            }
        };
        let tally = &self.tally;
        check(tally.lost.is_empty(), format!("no answer for {:?}", tally.lost));
        check(self.strict <= JITTER, format!("{:.1} above the bound in calm times", self.strict));
        let allowed = JITTER + DISTURBANCE * tally.disturbed.len() as f64;
        check(self.whole <= allowed, format!("{:.1} above the bound in all", self.whole));
        // The tokens that a member took between the last scrape and its end are unknown.
        let granted = tally.granted + DISTURBANCE * tally.ended as f64;
        let arrived = self.arrivals as f64;
        check(arrived <= granted, format!("{arrived} arrived, and {granted} were granted"));
        check(tally.panics < 0.5, format!("{} panics", tally.panics));
        let memory = self.after[0].memory.saturating_sub(self.warm.memory);
        check(memory < MEMORY_GROWTH, format!("{} KiB more memory", memory >> 10));
        for (n, after) in self.after.iter().enumerate() {
            let most = self.before.descriptors + DESCRIPTOR_GROWTH;
            let open = after.descriptors;
            check(open <= most, format!("member {n} has {open} descriptors open"));
        }
        broken
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = &self.tally;
        writeln!(f, "{} s with seed {}", self.plan.length.as_secs(), self.plan.seed)?;
        writeln!(f, "troubles: {:?}", tally.troubles)?;
        for ((kind, outcome), count) in &tally.answers {
            writeln!(f, "  {kind:<8} {outcome:<24} {count:>7}")?;
        }
        let (lost, excused) = (tally.lost.len(), tally.excused);
        writeln!(f, "without an answer: {lost}; whose member was ended under them: {excused}")?;
        let mut waits = tally.waits.clone();
        waits.sort_unstable();
        let at = |share: usize| waits.get(waits.len() * share / 100).copied().unwrap_or_default();
        writeln!(f, "even site: waits of {:?} (half), {:?} (99 of 100)", at(50), at(99))?;
        let (arrived, granted) = (self.arrivals, tally.granted);
        writeln!(f, "even site: {arrived} arrived, {granted} granted by members that were asked")?;
        let (strict, whole, times) = (self.strict, self.whole, tally.disturbed.len());
        writeln!(
            f,
            "above burst + rate * t: {strict:.2} in calm times, {whole:.2} over {times} disturbances"
        )?;
        let line = |one: Figures| format!("{} KiB, {} open", one.memory >> 10, one.descriptors);
        writeln!(f, "first member: {} at the start, {} warm", line(self.before), line(self.warm))?;
        for (n, after) in self.after.iter().enumerate() {
            writeln!(f, "member {n} at rest: {}", line(*after))?;
        }
        match &self.broken()[..] {
            [] => write!(f, "all as promised"),
            broken => write!(f, "BROKEN: {}", broken.join("; ")),
        }
    }
}
