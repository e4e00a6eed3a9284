//! Tables for people: columns as wide as their cells, one style per row.

use super::out::{Out, Style};

/// Longest name in a table. A longer one is shortened in the middle.
const NAME: usize = 40;

/// The lines of a table. The columns in `left` are left-aligned, the others right-aligned.
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
    let mut lines = vec![out.paint(Style::Dim, head)];
    for (row, style) in rows.iter().zip(styles) {
        lines.push(out.paint(style, line(row, &widths, left)));
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

/// A name that fits into its column.
pub(super) fn cut(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= NAME {
        return name.to_owned();
    }
    let half = (NAME - 1) / 2;
    let (start, end) = (&chars[..half], &chars[chars.len() - half..]);
    start.iter().chain(&['…']).chain(end).collect()
}

/// A rate in tokens per second, shown per second, minute or longer so that it is at least 0.10:
/// `3.00/s`, `0.50/m`.
pub(super) fn per_time(rate: f64) -> String {
    let units = [(1.0, "s"), (60.0, "m"), (3_600.0, "h"), (86_400.0, "d")];
    let fits = units.iter().find(|(seconds, _)| rate * seconds >= 0.1);
    let (seconds, unit) = fits.copied().unwrap_or(if rate > 0.0 { units[3] } else { units[0] });
    format!("{:.2}/{unit}", rate * seconds)
}

#[cfg(test)]
mod tests {
    use super::per_time;

    #[test]
    fn a_slow_rate_is_not_shown_as_none() {
        for (rate, shown) in [
            (1000.0, "1000.00/s"),
            (0.5, "0.50/s"),
            (1.0 / 60.0, "1.00/m"),
            (1.0 / 3_600.0, "1.00/h"),
            (1.0 / 86_400.0, "1.00/d"),
            (0.0, "0.00/s"),
        ] {
            assert_eq!(per_time(rate), shown);
        }
    }
}
