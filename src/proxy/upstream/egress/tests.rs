//! Tests of the egress guard: one table for all paths, because all use [`Guard::connect`].
#![allow(clippy::unwrap_used)]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::rules::HostPattern;

const SECOND: Duration = Duration::from_secs(1);

fn guard(allow: Vec<EgressPattern>, deny: Vec<EgressPattern>) -> Guard {
    Guard::new(&Egress { allow, deny, connect_ports: vec![] }, own(&[]))
}

fn own(addresses: &[&str]) -> Arc<OwnAddresses> {
    Arc::new(addresses.iter().map(|at| at.parse().unwrap()).collect::<Vec<SocketAddr>>().into())
}

/// A guard that resolves names with `look`.
fn looking_up(look: fn(&str) -> std::io::Result<Vec<IpAddr>>, allow: Vec<EgressPattern>) -> Guard {
    Guard { resolver: Resolver::with(look), ..guard(allow, vec![]) }
}

fn me() -> Client {
    Client::Address([127, 0, 0, 1].into())
}

fn network(text: &str, port: Option<u16>) -> EgressPattern {
    EgressPattern::Network(text.parse().unwrap(), port)
}

fn site() -> Host {
    Host::Name(Arc::from("site.example"))
}

fn judge(guard: &Guard, addr: &str) -> Result<(), Denied> {
    guard.judge(&site(), addr.parse().unwrap())
}

#[test]
fn addresses_that_are_not_public_are_denied_by_default() {
    let guard = guard(vec![], vec![]);
    for ip in [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.127.255.255",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "168.63.129.16",
        "[::]",
        "[::1]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "[fec0::1]",
        "[ff02::1]",
        "[100::1]",
        "[2001:db8::1]",
        "[3fff::1]",
        "[2001:2::1]",
        "[5f00::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:169.254.169.254]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b::a9fe:a9fe]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[2002:808:808::1]",
        "[2001:0:7f00:1::1]",
        "[2001::1]",
    ] {
        let verdict = judge(&guard, &format!("{ip}:80"));
        assert!(matches!(verdict, Err(Denied::NotPublic(..))), "{ip}: {verdict:?}");
    }
}

#[test]
fn public_addresses_are_allowed_by_default() {
    let guard = guard(vec![], vec![]);
    for ip in [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.1",
        "100.63.255.255",
        "100.128.0.1",
        "126.1.1.1",
        "128.0.0.1",
        "169.253.1.1",
        "172.15.1.1",
        "172.32.0.1",
        "192.0.1.1",
        "192.167.1.1",
        "198.17.1.1",
        "198.20.0.1",
        "223.255.255.255",
        "[2606:4700::1111]",
        "[2a00:1450::1]",
        "[::ffff:1.1.1.1]",
        "[64:ff9b::101:101]",
    ] {
        assert_eq!(judge(&guard, &format!("{ip}:443")), Ok(()), "{ip}");
    }
}

#[test]
fn an_allow_entry_allows_only_the_addresses_that_it_names() {
    let loopback = guard(vec![EgressPattern::Loopback], vec![]);
    for addr in ["127.0.0.1:80", "127.9.9.9:1", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
        assert_eq!(judge(&loopback, addr), Ok(()), "{addr}");
    }
    for addr in ["10.0.0.1:80", "169.254.169.254:80", "0.0.0.0:80", "[fe80::1]:80"] {
        assert!(judge(&loopback, addr).is_err(), "{addr}");
    }
    let private = guard(vec![EgressPattern::Private], vec![]);
    for addr in ["10.0.0.1:80", "192.168.0.1:80", "100.64.0.1:80", "[fd00::1]:80"] {
        assert_eq!(judge(&private, addr), Ok(()), "{addr}");
    }
    for addr in ["127.0.0.1:80", "169.254.169.254:80", "[fe80::1]:80", "198.18.0.1:80"] {
        assert!(judge(&private, addr).is_err(), "{addr}");
    }
    let link_local = guard(vec![EgressPattern::LinkLocal], vec![]);
    assert_eq!(judge(&link_local, "169.254.169.254:80"), Ok(()));
    assert!(judge(&link_local, "10.0.0.1:80").is_err());
    let one_port = guard(vec![network("10.1.2.0/24", Some(8080))], vec![]);
    assert_eq!(judge(&one_port, "10.1.2.3:8080"), Ok(()));
    assert!(judge(&one_port, "10.1.2.3:80").is_err());
    assert!(judge(&one_port, "10.1.3.3:8080").is_err());
}

