//! Every client of `docs/clients.md`: it crawls a small site, reads why a request was refused,
//! respects `Retry-After` (or not), and gives up its place when it times out. `make test-clients`
//! runs it; `clients.rs` has the fast part.

use std::{fs, os::unix::fs::symlink, path::Path, sync::Arc, time::Duration};

use integration_tests::{
    client::{get, post_json},
    member::{Member, RuleFile},
    secure::{Flaw, Root},
    site::{Page, Site},
    tools::{self, Report},
    wait::wait_until,
};

const SOON: Duration = Duration::from_secs(10);
const RATE: f64 = 10.0;

/// One client, and its description in `docs/clients.md`.
#[derive(Debug, Clone, Copy)]
struct Client {
    /// Its crawler in `clients/`.
    program: &'static str,
    /// How often it requests a refused page, with default settings.
    tries: usize,
    advised: Advised,
}

/// How a client treats 429 with `Retry-After` under the recommended settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advised {
    /// Retries after the requested time.
    Waits,
    /// Retries at its own time.
    ComesBack,
    /// Returns the response to its caller.
    Returns,
}

/// A member with these keys for the site. It denies the extra requests of a browser, which would
/// distort the counts.
async fn member(keys: &str) -> Member {
    let hosts = "hosts: [127.0.0.1, localhost]";
    let rules = format!(
        "- {{name: icon, match: {{paths: [/favicon.ico]}}, action: deny}}\n\
         - {{name: shop, match: {{{hosts}}}, {keys}}}\n\
         - {{name: else, match: \"*\", action: deny}}"
    );
    Member::start(&RuleFile::new(&rules)).await
}

impl Client {
    /// Go uses no proxy for loopback, which it recognises by the name.
    fn url(self, site: &Site, path: &str) -> String {
        let url = site.url(path);
        if self.program.ends_with(".go") { url.replace("127.0.0.1", "localhost.") } else { url }
    }

    async fn crawl(self, member: &Member, url: &str, variables: &[(&str, &str)]) -> Report {
        tools::crawl(&member.proxy_url(), self.program, url, variables).await
    }

    /// A page that passes, one that is blocked, and five that are held for a tenth of a second each.
    async fn crawls_a_small_site(self, variables: &[(&str, &str)]) {
        let site = Site::start();
        site.on("/", Page::Index(6));
        site.on("/item/3", Page::Forbidden);
        let member = member("rate: 10/s, burst: 1, cooldown: {after: 2}").await;
        let report = self.crawl(&member, &self.url(&site, "/"), variables).await;
        assert_eq!(report.error, None, "{self:?}: {report:?}");
        assert_eq!((report.count(200), report.count(403)), (6, 1), "{self:?}: {report:?}");
        assert_eq!(report.judged("ok"), 6, "{self:?}: {report:?}");
        assert_eq!(report.judged("403_forbidden"), 1, "{self:?}: {report:?}");
        let asked: Vec<_> = site.arrivals().into_iter().map(|arrival| arrival.path).collect();
        assert_eq!(
            asked.len(),
            7,
            "{self:?}: nothing went twice, nothing past the proxy: {asked:?}"
        );
        let excess = site.excess(RATE, 1.0);
        assert!(excess <= 1.0, "{self:?}: {excess:.2} requests too many");
    }

