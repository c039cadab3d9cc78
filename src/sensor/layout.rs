//! Text for people: sentences wrapped to a width, named values below each other, tables with aligned columns.
//!
//! A width is in characters. A word that is longer than the width stands on a line of its own, whole: names and commands are
//! copied from here.

use std::fmt::Write;

/// The width of what goes to no terminal.
pub const WIDTH: usize = 100;

/// The narrowest width that is laid out for.
const LEAST: usize = 40;

/// A paragraph, its lines after `indent` blanks, the first one without.
fn wrap(text: &str, indent: usize, width: usize) -> String {
    let room = width.max(LEAST).saturating_sub(indent).max(LEAST / 2);
    let mut lines = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if used > 0 && used + 1 + len > room {
            let _ = write!(lines, "\n{:indent$}", "");
            used = 0;
        }
        if used > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += len;
    }
    lines
}

/// A paragraph at the left edge, with its line end.
#[must_use]
pub fn paragraph(text: &str, width: usize) -> String {
    wrap(text, 0, width) + "\n"
}

/// Names with their values, each value in its own column and wrapped there. A name that repeats the one before is left out.
#[must_use]
pub fn facts(facts: &[(&str, String)], width: usize) -> String {
    let names = facts.iter().map(|(name, _)| name.chars().count());
    let column = names.max().unwrap_or(0);
    let mut text = String::new();
    let mut before = "";
    for (name, value) in facts {
        let shown = if *name == before { "" } else { name };
        let value = wrap(value, column + 4, width);
        let _ = writeln!(text, "  {shown:<column$}  {value}");
        before = name;
    }
    text
}

/// Where a column's values stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// At its left edge.
    Left,
    /// At its right edge.
    Right,
}

/// A table, the names of its columns first. Columns without a value are left out.
#[must_use]
pub fn table(columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let shown: Vec<usize> = (0..columns.len())
        .filter(|at| rows.iter().any(|row| !row[*at].is_empty()))
        .collect();
    let width = |at: usize| {
        let values = rows.iter().map(|row| row[at].chars().count());
        values.fold(columns[at].0.chars().count(), usize::max)
    };
    let widths: Vec<usize> = shown.iter().map(|at| width(*at)).collect();
    let mut text = String::new();
    let header = |at: usize| columns[at].0.to_owned();
    let head: Vec<String> = (0..columns.len()).map(header).collect();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (at, width) in shown.iter().zip(&widths) {
            let (value, width) = (&row[*at], *width);
            let _ = match columns[*at].1 {
                Align::Left => write!(line, "  {value:<width$}"),
                Align::Right => write!(line, "  {value:>width$}"),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_wrapped_in_their_own_column() {
        let text = facts(
            &[
                ("since", "a while".to_owned()),
                (
                    "released",
                    "one two three four five six seven eight nine".to_owned(),
                ),
                ("released", "or ten".to_owned()),
            ],
            40,
        );
        let expected = "  since     a while\n  released  one two three four five six\n            seven eight nine\n            or ten\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn word_longer_than_the_width_stays_whole() {
        let name = "a".repeat(90);
        assert_eq!(
            paragraph(&format!("see {name} there"), 40),
            format!("see\n{name}\nthere\n")
        );
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_value_and_empty_ones_are_left_out() {
        let rows = [["a", "1", ""], ["bcd", "20", ""]].map(|row| row.map(str::to_owned).to_vec());
        let columns = [
            ("NAME", Align::Left),
            ("N", Align::Right),
            ("NOTE", Align::Left),
        ];
        assert_eq!(
            table(&columns, &rows),
            "  NAME   N\n  a      1\n  bcd   20\n"
        );
    }
}
