//! The resolver against look-ups that hang, fail and repeat.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn name(text: &str) -> Arc<str> {
    Arc::from(text)
}

#[tokio::test]
async fn one_name_is_looked_up_once_however_many_ask() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let resolver = Arc::new(Resolver::with(|_| {
        ASKED.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        Ok(vec!["192.0.2.1".parse().unwrap()])
    }));
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let resolver = Arc::clone(&resolver);
        asking.spawn(async move { resolver.lookup(&name("site.example")).await.unwrap().len() });
    }
    assert_eq!(asking.join_all().await, [1; 100]);
    assert_eq!(ASKED.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_asked_for_again_after_seconds() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let resolver = Resolver::with(|name| {
        ASKED.fetch_add(1, Ordering::SeqCst);
        match name {
            "good" => Ok(vec!["192.0.2.1".parse().unwrap()]),
            "empty" => Ok(vec![]),
            _ => Err(std::io::Error::other("no such name")),
        }
    });
    for (text, fresh) in [("good", FRESH), ("bad", FRESH_FAILURE), ("empty", FRESH_FAILURE)] {
        let before = ASKED.load(Ordering::SeqCst);
        for _ in 0..3 {
            assert_eq!(resolver.lookup(&name(text)).await.is_ok(), text == "good");
        }
        assert_eq!(ASKED.load(Ordering::SeqCst), before + 1, "{text}");
        tokio::time::advance(fresh).await;
        assert_eq!(resolver.lookup(&name(text)).await.is_ok(), text == "good");
        assert_eq!(ASKED.load(Ordering::SeqCst), before + 2, "{text}");
    }
}

#[tokio::test]
async fn a_resolver_that_hangs_is_given_up_and_keeps_its_place_until_it_ends() {
    let resolver = Resolver::with(|_| {
        std::thread::sleep(Duration::from_millis(300));
        Ok(vec![])
    });
    let hung = name("hung.example");
    let impatient = tokio::time::timeout(Duration::from_millis(20), resolver.lookup(&hung));
    assert!(impatient.await.is_err());
    assert_eq!(resolver.lookups.available_permits(), MAX_LOOKUPS - 1);
    while resolver.lookups.available_permits() < MAX_LOOKUPS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_cache_has_a_cap() {
    let resolver = Resolver::with(|_| Ok(vec!["192.0.2.1".parse().unwrap()]));
    for n in 0..MAX_NAMES + 10 {
        let slot = resolver.slot(&name(&n.to_string()));
        *slot.lock().await = Some((Err(Unresolved::TimedOut), clock::now() + FRESH));
        assert!(resolver.slots.lock().len() <= MAX_NAMES);
    }
    assert!(resolver.slots.lock().len() > MAX_NAMES / 4, "fresh names are not thrown away at once");
}