    /// The client sees both kinds of refusal, with the proxy's reason.
    async fn is_refused(self) {
        let site = Site::start();
        let member = member("rate: 1/h, burst: 1, max_wait: 1s").await;
        let url = self.url(&site, "/");
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200, "the only token");
        let report = self.crawl(&member, &url, &[]).await;
        assert_eq!(report.statuses, [429], "{self:?}: {report:?}");
        assert_eq!(report.refused, [Some("limit".to_owned())], "{self:?}: {report:?}");
        let path = "/api/v1/scopes/shop/cooldown";
        assert_eq!(post_json(member.admin(), path, "{\"seconds\": 600}").await.status, 200);
        let report = self.crawl(&member, &url, &[]).await;
        assert_eq!(report.statuses, [503], "{self:?}: {report:?}");
        assert_eq!(report.refused, [Some("cooldown".to_owned())], "{self:?}: {report:?}");
        let metrics = member.metrics().await;
        for reason in ["limit", "cooldown"] {
            let refused =
                metrics.sum("tidegate_refused_total", &[("rule", "shop"), ("reason", reason)]);
            #[allow(clippy::cast_precision_loss, reason = "a handful of tries")]
            let tries = self.tries as f64;
            assert!(
                (refused - tries).abs() < 1e-9,
                "{self:?} is refused {refused} times: {reason}"
            );
        }
        assert_eq!(site.count(), 1, "{self:?}: nothing went past the proxy");
    }

    /// A site responds once with 429 and a time to retry.
    async fn a_refusal_names_the_time_to_retry(self) {
        // A client that ignores the time must retry before it.
        let wait = if self.advised == Advised::ComesBack { 60 } else { 2 };
        let site = Arc::new(Site::start());
        site.on("/", Page::TooManyRequests(Some(wait.to_string())));
        // Else the proxy would hold the second request until the site's time is up.
        let member = member("rate: 50/s, burst: 5, cooldown: {on: [captcha]}").await;
        let watched = Arc::clone(&site);
        let url = self.url(&site, "/");
        let opens = async {
            wait_until("it asks", Duration::from_secs(60), async || watched.count() == 1).await;
            watched.on("/", Page::Ok);
        };
        let variables = [("ADVISED", "1")];
        let ((), report) = tokio::join!(opens, self.crawl(&member, &url, &variables));
        let times = site.times();
        if self.advised == Advised::Returns {
            assert_eq!(report.statuses, [429], "{self:?}: {report:?}");
            assert_eq!(times.len(), 1, "{self:?}");
            return;
        }
        assert_eq!(report.statuses, [200], "{self:?}: {report:?}");
        assert_eq!(times.len(), 2, "{self:?}");
        let pause = times[1].duration_since(times[0]).as_secs_f64();
        let waited = pause >= f64::from(wait);
        assert_eq!(waited, self.advised == Advised::Waits, "{self:?}: it paused {pause:.2} s");
    }

    /// A client whose timeout is shorter than the hold leaves the queue and takes no token.
    async fn gives_up_while_held(self) {
        let site = Site::start();
        let member = member("rate: 1/h, burst: 1, max_wait: 2h").await;
        let url = self.url(&site, "/");
        assert_eq!(get(member.proxy(), &site.url("/")).await.status, 200, "the only token");
        let report = self.crawl(&member, &url, &[("TIMEOUT", "1")]).await;
        assert!(report.statuses.is_empty() && report.error.is_some(), "{self:?}: {report:?}");
        wait_until("its place is free", SOON, async || {
            let metrics = member.metrics().await;
            metrics.sum("tidegate_held_gone_total", &[]) >= 1.0
                && metrics.sum("tidegate_held_requests", &[]) < 0.5
        })
        .await;
        assert_eq!(site.count(), 1, "{self:?}");
    }

    async fn the_examples_of_the_page_work(self) {
        self.crawls_a_small_site(&[]).await;
        self.is_refused().await;
        self.a_refusal_names_the_time_to_retry().await;
        self.gives_up_while_held().await;
    }
}

#[tokio::test]
async fn curl() {
    let client = Client { program: "crawl_curl.sh", tries: 1, advised: Advised::Waits };
    client.the_examples_of_the_page_work().await;
}

#[tokio::test]
async fn wget() {
    let client = Client { program: "crawl_wget.sh", tries: 1, advised: Advised::ComesBack };
    client.the_examples_of_the_page_work().await;
}

#[tokio::test]
async fn python_requests() {
    let client = Client { program: "crawl_requests.py", tries: 1, advised: Advised::Waits };
    client.the_examples_of_the_page_work().await;
}

#[tokio::test]
async fn httpx() {
    let client = Client { program: "crawl_httpx.py", tries: 1, advised: Advised::Returns };
    client.the_examples_of_the_page_work().await;
}

#[tokio::test]
async fn aiohttp() {
    let client = Client { program: "crawl_aiohttp.py", tries: 1, advised: Advised::Returns };
    client.the_examples_of_the_page_work().await;
}

#[tokio::test]
async fn scrapy() {
    let client = Client { program: "spider.py", tries: 3, advised: Advised::Returns };
    client.the_examples_of_the_page_work().await;
    client.crawls_a_small_site(&[("AUTOTHROTTLE", "1")]).await;
}

#[tokio::test]
async fn node_fetch() {
    let client = Client { program: "crawl_node.cjs", tries: 1, advised: Advised::Waits };
    client.the_examples_of_the_page_work().await;
}

#[tokio::test]
async fn go_net_http() {
    let client = Client { program: "crawl.go", tries: 1, advised: Advised::Returns };
    client.the_examples_of_the_page_work().await;
}

