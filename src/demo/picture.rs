//! The demo as a person sees it: hours, partitions, the claim.
//!
//! A picture is a value; drawing it into a buffer and telling the difference of two in words are pure. `mod.rs` gathers it from
//! the worker's progress and the sender's record, and owns the terminal.

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style, Stylize},
    text::{Line, Span},
    widgets::{Block, Paragraph, Widget},
};

/// A partition without a row for so long is called silent.
pub const SILENT_US: i64 = 8 * MINUTE_US;

const MINUTE_US: i64 = 60_000_000;
const HOUR_US: i64 = 60 * MINUTE_US;

/// What the demo has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Broker, catalog and worker start.
    #[default]
    Starting,
    /// Changes flow.
    Flowing,
    /// No more changes come; the worker commits the last ones.
    Draining,
    /// The table is read back and compared with the record.
    Checking,
}

/// Everything on the screen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// What the demo has come to.
    pub stage: Stage,
    /// The demo's clock.
    pub now_us: i64,
    /// Where that clock began, and where it will end.
    pub span_us: (i64, i64),
    /// How many times faster than the usual it goes.
    pub factor: u32,
    /// The hours of the span, in order.
    pub hours: Vec<Hour>,
    /// The source partitions, in order.
    pub partitions: Vec<Partition>,
    /// The table's claim: complete from and before.
    pub claim: Option<(Option<i64>, i64)>,
    /// What carries it, and how much disorder it would survive; for people.
    pub evidence: String,
    /// What holds the next hour; a sentence.
    pub hold: String,
    /// Commits so far.
    pub commits: u64,
    /// Rows that came later than declared.
    pub late: u64,
    /// What went wrong last; empty when nothing did.
    pub trouble: String,
    /// Whether a person has ended it early.
    pub cut_short: bool,
}

/// One hour of event time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hour {
    /// Its first instant.
    pub start_us: i64,
    /// Rows of it that were sent.
    pub sent: u64,
    /// Rows of it that are in the table.
    pub stored: u64,
    /// When the table first called it final.
    pub final_at_us: Option<i64>,
}

/// One source partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// Its number.
    pub number: i32,
    /// A lower bound of the event times that it can still bring.
    pub frontier_us: Option<i64>,
    /// Rows of it in the table.
    pub stored: u64,
    /// Messages sent and not in the table.
    pub behind: u64,
    /// When its last row was passed on.
    pub last_row_us: Option<i64>,
}

impl Partition {
    /// For how long it has brought nothing, when that is worth a word.
    #[must_use]
    pub fn silent_us(&self, now_us: i64) -> Option<i64> {
        let silent_us = now_us - self.last_row_us?;
        (silent_us >= SILENT_US).then_some(silent_us)
    }
}

impl Picture {
    fn holds_hour(&self, hour: &Hour) -> bool {
        let from_us = self.claim.and_then(|(from_us, _)| from_us);
        from_us.is_none_or(|from_us| from_us <= hour.start_us)
    }

    fn rows(&self) -> (u64, u64) {
        let sum = |count: fn(&Hour) -> u64| self.hours.iter().map(count).sum();
        (sum(|hour| hour.stored), sum(|hour| hour.sent))
    }
}

impl Widget for &Picture {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let [title, hours, partitions, claim, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(height(self.hours.len())),
            Constraint::Length(height(self.partitions.len()) + 1),
            Constraint::Length(5),
            Constraint::Length(1),
        ])
        .areas(area);
        draw_title(self, title, buffer);
        draw_hours(self, hours, buffer);
        draw_partitions(self, partitions, buffer);
        draw_claim(self, claim, buffer);
        draw_foot(self, foot, buffer);
    }
}

/// A box of so many lines.
fn height(lines: usize) -> u16 {
    u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(2)
}

fn draw_title(picture: &Picture, area: Rect, buffer: &mut Buffer) {
    let minutes = 60.0 / f64::from(picture.factor.max(1));
    let line = Line::from(vec![
        Span::from(" tidemark demo ").bold().reversed(),
        Span::from(format!("  {}  ", clock(picture.now_us, true))).bold(),
        Span::from(format!("an hour passes in {:.0} s", minutes * 60.0)).dim(),
    ]);
    line.render(area, buffer);
}

fn draw_hours(picture: &Picture, area: Rect, buffer: &mut Buffer) {
    let block = Block::bordered().title(" hours: changes in the table ");
    let inner = block.inner(area);
    block.render(area, buffer);
    let width = usize::from(inner.width.saturating_sub(46));
    let most = picture
        .hours
        .iter()
        .map(|hour| hour.sent)
        .max()
        .unwrap_or(0)
        .max(1);
    let lines: Vec<Line<'_>> = picture
        .hours
        .iter()
        .map(|hour| hour_line(picture, hour, width, most))
        .collect();
    Paragraph::new(lines).render(inner, buffer);
}

