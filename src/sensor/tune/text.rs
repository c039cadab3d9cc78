//! A tuning as a table for people.

use std::fmt::Write;

use super::{Trial, Tuning};
use crate::{
    api::quantity::Instant,
    sensor::layout::{self, Align},
};

/// A tuning for people.
#[must_use]
pub fn text(tuning: &Tuning, width: usize) -> String {
    let cells = match tuning.cells.as_slice() {
        [only] => format!("one cell: {only}"),
        [first, .., last] => format!("{} cells: {first} to {last}", tuning.cells.len()),
        [] => "no cell".to_owned(),
    };
    let heading = format!(
        "{}: {} commits from {} to {} with {} rows of {} partitions, judged by {cells}.",
        tuning.table,
        tuning.commits,
        Instant(tuning.from_us),
        Instant(tuning.before_us),
        tuning.rows,
        tuning.partitions
    );
    let columns = [
        ("SETTING", Align::Left),
        ("VALUE", Align::Right),
        ("", Align::Left),
        ("MEDIAN DELAY", Align::Right),
        ("WORST", Align::Right),
        ("LATE ROWS", Align::Right),
    ];
    let mut rows = Vec::new();
    for series in &tuning.series {
        for (at, trial) in series.trials.iter().enumerate() {
            let name = if at == 0 { series.field.name() } else { "" };
            rows.push(vec![
                name.to_owned(),
                trial.setting.value(series.field),
                mark(tuning, trial).to_owned(),
                trial.median.to_string(),
                trial.worst.to_string(),
                trial.late.to_string(),
            ]);
        }
    }
    let mut text = layout::paragraph(&heading, width);
    text.push('\n');
    text += &layout::table(&columns, &rows);
    text.push('\n');
    text += &layout::paragraph(&tuning.recommended.sentence, width);
    if let (Some(command), Some(manifest)) =
        (&tuning.recommended.command, &tuning.recommended.manifest)
    {
        let manifest = manifest.replace('\n', "\n  ");
        let _ = write!(
            text,
            "\n  {command}\n\nor in the manifest:\n\n  {}\n",
            manifest.trim_end()
        );
    }
    text.push('\n');
    text + &layout::paragraph(
        "Each setting is varied alone. Delays are as fine as the commits are apart. A bound declares what the source may do, also in hours that are not on record.",
        width,
    )
}

/// What a trial is beside its values.
#[must_use]
pub(super) fn mark(tuning: &Tuning, trial: &Trial) -> &'static str {
    if trial.setting == tuning.in_force.setting {
        "in force"
    } else if trial.setting == tuning.recommended.trial.setting {
        "recommended"
    } else {
        ""
    }
}
