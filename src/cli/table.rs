//! Tables for people: as wide as their cells, a style per row.

use super::out::{Out, Style};

/// Widest name in a table; a longer one is cut in its middle.
const NAME: usize = 40;

/// The lines of a table: words (the columns in `left`) to the left, numbers to the right.
pub(super) fn draw<const N: usize>(
    columns: [&str; N],
    rows: &[[String; N]],
    styles: impl Iterator<Item = Style>,
    left: &[usize],
    out: &Out,
) -> Vec<String> {
    let widths: [usize; N] = std::array::from_fn(|i| {
        rows.iter().map(|row| row[i].chars().count()).chain([columns[i].len()]).max().unwrap_or(0)
    });
    let head = line(&columns.map(str::to_owned), &widths, left);
    let mut lines = vec![out.paint(Style::Dim, head).to_string()];
    for (row, style) in rows.iter().zip(styles) {
        lines.push(out.paint(style, line(row, &widths, left)).to_string());
    }
    lines
}

fn line<const N: usize>(cells: &[String; N], widths: &[usize; N], left: &[usize]) -> String {
    let mut out = String::new();
    for (i, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let cell =
            if left.contains(&i) { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
        out.push_str(&cell);
        out.push_str("  ");
    }
    out.trim_end().to_owned()
}

/// A name that fits.
pub(super) fn cut(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= NAME {
        return name.to_owned();
    }
    let half = (NAME - 1) / 2;
    let (start, end) = (&chars[..half], &chars[chars.len() - half..]);
    start.iter().chain(&['…']).chain(end).collect()
}