fn hour_line<'a>(picture: &Picture, hour: &Hour, width: usize, most: u64) -> Line<'a> {
    let stored = scaled(hour.stored, most, width);
    let waiting = scaled(hour.sent, most, width).saturating_sub(stored);
    let (state, color) = match hour.final_at_us {
        _ if !picture.holds_hour(hour) => ("began before the table".to_owned(), Color::DarkGray),
        Some(at_us) => (format!("final at {}", clock(at_us, false)), Color::Green),
        None if hour.start_us > picture.now_us => (String::new(), Color::DarkGray),
        None => ("open".to_owned(), Color::Yellow),
    };
    Line::from(vec![
        Span::from(format!(
            "{}–{} ",
            clock(hour.start_us, false),
            clock(hour.start_us + HOUR_US, false)
        )),
        Span::from("█".repeat(stored)).fg(color),
        Span::from("░".repeat(waiting)).fg(color),
        Span::from(" ".repeat(width.saturating_sub(stored + waiting))),
        Span::from(format!(" {:>7} ", grouped(hour.stored))),
        Span::from(state).fg(color),
    ])
}

fn draw_partitions(picture: &Picture, area: Rect, buffer: &mut Buffer) {
    let block = Block::bordered().title(" partitions: how far each is known to be complete ");
    let inner = block.inner(area);
    block.render(area, buffer);
    let width = usize::from(inner.width.saturating_sub(40));
    let mut lines: Vec<Line<'_>> = Vec::with_capacity(picture.partitions.len() + 1);
    for partition in &picture.partitions {
        let mut spans = vec![Span::from(format!("{:>3} ", partition.number))];
        spans.extend(track(picture, partition.frontier_us, width));
        spans.extend(partition_words(picture, partition));
        lines.push(Line::from(spans));
    }
    lines.push(scale(picture, width));
    Paragraph::new(lines).render(inner, buffer);
}

fn partition_words<'a>(picture: &Picture, partition: &Partition) -> [Span<'a>; 3] {
    let frontier = partition
        .frontier_us
        .map_or_else(|| "unknown".to_owned(), |us| clock(us, true));
    let silent = partition.silent_us(picture.now_us);
    let state = match silent {
        Some(us) => format!(" silent {} min", us / MINUTE_US),
        None if partition.behind > 0 => format!(" {} to read", grouped(partition.behind)),
        None => String::new(),
    };
    let color = if silent.is_some() {
        Color::Magenta
    } else {
        Color::Gray
    };
    [
        Span::from(format!(" {frontier:>8}")).bold(),
        Span::from(format!(" {:>7}", grouped(partition.stored))).dim(),
        Span::from(state).fg(color),
    ]
}

/// The line of a partition: covered until its frontier, with the claim and the present as marks.
fn track<'a>(picture: &Picture, frontier_us: Option<i64>, width: usize) -> Vec<Span<'a>> {
    let at = |us: i64| column(picture, us, width);
    let claim = picture.claim.map(|(_, before_us)| at(before_us));
    let frontier = frontier_us.map(at);
    let now = at(picture.now_us);
    let cell = |column: usize| {
        if frontier == Some(column) {
            Span::from("●").fg(Color::Cyan)
        } else if claim == Some(column) {
            Span::from("┃").fg(Color::Green).bold()
        } else if frontier.is_some_and(|frontier| column < frontier) {
            Span::from("━").fg(Color::Cyan)
        } else if column == now {
            Span::from("╎").dim()
        } else if column < now {
            Span::from("·").dim()
        } else {
            Span::from(" ")
        }
    };
    (0..width).map(cell).collect()
}

/// Below the partitions: the hours, and where the claim stands.
fn scale<'a>(picture: &Picture, width: usize) -> Line<'a> {
    let mut cells = vec![' '; width + 6];
    for hour in &picture.hours {
        let at = column(picture, hour.start_us, width);
        if hour.start_us >= picture.span_us.0 && at + 5 <= cells.len() {
            for (offset, letter) in clock(hour.start_us, false).chars().enumerate() {
                cells[at + offset] = letter;
            }
        }
    }
    let text: String = cells.into_iter().collect();
    Line::from(vec![Span::from("    "), Span::from(text).dim()])
}

fn draw_claim(picture: &Picture, area: Rect, buffer: &mut Buffer) {
    let block = Block::bordered().title(" the table says ");
    let inner = block.inner(area);
    block.render(area, buffer);
    let lines = [
        Line::from(claim_sentence(picture))
            .style(Style::new().fg(Color::Green).add_modifier(Modifier::BOLD)),
        Line::from(picture.evidence.clone()).dim(),
        if picture.trouble.is_empty() {
            Line::from(picture.hold.clone())
        } else {
            Line::from(picture.trouble.clone()).fg(Color::Red)
        },
    ];
    Paragraph::new(lines.to_vec()).render(inner, buffer);
}

