//! Reads the `Crawl-delay` of a `robots.txt` that a client fetches: the pause that the site
//! requests between two requests.
//!
//! The group that names the client counts, otherwise the group for all clients (RFC 9309, section
//! 2.2.1). The rest of the file is ignored.

use std::time::Duration;

use http::HeaderMap;

use super::{
    decode::{Decoder, codings},
    site_limits::{Ceiling, SLOWEST, SiteLimit},
};

/// Bytes of a `robots.txt` that are read; the bound applies to the encoded and to the decoded file.
pub const MOST: usize = 64 * 1024;
/// How long a delay applies. Crawlers fetch the file about once a day.
const LASTS: Duration = Duration::from_secs(86_400);

/// The delay that a `robots.txt` with these fields requests from `agent`; `None` if there is none.
#[must_use]
pub fn crawl_delay(headers: &HeaderMap, body: &[u8], agent: &str) -> Option<SiteLimit> {
    let mut decoder = Decoder::new(codings(headers).ok()?);
    let mut decoded = Vec::new();
    let mut sink = |bytes: &[u8]| {
        decoded.extend_from_slice(&bytes[..bytes.len().min(MOST - decoded.len())]);
        decoded.len() < MOST
    };
    let read = decoder.push(body, &mut sink).and_then(|_| decoder.finish(&mut sink));
    let text = String::from_utf8_lossy(&decoded);
    let delay = read.ok().and_then(|_| delay(&text, agent))?;
    let rate = (1.0 / delay).max(SLOWEST);
    Some(SiteLimit { ceiling: Some(Ceiling { rate, lasts: LASTS }), hold: None })
}

/// The delay for `agent`, in seconds.
fn delay(text: &str, agent: &str) -> Option<f64> {
    let agent = agent.to_ascii_lowercase();
    // The fit of the current group, and the best group so far with its delay.
    let (mut fits, mut in_agents) = (None, false);
    let (mut best, mut found): (Option<usize>, Option<f64>) = (None, None);
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
        if key == "user-agent" {
            if !in_agents {
                fits = None;
            }
            in_agents = true;
            fits = fits.max(fit(&value.to_ascii_lowercase(), &agent));
            if fits > best {
                (best, found) = (fits, None);
            }
            continue;
        }
        in_agents = false;
        if key == "crawl-delay" && fits.is_some() && fits == best {
            let delay = value.parse::<f64>().ok().filter(|delay| delay.is_finite() && *delay > 0.0);
            found = found.into_iter().chain(delay).reduce(f64::max);
        }
    }
    found
}

/// How specifically a name in the file matches the client: its length, or 0 for the group of all clients.
fn fit(name: &str, agent: &str) -> Option<usize> {
    if name == "*" {
        return Some(0);
    }
    let is_part = |byte: Option<u8>| {
        byte.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let found = agent.match_indices(name).any(|(at, _)| {
        let bytes = agent.as_bytes();
        let before = at.checked_sub(1).and_then(|at| bytes.get(at).copied());
        !is_part(before) && !is_part(bytes.get(at + name.len()).copied())
    });
    (found && !name.is_empty()).then_some(name.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "User-agent: *\nDisallow: /private\nCrawl-delay: 2 # please\n\n\
                        User-Agent: GreedyBot\nuser-agent: mybot\nCRAWL-DELAY: 10\n\n\
                        User-agent: mybot-news\nCrawl-delay: 20\n\nUser-agent: free\nDisallow:\n";

    #[test]
    fn the_group_that_names_the_client_counts_else_the_one_for_all() {
        assert_eq!(delay(FILE, "MyBot/1.0 (+https://my.example)"), Some(10.0));
        assert_eq!(delay(FILE, "Mozilla/5.0 (compatible; greedybot/2)"), Some(10.0));
        assert_eq!(delay(FILE, "mybot-news"), Some(20.0), "the longest name");
        assert_eq!(delay(FILE, "anybot"), Some(2.0), "a part of a word is no name");
        assert_eq!(delay(FILE, ""), Some(2.0));
        assert_eq!(delay(FILE, "free"), None, "its own group has none");
    }

    #[test]
    fn nonsense_delays_are_ignored_and_others_are_bounded() {
        for value in ["-1", "0", "nan", "inf", "soon", "", "1e999"] {
            assert_eq!(
                delay(&format!("user-agent: *\ncrawl-delay: {value}"), "a"),
                None,
                "{value}"
            );
        }
        let slow = crawl_delay(&HeaderMap::new(), b"User-agent: *\nCrawl-delay: 86400", "a");
        let ceiling = slow.and_then(|said| said.ceiling).expect("a ceiling");
        assert!((ceiling.rate - SLOWEST).abs() < 1e-12, "{ceiling:?}");
    }

    #[test]
    fn the_file_may_be_compressed_and_of_any_length() {
        let long = format!("{}\nuser-agent: *\ncrawl-delay: 4\n", "#".repeat(1_000)).repeat(200);
        let packed = zstd::encode_all(long.as_bytes(), 3).expect("memory takes it");
        let headers = [(http::header::CONTENT_ENCODING, "zstd".parse().expect("a value"))];
        let said = crawl_delay(&headers.into_iter().collect(), &packed, "a").expect("a delay");
        assert_eq!(said.ceiling.map(|ceiling| ceiling.rate), Some(0.25));
    }
}
