//! HTTPS with real clients and a TLS site, through interception and through tunnels.

mod blind;
mod certificates;
mod fleet;
mod flights;
mod floods;
mod intercepted;
mod large;
mod local;

use std::{path::Path, time::Duration};

use integration_tests::{
    member::Member,
    secure::{Flaw, Root},
    site::{Page, Site},
    tools::{crawl, run_through, trusting},
};

const SOON: Duration = Duration::from_secs(10);
/// Links on the index page.
const LINKS: usize = 6;

/// A TLS site with an index page and six linked pages, and the root of its certificate.
fn secure_site() -> (Site, Root) {
    let root = Root::new();
    let site = Site::secure(root.server(Flaw::None));
    site.on("/", Page::Index(LINKS));
    (site, root)
}

/// A client that crawls the index page and its links.
#[derive(Debug, Clone, Copy)]
enum Crawler {
    /// One command with all URLs: one connection.
    Curl { http2: bool },
    /// A program in `clients/`.
    Program { name: &'static str, http2: bool },
}

impl Crawler {
    const fn http1(name: &'static str) -> Self {
        Self::Program { name, http2: false }
    }

    const fn http2(name: &'static str) -> Self {
        Self::Program { name, http2: true }
    }

    /// Lets it crawl, trusting `roots`, and returns its statuses and verdicts.
    async fn crawl(self, member: &Member, roots: &Path, site: &Site) -> (Vec<u16>, Vec<String>) {
        let (name, http2) = match self {
            Self::Curl { http2 } => return curl(member, roots, site, http2).await,
            Self::Program { name, http2 } => (name, http2),
        };
        let mut variables = trusting(roots);
        variables.extend(http2.then_some(("HTTP2", "1")));
        let report = crawl(&member.proxy_url(), name, &site.url("/"), &variables).await;
        assert_eq!(report.error, None, "{name}: {report:?}");
        let verdicts = report.verdicts.into_iter().map(Option::unwrap_or_default).collect();
        (report.statuses, verdicts)
    }
}

/// curl requests the same pages, one after the other on one connection.
async fn curl(member: &Member, roots: &Path, site: &Site, http2: bool) -> (Vec<u16>, Vec<String>) {
    let version = if http2 { "--http2" } else { "--http1.1" };
    let format = "%{http_code} %header{tidegate-verdict}\n";
    let roots = roots.to_str().expect("a plain path");
    let mut arguments =
        vec![version, "--silent", "--show-error", "--cacert", roots, "--write-out", format];
    let mut urls = vec![site.url("/")];
    urls.extend((1..=LINKS).map(|item| site.url(&format!("/item/{item}"))));
    for url in &urls {
        arguments.extend(["--output", "/dev/null", url]);
    }
    let output = run_through(&member.proxy_url(), Path::new("curl"), &arguments).await;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.lines()
        .map(|line| {
            let (status, verdict) = line.split_once(' ').expect("a status and a verdict");
            (status.parse::<u16>().expect("a status"), verdict.to_owned())
        })
        .unzip()
}