#[test]
fn a_host_entry_opens_the_addresses_of_that_host_only() {
    let below = HostPattern::Below(Arc::from("example"));
    let guard = guard(vec![EgressPattern::Host(below, Some(80))], vec![]);
    assert_eq!(judge(&guard, "10.0.0.1:80"), Ok(()));
    assert!(judge(&guard, "10.0.0.1:81").is_err());
    let other = Host::Name(Arc::from("other.test"));
    assert!(guard.judge(&other, "10.0.0.1:80".parse().unwrap()).is_err());
}

#[test]
fn deny_beats_allow_and_denies_public_addresses_too() {
    let denied = guard(
        vec![EgressPattern::Private, network("0.0.0.0/0", None)],
        vec![network("10.1.0.0/16", None), network("1.1.1.0/24", Some(80))],
    );
    assert_eq!(judge(&denied, "10.2.0.1:80"), Ok(()));
    for addr in ["10.1.0.1:80", "1.1.1.1:80", "[::ffff:1.1.1.1]:80", "[64:ff9b::101:101]:80"] {
        assert!(matches!(judge(&denied, addr), Err(Denied::Listed(_))), "{addr}");
    }
    assert_eq!(judge(&denied, "1.1.1.1:443"), Ok(()));
    let by_name = HostPattern::Exact(Arc::from("site.example"));
    let by_name = guard(vec![], vec![EgressPattern::Host(by_name, None)]);
    assert!(judge(&by_name, "1.1.1.1:443").is_err());
}

/// The entries in docs/security.md for a network's own NAT64 prefix.
#[test]
fn the_documented_entries_deny_private_addresses_behind_a_nat64_prefix() {
    let inside =
        ["7f00:0/104", "a00:0/104", "ac10:0/108", "c0a8:0/112", "a9fe:0/112", "6440:0/106"];
    let deny = inside.map(|rest| network(&format!("2001:678:64::{rest}"), None));
    let guard = guard(vec![], deny.to_vec());
    for ip in ["7f00:1", "a00:5", "aff:ffff", "ac1f:1", "c0a8:101", "a9fe:a9fe", "647f:1"] {
        let addr = format!("[2001:678:64::{ip}]:80");
        assert!(matches!(judge(&guard, &addr), Err(Denied::Listed(_))), "{addr}");
    }
    for ip in ["101:101", "b00:1", "ac20:1", "c0a9:1", "6480:1"] {
        assert_eq!(judge(&guard, &format!("[2001:678:64::{ip}]:80")), Ok(()), "{ip}");
    }
}

#[test]
fn the_proxys_own_addresses_are_always_denied() {
    let egress = Egress {
        allow: vec![network("0.0.0.0/0", None), network("::/0", None)],
        ..Egress::default()
    };
    let listeners = ["127.0.0.1:3128", "[::ffff:10.0.0.5]:6379", "0.0.0.0:9128"];
    let guard = Guard::new(&egress, own(&listeners));
    for addr in [
        "127.0.0.1:3128",
        "[::ffff:127.0.0.1]:3128",
        "0.0.0.0:3128",
        "[::]:3128",
        "10.0.0.5:6379",
        "[64:ff9b::a00:5]:6379",
        "127.0.0.1:9128",
        "[::1]:9128",
    ] {
        assert!(matches!(judge(&guard, addr), Err(Denied::Own(_))), "{addr}");
    }
    for addr in ["127.0.0.2:3128", "127.0.0.1:80", "10.0.0.5:80", "10.0.0.6:6379"] {
        assert_eq!(judge(&guard, addr), Ok(()), "{addr}");
    }
}

#[test]
fn ports_of_other_protocols_are_refused_unless_the_rule_file_names_them() {
    let plain = guard(vec![], vec![]);
    for port in [25, 22, 23, 6667, 10080] {
        assert!(plain.judge_port(port).is_err(), "{port}");
    }
    for port in [80, 443, 8080, 3128] {
        assert_eq!(plain.judge_port(port), Ok(()), "{port}");
    }
    let named =
        guard(vec![network("10.0.0.5/32", Some(22)), network("10.0.0.5/32", Some(25))], vec![]);
    assert_eq!(named.judge_port(22), Ok(()));
    assert!(named.judge_port(25).is_err() && named.judge_port(23).is_err());
    let egress = Egress { connect_ports: vec![443, 22], ..Egress::default() };
    assert_eq!(Guard::new(&egress, own(&[])).judge_port(22), Ok(()));
}

