//! What the text on a table says, read as a stranger does.

use std::collections::HashMap;

use super::oracle::{Breach, Found, breach};

/// A claim as its text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub epoch: u64,
    pub before_us: Option<i64>,
    pub from_us: Option<i64>,
    pub gaps: Vec<(i64, i64)>,
}

impl Said {
    /// What was taken back once is none of what is said to be complete.
    pub(super) fn leaves_out(&self, retracted: &[(i64, i64)]) -> Found {
        let covers = |from_us: i64, before_us: i64| {
            let mut gaps = self.gaps.iter();
            self.from_us >= Some(before_us)
                || gaps.any(|(from, to)| *from <= from_us && before_us <= *to)
        };
        match retracted
            .iter()
            .find(|(from, before)| !covers(*from, *before))
        {
            None => Ok(()),
            Some((from_us, before_us)) => Err(breach(
                "I1",
                format!(
                    "{self:?} claims what was taken back, {} to {}",
                    iso(*from_us),
                    iso(*before_us)
                ),
            )),
        }
    }
}

/// What the writer of a summary claims for itself: beside others the name of the claim has that of the table.
pub(super) fn own_claim(summary: &HashMap<String, String>) -> Result<Option<i64>, Breach> {
    let name = if summary.contains_key("tidemark.writers") {
        "tidemark.writer-finalized-before"
    } else {
        "tidemark.finalized-before"
    };
    summary.get(name).map(|text| instant(text)).transpose()
}

fn instant(text: &str) -> Result<i64, Breach> {
    let parsed: Result<jiff::Timestamp, _> = text.parse();
    let parsed = parsed.map(jiff::Timestamp::as_microsecond);
    parsed.map_err(|error| breach("I3", format!("{text:?}: {error}")))
}

/// Reads a claim as a stranger does.
pub(super) fn read(properties: &HashMap<String, String>) -> Result<Said, Breach> {
    let text = |name: &str| properties.get(name).map(String::as_str);
    let epoch = text("tidemark.epoch").and_then(|epoch| epoch.parse().ok());
    let gaps: Vec<(String, String)> = text("tidemark.gaps")
        .map(serde_json::from_str)
        .transpose()
        .map_err(|error| breach("I3", format!("the gaps are not readable: {error}")))?
        .unwrap_or_default();
    let gaps = gaps
        .iter()
        .map(|(from, to)| Ok((instant(from)?, instant(to)?)));
    Ok(Said {
        epoch: epoch.unwrap_or_default(),
        before_us: text("tidemark.finalized-before").map(instant).transpose()?,
        from_us: text("tidemark.complete-from")
            .filter(|from| *from != "unbounded")
            .map(instant)
            .transpose()?,
        gaps: gaps.collect::<Result<_, Breach>>()?,
    })
}

pub(super) fn iso(us: i64) -> String {
    jiff::Timestamp::from_microsecond(us).map_or_else(|_| us.to_string(), |at| at.to_string())
}
