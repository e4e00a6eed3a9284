//! HTTPS with the clients that `make test-clients` installs. Each crawls through interception, with
//! the CA trusted as `docs/https.md` describes, and through a tunnel with counted flights. Chromium
//! loads a page with twenty pictures.

use std::{path::Path, process::Stdio, time::Duration};

use http::{Method, Version};
use integration_tests::{
    member::Member,
    secure::{Flaw, Root},
    site::{Page, Site},
    tools::{Report, crawl},
    wait::wait_until,
};
use tokio::{process::Command, time::timeout};

/// A cold start on a busy machine takes its time.
const BROWSER_AT_MOST: Duration = Duration::from_secs(90);
const PICTURES: usize = 20;

fn gallery() -> (Site, Root) {
    let root = Root::new();
    let site = Site::secure(root.server(Flaw::None));
    site.on("/", Page::Gallery(PICTURES));
    site.on("/image/*", Page::Image);
    (site, root)
}

/// A site with an index and six pages.
fn small_site() -> (Site, Root) {
    let root = Root::new();
    let site = Site::secure(root.server(Flaw::None));
    site.on("/", Page::Index(6));
    (site, root)
}

/// How a client learns to trust the CA, as in `docs/https.md`.
#[derive(Debug, Clone, Copy)]
enum Trust {
    /// By the variable that it reads.
    Variable,
    /// wget: by a line of its settings.
    Settings,
    /// Java: by a key store.
    KeyStore,
}

impl Trust {
    /// The variables for it, and the files in `home` that they name.
    async fn variables(self, ca: &Path, home: &Path) -> Vec<(&'static str, String)> {
        let ca = ca.to_str().expect("a plain path");
        let file = |name: &str| home.join(name).display().to_string();
        match self {
            Self::Variable => {
                let both = ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"];
                both.map(|name| (name, ca.to_owned())).to_vec()
            }
            Self::Settings => {
                std::fs::write(file("wgetrc"), format!("ca_certificate = {ca}\n"))
                    .expect("it is writable");
                vec![("WGETRC", file("wgetrc"))]
            }
            Self::KeyStore => {
                let store = file("tidegate.p12");
                let import = "-importcert -noprompt -alias tidegate -storetype PKCS12";
                let mut arguments: Vec<&str> = import.split(' ').collect();
                arguments.extend(["-file", ca, "-keystore", &store, "-storepass", "changeit"]);
                run(home, "keytool", &arguments).await;
                let options = format!(
                    "-Djavax.net.ssl.trustStore={store} \
                     -Djavax.net.ssl.trustStorePassword=changeit"
                );
                vec![("JAVA_TOOL_OPTIONS", options)]
            }
        }
    }
}

/// Crawls a site with a client and returns the result.
async fn crawled(program: &str, trust: Trust, site: &Site, member: &Member, ca: &Path) -> Report {
    let home = tempfile::tempdir().expect("the folder for temporary files is writable");
    let variables = trust.variables(ca, home.path()).await;
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    // Go uses no proxy for loopback, which it recognises by the name.
    let name = if program.ends_with(".go") { "localhost." } else { "localhost" };
    let index = site.url("/").replace("localhost", name);
    let report = crawl(&member.proxy_url(), program, &index, &variables).await;
    assert_eq!(report.error, None, "{program}: {report:?}");
    report
}

/// Crawls through interception: the wall is seen.
async fn is_judged(program: &str, trust: Trust) {
    let (site, root) = small_site();
    site.on("/item/3", Page::Forbidden);
    let member = root.member("intercept: true, rate: 1000/s, burst: 50").await;
    let report = crawled(program, trust, &site, &member, &member.ca_file()).await;
    assert_eq!((report.count(200), report.count(403)), (6, 1), "{program}: {report:?}");
    assert_eq!(report.judged("403_forbidden"), 1, "{program}: {report:?}");
}

/// Crawls through a tunnel, and returns the tokens that seven requests took.
async fn counted(program: &str, trust: Trust) -> f64 {
    let (site, root) = small_site();
    let member = root.member("tunnel: flights, rate: 1000/s, burst: 50").await;
    let report = crawled(program, trust, &site, &member, &root.file()).await;
    assert_eq!((report.count(200), site.count()), (7, 7), "{program}: {report:?}");
    member.metric("tidegate_tokens_granted_total", &[]).await
}

#[tokio::test]
async fn clients_trust_the_ca_as_the_docs_say() {
    is_judged("crawl_node.cjs", Trust::Variable).await;
    is_judged("crawl_node_http2.cjs", Trust::Variable).await;
    is_judged("crawl.go", Trust::Variable).await;
    is_judged("crawl_wget.sh", Trust::Settings).await;
    is_judged("Crawl.java", Trust::KeyStore).await;
}