fn claim_sentence(picture: &Picture) -> String {
    match picture.claim {
        None => "nothing yet: no hour is known to be complete".to_owned(),
        Some((None, before_us)) => format!("complete before {}", clock(before_us, false)),
        Some((Some(from_us), before_us)) => {
            format!(
                "complete from {} until before {}",
                clock(from_us, false),
                clock(before_us, false)
            )
        }
    }
}

fn draw_foot(picture: &Picture, area: Rect, buffer: &mut Buffer) {
    let (stored, sent) = picture.rows();
    let doing = match picture.stage {
        Stage::Starting => "starting",
        Stage::Flowing => "q ends it early",
        Stage::Draining => "no more changes; the last ones are committed",
        Stage::Checking => "reading the table back",
    };
    let text = format!(
        " {} of {} changes in the table · {} commits · {} came too late · {doing}",
        grouped(stored),
        grouped(sent),
        picture.commits,
        picture.late,
    );
    Line::from(text).dim().render(area, buffer);
}

/// The column of an instant on a track.
fn column(picture: &Picture, us: i64, width: usize) -> usize {
    let (from_us, to_us) = picture.span_us;
    let since = u64::try_from(us - from_us).unwrap_or(0);
    let whole = u64::try_from(to_us - from_us).unwrap_or(0).max(1);
    scaled(since.min(whole), whole, width.saturating_sub(1))
}

/// `part` of `whole`, as a part of `width`.
fn scaled(part: u64, whole: u64, width: usize) -> usize {
    usize::try_from(u128::from(part) * width as u128 / u128::from(whole.max(1))).unwrap_or(width)
}

/// What has happened from one picture to the next, a sentence each.
#[must_use]
pub fn tell(before: &Picture, after: &Picture) -> Vec<String> {
    let mut lines = Vec::new();
    for (old, new) in before
        .partitions
        .iter()
        .zip(&after.partitions)
        .filter(|_| after.stage == Stage::Flowing)
    {
        match (old.silent_us(before.now_us), new.silent_us(after.now_us)) {
            (None, Some(us)) => lines.push(format!(
                "partition {} has been silent for {} min",
                new.number,
                us / MINUTE_US
            )),
            (Some(us), None) => lines.push(format!(
                "partition {} speaks again, after {} min",
                new.number,
                us / MINUTE_US
            )),
            _ => {}
        }
    }
    let claimed = |picture: &Picture| picture.claim.map(|(_, before_us)| before_us);
    if claimed(after) > claimed(before) {
        let (stored, _) = after.rows();
        lines.push(format!(
            "the table says: {} ({})",
            claim_sentence(after),
            after.evidence
        ));
        for hour in after
            .hours
            .iter()
            .filter(|hour| hour.final_at_us.is_some() && after.holds_hour(hour))
        {
            if !before
                .hours
                .iter()
                .any(|old| old.start_us == hour.start_us && old.final_at_us.is_some())
            {
                lines.push(format!(
                    "hour {} is final with {} changes, {} in the table so far",
                    clock(hour.start_us, false),
                    grouped(hour.stored),
                    grouped(stored),
                ));
            }
        }
    }
    // What holds changes with every commit: in words it is worth telling where the claim has just moved.
    if claimed(after) != claimed(before) && !after.hold.is_empty() {
        lines.push(after.hold.clone());
    }
    if after.trouble != before.trouble && !after.trouble.is_empty() {
        lines.push(format!("trouble: {}", after.trouble));
    }
    if after.stage != before.stage {
        match after.stage {
            Stage::Draining => {
                lines.push("no more changes come; the last ones are committed".to_owned());
            }
            Stage::Checking => lines.push("reading the table back".to_owned()),
            Stage::Starting | Stage::Flowing => {}
        }
    }
    let stamp = clock(after.now_us, true);
    lines
        .iter()
        .map(|line| format!("{stamp}  {line}"))
        .collect()
}

/// An instant as the time of day in UTC, `10:05` or `10:05:30`.
#[must_use]
pub fn clock(us: i64, with_seconds: bool) -> String {
    let of_day_s = us.div_euclid(1_000_000).rem_euclid(24 * 3600);
    let (hour, minute, second) = (of_day_s / 3600, of_day_s / 60 % 60, of_day_s % 60);
    if with_seconds {
        format!("{hour:02}:{minute:02}:{second:02}")
    } else {
        format!("{hour:02}:{minute:02}")
    }
}

