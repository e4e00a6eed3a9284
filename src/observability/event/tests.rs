//! Tests of events: metrics, list, listeners, JSON.

use super::*;
use crate::{
    classify::verdict::Verdict,
    limiter::cooldown::{Blocks, Cause},
    target::{Host, Scheme},
};

fn blocked(path: &str) -> Event {
    let mut judgement = Judgement::transport(Verdict::Forbidden, "refused\r\n\u{1b}[31m");
    judgement.status = Some(403);
    Event::Blocked {
        rule: Arc::from("shops"),
        key: Arc::from("shop.example"),
        target: Target {
            scheme: Scheme::Http,
            host: Host::Name(Arc::from("shop.example")),
            port: 80,
            path: Arc::from(path),
            server: None,
        },
        judgement,
    }
}

fn tripped(member: &str, made_by_us: bool) -> Event {
    let trip = Trip {
        cause: Some(Cause::Streak),
        by: Some(Verdict::Captcha),
        blocks: Blocks::of_letters("bdd"),
        streak: 3.0,
        length: Duration::from_secs(40),
        member: Arc::from(member),
        answer: None,
        observe: false,
        who: None,
        made_by_us,
    };
    Event::Tripped { rule: Arc::from("shops"), key: Arc::from(""), trip: Box::new(trip) }
}

#[tokio::test]
async fn an_event_reaches_the_metrics_the_list_and_the_listeners() {
    let metrics = Metrics::new();
    let events = Events::new(Arc::clone(&metrics));
    let mut listener = events.subscribe();
    events.emit(tripped("a", true));
    let record = listener.recv().await.expect("the sender lives");
    assert_eq!((record.id, record.event.kind()), (1, "tripped"));
    assert_eq!(events.recent().len(), 1);
    let json = serde_json::to_string(&record).expect("an event is JSON");
    assert!(json.contains(r#""blocks":{"403_forbidden":1,"captcha":2}"#), "{json}");
    let text = metrics.render();
    assert!(text.contains(r#"tidegate_cooldowns_total{rule="shops",type="captcha"} 1"#));
    assert!(text.contains(r#"tidegate_cooldown_seconds_total{rule="shops"} 40"#));
}

#[tokio::test]
async fn a_trip_by_another_member_is_reported_but_not_counted() {
    let metrics = Metrics::new();
    let events = Events::new(Arc::clone(&metrics));
    events.emit(tripped("b", false));
    assert_eq!(events.recent().len(), 1);
    assert!(!metrics.render().contains(r#"type="captcha"} 1"#));
}

#[tokio::test]
async fn the_list_forgets_the_oldest_beyond_its_bound() {
    let events = Events::new(Metrics::new());
    for _ in 0..RECENT + 5 {
        events.emit(Event::StoreUp);
    }
    let recent = events.recent();
    assert_eq!(recent.len(), RECENT);
    assert_eq!(recent[0].id, 6);
}

#[tokio::test]
async fn queries_and_control_characters_do_not_show() {
    let events = Events::new(Metrics::new());
    events.emit(blocked("/a\u{1b}b?token=hunter2"));
    let json = serde_json::to_string(&events.recent()[0]).expect("an event is JSON");
    assert!(json.contains(r#""url":"shop.example/a\\u{1b}b?…""#), "{json}");
    assert!(!json.contains("hunter2"));
    assert!(json.contains(r#""excerpt":"refused\\r\\n\\u{1b}[31m""#), "{json}");
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_blocks_gets_a_few_lines_a_second() {
    let events = Events::new(Metrics::new());
    let event = blocked("/");
    let line = || events.recent.lock().line_allowed(&event);
    let lines = (0..100).filter(|_| matches!(line(), Log::Line)).count();
    assert_eq!(lines, usize::try_from(BLOCK_LINES_PER_SECOND).expect("small"));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(matches!(line(), Log::LineAfter(90)));
}

#[test]
fn text_from_outside_is_cut_and_stays_on_one_line() {
    let long = "x".repeat(65_536);
    assert_eq!(clean(&long).chars().count(), 513);
    assert_eq!(clean("a\nb\"\u{202e}"), "a\\nb\"\\u{202e}");
}
