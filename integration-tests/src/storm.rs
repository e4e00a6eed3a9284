//! A fleet under load whose site begins to block: which requests still get through, and for how
//! long.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::{
    client::ProxyClient,
    member::{Member, RuleFile},
    news::Listener,
    redis::Redis,
    site::{Arrival, Page, Site},
    wait::wait_until,
};

/// The rule of the storm. It has no rate, so that only the cooldown holds requests.
pub const RULE: &str = "cooldown: {after: 3, for: 500ms, ratio: off, grow: 1, ramp: 0s}";
/// The pause of a client between two requests.
const PAUSE: Duration = Duration::from_millis(10);
const SOON: Duration = Duration::from_secs(30);

/// A fleet that is crawled without pause.
#[derive(Debug)]
pub struct Storm {
    // Dropped in this order: clients before members, members before their store.
    crawlers: JoinSet<()>,
    stop: Arc<AtomicBool>,
    members: Vec<Member>,
    site: Site,
    news: Listener,
    epoch: u64,
    since: Instant,
    _redis: Redis,
}

/// One trip, seen from outside. Times are measured from the third block that the site sent.
#[derive(Debug)]
pub struct Trip {
    /// The time of the news about the trip.
    pub news: Duration,
    /// The time of each member's last request at the site.
    pub last: Vec<Duration>,
    /// For requests that a client sent after the news and that still reached the site: how long
    /// after the news.
    sent_after_news: Vec<Duration>,
}

impl Trip {
    /// The number of requests that reached the site although they were sent more than `slack` after
    /// the news.
    #[must_use]
    pub fn leaked(&self, slack: Duration) -> usize {
        self.sent_after_news.iter().filter(|after| **after > slack).count()
    }

    /// The time of the last request of any member at the site.
    #[must_use]
    pub fn last_of_all(&self) -> Duration {
        self.last.iter().max().copied().unwrap_or_default()
    }
}

impl Storm {
    /// Starts `members` members, each crawled over `clients` kept-alive connections.
    pub async fn start(members: usize, clients: usize) -> Self {
        let (redis, site) = (Redis::start(), Site::start());
        let members = Member::fleet(members, &RuleFile::one_rule(RULE).redis(&redis)).await;
        let (stop, since) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let mut crawlers = JoinSet::new();
        for (n, member) in members.iter().enumerate() {
            for _ in 0..clients {
                let url = site.url(&format!("/{n}/"));
                crawlers.spawn(crawl(member.proxy(), url, since, Arc::clone(&stop)));
            }
        }
        let news = Listener::start(&redis);
        Self { crawlers, stop, members, site, news, epoch: 0, since, _redis: redis }
    }

    /// Lets the site block until the fleet pauses, and waits until it resumes.
    ///
    /// # Panics
    /// If the cooldown does not begin or does not end.
    pub async fn trip(&mut self) -> Trip {
        self.site.forget();
        let busy = self.members.len() * 20;
        wait_until("the fleet is busy", SOON, async || self.site.count() >= busy).await;
        self.site.answer_everything_with(Some(Page::TooManyRequests(None)));
        let news = self.news.first("cooling", self.epoch + 1, SOON).await;
        self.site.answer_everything_with(None);
        self.epoch = news.epoch;
        self.news.first("open", news.epoch, SOON).await;
        let arrivals = self.site.arrivals();
        let third = arrivals.iter().filter(|arrival| arrival.status == 429).nth(2);
        let third = third.expect("three blocks trip").at;
        // Late news may come shortly before the probe, so the second half of the cooldown is
        // ignored.
        let end = news.at + news.left / 2;
        let during: Vec<_> =
            arrivals.iter().filter(|arrival| arrival.at > third && arrival.at < end).collect();
        let last = (0..self.members.len()).map(|n| {
            let of_member = during.iter().filter(|arrival| tag(arrival).0 == n);
            of_member.map(|arrival| arrival.at - third).max().unwrap_or_default()
        });
        let sent = during.iter().map(|arrival| self.since + tag(arrival).1);
        Trip {
            news: news.at.saturating_duration_since(third),
            last: last.collect(),
            sent_after_news: sent.filter_map(|at| at.checked_duration_since(news.at)).collect(),
        }
    }

    /// Ends the load.
    pub async fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        while self.crawlers.join_next().await.is_some() {}
    }
}

/// The path of each request contains the time at which its client sent it.
async fn crawl(proxy: SocketAddr, url: String, since: Instant, stop: Arc<AtomicBool>) {
    let mut client = ProxyClient::connect(proxy).await;
    while !stop.load(Ordering::Relaxed) {
        client.get(&format!("{url}{}", since.elapsed().as_micros())).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// The member of a request, and when its client sent it.
fn tag(arrival: &Arrival) -> (usize, Duration) {
    let mut words = arrival.path.trim_start_matches('/').split('/');
    let member = words.next().and_then(|word| word.parse().ok());
    let sent = words.next().and_then(|word| word.parse().ok()).map(Duration::from_micros);
    (member.expect("a member's number"), sent.expect("a time"))
}
