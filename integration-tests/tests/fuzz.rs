//! Feeds every parser of outside bytes with seeds and random changes of them: a few seconds of what
//! `make fuzz` does without a limit. The same seed makes the same changes on every machine.

use std::{
    fs,
    panic::{self, AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Once,
        atomic::{AtomicUsize, Ordering},
    },
};

use integration_tests::targets;

/// Printed with every failure.
const SEED: u64 = 20_261_122;
/// Panics so far, including those of background tasks.
static PANICS: AtomicUsize = AtomicUsize::new(0);
/// Longest input; longer ones find nothing new.
const LONGEST: usize = 16 << 10;
/// Tokens that often break parsers, in addition to flipped bits.
const TOKENS: [&[u8]; 24] = [
    b"\r\n",
    b"\n",
    b"\0",
    b"\xff",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"\"",
    b"%00",
    b"://",
    b"@",
    b"[",
    b"]",
    b"{",
    b"-1",
    b"18446744073709551616",
    b"1e400",
    b"NaN",
    b"&a",
    b"*a",
    b"${NUMBER}",
    b"\xe2\x80\xae",
];

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Every file below these folders.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let more: &[&str] = match name {
        "rule_file" => &["../config/examples", "fixtures/config/valid", "fixtures/config/invalid"],
        _ => &[],
    };
    let own = format!("fuzz/seeds/{name}");
    let mut seeds = Vec::new();
    for path in more.iter().copied().chain([own.as_str()]) {
        let Ok(entries) = fs::read_dir(folder(path)) else { continue };
        let mut files: Vec<_> =
            entries.map(|entry| entry.expect("it can be read").path()).collect();
        files.sort();
        seeds.extend(files.iter().map(|file| fs::read(file).expect("a seed can be read")));
    }
    seeds
}

/// Some random changes, and now and then the end of another seed.
fn change(seeds: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = seeds[random.usize(..seeds.len())].clone();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(..=input.len());
        match random.u8(..6) {
            0 if at < input.len() => input[at] = random.u8(..),
            1 if at < input.len() => input[at] ^= 1 << random.u8(..8),
            2 => drop(input.drain(at..(at + random.usize(..8)).min(input.len()))),
            3 => {
                let copy = input[at..(at + random.usize(..64)).min(input.len())].to_vec();
                input.splice(at..at, copy.repeat(random.usize(1..20)));
            }
            4 => {
                let other = &seeds[random.usize(..seeds.len())];
                input.truncate(at);
                input.extend_from_slice(&other[random.usize(..=other.len())..]);
            }
            _ => drop(input.splice(at..at, TOKENS[random.usize(..TOKENS.len())].iter().copied())),
        }
    }
    input.truncate(LONGEST);
    input
}

/// Runs a target over all its seeds and `rounds` changes of them.
fn feed(name: &str, rounds: usize) {
    let (_, target) = targets::ALL.iter().find(|(known, _)| *known == name).expect("a target");
    let seeds = seeds(name);
    assert!(seeds.len() >= 5, "{name} has {} seeds", seeds.len());
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            usual(info);
        }));
    });
    let mut random = fastrand::Rng::with_seed(SEED);
    let changed = (0..rounds).map(|_| change(&seeds, &mut random)).collect::<Vec<_>>();
    for (n, input) in seeds.iter().chain(&changed).enumerate() {
        let failed = catch_unwind(AssertUnwindSafe(|| target(input))).is_err();
        if failed || PANICS.load(Ordering::Relaxed) > 0 {
            let kept = std::env::temp_dir().join(format!("tidegate-fuzz-{name}-{n}"));
            fs::write(&kept, input).expect("temporary files can be written");
            panic!("{name}, seed {SEED}, input {n}: kept as {}", kept.display());
        }
    }
}

#[test]
fn rule_files_of_any_kind_are_taken_or_refused() {
    feed("rule_file", 1_500);
}

#[test]
fn answers_of_any_kind_have_one_verdict() {
    feed("classifier", 1_500);
}

#[test]
fn request_targets_of_any_kind_have_one_spelling() {
    feed("request_target", 60_000);
}

#[test]
fn no_field_admits_a_client_or_requests_an_absurd_wait() {
    feed("fields", 40_000);
}

#[test]
fn a_site_gets_exactly_the_sent_bytes() {
    feed("http1", 1_500);
}

#[test]
fn paths_of_any_kind_have_one_normal_form() {
    feed("path", 60_000);
}

#[test]
fn no_request_reaches_a_site_without_a_permit() {
    feed("connection", 250);
}

#[test]
fn each_request_gets_a_response_with_any_reply_of_the_store() {
    feed("store", 600);
}

#[test]
fn every_target_has_its_program_and_its_test() {
    let text = fs::read_to_string(folder("tests/fuzz.rs")).expect("this file can be read");
    let manifest = fs::read_to_string(folder("fuzz/Cargo.toml")).expect("the workspace is there");
    for (name, _) in targets::ALL {
        assert!(text.contains(&format!("feed(\"{name}\"")), "{name} is not fed here");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} has no program");
        assert!(folder(&format!("fuzz/fuzz_targets/{name}.rs")).is_file(), "{name}");
    }
}
