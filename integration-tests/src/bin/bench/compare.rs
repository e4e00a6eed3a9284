//! Compares the proxies.
//!
//! Every round starts each proxy again, in another order. A figure is the median of the rounds, a
//! ratio the median of their ratios. `floor-aa` is a second run of the floor: the distance of its
//! ratio from 1 is the noise.

use std::fmt::Write as _;

use super::{
    Length,
    aims::{self, Record, Unit, What},
    load, origin,
    pages::Page,
    peers,
    peers::Peer,
    say, serves, turned, usage,
};

/// A load: its name, the page, and the number of connections.
pub(crate) type Row = (What, Page, usize);

/// 1 KB over one connection.
pub(crate) const ONE: &[Row] = &[(aims::C1, Page::Small, 1)];
/// The same over 64.
pub(crate) const SOME: &[Row] = &[(aims::C64, Page::Small, 64)];
/// The same over 512.
pub(crate) const MANY: &[Row] = &[(aims::C512, Page::Small, 512)];
/// 64 KB, inspected and not.
pub(crate) const PAGES: &[Row] = &[(aims::HTML, Page::Large, 64), (aims::IMAGE, Page::Image, 64)];
/// 1 MB of HTML, of which the first part is inspected.
pub(crate) const STREAM: &[Row] = &[(aims::STREAM, Page::Huge, 8)];

/// Runs each of `rows` on each proxy, and prints a table for each.
pub(crate) async fn all(rows: &[Row], length: Length, record: &mut Record) -> anyhow::Result<()> {
    let is_large = rows.iter().all(|(_, page, _)| *page != Page::Small);
    let mut names = peers::installed();
    // Large bodies show the cost of inspection, small ones the cost of calls to Redis.
    names
        .retain(|name| if is_large { !name.ends_with("redis") } else { *name != "tidegate-blind" });
    let (site, _origin) = origin().await?;
    let rounds = length
        .rounds(async |round| {
            for name in turned(names.clone(), round) {
                let peer = Peer::start(name, site).await?;
                serves(peer.at).await;
                for row in rows {
                    measure(&peer, name, site, *row, length, record).await?;
                }
            }
            Ok(())
        })
        .await?;
    for (what, ..) in rows {
        say(&render(what, &names, rounds, length, record)?)?;
    }
    Ok(())
}

/// A short load fills the pools before the measured one.
async fn measure(
    peer: &Peer,
    name: &'static str,
    site: std::net::SocketAddr,
    (what, page, connections): Row,
    length: Length,
    record: &mut Record,
) -> anyhow::Result<()> {
    load::run(peer.at, site, page, connections, length.time / 4).await;
    let redis = || peer.redis_pid().map(usage::cpu).transpose();
    let (cpu, redis_cpu) = (usage::cpu(peer.pid())?, redis()?);
    let load = load::run(peer.at, site, page, connections, length.time).await;
    let used = usage::cpu(peer.pid())?.saturating_sub(cpu);
    let redis_used = redis()?.zip(redis_cpu).map(|(now, before)| now.saturating_sub(before));
    record.add(what, Unit::Cpu, name, load.each(used));
    if let Some(used) = redis_used {
        record.add(what, Unit::RedisCpu, name, load.each(used));
    }
    record.add(what, Unit::Rate, name, load.rate());
    record.add(what, Unit::P50, name, load.p50());
    record.add(what, Unit::P99, name, load.p99());
    #[allow(clippy::cast_precision_loss)]
    record.add(what, Unit::Errors, name, load.errors as f64);
    Ok(())
}

fn render(
    what: What,
    names: &[&'static str],
    rounds: usize,
    length: Length,
    record: &Record,
) -> anyhow::Result<String> {
    let mut text = format!("\n{what}; medians of {rounds} rounds of {:?} each.\n\n", length.time);
    text.push_str(
        "| proxy | req/s | p50 / p99 ms | CPU µs each | / floor | Redis µs each | errors |\n",
    );
    text.push_str("|---|---:|---:|---:|---:|---:|---:|\n");
    for name in names {
        let figure = |unit| record.median(what, unit, name);
        let over = record.ratio(what, Unit::Cpu, name, "floor");
        let redis = figure(Unit::RedisCpu);
        let redis = if redis.is_nan() { "–".to_owned() } else { format!("{redis:.2}") };
        writeln!(
            text,
            "| {name} | {:.0} | {:.2} / {:.2} | {:.1} | {over:.2} | {redis} | {:.0} |",
            figure(Unit::Rate),
            figure(Unit::P50),
            figure(Unit::P99),
            figure(Unit::Cpu),
            record.total(what, Unit::Errors, name),
        )?;
    }
    Ok(text)
}