#[test]
fn connect_may_name_listed_ports_and_never_the_one_for_mail() {
    let any = guard(vec![], vec![]);
    assert_eq!(any.judge_connect_port(443), Ok(()));
    assert_eq!(any.judge_connect_port(8443), Ok(()));
    assert_eq!(any.judge_connect_port(25), Err(Denied::Port(25)));
    let egress = Egress { connect_ports: vec![443, 25], ..Egress::default() };
    let listed = Guard::new(&egress, own(&[]));
    assert_eq!(listed.judge_connect_port(443), Ok(()));
    assert_eq!(listed.judge_connect_port(80), Err(Denied::Port(80)));
    assert_eq!(listed.judge_connect_port(25), Err(Denied::Port(25)));
}

#[tokio::test]
async fn a_name_that_resolves_to_a_denied_address_is_not_dialled() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let denied =
        guard(vec![], vec![]).connect(&Host::Name("localhost".into()), port, &me(), SECOND).await;
    let denied = denied.unwrap_err();
    assert!(matches!(denied, DialError::Denied(Denied::NotPublic(..))), "{denied:?}");
    assert_eq!(
        denied.response(),
        (StatusCode::FORBIDDEN, Reason::Egress, "destination_ip_prohibited")
    );
    let nobody_came = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(nobody_came.is_err());
}

#[tokio::test]
async fn an_allowed_name_is_connected_without_delaying_small_writes() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let guard = guard(vec![EgressPattern::Loopback], vec![]);
    let stream = guard.connect(&Host::Name("localhost".into()), port, &me(), SECOND).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
    assert!(stream.nodelay().unwrap());
}

#[tokio::test]
async fn a_listener_on_every_address_is_not_reached_by_any_of_them() {
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let egress = Egress { allow: vec![EgressPattern::Loopback], ..Egress::default() };
    let knows_port = Guard::new(&egress, own(&[&at.to_string()]));
    let stream = TcpStream::connect(("127.0.0.1", at.port())).await.unwrap();
    assert!(matches!(
        knows_port.refuse_own_machine(&stream, at.port()),
        Err(DialError::Denied(Denied::Own(_)))
    ));
    assert!(guard(vec![], vec![]).refuse_own_machine(&stream, at.port()).is_ok());
}

#[tokio::test]
async fn each_failure_to_connect_has_its_own_name() {
    let guard = guard(vec![EgressPattern::Loopback, network("192.0.2.0/24", None)], vec![]);
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let refused = guard.connect(&Host::parse("127.0.0.1").unwrap(), closed, &me(), SECOND).await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, DialError::Refused(..)), "{refused:?}");
    assert_eq!(
        refused.response(),
        (StatusCode::BAD_GATEWAY, Reason::Connect, "connection_refused")
    );

    let name = Host::Name("no-such-name.invalid".into());
    let unknown = guard.connect(&name, 80, &me(), SECOND * 6).await.unwrap_err();
    assert!(matches!(unknown, DialError::Dns(..) | DialError::DnsTimeout(_)), "{unknown:?}");
}

// Time is virtual: it passes only while nothing else can happen.
#[tokio::test(start_paused = true)]
async fn the_second_address_answers_when_the_first_is_closed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = listener.local_addr().unwrap();
    let closed = SocketAddr::new("127.0.0.2".parse().unwrap(), open.port());
    let begun = clock::now();
    let stream = dial::first(&[closed, open], clock::now() + SECOND).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), open);
    assert!(begun.elapsed() < Duration::from_millis(200), "a refusal starts the next at once");
}

/// A listener whose queue is full: the kernel drops every further SYN, like a black hole.
async fn black_hole() -> (tokio::net::TcpListener, Vec<TcpStream>) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.3:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) =
        tokio::time::timeout(Duration::from_millis(100), TcpStream::connect(addr)).await
    {
        queued.push(stream.unwrap());
        assert!(queued.len() < 10, "the queue never fills");
    }
    (listener, queued)
}

#[tokio::test(start_paused = true)]
async fn a_black_hole_delays_by_its_head_start_only() {
    let (hole, _queued) = black_hole().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (dead, open) = (hole.local_addr().unwrap(), listener.local_addr().unwrap());
    let begun = clock::now();
    let stream = dial::first(&[dead, open], clock::now() + SECOND * 5).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), open);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(250) && took < Duration::from_millis(260), "{took:?}");
}