/// A count with separators, `17,204`.
#[must_use]
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::{Terminal, backend::TestBackend};

    const TEN_US: i64 = 1_796_032_800_000_000; // 2026-11-30T10:00:00Z

    fn at(hours: i64, minutes: i64) -> i64 {
        TEN_US + (hours - 10) * HOUR_US + minutes * MINUTE_US
    }

    fn hour(start: i64, sent: u64, stored: u64, final_at_us: Option<i64>) -> Hour {
        Hour {
            start_us: at(start, 0),
            sent,
            stored,
            final_at_us,
        }
    }

    fn partition(number: i32, frontier_us: Option<i64>, last_row_us: i64) -> Partition {
        Partition {
            number,
            frontier_us,
            stored: 9000,
            behind: 12,
            last_row_us: Some(last_row_us),
        }
    }

    fn picture() -> Picture {
        Picture {
            stage: Stage::Flowing,
            now_us: at(12, 5),
            span_us: (at(9, 48), at(13, 30)),
            factor: 300,
            hours: vec![
                hour(9, 2500, 2500, None),
                hour(10, 14_000, 14_000, Some(at(11, 17))),
                hour(11, 14_200, 13_000, None),
                hour(12, 1000, 0, None),
                hour(13, 0, 0, None),
            ],
            partitions: vec![
                partition(0, Some(at(11, 52)), at(12, 4)),
                partition(1, Some(at(11, 30)), at(11, 20)),
                partition(2, None, at(12, 5)),
            ],
            claim: Some((Some(at(10, 0)), at(11, 0))),
            evidence: "by minimum and caught-up, with 12 min to spare".to_owned(),
            hold: "12:00 waits for partition 1: caught-up stands at 11:30".to_owned(),
            commits: 31,
            late: 4,
            trouble: String::new(),
            cut_short: false,
        }
    }

    fn drawn(picture: &Picture, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a buffer");
        terminal
            .draw(|frame| frame.render_widget(picture, frame.area()))
            .expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        let row = |y| {
            (0..width)
                .map(|x| buffer[(x, y)].symbol().to_owned())
                .collect::<String>()
        };
        (0..height).map(|y| row(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn picture_shows_final_and_open_hours_frontiers_and_claim() {
        let expected = [
            " tidemark demo   12:05:00  an hour passes in 12 s",
            "┌ hours: changes in the table ─────────────────────────────────────────────────┐",
            "│09:00–10:00 █████                              2,500 began before the table   │",
            "│10:00–11:00 ███████████████████████████████   14,000 final at 11:17           │",
            "│11:00–12:00 █████████████████████████████░░░  13,000 open                     │",
            "│12:00–13:00 ░░                                     0 open                     │",
            "│13:00–14:00                                        0                          │",
            "└──────────────────────────────────────────────────────────────────────────────┘",
        ];
        assert_eq!(drawn(&picture(), 80, 24)[..8], expected);
        let lines = drawn(&picture(), 80, 24);
        assert!(
            lines[9].contains("━┃━") && lines[9].contains("●") && lines[9].contains("11:52:00"),
            "{}",
            lines[9]
        );
        assert!(lines[10].contains("silent 45 min"), "{}", lines[10]);
        assert!(
            lines[11].contains("unknown") && lines[11].contains("12 to read"),
            "{}",
            lines[11]
        );
        assert!(
            lines[12].contains("10:00") && lines[12].contains("13:00"),
            "{}",
            lines[12]
        );
        assert!(
            lines[15].contains("complete from 10:00 until before 11:00"),
            "{}",
            lines[15]
        );
        assert!(
            lines[17].contains("12:00 waits for partition 1"),
            "{}",
            lines[17]
        );
        assert!(
            lines[19].contains("29,500 of 31,700 changes"),
            "{}",
            lines[19]
        );
    }

    /// A resize must never end the demo.
    #[test]
    fn picture_of_any_size_is_drawn() {
        for (width, height) in [(1, 1), (10, 3), (40, 12), (300, 80)] {
            drawn(&picture(), width, height);
            drawn(&Picture::default(), width, height);
        }
    }

    #[test]
    fn story_names_the_hour_that_became_final_and_who_fell_silent() {
        let after = picture();
        let mut before = after.clone();
        before.claim = None;
        before.hours[1].final_at_us = None;
        before.partitions[1].last_row_us = Some(before.now_us);
        let expected = [
            "12:05:00  partition 1 has been silent for 45 min",
            "12:05:00  the table says: complete from 10:00 until before 11:00 (by minimum and caught-up, with 12 min to spare)",
            "12:05:00  hour 10:00 is final with 14,000 changes, 29,500 in the table so far",
            "12:05:00  12:00 waits for partition 1: caught-up stands at 11:30",
        ];
        assert_eq!(tell(&before, &after), expected);
        assert_eq!(tell(&after, &after), [""; 0]);
    }

    #[test]
    fn counts_are_grouped_in_thousands() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
