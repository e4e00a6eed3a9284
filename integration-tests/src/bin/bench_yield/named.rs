//! Draws how a wall with a long ban is named: the rate, the count, and the windows that are still possible.

use std::{cell::RefCell, fmt::Write, rc::Rc};

use integration_tests::{
    families::{Site, rows_of},
    walls::SECOND,
};

use super::{
    families::answers,
    fleet::{Crawl, crawl},
    plot::Story,
    policy::Proxy,
    seconds,
};

/// 300 requests in any 5 minutes, and a ban of 10 minutes.
const WALL: &str = "F7\tnamed\tsliding\t300\t0\t600\t429\tno";
/// Requests per second that it tolerates, and its window.
const LIMIT: (f64, i64) = (1.0, 300 * SECOND);
/// The rate in the rule file.
const RATE: f64 = 5.0;
/// The end of the crawl.
const END: i64 = 3_600 * SECOND;
/// Windows on the axis of the third panel, in seconds, with their names.
const WINDOWS: [(f64, &str); 4] =
    [(10.0, "10 s"), (60.0, "1 min"), (300.0, "5 min"), (3_600.0, "1 h")];
/// Width and height of a panel, its distance from the left edge, and the space above it.
const PANEL: (f64, f64, f64, f64) = (720.0, 90.0, 50.0, 32.0);

/// The shortest and the longest window that are possible from some time on, in seconds.
type Possible = (i64, f64, f64);

/// An hour, as SVG.
pub(crate) fn draw(seed: u64) -> String {
    let row = &rows_of(WALL)[0];
    let story = Rc::new(RefCell::new(Story::default()));
    let policy = Proxy::recording(&format!("rate: {RATE}/s"), seed, Rc::clone(&story));
    let site = answers(Site::of_rate(row, LIMIT.0, seed));
    crawl(Crawl { site, policy }, [END], seed);
    let story = story.borrow();
    let (width, height, left, head) = PANEL;
    let all = (height + head) * 3.0 + 26.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {all}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>How a wall of 300 requests in 5 minutes with a ban of 10 minutes is named</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        width + left + 20.0
    );
    for (at, panel) in (0_u32..).zip([rate(&story), count(&story), windows(&story)]) {
        let top = f64::from(at) * (height + head) + head;
        let axes = format!("<path d=\"M0 0V{height}H{width}\" fill=\"none\" stroke=\"#d0d7de\"/>");
        writeln!(svg, "<g transform=\"translate({left} {top})\">{axes}{panel}</g>").ok();
    }
    for minute in (0..=60).step_by(10) {
        let at = left + x(minute * 60 * SECOND);
        let text = format!("<text x=\"{at:.0}\" y=\"{:.0}\"", all - 8.0);
        write!(svg, "{text} text-anchor=\"middle\" fill=\"#57606a\">{minute} min</text>").ok();
    }
    svg + "\n</svg>\n"
}

fn x(at: i64) -> f64 {
    seconds(at) / seconds(END) * PANEL.0
}

fn title(text: &str) -> String {
    format!("<text y=\"-8\" font-weight=\"bold\" fill=\"#1f2328\">{text}</text>")
}

/// A mark on the vertical axis, with a grey line for the truth.
fn mark(y: f64, name: &str, line: bool) -> String {
    let text = format!(
        "<text x=\"-8\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#57606a\">{name}</text>",
        y + 4.0
    );
    let across =
        format!("<path d=\"M0 {y:.1}H{}\" stroke=\"#8c959f\" stroke-width=\"2\"/>", PANEL.0);
    if line { text + &across } else { text }
}

fn polyline(points: &[(i64, f64)], colour: &str) -> String {
    let points: String = points.iter().map(|(at, y)| format!("{:.1},{y:.1} ", x(*at))).collect();
    format!(
        "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
    )
}

/// Holds each value until the next one.
fn steps(values: &[(i64, f64)]) -> Vec<(i64, f64)> {
    let after = values.iter().skip(1).map(|(at, _)| *at).chain([END]);
    values.iter().zip(after).flat_map(|((at, y), after)| [(*at, *y), (after, *y)]).collect()
}

fn rate(story: &Story) -> String {
    let y = |rate: f64| PANEL.1 * (1.0 - rate / RATE);
    let rates: Vec<_> = story.rates.iter().map(|(at, rate, _)| (*at, y(*rate))).collect();
    let mut svg = title("Requests per second (blue), the limit (grey), and blocks (red)");
    svg += &(mark(y(LIMIT.0), "1/s", true) + &mark(0.0, "5/s", false));
    svg += &polyline(&steps(&rates), "#1f7a8c");
    for block in &story.blocks {
        write!(svg, "<path d=\"M{:.1} {}v-8\" stroke=\"#cf222e\"/>", x(*block), PANEL.1).ok();
    }
    svg
}

fn count(story: &Story) -> String {
    let most = seconds(LIMIT.1) * LIMIT.0;
    let points: Vec<_> = (0..=360)
        .map(|at| at * END / 360)
        .map(|at| {
            let in_it = story.pages.iter().filter(|page| **page <= at && **page > at - LIMIT.1);
            let part = in_it.map(|_| 1.0).sum::<f64>() / most;
            (at, PANEL.1 * (1.0 - part / 1.1))
        })
        .collect();
    title("Pages in the last 5 minutes")
        + &mark(PANEL.1 * (1.0 - 1.0 / 1.1), "300", true)
        + &polyline(&points, "#1f7a8c")
}

fn windows(story: &Story) -> String {
    let (shortest, longest) = (WINDOWS[0].0.ln(), WINDOWS[3].0.ln());
    let y = |window: f64| {
        PANEL.1 * (1.0 - (window.ln().clamp(shortest, longest) - shortest) / (longest - shortest))
    };
    let mut svg = title("Windows that agree with all counts (shaded), and the guess (blue)");
    let possible = possible(story);
    let after = possible.iter().skip(1).map(|(at, ..)| *at).chain([END]);
    for ((at, least, most), after) in possible.iter().zip(after) {
        let (left, top) = (x(*at), y(*most));
        let (width, height) = (x(after) - left, y(*least) - top);
        let place =
            format!("x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"");
        write!(svg, "<rect {place} fill=\"#dceef2\"/>").ok();
    }
    for (window, name) in WINDOWS {
        svg += &mark(y(window), name, (window - seconds(LIMIT.1)).abs() < 1.0);
    }
    let guesses: Vec<_> =
        story.guesses.iter().map(|(at, window)| (*at, y(seconds(*window)))).collect();
    svg + &polyline(&steps(&guesses), "#1f7a8c")
}

/// The wall lets the same number through within its window, so the window is longer than that took; and it is shorter
/// than the time in which more came through.
fn possible(story: &Story) -> Vec<Possible> {
    let (mut least, mut most, mut number) = (1.0, 1e9, f64::MAX);
    let mut possible = vec![(0, least, most)];
    let (mut opened, mut through) = (0, 0.0);
    let mut blocks = story.blocks.iter().peekable();
    for page in &story.pages {
        if let Some(block) = blocks.next_if(|block| *block < page) {
            if through > 10.0 {
                number = number.min(through);
                least = f64::max(least, seconds(block - opened));
                possible.push((*block, least, most));
            }
            while blocks.next_if(|block| *block < page).is_some() {}
            (opened, through) = (*page, 0.0);
        }
        through += 1.0;
        let took = seconds(page - opened);
        if through > number + 4.0 && took < most {
            most = took;
            possible.push((*page, least, most));
        }
    }
    possible
}
