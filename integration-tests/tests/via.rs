//! `via`: the requests of a rule go through its upstream proxy, and that proxy's failures are not
//! the site's verdict.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use http::Version;
use integration_tests::{
    client::{Answer, ProxyClient, Raw, get, get_direct},
    member::{Member, RuleFile},
    ports::free_address,
    redis::Redis,
    secure::{Flaw, Root},
    site::{Page, Site},
    upstream::{Socks, SocksOptions, behind_tls, with_response},
    wait::wait_until,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

const SOON: Duration = Duration::from_secs(10);

/// An HTTP proxy that wants a login: another Tidegate.
async fn upstream() -> Member {
    let file = RuleFile::one_rule("action: bypass");
    Member::start(&file.with("auth: {users: {crawler: \"p@ss:word\"}}")).await
}

/// Its URL.
fn with_login(upstream: &Member) -> String {
    format!("http://crawler:p%40ss:word@{}", upstream.proxy())
}

fn rule(via: &str, more: &str) -> RuleFile {
    RuleFile::one_rule(&format!("via: \"{via}\", cooldown: {{after: 1, silence: 2}}{more}"))
}

/// Asserts that the upstream proxy failed, and that the site is not blamed.
async fn is_refused(member: &Member, answer: &Answer, status: u16, error: &str, part: &str) {
    let what = format!("{:?} {}", answer.headers, answer.text());
    assert_eq!((answer.status, answer.refused()), (status, Some("via")), "{what}");
    assert_eq!(answer.header("proxy-status"), Some(&*format!("tidegate; error={error}")), "{what}");
    assert!(answer.text().contains(part), "{part}: {what}");
    let metrics = member.metrics().await;
    let refused = metrics.sum("tidegate_refused_total", &[("reason", "via")]);
    assert!(refused > 0.5, "it is counted");
    for name in ["tidegate_requests_total", "tidegate_blocks_total", "tidegate_cooldowns_total"] {
        assert!(metrics.sum(name, &[]) < 0.5, "{name}: the site has said nothing");
    }
}

/// Requests that the upstream proxy has let pass.
async fn passed(upstream: &Member) -> f64 {
    upstream.metric("tidegate_user_requests_total", &[("result", "relayed")]).await
}

/// A CONNECT to the site: the head of its response and the connection.
async fn connect(member: &Member, authority: &str) -> (String, Raw) {
    let mut client = Raw::connect(member.proxy()).await;
    client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await;
    (client.head().await, client)
}

/// One GET inside a CONNECT, over TLS with a server whose certificate comes from `root`.
async fn get_inside(member: &Member, site: &Site, root: &Path) -> String {
    let (head, client) = connect(member, &site.authority()).await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(root).expect("it is PEM");
    roots.add(root).expect("it is a root");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let name = "localhost".try_into().expect("a name");
    let mut stream =
        connector.connect(name, client.into_stream()).await.expect("a good certificate");
    let request =
        format!("GET / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", site.authority());
    stream.write_all(request.as_bytes()).await.expect("it is open");
    let mut text = Vec::new();
    // Some ends come without the goodbye of TLS.
    stream.read_to_end(&mut text).await.ok();
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn plain_http_names_the_site_to_an_http_proxy_on_a_connection_that_is_kept() {
    let (site, upstream) = (Site::start(), upstream().await);
    let member = Member::start(&rule(&with_login(&upstream), "")).await;
    let mut client = ProxyClient::connect(member.proxy()).await;
    for path in ["/", "/a?b=c", "/d"] {
        let answer = client.get(&site.url(path)).await;
        assert_eq!((answer.status, answer.verdict()), (200, Some("ok")), "{}", answer.text());
    }
    assert!((passed(&upstream).await - 3.0).abs() < 0.5);
    let connections = upstream.metric("tidegate_client_connections", &[]).await;
    assert!((connections - 1.0).abs() < 0.5, "{connections} connections to the upstream proxy");
    let seen = &site.arrivals()[1];
    assert_eq!(seen.path, "/a?b=c");
    assert_eq!(seen.header("host"), Some(&*site.authority()));
    assert_eq!(seen.header("proxy-authorization"), None, "the login stays with the proxy");
    assert_eq!(seen.headers.get_all("via").iter().count(), 2, "both proxies: {:?}", seen.headers);
    site.on("/wall", Page::Captcha);
    let wall = client.get(&site.url("/wall")).await;
    assert_eq!((wall.status, wall.verdict()), (403, Some("captcha")), "the site's own verdict");
}

#[tokio::test]
async fn tunnels_interception_and_http2_go_through_a_connect() {
    let (root, upstream) = (Root::new(), upstream().await);
    let site = Site::secure(root.server(Flaw::None));
    let trusts = format!("upstream_ca: [\"{}\"]", root.file().display());
    let blind = Member::start(&rule(&with_login(&upstream), "").with(&trusts)).await;
    assert!(get_inside(&blind, &site, &root.file()).await.starts_with("HTTP/1.1 200"));
    assert!((passed(&upstream).await - 1.0).abs() < 0.5);
    for _ in 0..3 {
        let answer = get(blind.proxy(), &site.url("/by/name")).await;
        assert_eq!((answer.status, answer.verdict()), (200, Some("ok")), "{}", answer.text());
    }
    assert!((passed(&upstream).await - 2.0).abs() < 0.5, "one tunnel for three requests");
    assert_eq!(site.arrivals().last().map(|seen| seen.version), Some(Version::HTTP_2));
    let intercepts = rule(&with_login(&upstream), ", intercept: true").with(&trusts);
    let intercepts = Member::start(&intercepts).await;
    let text = get_inside(&intercepts, &site, &intercepts.ca_file()).await;
    assert!(text.contains("tidegate-verdict: ok"), "{text}");
    assert!((passed(&upstream).await - 3.0).abs() < 0.5);
}

#[tokio::test]
async fn a_websocket_goes_through_a_connect() {
    let (site, upstream) = (Site::start(), upstream().await);
    site.on("/ws", Page::Upgrade);
    let member = Member::start(&rule(&with_login(&upstream), "")).await;
    let mut client = Raw::connect(member.proxy()).await;
    let (url, authority) = (site.url("/ws"), site.authority());
    client
        .send(format!(
            "GET {url} HTTP/1.1\r\nHost: {authority}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ))
        .await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    client.send(b"there and back").await;
    assert_eq!(client.exactly(14).await, b"there and back");
    let tunnels = upstream.metric("tidegate_tunnels", &[]).await;
    assert!((tunnels - 1.0).abs() < 0.5, "a tunnel at the upstream proxy");
}

#[tokio::test]
async fn socks_gets_names_as_they_are_and_a_login() {
    let site = Site::start();
    let login = Some(("crawler".to_owned(), "p@ss".to_owned()));
    let socks =
        Socks::start(site.address(), SocksOptions { login, ..SocksOptions::default() }).await;
    // The proxy's own address is private, and nothing allows that but the rule itself.
    let file = rule(&socks.url("crawler:p%40ss@"), "").egress("{}");
    let member = Member::start(&file).await;
    let answer = get(member.proxy(), "http://no-such-name.example:8080/").await;
    assert_eq!((answer.status, answer.verdict()), (200, Some("ok")), "{}", answer.text());
    let (head, mut client) = connect(&member, "other.example:443").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    client.send("GET / HTTP/1.1\r\nHost: other.example\r\n\r\n").await;
    assert!(client.head().await.starts_with("HTTP/1.1 200"));
    assert_eq!(socks.asked(), ["no-such-name.example:8080", "other.example:443"]);
    let refused = get(member.proxy(), "http://10.0.0.1/").await;
    assert_eq!(refused.refused(), Some("egress"), "{}", refused.text());
    for name in ["localhost", "a.localhost", "intranet", "metadata.google.internal", "nas.local"] {
        let refused = get(member.proxy(), &format!("http://{name}/")).await;
        assert_eq!((refused.status, refused.refused()), (403, Some("egress")), "{name}");
        let (head, _) = connect(&member, &format!("{name}:443")).await;
        assert!(head.starts_with("HTTP/1.1 403"), "{name}: {head}");
    }
    assert_eq!(socks.asked().len(), 2, "what is denied never reaches the upstream proxy");
    let wrong = Member::start(&rule(&socks.url("crawler:wrong@"), "")).await;
    let answer = get(wrong.proxy(), "http://shop.example/").await;
    is_refused(&wrong, &answer, 502, "proxy_configuration_error", "password of `via`").await;
    let none = Member::start(&rule(&socks.url(""), "")).await;
    let answer = get(none.proxy(), "http://shop.example/").await;
    is_refused(&none, &answer, 502, "proxy_configuration_error", "password of `via`").await;
}

#[tokio::test]
async fn the_first_bytes_of_a_site_are_not_lost() {
    let site = Site::start();
    let greeting = b"hello from the site\n".to_vec();
    let options = SocksOptions { greeting: greeting.clone(), ..SocksOptions::default() };
    let socks = Socks::start(site.address(), options).await;
    let member = Member::start(&rule(&socks.url(""), "")).await;
    let (_, mut client) = connect(&member, "shop.example:443").await;
    assert_eq!(client.exactly(greeting.len()).await, greeting);
    let (http, _) = with_response("HTTP/1.1 200 Connected\r\n\r\nhello").await;
    let member = Member::start(&rule(&format!("http://{http}"), "")).await;
    let (_, mut client) = connect(&member, "shop.example:443").await;
    assert_eq!(client.exactly(5).await, b"hello");
}

#[tokio::test]
async fn an_upstream_proxy_behind_tls_needs_a_certificate_that_is_trusted() {
    let (root, site, upstream) = (Root::new(), Site::start(), upstream().await);
    let secure = Site::secure(root.server(Flaw::None));
    let trusts = format!("upstream_ca: [\"{}\"]", root.file().display());
    let url = |at: SocketAddr| format!("https://crawler:p%40ss:word@{at}");
    let good = behind_tls(upstream.proxy(), root.server(Flaw::None)).await;
    let member = Member::start(&rule(&url(good), "").with(&trusts)).await;
    for _ in 0..2 {
        let answer = get(member.proxy(), &site.url("/")).await;
        assert_eq!((answer.status, answer.verdict()), (200, Some("ok")), "{}", answer.text());
    }
    assert_eq!(get(member.proxy(), &secure.url("/")).await.status, 200, "TLS inside TLS");
    assert!(get_inside(&member, &secure, &root.file()).await.starts_with("HTTP/1.1 200"));
    for flaw in [Flaw::SelfSigned, Flaw::OtherName] {
        let bad = behind_tls(upstream.proxy(), root.server(flaw)).await;
        // Only the verification of sites' certificates may be switched off.
        let file = rule(&url(bad), ", verify: false").with(&trusts);
        let member = Member::start(&file).await;
        let answer = get(member.proxy(), &site.url("/")).await;
        is_refused(&member, &answer, 502, "tls_certificate_error", "certificate").await;
    }
}

#[tokio::test]
async fn a_failure_of_the_upstream_proxy_is_not_a_verdict_on_the_site() {
    let (site, root) = (Site::start(), Root::new());
    let secure = Site::secure(root.server(Flaw::None));
    let upstream = upstream().await;
    let login = format!("http://crawler:wrong@{}", upstream.proxy());
    let away = format!("http://{}", free_address());
    let socks =
        Socks::start(site.address(), SocksOptions { reply: 2, ..SocksOptions::default() }).await;
    let (squid, _) = with_response(
        "HTTP/1.1 503 Service Unavailable\r\nX-Squid-Error: ERR_CONNECT_FAIL 111\r\n\
         Content-Length: 0\r\n\r\n",
    )
    .await;
    let (squid, socks) = (format!("http://{squid}"), socks.url(""));
    let (mute, _) = with_response("").await;
    let mute = format!("http://{mute}");
    for (via, error, part) in [
        (&login, "proxy_configuration_error", "password of `via`"),
        (&away, "connection_refused", "refused the connection"),
        (&squid, "destination_unavailable", "503"),
        (&socks, "destination_unavailable", "ruleset"),
        (&mute, "connection_terminated", "broke off"),
    ] {
        let member = Member::start(&rule(via, "")).await;
        // More often than would trip for silence or for blocks.
        for url in [site.url("/"), secure.url("/"), site.url("/again"), secure.url("/again")] {
            let answer = get(member.proxy(), &url).await;
            is_refused(&member, &answer, 502, error, part).await;
        }
        let (head, _) = connect(&member, &secure.authority()).await;
        assert!(head.to_lowercase().contains("tidegate-refused: via"), "{head}");
        let warnings = || {
            member.log().matches("the upstream proxy http://").count()
                + member.log().matches("the upstream proxy socks5://").count()
        };
        wait_until("it is in the log, once", SOON, async || warnings() == 1).await;
        assert!(!member.log().contains("wrong@"), "no password in the log");
    }
    assert_eq!(site.count() + secure.count(), 0);
}

#[tokio::test]
async fn another_tidegates_refusals_are_its_own() {
    let site = Site::start();
    let denies = Member::start(&RuleFile::one_rule("action: deny")).await;
    let member = Member::start(&rule(&format!("http://{}", denies.proxy()), "")).await;
    for _ in 0..2 {
        let answer = get(member.proxy(), &site.url("/")).await;
        is_refused(&member, &answer, 502, "destination_unavailable", "403 (denied)").await;
    }
    // Two that lead to each other.
    let first = Member::start(&rule(&format!("http://{}", denies.proxy()), "")).await;
    let second = Member::start(&rule(&format!("http://{}", first.proxy()), "")).await;
    first.rewrite(&rule(&format!("http://{}", second.proxy()), ""));
    wait_until("it is reloaded", SOON, async || {
        first.metric("tidegate_config_reloads_total", &[("result", "ok")]).await > 0.5
    })
    .await;
    let answer = get(first.proxy(), &site.url("/")).await;
    assert_eq!((answer.status, answer.refused()), (502, Some("via")), "{}", answer.text());
    for member in [&first, &second] {
        let (head, _) = connect(member, "shop.example:443").await;
        assert!(head.starts_with("HTTP/1.1 502"), "{head}");
        let looped = member.metric("tidegate_refused_total", &[("reason", "loop")]).await;
        assert!(looped > 0.5, "each notices what comes back to it");
    }
    assert_eq!(site.count(), 0);
}

#[tokio::test]
async fn the_way_stays_while_the_store_is_away_and_the_status_names_it_without_the_login() {
    let (redis, site, upstream) = (Redis::start(), Site::start(), upstream().await);
    let store = format!("{{url: \"{}\", on_failure: open}}", redis.url());
    let file = rule(&with_login(&upstream), ", rate: 100/s").store(&store);
    let member = Member::start(&file).await;
    redis.freeze();
    member.store_is(false).await;
    let answer = get(member.proxy(), &site.url("/")).await;
    assert_eq!((answer.status, answer.verdict()), (200, Some("ok")), "{}", answer.text());
    assert!((passed(&upstream).await - 1.0).abs() < 0.5);
    let way = format!("http://{}", upstream.proxy());
    assert_eq!(member.status().await["scopes"][0]["via"], *way);
    redis.thaw();
    member.store_is(true).await;
    let fleet = get_direct(member.admin(), "/api/v1/fleet?fresh=1").await.text();
    assert!(fleet.contains(&format!("\"via\":\"{way}\"")), "{fleet}");
}

#[tokio::test]
async fn a_reload_changes_the_upstream_proxy() {
    let (site, upstream) = (Site::start(), upstream().await);
    let member = Member::start(&RuleFile::one_rule("rate: 1000/s")).await;
    let mut client = ProxyClient::connect(member.proxy()).await;
    assert_eq!(client.get(&site.url("/")).await.status, 200);
    assert!(passed(&upstream).await < 0.5);
    let reloaded = async |times: f64| {
        wait_until("it is reloaded", SOON, async || {
            member.metric("tidegate_config_reloads_total", &[("result", "ok")]).await > times - 0.5
        })
        .await;
    };
    member.rewrite(&rule(&with_login(&upstream), ""));
    reloaded(1.0).await;
    assert_eq!(client.get(&site.url("/")).await.status, 200);
    assert!((passed(&upstream).await - 1.0).abs() < 0.5);
    let config = get_direct(member.admin(), "/api/v1/config").await;
    let shown = format!("http://{}", upstream.proxy());
    assert!(config.text().contains(&shown), "the place is shown: {}", config.text());
    assert!(!config.text().contains("p%40ss"), "the login is not: {}", config.text());
    member.rewrite(&RuleFile::one_rule("rate: 1000/s"));
    reloaded(2.0).await;
    assert_eq!(client.get(&site.url("/")).await.status, 200);
    assert!((passed(&upstream).await - 1.0).abs() < 0.5, "the site is dialled again");
}
