//! What other systems say about a table, for people and for programs: each value with what it says and what it does not prove.

use std::fmt::Write;

use serde::Serialize;

use super::layout;
use crate::{
    api::quantity::{Instant, iso},
    watermark::ForeignClaim,
};

/// What another system says, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignReport {
    /// Which system, as `--accept` names it.
    pub system: &'static str,
    /// The property or the key of a summary that it stands under.
    pub name: String,
    /// The instant.
    #[serde(rename = "before", with = "iso")]
    pub before_us: i64,
    /// What that says.
    pub says: &'static str,
    /// What it does not prove.
    pub proves_not: &'static str,
    /// The snapshot whose summary has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<i64>,
    /// What stands beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl From<&ForeignClaim> for ForeignReport {
    fn from(claim: &ForeignClaim) -> Self {
        Self {
            system: claim.system.label(),
            name: claim.name.clone(),
            before_us: claim.before_us,
            says: claim.system.says(),
            proves_not: claim.system.proves_not(),
            snapshot_id: claim.snapshot_id,
            note: claim.note.clone(),
        }
    }
}

/// All of them for programs.
#[must_use]
pub fn reports(claims: &[ForeignClaim]) -> Vec<ForeignReport> {
    claims.iter().map(ForeignReport::from).collect()
}

/// All of them for people; empty where there is none.
#[must_use]
pub fn text(claims: &[ForeignReport], width: usize) -> String {
    let mut text = String::new();
    for claim in claims {
        let place = claim.snapshot_id.map_or_else(
            || "a property".to_owned(),
            |id| format!("in the summary of snapshot {id}"),
        );
        let _ = writeln!(text, "\n  {} ({place})", claim.name);
        let mut facts = vec![
            ("  system", claim.system.to_owned()),
            ("  before", Instant(claim.before_us).to_string()),
            ("  says", claim.says.to_owned()),
            ("  but", claim.proves_not.to_owned()),
        ];
        facts.extend(claim.note.iter().map(|note| ("  note", note.clone())));
        text += &layout::facts(&facts, width);
    }
    text
}
