//! Remembers which sites respond, to distinguish a silent site from a network outage.
//!
//! It keeps two times for each site, for at most [`MAX_SITES`] sites.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;

use crate::{
    runtime::clock::{self, Instant},
    target::Host,
};

/// Number of sites that are remembered: about half a megabyte in all.
const MAX_SITES: usize = 4096;

/// A site without a response for longer than this is down, not silent.
const ANSWERED: Duration = Duration::from_secs(600);

/// Which sites respond.
#[derive(Debug, Default)]
pub(super) struct RespondingSites(Mutex<Sites>);

#[derive(Debug, Default)]
struct Sites {
    by_host: HashMap<Host, Site>,
    /// The two sites that responded last, the latest first. At least one of them is not the silent one.
    latest: [Option<Latest>; 2],
}

#[derive(Debug)]
struct Latest {
    host: Host,
    at: Instant,
    /// Whether its site has recorded it.
    noted: bool,
}

#[derive(Debug)]
struct Site {
    answered: Instant,
    /// The first failure since the last response.
    silent: Option<Instant>,
}

impl RespondingSites {
    /// Records a response of `host`. Usually it is the same host as before; then this only compares two names.
    pub(super) fn answered(&self, host: &Host) {
        let now = clock::now();
        let mut sites = self.0.lock();
        match &mut sites.latest[0] {
            Some(latest) if latest.host == *host => (latest.at, latest.noted) = (now, false),
            _ => {
                sites.settle();
                sites.latest.swap(0, 1);
                sites.latest[0] = Some(Latest { host: host.clone(), at: now, noted: false });
            }
        }
    }

    /// Records that `host` did not respond. Returns whether that means silence: it responded recently, and nothing
    /// indicates a network outage. For a `probe` the last response may be older, because the site had no requests.
    pub(super) fn is_silent(&self, host: &Host, probe: bool) -> bool {
        let now = clock::now();
        let mut sites = self.0.lock();
        sites.settle();
        let Some(site) = sites.by_host.get_mut(host) else { return probe };
        let since = *site.silent.get_or_insert(now);
        let recent = probe || now - site.answered < ANSWERED;
        recent && (sites.another_answered(host, since) || !sites.another_fails(host, now))
    }
}

impl Sites {
    /// Records the latest response of its site.
    fn settle(&mut self) {
        let Self { by_host, latest: [latest, _] } = self;
        let Some(latest) = latest.as_mut().filter(|latest| !latest.noted) else { return };
        latest.noted = true;
        let site = Site { answered: latest.at, silent: None };
        if let Some(known) = by_host.get_mut(&latest.host) {
            *known = site;
            return;
        }
        if by_host.len() >= MAX_SITES {
            by_host.retain(|_, other| latest.at - other.answered < ANSWERED);
        }
        if by_host.len() >= MAX_SITES {
            by_host.clear();
        }
        by_host.insert(latest.host.clone(), site);
    }

    fn another_answered(&self, host: &Host, since: Instant) -> bool {
        self.latest.iter().flatten().any(|latest| latest.host != *host && latest.at >= since)
    }

    /// Whether another site has stopped responding too. A crawl of one site has no other site.
    fn another_fails(&self, host: &Host, now: Instant) -> bool {
        let mut others = self.by_host.iter().filter(|(other, _)| *other != host);
        others.any(|(_, site)| site.silent.is_some() && now - site.answered < ANSWERED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> Host {
        Host::parse(name).expect("a valid host")
    }

    #[test]
    fn a_site_that_never_answered_is_down_and_not_silent() {
        let reach = RespondingSites::default();
        assert!(!reach.is_silent(&host("a.example"), false));
        reach.answered(&host("b.example"));
        assert!(!reach.is_silent(&host("a.example"), false));
    }

    #[test]
    fn a_site_that_answered_before_is_silent_even_if_it_is_the_only_one() {
        let reach = RespondingSites::default();
        reach.answered(&host("a.example"));
        assert!(reach.is_silent(&host("a.example"), false));
    }

    #[test]
    fn two_sites_that_fail_at_once_are_a_network_that_is_down() {
        let reach = RespondingSites::default();
        reach.answered(&host("a.example"));
        reach.answered(&host("b.example"));
        assert!(reach.is_silent(&host("a.example"), false), "nothing is known of b yet");
        assert!(!reach.is_silent(&host("b.example"), false));
        assert!(!reach.is_silent(&host("a.example"), false));
    }

    #[test]
    fn a_third_site_that_answers_shows_that_the_network_is_there() {
        let reach = RespondingSites::default();
        for name in ["a.example", "b.example", "c.example"] {
            reach.answered(&host(name));
        }
        reach.is_silent(&host("a.example"), false);
        assert!(!reach.is_silent(&host("b.example"), false));
        reach.answered(&host("c.example"));
        assert!(reach.is_silent(&host("a.example"), false));
        assert!(reach.is_silent(&host("b.example"), false));
    }

    #[test]
    fn the_memory_of_sites_is_bounded() {
        let reach = RespondingSites::default();
        for at in 0..3 * MAX_SITES {
            reach.answered(&host(&format!("h{at}.example")));
        }
        assert!(reach.0.lock().by_host.len() <= MAX_SITES);
    }
}