#[tokio::test]
async fn java_http_client() {
    let client = Client { program: "Crawl.java", tries: 1, advised: Advised::Returns };
    client.the_examples_of_the_page_work().await;
}

#[tokio::test]
async fn chromium_with_playwright() {
    let client = Client { program: "crawl_chromium.cjs", tries: 1, advised: Advised::Returns };
    client.the_examples_of_the_page_work().await;
}

/// With the preset of `docs/recipes`. Without it Crawlee immediately retries a blocked page three
/// times.
#[tokio::test]
async fn crawlee() {
    let client = Client { program: "crawl_crawlee.cjs", tries: 4, advised: Advised::Returns };
    client.crawls_a_small_site(&[("ADVISED", "1")]).await;
    client.is_refused().await;
    client.a_refusal_names_the_time_to_retry().await;
    client.gives_up_while_held().await;
}

#[tokio::test]
async fn crawlee_visits_other_pages_while_a_scope_is_paused() {
    let site = Site::start();
    let slow = "match: {paths: [/slow]}, rate: 100/s, max_wait: 1s";
    let rules = format!("- {{name: slow, {slow}}}\n- {{name: rest, match: \"*\", rate: 100/s}}");
    let member = Member::start(&RuleFile::new(&rules)).await;
    let path = "/api/v1/scopes/slow/cooldown";
    assert_eq!(post_json(member.admin(), path, "{\"seconds\": 5}").await.status, 200);
    let quick = site.url("/quick");
    let variables = [("ADVISED", "1"), ("SLOTS", "1"), ("MORE", quick.as_str())];
    let url = site.url("/slow");
    let report = tools::crawl(&member.proxy_url(), "crawl_crawlee.cjs", &url, &variables).await;
    assert_eq!((&report.error, &*report.statuses), (&None, &[200, 200][..]), "{report:?}");
    let asked: Vec<_> = site.arrivals().into_iter().map(|arrival| arrival.path).collect();
    assert_eq!(asked, ["/quick", "/slow"], "the only slot was free while /slow was paused");
    let refused = member.metric("tidegate_refused_total", &[("reason", "cooldown")]).await;
    assert!(refused >= 1.0, "the cooldown refused it");
}

#[tokio::test]
async fn crawlee_puts_back_only_refusals_that_pass() {
    let site = Site::start();
    let closed = "match: {paths: [/closed]}, action: deny";
    let slow = "match: {paths: [/slow]}, rate: 100/s, max_wait: 1s";
    let rules = format!("- {{name: closed, {closed}}}\n- {{name: slow, {slow}}}");
    let member = Member::start(&RuleFile::new(&rules)).await;
    let path = "/api/v1/scopes/slow/cooldown";
    // Longer than Node takes to start on a busy machine.
    assert_eq!(post_json(member.admin(), path, "{\"seconds\": 15}").await.status, 200);
    let slow = site.url("/slow");
    let variables = [("ADVISED", "1"), ("MORE", slow.as_str())];
    let url = site.url("/closed");
    let report = tools::crawl(&member.proxy_url(), "crawl_crawlee.cjs", &url, &variables).await;
    assert_eq!((&report.error, &*report.statuses), (&None, &[403, 200][..]), "{report:?}");
    assert_eq!(report.refused, [Some("denied".to_owned()), None], "{report:?}");
    let metrics = member.metrics().await;
    let refused = |reason| metrics.sum("tidegate_refused_total", &[("reason", reason)]);
    assert!(refused("cooldown") >= 1.0, "the cooldown refused /slow, which came again");
    assert!((refused("denied") - 1.0).abs() < 1e-9, "/closed did not come again");
    let asked: Vec<_> = site.arrivals().into_iter().map(|arrival| arrival.path).collect();
    assert_eq!(asked, ["/slow"]);
}

#[tokio::test]
async fn crawlee_does_not_repeat_a_tunnel_that_is_denied() {
    let member = Member::start(&RuleFile::new("- {name: all, match: \"*\", action: deny}")).await;
    let (url, variables) = ("https://shop.example/", [("ADVISED", "1")]);
    let report = tools::crawl(&member.proxy_url(), "crawl_crawlee.cjs", url, &variables).await;
    assert!(report.statuses.is_empty() && report.error.is_some(), "{report:?}");
    let denied = member.metric("tidegate_refused_total", &[("reason", "denied")]).await;
    assert!((denied - 1.0).abs() < 1e-9, "{denied} tunnels were denied");
}