#[tokio::test]
async fn flights_in_tunnels_are_near_the_requests() {
    for (program, trust, near) in [
        ("crawl_node.cjs", Trust::Variable, 7.0..=7.0),
        // All six links leave in one record.
        ("crawl_node_http2.cjs", Trust::Variable, 1.0..=7.0),
        ("crawl.go", Trust::Variable, 7.0..=7.0),
        ("crawl_wget.sh", Trust::Settings, 7.0..=7.0),
        // Its HTTP/2 sends frames that look like requests.
        ("Crawl.java", Trust::KeyStore, 7.0..=10.0),
    ] {
        let tokens = counted(program, trust).await;
        assert!(near.contains(&tokens), "{program}: {tokens} tokens for 7 requests");
    }
}

/// Runs a command to its end, with its own home directory, and returns its output.
async fn run(home: &Path, program: &str, arguments: &[&str]) -> String {
    let command = Command::new(program)
        .args(arguments)
        .env("HOME", home)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(BROWSER_AT_MOST, command).await.expect("it ends in time");
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} failed: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Loads a page in a browser that trusts `roots`, and returns the result.
async fn load(member: &Member, roots: &Path, url: &str) -> String {
    let home = tempfile::tempdir().expect("the folder for temporary files is writable");
    let store = home.path().join(".pki/nssdb");
    std::fs::create_dir_all(&store).expect("it is writable");
    let (store, roots) = (format!("sql:{}", store.display()), roots.display().to_string());
    run(home.path(), "certutil", &["-d", &store, "-N", "--empty-password"]).await;
    let trust = ["-d", &store, "-A", "-t", "C,,", "-n", "tidegate", "-i", &roots];
    run(home.path(), "certutil", &trust).await;
    let profile = format!("--user-data-dir={}", home.path().join("profile").display());
    let proxy = format!("--proxy-server={}", member.proxy_url());
    let arguments = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-dev-shm-usage",
        "--disable-sync",
        "--no-first-run",
        "--proxy-bypass-list=<-loopback>",
        &proxy,
        &profile,
        "--dump-dom",
        url,
    ];
    run(home.path(), "chromium", &arguments).await
}

#[tokio::test]
async fn each_request_of_a_page_is_a_full_citizen() {
    let (site, root) = gallery();
    let member = root.member("intercept: true, rate: 1000/s, burst: 50").await;
    let page = load(&member, &member.ca_file(), &site.url("/")).await;
    assert!(page.contains("Pictures") && page.contains("/image/20"), "{page}");
    let arrivals = site.arrivals();
    let pictures = arrivals.iter().filter(|arrival| arrival.path.starts_with("/image/")).count();
    assert_eq!(pictures, PICTURES);
    assert!(arrivals.iter().all(|arrival| arrival.version == Version::HTTP_2));
    // The browser may close while its last request, for an icon, is in flight.
    let judged = member.metric("tidegate_requests_total", &[("verdict", "ok")]).await;
    let shown = f64::from(u32::try_from(PICTURES + 1).expect("few"));
    assert!(judged >= shown, "{judged} verdicts for {shown} requests");
}

#[tokio::test]
async fn a_tunnel_counts_each_request_of_a_page() {
    let (site, root) = gallery();
    let member = root.member("rate: 1000/s, burst: 50").await;
    load(&member, &root.file(), &site.url("/")).await;
    let tokens = member.metric("tidegate_tokens_granted_total", &[]).await;
    let requests = f64::from(u32::try_from(site.count()).expect("few"));
    assert!(requests > f64::from(u32::try_from(PICTURES).expect("few")));
    // Some tunnels are opened in advance and some frames look like requests, but few.
    let near = requests..=requests * 1.5;
    assert!(near.contains(&tokens), "{tokens} tokens for {requests} requests");
}

#[tokio::test]
async fn a_browser_opens_its_websockets_over_http2() {
    let (site, root) = small_site();
    site.on("/", Page::Chat);
    site.on("/ws", Page::WebSocket);
    site.on("/last", Page::Held);
    let member = root.member("intercept: true, rate: 1000/s, burst: 50").await;
    let (url, ca) = (site.url("/"), member.ca_file());
    let arrived = |path: &str| site.arrivals().into_iter().find(|arrival| arrival.path == path);
    let (page, ()) = tokio::join!(load(&member, &ca, &url), async {
        let echoed = async || arrived("/echo/hello").is_some();
        wait_until("the echo is there", BROWSER_AT_MOST, echoed).await;
        site.release();
    });
    assert!(page.contains("<h1>Chat</h1>"), "{page}");
    let handshake = arrived("/ws").expect("the page has opened it");
    assert_eq!((handshake.version, handshake.method), (Version::HTTP_11, Method::GET));
    let via = handshake.headers["via"].to_str().expect("it is ours");
    assert!(via.starts_with("2.0 tidegate"), "the handshake came in HTTP/2: {via}");
}
