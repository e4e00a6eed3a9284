//! A simulated fleet in virtual time: the real gate, the real store code and the real Lua scripts, on a virtual Redis
//! and tokio's paused clock. A thousand members and a hundred thousand held requests take seconds.
//!
//! What is simulated: the machine under the scripts ([`redis`]: an embedded Lua 5.1 with the commands they use), the
//! lines to it ([`mod@line`]: each member's round trip, drawn from a distribution), clients that leave, members that die.
//! Scripts take no virtual time, pushes neither, and tokio's timers count whole milliseconds.

use std::{net::IpAddr, sync::Arc, time::Duration};

use tidegate::{
    classify::verdict::{Judgement, Verdict},
    gate::{Client, Gate, Permit, Preferences},
    limiter::policy::{CooldownPolicy, Limits, Quota, Split, Weights},
    observability::{event::Events, metrics::Metrics},
    rules::{
        Rule, RuleSet, TunnelCount,
        secret::Secret,
        settings::{OnFailure, RedisSettings},
    },
    runtime::clock,
    store::{Backend, SharedStore},
    target::{Host, Scheme, Target},
};
use tokio::task::{AbortHandle, JoinSet};

pub mod figures;
pub mod health;
mod keys;
pub mod line;
pub mod redis;

use figures::{Figures, Ledger, Sent, WINDOW, fairness, waits};
use health::Health;
use line::Line;
use redis::VirtualRedis;

/// Far longer than any simulated wait.
const MAX_WAIT: Duration = Duration::from_secs(86_400);

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Seeds every draw.
    pub seed: u64,
    /// Tokens per second.
    pub rate: f64,
    /// Capacity of the bucket.
    pub burst: u32,
    /// Fixed windows on top.
    pub quotas: Vec<Quota>,
    /// Mean round trip of each member: as many members as entries.
    pub round_trips: Vec<Duration>,
    /// Requests that each member holds from the start.
    pub held: usize,
    /// The rule, if it is not the plain one of this rate and burst.
    pub written: Option<Rule>,
}

impl Plan {
    /// `members` equal ones with 4 ms to Redis.
    #[must_use]
    pub fn new(members: usize, rate: f64, held: usize) -> Self {
        let round_trips = vec![Duration::from_millis(4); members];
        Self { seed: 1, rate, burst: 1, quotas: vec![], round_trips, held, written: None }
    }

    /// Builds a paused runtime, starts the fleet on it and runs `story`.
    ///
    /// # Panics
    /// If the runtime cannot be built.
    pub fn play<T>(self, story: impl AsyncFnOnce(&mut Fleet) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime needs nothing but memory");
        fastrand::seed(self.seed);
        runtime.block_on(async move {
            let mut fleet = Fleet::start(self).await;
            story(&mut fleet).await
        })
    }

    /// Runs it until every request has been sent.
    #[must_use]
    pub fn run(self) -> Figures {
        self.play(async |fleet| {
            fleet.finish().await;
            fleet.figures()
        })
    }
}

/// One simulated member.
#[derive(Debug)]
struct Member {
    gate: Arc<Gate>,
    line: Line,
    clients: Vec<AbortHandle>,
    alive: bool,
}

/// A simulated fleet on one virtual Redis.
#[derive(Debug)]
pub struct Fleet {
    /// Its Redis.
    pub redis: Arc<VirtualRedis>,
    /// The record of everything that happened.
    pub ledger: Arc<Ledger>,
    plan: Plan,
    members: Vec<Member>,
    clients: JoinSet<()>,
    since: clock::Instant,
}

impl Fleet {
    async fn start(plan: Plan) -> Self {
        // Any clock will do, also one years off: members never compare it with theirs.
        let redis = VirtualRedis::start(1_000_000_000_000_000 + fastrand::i64(0..1_i64 << 50));
        let mut fleet = Self {
            redis,
            ledger: Arc::default(),
            members: Vec::new(),
            clients: JoinSet::new(),
            since: clock::now(),
            plan,
        };
        for round_trip in fleet.plan.round_trips.clone() {
            fleet.join(round_trip);
        }
        // Every member has said hello before the first request comes.
        tokio::time::sleep(Duration::from_secs(2)).await;
        fleet.since = clock::now();
        for member in 0..fleet.members.len() {
            fleet.hold(member, fleet.plan.held);
        }
        fleet
    }