#[tokio::test]
async fn crawlee_has_responses_over_https_judged() {
    let root = Root::new();
    let site = Site::secure(root.server(Flaw::None));
    site.on("/", Page::CloudflareChallenge);
    let member = root.member("rate: 100/s, cooldown: {after: 2}").await;
    let admin = format!("http://{}", member.admin());
    let variables = [("ADVISED", "1"), ("ADMIN", admin.as_str())];
    let url = site.url("/");
    let report = tools::crawl(&member.proxy_url(), "crawl_crawlee.cjs", &url, &variables).await;
    assert_eq!(report.judged("cloudflare_challenge"), 1, "{report:?}");
    let counted = [("verdict", "cloudflare_challenge")];
    assert!((member.metric("tidegate_requests_total", &counted).await - 1.0).abs() < 1e-9);
}

/// Runs a block of `docs/clients.md` in its own folder, the first below `heading`, with these texts
/// replaced, and expects `count` good pages of a site through the proxy.
async fn runs_as_written(
    heading: &str,
    changes: &[(&str, &str)],
    command: &'static str,
    pages: usize,
) {
    let page = include_str!("../../docs/clients.md");
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("there is a section");
    let (_, block) = section.split_once("```").expect("it has a block");
    let (_, block) = block.split_once('\n').expect("its first line is its language");
    let (block, _) = block.split_once("```").expect("it ends");
    let (site, member) = (Site::start(), member("rate: 100/s").await);
    site.on("/", Page::Index(pages - 1));
    let client = Client { program: command, tries: 1, advised: Advised::Returns };
    let url = client.url(&site, "/");
    let values = |text: &str| {
        text.replace("PROXY", &member.proxy_url())
            .replace("ADMIN", &format!("http://{}", member.admin()))
            .replace("PORT", &member.proxy().port().to_string())
            .replace("INDEX", &url)
    };
    let mut text =
        block.replace("http://shop.example/", &url).replace("https://shop.example/", &url);
    for (from, to) in changes {
        assert!(text.contains(from), "{heading}: {from}");
        text = text.replace(from, &values(to));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a folder");
    let file = command.rsplit(' ').next().expect("a file");
    fs::write(folder.path().join(file), &text).expect("writable");
    fs::copy(root.join("docs/recipes/crawlee.cjs"), folder.path().join("crawlee.cjs"))
        .expect("the preset");
    fs::copy(tools::script("Crawl.java"), folder.path().join("Crawl.java")).expect("the crawler");
    let modules = folder.path().join("node_modules");
    symlink(root.join("target/clients-node/node_modules"), modules).expect("writable");
    let command = format!("cd '{}' && {command}", folder.path().display());
    tools::run_through(&member.proxy_url(), Path::new("sh"), &["-euc", &command]).await;
    assert_eq!(site.count(), pages, "{heading}:\n{text}");
    let ok = member.metric("tidegate_requests_total", &[("verdict", "ok")]).await;
    #[allow(clippy::cast_precision_loss, reason = "a handful of pages")]
    let pages = pages as f64;
    assert!((ok - pages).abs() < 1e-9, "{heading}: {ok} of {pages} pages have a verdict");
}

#[tokio::test]
async fn the_block_for_node_runs() {
    runs_as_written("Node", &[], "node block.mjs", 1).await;
}

#[tokio::test]
async fn the_block_for_crawlee_runs() {
    let ports = ("userAgent:", "proxy: \"PROXY\", admin: \"ADMIN\", userAgent:");
    // The tests install the part of Crawlee that has this crawler.
    let changes = [ports, ("\"crawlee\"", "\"@crawlee/cheerio\"")];
    runs_as_written("Crawlee", &changes, "node block.mjs", 4).await;
}

#[tokio::test]
async fn the_block_for_go_runs() {
    let open = "package main\nimport (\"net/http\"; \"time\")\nfunc main() {\nclient :=";
    let close = "/\")\nif err != nil { panic(err) }\nanswer.Body.Close()\n}\n";
    let changes = [("client :=", open), ("/\")\n", close)];
    runs_as_written("Go", &changes, "go run block.go", 1).await;
}

#[tokio::test]
async fn the_command_for_java_runs() {
    // By default Java uses no proxy for loopback.
    let changes = [("3128", "PORT"), ("Crawl.java", "-Dhttp.nonProxyHosts= Crawl.java INDEX")];
    runs_as_written("Java", &changes, "sh block.sh", 4).await;
}
