//! A tuning as a picture in SVG: for each setting the delay upward, the late rows downward.
//!
//! In: a tuning. Out: the text of the file. All panels share their scales, so that bars compare across them; late rows stand on a
//! logarithmic one, on which a single row is still seen.

use std::fmt::Write;

use super::{Delay, Field, Late, Trial, Tuning, text::mark};
use crate::api::quantity::{Instant, length};

const MINUTE_US: i64 = 60_000_000;
const HEIGHT: f64 = 440.0;
/// Where the bars stand: delays above it, late rows below.
const BASE: f64 = 262.0;
const UP: f64 = 150.0;
/// Room between the two for the values of the setting.
const TICKS: f64 = 24.0;
const DOWN: f64 = 72.0;
const LEFT: f64 = 64.0;
const SLOT: f64 = 36.0;
const BETWEEN: f64 = 34.0;

const OTHER: &str = "#a9b8cc";
const IN_FORCE: &str = "#1f6feb";
const RECOMMENDED: &str = "#2da44e";
const LATE: &str = "#cf222e";
const INK: &str = "#24292f";
const FAINT: &str = "#6e7781";

/// One group of bars under one heading.
struct Panel<'a> {
    heading: &'static str,
    bars: Vec<(String, &'a Trial)>,
}

/// Draws a tuning.
#[must_use]
pub fn svg(tuning: &Tuning) -> String {
    let panels = panels(tuning);
    let bars: usize = panels.iter().map(|panel| panel.bars.len()).sum();
    let width = LEFT + wide(bars) * SLOT + wide(panels.len()) * BETWEEN;
    let all = || panels.iter().flat_map(|panel| panel.bars.iter());
    // A setting that is slower beyond measure would make the others look alike: its bars are cut off.
    let most_us = tuning.in_force.worst.us.max(60_000_000).saturating_mul(4);
    let delay_us = all().map(|(_, trial)| trial.worst.us).max().unwrap_or(0);
    let delay_us = delay_us.min(most_us);
    let late = all().map(|(_, trial)| trial.late.most).max().unwrap_or(0);
    let scale = Scale::new(delay_us, late);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" font-family=\"system-ui, Helvetica, Arial, sans-serif\" font-size=\"12\">\n"
    );
    let name = escaped(&tuning.table);
    let title = format!("{name}: what other settings would have cost");
    let _ = writeln!(
        svg,
        "<title>{title}</title>\n<rect width=\"{width}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>"
    );
    let shown = format!("{}: what other settings would have cost", tuning.table);
    words(&mut svg, (16.0, 28.0), "start", (INK, 17), &shown);
    words(
        &mut svg,
        (16.0, 48.0),
        "start",
        (FAINT, 12),
        &subtitle(tuning),
    );
    axes(&mut svg, &scale, width);
    let mut x = LEFT + BETWEEN / 2.0;
    for panel in &panels {
        x = draw(&mut svg, panel, (tuning, &scale), x) + BETWEEN;
    }
    legend(&mut svg);
    svg + "</svg>\n"
}

fn panels(tuning: &Tuning) -> Vec<Panel<'_>> {
    let series = tuning.series.iter().map(|series| Panel {
        heading: series.field.name(),
        bars: series
            .trials
            .iter()
            .map(|trial| (trial.setting.value(series.field), trial))
            .collect(),
    });
    let mut panels: Vec<Panel<'_>> = series.collect();
    let changes: &[Field] = &tuning.recommended.changes;
    // A change of several fields stands in no series.
    if changes.len() > 1 {
        let bars = [
            ("now", &tuning.in_force),
            ("new", &tuning.recommended.trial),
        ];
        panels.push(Panel {
            heading: "together",
            bars: bars.map(|(name, trial)| (name.to_owned(), trial)).into(),
        });
    }
    panels
}

fn subtitle(tuning: &Tuning) -> String {
    let (from, before) = (Instant(tuning.from_us), Instant(tuning.before_us));
    let cells = match tuning.cells.len() {
        1 => "1 cell".to_owned(),
        cells => format!("{cells} cells"),
    };
    format!(
        "{} commits from {from} to {before}, {cells}, {} rows; each setting varied alone",
        tuning.commits, tuning.rows
    )
}

/// How values become lengths.
struct Scale {
    delay_step_us: i64,
    delay_top_us: i64,
    late: u64,
}