    /// Starts another member; its number.
    pub fn join(&mut self, round_trip: Duration) -> usize {
        let number = self.members.len();
        let line = Line::new(&self.redis, &self.ledger, number, round_trip, fastrand::u64(..));
        let metrics = Metrics::new();
        let store = SharedStore::over(
            Box::new(line.clone()),
            settings("redis://simulated"),
            Arc::clone(&metrics),
        );
        let events = Events::new(Arc::clone(&metrics));
        let lease = Duration::from_secs(90);
        let rules = RuleSet::new(vec![self.plan.rule()]);
        let gate = Gate::new(rules, Backend::Shared(store), metrics, events, lease);
        self.members.push(Member { gate, line, clients: vec![], alive: true });
        number
    }

    /// Holds `count` more requests at a member.
    pub fn hold(&mut self, member: usize, count: usize) {
        for n in 0..count {
            let gate = Arc::clone(&self.members[member].gate);
            let client =
                Client::Address(IpAddr::from([10, 0, 0, u8::try_from(n % 16).unwrap_or(0)]));
            let ledger = Arc::clone(&self.ledger);
            self.client(member, crawl(gate, member, client, ledger));
        }
    }

    /// The gate of a member, for requests of your own.
    #[must_use]
    pub fn gate(&self, member: usize) -> Arc<Gate> {
        Arc::clone(&self.members[member].gate)
    }

    /// A client of a member with any behaviour; it ends with the member.
    pub fn client(&mut self, member: usize, client: impl Future<Output = ()> + Send + 'static) {
        let task = self.clients.spawn(client);
        self.members[member].clients.push(task);
    }

    /// Interrupts a member's line to the store, or lets it through again.
    pub fn cut_off(&self, member: usize, health: Health) {
        self.members[member].line.set(health);
    }

    /// Kills a member: nothing that it holds or knows reaches the store or another member.
    pub fn kill(&mut self, member: usize) {
        let member = &mut self.members[member];
        member.line.cut();
        member.alive = false;
        member.clients.drain(..).for_each(|client| client.abort());
        let gate = Arc::clone(&member.gate);
        // Ends what it does in the background; its goodbye does not get through.
        tokio::spawn(async move { gate.close().await });
    }

    /// The last `count` clients of a member leave.
    pub fn leave(&mut self, member: usize, count: usize) {
        let clients = &mut self.members[member].clients;
        let at = clients.len().saturating_sub(count);
        clients.drain(at..).for_each(|client| client.abort());
    }

    /// A reload on every member.
    pub fn reload(&mut self, rate: f64, burst: u32) {
        self.plan.rate = rate;
        self.plan.burst = burst;
        for member in self.members.iter().filter(|member| member.alive) {
            member.gate.reload(RuleSet::new(vec![self.plan.rule()]));
        }
    }

    /// Lets the fleet run for this time.
    pub async fn pass(&mut self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits until every client has been served or has left.
    ///
    /// # Panics
    /// If a client's task panics.
    pub async fn finish(&mut self) {
        while let Some(ended) = self.clients.join_next().await {
            assert!(
                ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()),
                "a client panics"
            );
        }
    }

