//! `tidegate top`: the fleet on one screen, updated twice per second. `q` ends it.

use std::{
    cmp::Reverse,
    io::{self, IsTerminal as _},
    sync::mpsc::RecvTimeoutError,
    time::Duration,
};

use super::{
    Global, Outcome, Usage,
    client::Token,
    fleet::{self, Source},
    out::{Out, Style},
    terminal::{Key, Terminal},
};
use crate::{
    observability::status::{FleetScope, FleetStatus},
    runtime::clock,
};

/// Moves to the top left. Each line is cleared to its end when it is written, then the rest of the
/// screen. So nothing flickers.
const HOME: &str = "\u{1b}[H";
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";
/// Scopes per update: as many as one read of the store returns.
const SCOPES: usize = 10_000;
/// The sort orders, in the sequence of the key `s`.
const SORTS: [&str; 5] = ["urgency", "held", "sent", "streak", "name"];

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: q quits, / searches (Enter keeps the search, Esc clears it), s sorts by the next column, the arrow keys scroll.

Examples:
  tidegate top
  tidegate top --every 5 --admin 10.0.0.7:9128
  tidegate top --store redis://10.0.0.5:6379")]
pub(super) struct Args {
    /// Seconds between two updates
    #[arg(long, default_value_t = 0.5, value_parser = every)]
    every: f64,
    #[command(flatten)]
    token: Token,
}

fn every(text: &str) -> Result<f64, String> {
    let seconds = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    let range = 0.1..=3_600.0;
    if range.contains(&seconds) { Ok(seconds) } else { Err("from 0.1 to 3600 seconds".to_owned()) }
}

/// The choices of the operator.
#[derive(Debug, Default)]
struct ViewOptions {
    sort: usize,
    search: String,
    /// Whether keys are added to the search.
    typing: bool,
    offset: usize,
}

pub(super) fn run(global: &Global, args: &Args, out: &Out) -> anyhow::Result<Outcome> {
    if !io::stdout().is_terminal() {
        let why = "`tidegate top` draws on a terminal; `tidegate status` prints once";
        return Err(Usage(why.into()).into());
    }
    let source = Source::new(global, &args.token)?;
    let terminal = Terminal::enter()?;
    let every = Duration::from_secs_f64(args.every);
    let mut view = ViewOptions::default();
    let mut seen = Err("reading ...".to_owned());
    let mut next = clock::now();
    loop {
        if clock::now() >= next {
            // The proxy may be restarting; the next update shows it.
            seen = source.read(SCOPES).map_err(|error| format!("{error:#}"));
            next = clock::now() + every;
        }
        let frame = frame(&seen, &mut view, Terminal::size(), out);
        out.raw(format!("{HOME}{frame}{CLEAR_BELOW}").as_bytes())?;
        match terminal.keys.recv_timeout(next.saturating_duration_since(clock::now())) {
            Ok(key) if view.press(key) => return Ok(Outcome::Success),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(next.saturating_duration_since(clock::now()));
            }
        }
    }
}

impl ViewOptions {
    /// Handles a key. Returns true if the program ends.
    fn press(&mut self, key: Key) -> bool {
        match (self.typing, key) {
            (_, Key::Interrupt) | (false, Key::Char('q')) => return true,
            (true, Key::Char(character)) => self.search.push(character),
            (true, Key::Backspace) => _ = self.search.pop(),
            (true, Key::Enter) => self.typing = false,
            (_, Key::Escape) => {
                self.typing = false;
                self.search.clear();
            }
            (false, Key::Char('/')) => self.typing = true,
            (false, Key::Char('s')) => self.sort = (self.sort + 1) % SORTS.len(),
            (_, Key::Up) => self.offset = self.offset.saturating_sub(1),
            (_, Key::Down) => self.offset += 1,
            (false, _) => {}
        }
        false
    }

    /// The matching scopes, in the chosen order.
    fn choose(&self, mut scopes: Vec<FleetScope>) -> Vec<FleetScope> {
        scopes.retain(|scope| scope.facts.name().contains(&self.search));
        match SORTS[self.sort] {
            "held" => scopes.sort_by_key(|scope| Reverse(scope.facts.held)),
            "sent" => scopes.sort_by(|a, b| b.sent_per_s.total_cmp(&a.sent_per_s)),
            "streak" => scopes.sort_by(|a, b| b.facts.streak.total_cmp(&a.facts.streak)),
            "name" => scopes.sort_by_cached_key(|scope| scope.facts.name()),
            _ => {}
        }
        scopes
    }
}

