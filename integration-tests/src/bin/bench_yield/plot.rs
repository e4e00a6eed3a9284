//! Draws one crawl per wall: the tolerated rate, the learned rate with its mark, and each block.

use std::{cell::RefCell, rc::Rc};

use integration_tests::walls::{Kind, Wall};

use super::{
    MOMENTS, before,
    fleet::{Crawl, crawl},
    oracle,
    policy::Proxy,
    seconds,
};

/// Width and height of a panel, its distance from the left edge, and the space above it.
const PANEL: (f64, f64, f64, f64) = (800.0, 110.0, 60.0, 30.0);

/// The recorded events of a crawl.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// Time, rate in force (0 while the scope is closed) and mark, at each change.
    pub(crate) rates: Vec<(i64, f64, f64)>,
    /// The times of the blocks.
    pub(crate) blocks: Vec<i64>,
    /// The times of the pages.
    pub(crate) pages: Vec<i64>,
    /// Time and window of each guess at a limit by count.
    pub(crate) guesses: Vec<(i64, i64)>,
}

impl Story {
    /// The rate in force from `now` on.
    pub(crate) fn rate(&mut self, now: i64, rate: f64, mark: f64) {
        let new = (rate, mark);
        if self.rates.last().is_none_or(|(_, rate, mark)| (*rate, *mark) != new) {
            self.rates.push((now, rate, mark));
        }
    }

    /// The guess from `now` on.
    pub(crate) fn guess(&mut self, now: i64, window: i64) {
        if self.guesses.last().is_none_or(|(_, last)| *last != window) {
            self.guesses.push((now, window));
        }
    }
}

/// An hour at each wall of `seed`, with twice the right rate in the rule file, as SVG.
pub(crate) fn draw(seed: u64) -> String {
    let (width, height, left, head) = PANEL;
    let all = (height + head) * 5.0 + 30.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {all}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>An hour at each of five walls, with a rate that is written twice too high</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        width + left + 20.0
    );
    for (at, kind) in (0_u32..).zip(Kind::ALL) {
        let top = f64::from(at) * (height + head) + head;
        svg += &format!("<g transform=\"translate({left} {top})\">{}</g>\n", panel(kind, seed));
    }
    svg += &format!(
        "<text x=\"{left}\" y=\"{:.0}\" fill=\"#57606a\">grey: what the wall bears; blue: the rate in force, 0 while \
         nothing goes; dashed: the mark; red: blocks. Requests a second over an hour.</text>\n</svg>\n",
        all - 10.0
    );
    svg
}

fn panel(kind: Kind, seed: u64) -> String {
    let (width, height, ..) = PANEL;
    let wall = Wall::new(kind, seed);
    let end = MOMENTS[1];
    let mean = oracle(&wall, end) / seconds(end);
    let story = Rc::new(RefCell::new(Story::default()));
    let bears: Vec<(i64, f64)> =
        (0..=360).map(|n| n * end / 360).map(|at| (at, wall.bears(at))).collect();
    let policy = Proxy::recording(&format!("rate: {:.6}/s", 2.0 * mean), seed, Rc::clone(&story));
    crawl(Crawl { site: before(wall.clone()), policy }, MOMENTS, seed);
    let story = story.borrow();
    let most = story.rates.iter().map(|(_, rate, _)| *rate).fold(mean, f64::max) * 1.05;
    let x = |at: i64| seconds(at) / seconds(end) * width;
    let y = |rate: f64| height - rate / most * height;
    let line = |points: &[(i64, f64)]| {
        points
            .iter()
            .map(|(at, rate)| format!("{:.1},{:.1} ", x(*at), y(*rate)))
            .collect::<String>()
    };
    let mut steps = (Vec::new(), Vec::new());
    let after = story.rates.iter().skip(1).map(|(at, ..)| *at).chain([end]);
    for ((at, rate, mark), after) in story.rates.iter().zip(after) {
        steps.0.extend([(*at, *rate), (after, *rate)]);
        if *mark > 0.0 {
            steps.1.extend([(*at, *mark), (after, *mark)]);
        }
    }
    let mut svg = format!(
        "<text y=\"-8\" font-weight=\"bold\" fill=\"#1f2328\">{}</text>\
         <text x=\"-8\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#57606a\">{mean:.1}/s</text>\
         <path d=\"M0 0V{height}H{width}\" fill=\"none\" stroke=\"#d0d7de\"/>\
         <polyline points=\"{}\" fill=\"none\" stroke=\"#8c959f\" stroke-width=\"3\"/>\
         <polyline points=\"{}\" fill=\"none\" stroke=\"#1f7a8c\" stroke-width=\"1.5\"/>\
         <polyline points=\"{}\" fill=\"none\" stroke=\"#8a5a00\" stroke-dasharray=\"3 3\"/>",
        kind.name(),
        y(mean) + 4.0,
        line(&bears),
        line(&steps.0),
        line(&steps.1),
    );
    for block in &story.blocks {
        let at = x(*block);
        svg += &format!("<path d=\"M{at:.1} {height}v-8\" stroke=\"#cf222e\"/>");
    }
    svg
}
