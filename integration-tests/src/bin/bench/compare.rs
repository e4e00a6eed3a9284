//! The proxies side by side.
//!
//! Every round starts each proxy anew, in another order; a figure is the median of the rounds, a ratio the median of
//! the rounds' own ratios. `floor-aa` is the floor once more: how far its ratio is from 1 is what the run cannot tell
//! apart.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{
    Cell, Length, load::Load, measure, middle, origin, pages::Page, peers, peers::Peer, say, serves,
};

/// A load: the page, and over how many connections.
type Row = (Page, usize);

/// Cells by proxy and load, one per round.
type Table = BTreeMap<(&'static str, Row), Vec<Cell>>;

/// 1 KB.
pub(crate) async fn small(length: Length) -> anyhow::Result<()> {
    let names: Vec<&str> =
        peers::installed().into_iter().filter(|name| *name != "tidegate-blind").collect();
    let rows = [1, 64, 512].map(|connections| (Page::Small, connections));
    let table = rounds(&names, &rows, length).await?;
    say(&render("1 KB", &names, &rows, &table, length, "floor")?)
}

/// 64 KB, inspected and not.
pub(crate) async fn pages(length: Length) -> anyhow::Result<()> {
    let names: Vec<&str> =
        peers::installed().into_iter().filter(|name| *name != "tidegate-redis").collect();
    let rows = [(Page::Large, 64), (Page::Image, 64)];
    let table = rounds(&names, &rows, length).await?;
    say(&render("64 KB", &names, &rows, &table, length, "floor")?)?;
    say(&render("64 KB", &names, &rows, &table, length, "tidegate-blind")?)
}

async fn rounds(names: &[&'static str], rows: &[Row], length: Length) -> anyhow::Result<Table> {
    let (site, _origin) = origin().await?;
    let mut names = names.to_vec();
    let mut table = Table::new();
    for round in 1..=length.rounds {
        for name in &names {
            let peer = Peer::start(name, site).await?;
            serves(peer.at).await;
            for row in rows {
                let cell = measure(&peer, site, *row, length.time).await?;
                table.entry((name, *row)).or_default().push(cell);
            }
        }
        // No proxy always comes after the same one's mess.
        names.rotate_left(1);
        say(&format!("round {round} of {} is done\n", length.rounds))?;
    }
    Ok(table)
}

fn render(
    what: &str,
    names: &[&'static str],
    rows: &[Row],
    table: &Table,
    length: Length,
    base: &'static str,
) -> anyhow::Result<String> {
    let Length { rounds, time } = length;
    let mut text = String::new();
    writeln!(text, "\n{what}, keep-alive; medians of {rounds} rounds of {time:?} each.\n")?;
    let heads: Vec<String> = rows.iter().map(head).collect();
    let column = |name: &str| heads.iter().map(|head| format!(" {name} {head} |")).collect();
    let columns: [String; 4] =
        ["req/s", "p50/p99 ms", "CPU µs/req", &format!("CPU / {base}")].map(column);
    writeln!(text, "| proxy |{} errors |", columns.concat())?;
    writeln!(text, "|---|{}", "---:|".repeat(4 * rows.len() + 1))?;
    for name in names {
        let cells: Vec<&[Cell]> = rows
            .iter()
            .map(|row| table.get(&(*name, *row)).map_or(&[][..], Vec::as_slice))
            .collect();
        let median =
            |cells: &[Cell], of: &dyn Fn(&Cell) -> f64| middle(cells.iter().map(of).collect());
        let each = |figure: &dyn Fn(&[Cell]) -> String| {
            cells.iter().map(|cells| format!(" {} |", figure(cells))).collect::<String>()
        };
        let rate = each(&|cells| format!("{:.0}", median(cells, &|cell| cell.load.rate())));
        let wait = each(&|cells| {
            let ms = |of: fn(&Load) -> f64| median(cells, &|cell| of(&cell.load));
            format!("{:.2} / {:.2}", ms(Load::p50), ms(Load::p99))
        });
        let cpu = each(&|cells| format!("{:.1}", median(cells, &|cell| cell.cpu)));
        let ratios = rows.iter().map(|row| format!(" {:.2} |", ratio(table, name, base, *row)));
        let ratios: String = ratios.collect();
        let errors: u64 = cells.iter().flat_map(|cells| cells.iter()).map(|c| c.load.errors).sum();
        writeln!(text, "| {name} |{rate}{wait}{cpu}{ratios} {errors} |")?;
    }
    Ok(text)
}

fn head((page, connections): &Row) -> String {
    match page {
        Page::Small => format!("c{connections}"),
        Page::Large => "HTML".to_owned(),
        Page::Image => "image".to_owned(),
    }
}

/// CPU per request over another proxy's in the same round.
fn ratio(table: &Table, name: &'static str, base: &'static str, row: Row) -> f64 {
    let (Some(own), Some(base)) = (table.get(&(name, row)), table.get(&(base, row))) else {
        return f64::NAN;
    };
    middle(own.iter().zip(base).map(|(own, base)| own.cpu / base.cpu).collect())
}
