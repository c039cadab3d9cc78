//! What the demo says before and after, in words.

use std::path::Path;

use crate::demo::{
    Span,
    check::Findings,
    picture::{Picture, clock, grouped},
    record::{Fault, Record},
};

/// Faults named one by one; more are counted.
const FAULTS_NAMED: usize = 10;

/// What is about to happen.
#[must_use]
pub(super) fn opening(span: &Span, folder: &Path) -> String {
    format!(
        "Changes of a shop's orders from {} until {} flow through an embedded broker into an Iceberg table in {}.\n\
         {} h {:02} min pass in {} s. Rows come out of order by up to 5 min, a few later than that; partitions fall silent.",
        clock(span.start_us, false),
        clock(span.end_us, false),
        folder.display(),
        (span.end_us - span.start_us) / super::HOUR_US,
        (span.end_us - span.start_us) % super::HOUR_US / super::MINUTE_US,
        span.real().as_secs(),
    )
}

/// Whether nothing is wrong, and something was shown at all: that an hour became final, unless a person cut the demo short.
#[must_use]
pub(super) fn is_good(findings: &Findings, picture: &Picture) -> bool {
    findings.faults.is_empty() && (picture.cut_short || findings.steps > 0 && findings.rows > 0)
}

/// What reading the table back has shown.
#[must_use]
pub(super) fn closing(findings: &Findings, record: &Record, picture: &Picture) -> String {
    let sent = record.rows().count();
    let mut lines = vec![String::new()];
    if findings
        .faults
        .iter()
        .any(|fault| !matches!(fault, Fault::TooEarly { .. }))
    {
        lines.push(format!(
            "FAILED: {} changes were sent, {} are in the table.",
            number(sent),
            number(findings.rows)
        ));
    } else {
        lines.push(format!(
            "{} changes were sent, and each is in the table exactly once.",
            number(sent)
        ));
    }
    lines.push(claim_line(findings, picture));
    let late = record.rows().filter(|(_, receipt)| receipt.late).count();
    if late > 0 {
        lines.push(format!(
            "{} came later than declared, as rows sometimes do: nothing is promised about those, and they are in the table all the same.",
            number(late),
        ));
    }
    if findings.excused > late {
        lines.push(format!(
            "{} more were delayed by this machine beyond the declared 10 min (2 s of yours).",
            number(findings.excused - late),
        ));
    }
    lines.extend(
        findings
            .faults
            .iter()
            .take(FAULTS_NAMED)
            .map(|fault| format!("  {}", describe(fault))),
    );
    if findings.faults.len() > FAULTS_NAMED {
        lines.push(format!(
            "  and {} more",
            number(findings.faults.len() - FAULTS_NAMED)
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn claim_line(findings: &Findings, picture: &Picture) -> String {
    let early = findings
        .faults
        .iter()
        .filter(|fault| matches!(fault, Fault::TooEarly { .. }))
        .count();
    let Some(before_us) = findings.finalized_before_us else {
        return if picture.cut_short {
            "No hour had become final when you ended it.".to_owned()
        } else {
            format!("FAILED: no hour became final. {}", picture.trouble)
        };
    };
    if early > 0 {
        return format!(
            "FAILED: {} changes were missing from an hour when it was called final.",
            number(early)
        );
    }
    format!(
        "The claim went up {} times, to {}. The table was read back as it was each time: no change of a final hour was missing.",
        findings.steps,
        clock(before_us, false),
    )
}

fn describe(fault: &Fault) -> String {
    match fault {
        Fault::Missing { partition, offset } => {
            format!("partition {partition}, offset {offset}: sent, and not in the table")
        }
        Fault::Doubled {
            partition,
            offset,
            times,
        } => format!("partition {partition}, offset {offset}: {times} times in the table"),
        Fault::Strange(row) => {
            format!(
                "partition {}, offset {}: in the table, and not as it was sent (order {})",
                row.partition, row.offset, row.order
            )
        }
        Fault::TooEarly {
            snapshot_id,
            finalized_before_us,
            partition,
            offset,
            event_time_us,
        } => format!(
            "partition {partition}, offset {offset}, of {}: not in snapshot {snapshot_id}, which said \"complete before {}\"",
            clock(*event_time_us, true),
            clock(*finalized_before_us, false),
        ),
    }
}

fn number(count: usize) -> String {
    grouped(count as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_that_was_cut_short_need_not_have_a_claim() {
        let picture = Picture {
            cut_short: true,
            ..Picture::default()
        };
        assert!(is_good(&Findings::default(), &picture));
    }

    /// A demo in which nothing became final has shown nothing.
    #[test]
    fn run_without_a_claim_is_not_good() {
        let findings = Findings {
            rows: 5,
            ..Findings::default()
        };
        assert!(!is_good(&findings, &Picture::default()));
        assert!(
            closing(&findings, &Record::default(), &Picture::default())
                .contains("FAILED: no hour became final")
        );
    }

    #[test]
    fn early_hour_is_named_with_its_row() {
        let early = Fault::TooEarly {
            snapshot_id: 7,
            finalized_before_us: 3_600_000_000,
            partition: 2,
            offset: 5,
            event_time_us: 3_599_000_000,
        };
        let findings = Findings {
            rows: 5,
            steps: 1,
            finalized_before_us: Some(3_600_000_000),
            faults: vec![early],
            ..Findings::default()
        };
        let text = closing(&findings, &Record::default(), &Picture::default());
        assert!(text.contains("partition 2, offset 5, of 00:59:59: not in snapshot 7, which said \"complete before 01:00\""), "{text}");
        assert!(!is_good(&findings, &Picture::default()));
    }
}