impl Scale {
    fn new(delay_us: i64, late: u64) -> Self {
        // Four lines at most, at lengths that people count in.
        let steps = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440]
            .map(|minutes: i64| minutes * 60_000_000);
        let step = steps.into_iter().find(|step| *step * 4 >= delay_us);
        let delay_step_us = step.unwrap_or(delay_us / 4 + 1);
        let lines = delay_us.max(1).div_euclid(delay_step_us) + 1;
        Self {
            delay_step_us,
            delay_top_us: delay_step_us * lines.min(4),
            late,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a picture")]
    fn up(&self, us: i64) -> f64 {
        us.clamp(0, self.delay_top_us) as f64 / self.delay_top_us as f64 * UP
    }

    #[expect(clippy::cast_precision_loss, reason = "a picture")]
    fn down(&self, rows: u64) -> f64 {
        if rows == 0 {
            return 0.0;
        }
        // A single row has a bar, too.
        (2.0 + rows as f64).log10() / (2.0 + self.late as f64).log10() * DOWN
    }
}

fn axes(svg: &mut String, scale: &Scale, width: f64) {
    let right = width - BETWEEN / 2.0;
    let mut us = 0;
    while us <= scale.delay_top_us {
        let y = BASE - scale.up(us);
        line(
            svg,
            (LEFT, y),
            (right, y),
            if us == 0 { FAINT } else { "#d8dee4" },
        );
        words(svg, (LEFT - 6.0, y + 4.0), "end", (FAINT, 11), &length(us));
        us += scale.delay_step_us;
    }
    words(
        svg,
        (16.0, 72.0),
        "start",
        (INK, 12),
        "delay after the end of a cell: the median, and the worst",
    );
    let y = BASE + TICKS;
    line(svg, (LEFT, y), (right, y), FAINT);
    words(svg, (LEFT - 6.0, y + 4.0), "end", (FAINT, 11), "0");
    words(svg, (LEFT - 6.0, y + 20.0), "end", (LATE, 11), "late");
    words(svg, (LEFT - 6.0, y + 33.0), "end", (LATE, 11), "rows");
}

/// Draws a panel from `x` on; its right edge.
fn draw(svg: &mut String, panel: &Panel<'_>, (tuning, scale): (&Tuning, &Scale), x: f64) -> f64 {
    let right = x + wide(panel.bars.len()) * SLOT;
    let middle = f64::midpoint(x, right);
    words(
        svg,
        (middle, BASE - UP - 16.0),
        "middle",
        (INK, 13),
        panel.heading,
    );
    for (at, (value, trial)) in panel.bars.iter().enumerate() {
        let center = x + (wide(at) + 0.5) * SLOT;
        let (colour, weight) = match mark(tuning, trial) {
            "in force" => (IN_FORCE, "bold"),
            "recommended" => (RECOMMENDED, "bold"),
            _ => (OTHER, "normal"),
        };
        delay(svg, center, (trial.median, trial.worst), (scale, colour));
        let ink = if weight == "bold" { colour } else { INK };
        let _ = writeln!(
            svg,
            "<text x=\"{center:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"{ink}\" font-size=\"11\" font-weight=\"{weight}\">{}</text>",
            BASE + 16.0,
            escaped(value)
        );
        rows(svg, center, trial.late, scale);
    }
    right
}

fn delay(
    svg: &mut String,
    x: f64,
    (median, worst): (Delay, Delay),
    (scale, colour): (&Scale, &str),
) {
    let (height, top) = (scale.up(median.us), BASE - scale.up(worst.us));
    let _ = writeln!(
        svg,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"22\" height=\"{height:.1}\" fill=\"{colour}\"/>",
        x - 11.0,
        BASE - height
    );
    line(svg, (x, BASE - height), (x, top), INK);
    let is_cut = worst.us > scale.delay_top_us;
    if median.us > scale.delay_top_us {
        let text = length(median.us.div_euclid(MINUTE_US) * MINUTE_US);
        words(svg, (x, BASE - UP - 8.0), "middle", (FAINT, 9), &text);
    }
    if worst.at_least || is_cut {
        // Still open, or beyond the picture: it points on.
        let _ = writeln!(
            svg,
            "<path d=\"M{:.1} {:.1} l4 -6 l4 6 z\" fill=\"{INK}\"/>",
            x - 4.0,
            top
        );
    } else {
        line(svg, (x - 4.0, top), (x + 4.0, top), INK);
    }
}

fn rows(svg: &mut String, x: f64, late: Late, scale: &Scale) {
    let top = BASE + TICKS;
    if late.most == 0 {
        return;
    }
    let (likely, most) = (scale.down(late.likely), scale.down(late.most));
    let _ = writeln!(
        svg,
        "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"22\" height=\"{likely:.1}\" fill=\"{LATE}\" fill-opacity=\"0.8\"/>",
        x - 11.0
    );
    if late.least < late.most {
        line(svg, (x, top + scale.down(late.least)), (x, top + most), INK);
    }
    words(
        svg,
        (x, top + most + 13.0),
        "middle",
        (LATE, 10),
        &short(late.likely),
    );
}

/// A number in at most four characters.
fn short(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..1_000_000 => format!("{}k", number / 1_000),
        _ => format!("{}M", number / 1_000_000),
    }
}

fn legend(svg: &mut String) {
    let marks = [
        (IN_FORCE, "in force"),
        (RECOMMENDED, "recommended"),
        (OTHER, "other"),
        (
            LATE,
            "late rows by the digests, a line between their bounds",
        ),
    ];
    let y = HEIGHT - 18.0;
    let mut x = 16.0;
    for (colour, name) in marks {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"11\" height=\"11\" fill=\"{colour}\"/>",
            y - 10.0
        );
        words(svg, (x + 17.0, y), "start", (INK, 12), name);
        x += 44.0 + 7.0 * wide(name.len());
    }
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn words(
    svg: &mut String,
    (x, y): (f64, f64),
    anchor: &str,
    (colour, size): (&str, u32),
    text: &str,
) {
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\" font-size=\"{size}\">{}</text>",
        escaped(text)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[expect(clippy::cast_precision_loss, reason = "a picture")]
fn wide(count: usize) -> f64 {
    count as f64
}
