//! Interim responses (1xx), and bodies that wait for one.

use std::time::Duration;

use crate::{
    bench::{Client, SOON, addressed, ask, exchange, member, statuses},
    origin::{OK, Origin, Reply},
};

const GET: &str = "GET http://SITE/x HTTP/1.1\r\nHost: SITE\r\n\r\n";
const LAST: &str = "GET http://SITE/x HTTP/1.1\r\nHost: SITE\r\nConnection: close\r\n\r\n";
const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\
    Tidegate-Verdict: captcha\r\n\r\n";
const POST: &str = "POST http://SITE/x HTTP/1.1\r\nHost: SITE\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";

/// Much shorter than the delay of a proxy that waits for the whole response.
const EARLY: Duration = Duration::from_secs(2);

#[tokio::test]
async fn early_hints_are_relayed_early_and_without_the_fields_of_their_hop() {
    let member = member().await;
    let site = Origin::scripted(|_, _| Reply {
        pieces: vec![HINTS.into(), OK.into()],
        pause: Duration::from_secs(3),
        close: false,
    })
    .await;
    let mut client = Client::connect(member.proxy()).await;
    client.send(addressed(GET.as_bytes(), site.address())).await;
    let hints = tokio::time::timeout(EARLY, client.head()).await.expect("before the answer");
    let lower = hints.to_lowercase();
    assert!(hints.starts_with("HTTP/1.1 103 Early Hints\r\n"), "{hints}");
    assert!(lower.contains("link: </a.css>; rel=preload"), "{hints}");
    assert!(lower.contains("via: 1.1 tidegate"), "{hints}");
    for gone in ["x-hop", "connection", "captcha"] {
        assert!(!lower.contains(gone), "{gone} is in {hints}");
    }
    assert_eq!(client.answer().await.status(), 200);
}

#[tokio::test]
async fn each_of_several_interim_answers_comes_before_its_own_answer() {
    let member = member().await;
    let site =
        Origin::answering(format!("{HINTS}{}{OK}", "HTTP/1.1 102 Processing\r\n\r\n".repeat(20)))
            .await;
    let all = format!("{GET}{GET}{LAST}");
    let answers = exchange(member.proxy(), addressed(all.as_bytes(), site.address())).await;
    let one = [&[103][..], &[102; 20], &[200]].concat();
    assert_eq!(statuses(&answers), one.repeat(3), "{answers}");
}

#[tokio::test]
async fn interim_answers_without_end_are_a_bad_gateway() {
    let member = member().await;
    let quick = "HTTP/1.1 102 Processing\r\n\r\n".repeat(10_000);
    let site = Origin::answering(quick + OK).await;
    let before = member.resident_bytes();
    for _ in 0..10 {
        let mut client = Client::connect(member.proxy()).await;
        client.send(addressed(LAST.as_bytes(), site.address())).await;
        let answers = client.rest().await;
        let statuses = statuses(&answers);
        assert_eq!(statuses.last(), Some(&502), "{} answers", statuses.len());
        assert!(statuses.len() <= 101, "{} answers", statuses.len());
        assert!(answers.contains("error=http_protocol_error"), "{answers}");
    }
    let growth = member.resident_bytes().saturating_sub(before);
    assert!(growth < 16 << 20, "{growth} bytes more");
}

#[tokio::test]
async fn a_site_that_asks_for_the_body_gets_it_and_the_client_is_asked_once() {
    let member = member().await;
    let site = Origin::early(|_, head| {
        assert!(head.to_lowercase().contains("expect: 100-continue"), "{head}");
        Reply {
            pieces: vec![b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), OK.into()],
            pause: Duration::from_millis(300),
            close: false,
        }
    })
    .await;
    let mut client = Client::connect(member.proxy()).await;
    client.send(addressed(POST.as_bytes(), site.address())).await;
    assert!(client.head().await.starts_with("HTTP/1.1 100 "));
    client.send("hello").await;
    assert_eq!(client.answer().await.status(), 200);
    let whole = async {
        while site.requests().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, whole).await.expect("the body reaches the site");
    assert!(site.requests()[0].ends_with("\r\n\r\nhello"));
}

#[tokio::test]
async fn a_site_that_refuses_at_once_gets_no_body_and_the_client_sends_none() {
    let member = member().await;
    for status in ["401 Unauthorized", "417 Expectation Failed", "413 Content Too Large"] {
        let answer =
            format!("HTTP/1.1 {status}\r\nContent-Type: image/png\r\nContent-Length: 2\r\n\r\nno");
        let site = Origin::early(move |_, _| Reply::whole(answer.clone())).await;
        let answers = exchange(member.proxy(), addressed(POST.as_bytes(), site.address())).await;
        let expected = status[..3].parse::<u16>().expect("a status");
        assert_eq!(statuses(&answers), [expected], "no 100: {answers}");
        assert!(answers.to_lowercase().contains("connection: close"), "{answers}");
        assert!(answers.ends_with("no"), "the whole answer: {answers}");
        assert!(site.requests().is_empty());
        let ended = async {
            while site.ended() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, ended).await.expect("the site's connection ends too");
    }
}

#[tokio::test]
async fn a_site_that_knows_no_continue_gets_the_body_a_little_later() {
    let member = member().await;
    let site = Origin::answering(OK).await;
    let mut client = Client::connect(member.proxy()).await;
    client.send(addressed(POST.as_bytes(), site.address())).await;
    assert!(client.head().await.starts_with("HTTP/1.1 100 "));
    client.send("hello").await;
    assert_eq!(client.answer().await.status(), 200);
    // One that does not wait is not made to.
    client.send(addressed(format!("{POST}hello").as_bytes(), site.address())).await;
    let mut answer = client.answer().await;
    if answer.status() == 100 {
        answer = client.answer().await;
    }
    assert_eq!(answer.status(), 200);
    assert_eq!(site.requests().len(), 2);
}

#[tokio::test]
async fn an_unrequested_continue_is_not_relayed() {
    let member = member().await;
    let site = Origin::answering(format!("HTTP/1.1 100 Continue\r\n\r\n{OK}")).await;
    let answer = ask(member.proxy(), addressed(GET.as_bytes(), site.address())).await;
    assert_eq!(answer.status(), 200);
}