/// One screen, which never exceeds the terminal's rows and columns.
fn frame(
    seen: &Result<FleetStatus, String>,
    view: &mut ViewOptions,
    (rows, columns): (usize, usize),
    out: &Out,
) -> String {
    let mut lines = match seen {
        Ok(fleet) => fleet::head(fleet, out),
        Err(error) => error.lines().map(str::to_owned).collect(),
    };
    if let Ok(fleet) = seen {
        let chosen = view.choose(fleet.scopes.clone());
        // One line each for the header of the table and the footer.
        let room = rows.saturating_sub(lines.len() + 2).max(1);
        view.offset = view.offset.min(chosen.len().saturating_sub(room));
        let hidden = chosen.len().saturating_sub(room);
        let shown: Vec<_> = chosen.into_iter().skip(view.offset).take(room).collect();
        let summary =
            crate::observability::status::Summary { scopes: shown.len(), ..fleet.summary.clone() };
        let shown =
            FleetStatus { scopes_total: shown.len(), scopes: shown, summary, ..fleet.clone() };
        lines.extend(fleet::scopes(&shown, out));
        let place = if hidden > 0 {
            format!("  {} above, {} below", view.offset, hidden - view.offset)
        } else {
            String::new()
        };
        let search = if view.typing || !view.search.is_empty() {
            format!(": {}", view.search)
        } else {
            " search".to_owned()
        };
        let foot = format!("q quit  /{search}  s sort: {}{place}", SORTS[view.sort]);
        lines.truncate(rows.saturating_sub(1));
        lines.push(out.paint(Style::Dim, foot));
    }
    lines.truncate(rows);
    let fitted: Vec<_> = lines.iter().map(|line| fit(line, columns) + CLEAR_LINE).collect();
    // A line break after the last line would scroll.
    fitted.join("\r\n")
}

/// The line cut to `columns`. Escape sequences take no columns.
fn fit(line: &str, columns: usize) -> String {
    let (mut out, mut left, mut escape) = (String::with_capacity(line.len()), columns, false);
    for character in line.chars() {
        if escape || character == '\u{1b}' {
            escape = !character.is_ascii_alphabetic();
            out.push(character);
        } else if left > 0 {
            left -= 1;
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observability::status::{ScopeFacts, ScopeState};

    fn fleet(names: usize) -> FleetStatus {
        let scope = |n: usize| FleetScope {
            facts: ScopeFacts {
                state: if n == 0 { ScopeState::Cooling } else { ScopeState::Open },
                remaining_ms: 60_000,
                held: n as u64,
                ..ScopeFacts::idle("shops", &format!("site-{n:03}.example"), None)
            },
            sent_per_s: 0.0,
            members_waiting: 0,
            trip: None,
            blocked_member: None,
        };
        FleetStatus {
            whole: true,
            scopes: (0..names).map(scope).collect(),
            ..FleetStatus::default()
        }
    }

    #[test]
    fn a_screen_has_never_more_lines_or_columns_than_the_terminal() {
        let (out, seen) = (Out::new(crate::cli::Colour::Never), Ok(fleet(300)));
        for (rows, columns) in [(24, 80), (10, 40), (5, 20), (3, 10)] {
            let frame = frame(&seen, &mut ViewOptions::default(), (rows, columns), &out);
            let lines: Vec<_> = frame.split("\r\n").collect();
            assert!(lines.len() <= rows, "{} lines of {rows}", lines.len());
            for line in lines {
                let shown = line.replace(CLEAR_LINE, "").chars().count();
                assert!(shown <= columns, "{shown} columns of {columns}: {line}");
            }
        }
    }

    #[test]
    fn keys_search_sort_scroll_and_end() {
        let (out, seen, mut view) =
            (Out::new(crate::cli::Colour::Never), Ok(fleet(300)), ViewOptions::default());
        let size = (24, 80);
        assert!(frame(&seen, &mut view, size, &out).contains("cooling 1 min"), "it is first");
        for key in "/site-123".chars().map(Key::Char).chain([Key::Enter]) {
            assert!(!view.press(key));
        }
        let found = frame(&seen, &mut view, size, &out);
        assert!(found.contains("site-123") && !found.contains("site-124"), "{found}");
        assert!(!view.press(Key::Escape));
        assert!(!view.press(Key::Char('s')));
        let sorted = frame(&seen, &mut view, size, &out);
        assert!(sorted.contains("site-299") && sorted.contains("sort: held"), "{sorted}");
        (0..5).for_each(|_| assert!(!view.press(Key::Down)));
        let scrolled = frame(&seen, &mut view, size, &out);
        assert!(!scrolled.contains("site-299") && scrolled.contains("5 above"), "{scrolled}");
        assert!(view.press(Key::Char('q')));
        assert!(view.press(Key::Interrupt));
    }
}