#[tokio::test]
async fn silence_ends_with_the_connect_timeout() {
    let (hole, _queued) = black_hole().await;
    let guard = guard(vec![EgressPattern::Loopback], vec![]);
    let (addr, limit) = (hole.local_addr().unwrap(), Duration::from_millis(100));
    let silent = guard.connect(&Host::Ip(addr.ip()), addr.port(), &me(), limit).await.unwrap_err();
    assert!(matches!(silent, DialError::Timeout(..)), "{silent:?}");
    assert_eq!(
        silent.response(),
        (StatusCode::GATEWAY_TIMEOUT, Reason::Timeout, "connection_timeout")
    );
    assert!(silent.to_string().contains("within 0.1 s"), "{silent}");
}

#[tokio::test]
async fn of_several_addresses_only_those_that_pass_are_dialled() {
    let (inner, outer) = ("127.0.0.1:0", "127.0.0.2:0");
    let denied = tokio::net::TcpListener::bind(inner).await.unwrap();
    let port = denied.local_addr().unwrap().port();
    let allowed = tokio::net::TcpListener::bind(outer.replace(":0", &format!(":{port}"))).await;
    let allowed = allowed.unwrap();
    let mixed = |_: &str| Ok(["127.0.0.1", "::1", "10.0.0.1", "127.0.0.2"].map(ip).to_vec());
    let guard = looking_up(mixed, vec![network("127.0.0.2/32", None)]);
    for _ in 0..5 {
        let stream = guard.connect(&site(), port, &me(), SECOND).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), allowed.local_addr().unwrap());
    }
    let none = looking_up(|_| Ok(["127.0.0.1", "10.0.0.1"].map(ip).to_vec()), vec![]);
    let why = none.connect(&site(), port, &me(), SECOND).await.unwrap_err();
    assert!(matches!(why, DialError::Denied(_)), "{why:?}");
    let nobody = tokio::time::timeout(Duration::from_millis(50), denied.accept()).await;
    assert!(nobody.is_err(), "a denied address was dialled");
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_name_that_changes_its_address_is_judged_by_each_one_that_is_dialled() {
    static ASKED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    // Like a rebinding server: first a public address, then an internal one.
    let look = |_: &str| {
        let n = ASKED.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok(vec![ip(if n.is_multiple_of(2) { "127.0.0.2" } else { "127.0.0.1" })])
    };
    let inside = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = inside.local_addr().unwrap().port();
    let outside = std::net::TcpListener::bind(("127.0.0.2", port)).unwrap();
    let guard = looking_up(look, vec![network("127.0.0.2/32", None)]);
    for round in 0..6 {
        match guard.connect(&site(), port, &me(), SECOND).await {
            Ok(stream) => {
                assert_eq!(round % 2, 0);
                assert_eq!(stream.peer_addr().unwrap(), outside.local_addr().unwrap());
            }
            Err(why) => {
                assert_eq!(round % 2, 1);
                assert!(matches!(why, DialError::Denied(_)), "{why:?}");
            }
        }
        // After the cache has expired.
        tokio::time::pause();
        tokio::time::advance(SECOND * 10).await;
        tokio::time::resume();
    }
    inside.set_nonblocking(true).unwrap();
    assert!(inside.accept().is_err(), "the address inside was dialled");
}

#[tokio::test]
async fn a_name_with_hundreds_of_addresses_or_none_fails_soon() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let many = |_: &str| Ok((1..=250).map(|n| IpAddr::from([127, 0, 3, n])).collect());
    let guard = looking_up(many, vec![EgressPattern::Loopback]);
    let begun = clock::now();
    let refused = guard.connect(&site(), closed, &me(), SECOND * 10).await.unwrap_err();
    assert!(matches!(refused, DialError::Refused(..)), "{refused:?}");
    assert!(begun.elapsed() < SECOND * 5, "only so many are tried");
    let nothing = looking_up(|_| Ok(vec![]), vec![]).connect(&site(), 80, &me(), SECOND).await;
    assert_eq!(nothing.unwrap_err().response().0, StatusCode::BAD_GATEWAY);
    let failed = |_: &str| Err(std::io::Error::other("SERVFAIL"));
    let failed = looking_up(failed, vec![]).connect(&site(), 80, &me(), SECOND).await.unwrap_err();
    assert_eq!(failed.response(), (StatusCode::BAD_GATEWAY, Reason::Dns, "dns_error"));
}

