//! Tests of lookups that hang, fail and repeat.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn name(text: &str) -> Arc<str> {
    Arc::from(text)
}

fn client(last: u8) -> Client {
    Client::Address([127, 0, 0, last].into())
}

fn soon() -> Instant {
    clock::now() + Duration::from_secs(10)
}

/// Waits until the lookup of a hanging name has freed its slot, also when the test fails.
fn hang(_: &str) -> std::io::Result<Vec<IpAddr>> {
    std::thread::sleep(Duration::from_millis(800));
    Ok(vec!["192.0.2.1".parse().unwrap()])
}

#[tokio::test]
async fn concurrent_lookups_of_a_name_share_one_call() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let resolver = Arc::new(Resolver::with(|_| {
        ASKED.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        Ok(vec!["192.0.2.1".parse().unwrap()])
    }));
    let mut lookups = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let resolver = Arc::clone(&resolver);
        lookups.spawn(async move {
            let found = resolver.lookup(&name("site.example"), &client(1), soon()).await;
            found.unwrap().len()
        });
    }
    assert_eq!(lookups.join_all().await, [1; 100]);
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
            let found = resolver.lookup(&name(text), &client(1), soon()).await;
            assert_eq!(found.is_ok(), text == "good");
        }
        assert_eq!(ASKED.load(Ordering::SeqCst), before + 1, "{text}");
        tokio::time::advance(fresh).await;
        let found = resolver.lookup(&name(text), &client(1), soon()).await;
        assert_eq!(found.is_ok(), text == "good");
        assert_eq!(ASKED.load(Ordering::SeqCst), before + 2, "{text}");
    }
}

#[tokio::test]
async fn a_hanging_lookup_is_given_up_and_keeps_its_slot_until_it_ends() {
    let resolver = Resolver::with(|_| {
        std::thread::sleep(Duration::from_millis(300));
        Ok(vec![])
    });
    let hung = name("hung.example");
    let deadline = clock::now() + Duration::from_millis(20);
    let answer = resolver.lookup(&hung, &client(1), deadline).await;
    assert_eq!(answer, Err(Unresolved::TimedOut), "its name servers were asked");
    assert_eq!(resolver.lookups.available_permits(), MAX_LOOKUPS - 1);
    while resolver.lookups.available_permits() < MAX_LOOKUPS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Looks up `names` concurrently, each for another client, and returns the results.
async fn all(
    resolver: &Arc<Resolver>,
    names: impl Iterator<Item = (String, u8)>,
    time: Duration,
) -> Vec<Resolved> {
    let mut lookups = tokio::task::JoinSet::new();
    for (text, who) in names {
        let resolver = Arc::clone(resolver);
        let deadline = clock::now() + time;
        lookups.spawn(async move { resolver.lookup(&name(&text), &client(who), deadline).await });
    }
    lookups.join_all().await
}

#[tokio::test]
async fn names_that_hang_stop_neither_other_clients_nor_other_domains() {
    let resolver = Arc::new(Resolver::with(|name| match name {
        "good.example" => Ok(vec!["192.0.2.1".parse().unwrap()]),
        _ => hang(name),
    }));
    let short = Duration::from_millis(100);
    // The names belong to one domain: the rest of them waits for a slot, which is not reported as
    // the site's failure.
    let names = (0..2 * PER_DOMAIN).map(|n| (format!("n{n}.hung.example"), 1));
    let answers = all(&resolver, names, short).await;
    let asked = answers.iter().filter(|one| **one == Err(Unresolved::TimedOut)).count();
    assert_eq!((asked, answers.len() - asked), (PER_DOMAIN, PER_DOMAIN), "{answers:?}");
    let good = resolver.lookup(&name("good.example"), &client(1), soon()).await;
    assert!(good.is_ok(), "the same client asks for another domain: {good:?}");
    // One client with many domains.
    let names = (0..2 * PER_CLIENT).map(|n| (format!("n.hung{n}.example"), 2));
    let answers = all(&resolver, names, short).await;
    let asked = answers.iter().filter(|one| **one == Err(Unresolved::TimedOut)).count();
    assert_eq!(asked, PER_CLIENT);
    let good = resolver.lookup(&name("good.example"), &client(3), soon()).await;
    assert!(good.is_ok(), "another client: {good:?}");
    assert!(resolver.lookups.available_permits() > MAX_LOOKUPS / 2);
}

#[tokio::test]
async fn the_cache_has_a_cap() {
    let resolver = Resolver::with(|_| Ok(vec!["192.0.2.1".parse().unwrap()]));
    for n in 0..MAX_NAMES + 10 {
        let slot = resolver.slot(&name(&n.to_string()));
        *slot.answer.lock().await = Some((Err(Unresolved::TimedOut), clock::now() + FRESH));
        assert!(resolver.slots.lock().len() <= MAX_NAMES);
    }
    assert!(resolver.slots.lock().len() > MAX_NAMES / 4, "fresh names are not thrown away at once");
}