    /// The figures so far. Fairness is measured from the first ticket on, among the members alive, while each of them
    /// has waiting requests.
    ///
    /// # Panics
    /// If nothing was sent.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "counts")]
    pub fn figures(&self) -> Figures {
        let sent = self.ledger.all();
        let alive: Vec<usize> =
            (0..self.members.len()).filter(|m| self.members[*m].alive).collect();
        let turns = self.ledger.turns();
        let last = |member: &usize| turns.iter().rposition(|turn| turn == member);
        let busy = alive.iter().filter_map(last).min().unwrap_or(0);
        let first = |member: &usize| turns.iter().position(|turn| turn == member);
        let known = alive.iter().filter_map(first).max().map_or(0, |last| last + 1).min(busy);
        let (start, later) = turns[..busy].split_at(WINDOW.min(busy));
        let (jain, max_over_min, unfair_by) = fairness(later, &alive);
        let (_, _, unfair_at_first) = fairness(start, &alive);
        let (_, _, unfair_once_known) = fairness(&turns[known..busy.min(known + WINDOW)], &alive);
        let (first, end) = (sent.first().expect("something is let go"), sent[sent.len() - 1]);
        let took = end.at - first.at;
        let burst = f64::from(self.plan.burst);
        let calls = self.redis.ran("take");
        let times: Vec<_> = sent.iter().map(|sent| sent.at.into_std()).collect();
        Figures {
            sent: sent.len(),
            took,
            ticket_excess: self.ledger.ticket_excess(self.plan.rate, burst),
            sent_excess: crate::bound::worst_window_excess(&times, self.plan.rate, burst),
            used: (sent.len() as f64 - burst) / (self.plan.rate * took.as_secs_f64()),
            jain,
            max_over_min,
            unfair_by,
            unfair_at_first,
            unfair_once_known,
            windows: busy / WINDOW,
            calls_per_grant: calls.calls as f64 / sent.len() as f64,
            script: calls.took.div_f64(calls.calls.max(1) as f64),
            waits: waits(&sent),
        }
    }
}

async fn crawl(gate: Arc<Gate>, member: usize, client: Client, ledger: Arc<Ledger>) {
    let target = target();
    let entry = gate.find(&target).expect("the rule matches everything");
    let since = clock::now();
    let Ok(mut permit) = gate.hold(&entry, &target, &client, Preferences::default()).await else {
        return;
    };
    if permit.may_send() {
        let at = clock::now();
        ledger.sent(Sent { at, member, held: at - since });
        permit.report(&Judgement::ok(200)).await;
    }
}

/// Waits until the client `10.0.0.{client}` may send a request for `target`; `None` if the gate refuses it.
///
/// # Panics
/// If no rule matches `target`.
pub async fn permit(gate: &Arc<Gate>, target: &Target, client: u8) -> Option<Permit> {
    let entry = gate.find(target).expect("the rule matches everything");
    let client = Client::Address(IpAddr::from([10, 0, 0, client]));
    let mut permit = gate.hold(&entry, target, &client, Preferences::default()).await.ok()?;
    while !permit.may_send() {
        permit.again().await.ok()?;
    }
    Some(permit)
}

/// What every simulated request asks for.
#[must_use]
pub fn target() -> Target {
    Target {
        scheme: Scheme::Http,
        host: Host::Name(Arc::from("shop.example")),
        port: 80,
        path: Arc::from("/"),
        server: None,
    }
}

/// A store at `url` that waits a second for its answers.
#[must_use]
pub fn settings(url: &str) -> RedisSettings {
    RedisSettings {
        url: Secret::new(url.to_owned()),
        prefix: "tidegate".to_owned(),
        timeout: Duration::from_secs(1),
        on_failure: OnFailure::Local,
        local_share: None,
        ca: Vec::new(),
    }
}

impl Plan {
    /// Its only rule.
    #[must_use]
    pub fn rule(&self) -> Rule {
        if let Some(rule) = &self.written {
            return rule.clone();
        }
        Rule {
            limits: Limits {
                rate: Some(self.rate),
                burst: self.burst,
                quotas: self.quotas.clone(),
                cost: 1,
                learn: None,
            },
            max_wait: MAX_WAIT,
            queue: usize::MAX,
            tunnel: TunnelCount::Connect,
            cooldown: Some(CooldownPolicy {
                per: Split::All,
                after: 3.0,
                ratio: None,
                silence: None,
                on: Weights { verdicts: vec![(Verdict::RateLimited, 1.0)], statuses: vec![] },
                length: (Duration::from_secs(30), Duration::from_secs(60)),
                forget_after: Duration::from_secs(600),
                probe: true,
                grow: 2.0,
                max: Duration::from_secs(600),
                respect_retry_after: true,
                ramp: Duration::from_secs(10),
            }),
            ..Rule::unlimited("simulated")
        }
    }
}