#[test]
fn a_site_behind_an_upstream_proxy_is_judged_by_its_name() {
    let named = |name: &str| Host::Name(Arc::from(name));
    let strict =
        guard(vec![], vec![EgressPattern::Host(HostPattern::Below("a.example".into()), None)]);
    for name in ["shop.example", "a.example", "local.example", "localhost.example", "xlocalhost.de"]
    {
        assert_eq!(strict.judge_unseen(&named(name), 443), Ok(()), "{name}");
    }
    for name in ["localhost", "a.localhost", "intranet", "a.internal", "nas.local", "x.home.arpa"] {
        let judged = strict.judge_unseen(&named(name), 443);
        assert!(matches!(judged, Err(Denied::NotPublicName(..))), "{name}: {judged:?}");
    }
    let judged = strict.judge_unseen(&named("b.a.example"), 443);
    assert_eq!(judged, Err(Denied::ListedName(named("b.a.example"))));
    let private = Host::Ip([10, 0, 0, 1].into());
    assert!(matches!(strict.judge_unseen(&private, 443), Err(Denied::NotPublic(..))));
    assert!(strict.judge_unseen(&named("shop.example"), 22).is_err(), "another protocol's port");
    let host = EgressPattern::Host(HostPattern::Exact("wiki".into()), Some(80));
    let opened = guard(vec![EgressPattern::Loopback, host], vec![]);
    assert_eq!(opened.judge_unseen(&named("localhost"), 443), Ok(()));
    assert_eq!(opened.judge_unseen(&named("wiki"), 80), Ok(()));
    assert!(opened.judge_unseen(&named("wiki"), 443).is_err(), "allowed at another port only");
}

#[test]
fn an_upstream_proxy_may_be_private_but_neither_denied_nor_this_proxy() {
    let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
    let egress =
        Egress { allow: vec![], deny: vec![network("10.9.0.0/16", None)], connect_ports: vec![] };
    let guard = Guard::new(&egress, own(&["127.0.0.1:3128"]));
    assert_eq!(guard.judge_upstream(&site(), addr("10.1.0.7:1080")), Ok(()));
    let denied = guard.judge_upstream(&site(), addr("10.9.0.7:1080"));
    assert!(matches!(denied, Err(Denied::Listed(_))), "{denied:?}");
    let own = guard.judge_upstream(&site(), addr("127.0.0.1:3128"));
    assert!(matches!(own, Err(Denied::Own(_))), "{own:?}");
}

#[tokio::test]
async fn resolved_addresses_are_dialled_without_another_look_up_lowest_first() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let look = |_: &str| {
        ASKED.fetch_add(1, Ordering::SeqCst);
        let found = ["::1", "127.0.0.2", "10.1.2.3", "127.0.0.1"];
        Ok(found.map(|ip| ip.parse().unwrap()).to_vec())
    };
    let guard = looking_up(look, vec![EgressPattern::Loopback]);
    let found = guard.look_up(&site(), port, &me(), SECOND).await.unwrap();
    let lowest: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(lowest, ["127.0.0.1", "127.0.0.2", "::1"], "without the one that is denied");
    let stream = guard.connect_to(&site(), port, &found, SECOND).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap().ip().to_string(), "127.0.0.1");
    let reversed: Vec<IpAddr> = found.iter().rev().copied().collect();
    let stream = guard.connect_to(&site(), port, &reversed, SECOND).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap().ip().to_string(), "127.0.0.1", "others refuse");
    assert_eq!(ASKED.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_looked_up_address_is_judged_again_before_it_is_dialled() {
    let address: [IpAddr; 1] = ["127.0.0.1".parse().unwrap()];
    let reloaded = guard(vec![], vec![]);
    let denied = reloaded.connect_to(&site(), 80, &address, SECOND).await;
    assert!(matches!(denied, Err(DialError::Denied(Denied::NotPublic(..)))), "{denied:?}");
    let barred = guard(vec![EgressPattern::Loopback], vec![]);
    let port = barred.look_up(&site(), 25, &me(), SECOND).await;
    assert!(matches!(port, Err(DialError::Denied(Denied::OtherProtocol(..)))), "{port:?}");
}
