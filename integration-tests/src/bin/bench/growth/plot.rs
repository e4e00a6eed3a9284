//! The plot: one panel for each quantity that grows; decades on the x axis, microseconds on the y
//! axis.

use super::middle;

/// Width and height of a panel, its distance from the left edge, and the space above it.
const PANEL: (f64, f64, f64, f64) = (640.0, 120.0, 60.0, 40.0);
/// Decades from 1 to 100,000, as in the widest panel.
const DECADES: f64 = 5.0;

/// The result at one size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) size: usize,
    pub(super) middle: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Point {
    /// From the figures of the rounds.
    pub(super) fn new(size: usize, figures: Vec<f64>) -> Self {
        let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
        let most = figures.iter().copied().fold(0.0, f64::max);
        Self { size, middle: middle(figures), least, most }
    }
}

/// All panels as SVG, with the same scale.
pub(super) fn draw(panels: &[(&str, Vec<Point>)]) -> String {
    let (width, height, left, head) = PANEL;
    let points = panels.iter().flat_map(|(_, points)| points);
    let most = points.map(|point| point.most).fold(f64::MIN_POSITIVE, f64::max) * 1.05;
    let number = u32::try_from(panels.len()).unwrap_or_default();
    let all = (height + head) * f64::from(number) + 50.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {all}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>CPU per request as there is more of what should not matter to it</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        width + left + 40.0
    );
    for (at, (name, points)) in (0_u32..).zip(panels) {
        let top = f64::from(at) * (height + head) + 30.0;
        let panel = panel(name, points, most);
        svg += &format!("<g transform=\"translate({left} {top})\">\n{panel}</g>\n");
    }
    svg += &format!(
        "<text x=\"{left}\" y=\"{:.0}\" fill=\"#57606a\">dots: CPU per request in microseconds, medians; strokes: from \
         the least to the most of all rounds</text>\n</svg>\n",
        all - 12.0
    );
    svg
}

fn panel(name: &str, points: &[Point], most: f64) -> String {
    let (width, height, ..) = PANEL;
    let y = |figure: f64| height - figure / most * height;
    let mut svg = format!(
        "<text y=\"-8\" font-weight=\"bold\" fill=\"#1f2328\">{name}</text>\n\
         <path d=\"M0 0V{height}H{width}\" fill=\"none\" stroke=\"#d0d7de\"/>\n"
    );
    let mut line = String::new();
    for Point { size, middle, least, most } in points {
        let x = x(*size);
        let (at, bottom, top) = (y(*middle), y(*least), y(*most));
        line += &format!("{x:.1},{at:.1} ");
        svg += &format!(
            "<path d=\"M{x:.1} {bottom:.1}V{top:.1}\" stroke=\"#8c959f\" stroke-width=\"3\"/>\
             <circle cx=\"{x:.1}\" cy=\"{at:.1}\" r=\"4\" fill=\"#1f7a8c\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#1f2328\">{middle:.1}</text>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#57606a\">{}</text>\n",
            top - 6.0,
            height + 14.0,
            thousands(*size)
        );
    }
    svg + &format!(
        "<polyline points=\"{line}\" fill=\"none\" stroke=\"#1f7a8c\" stroke-width=\"1.5\"/>\n"
    )
}

/// The x axis begins half a decade from the left edge.
fn x(size: usize) -> f64 {
    let decades = f64::from(u32::try_from(size).unwrap_or(u32::MAX)).log10();
    (decades + 0.5) / (DECADES + 1.0) * PANEL.0
}

/// 10,000 for 10000.
fn thousands(number: usize) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", number / 1_000, number % 1_000),
    }
}
