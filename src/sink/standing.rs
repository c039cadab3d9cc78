//! What a table says of its writer: the state to go on from, or why it is not ours to go on from.
//!
//! In: the table as loaded and its history. No I/O, and no guess: whatever does not fit is refused with its reason, and only
//! what a person has agreed to is overlooked.

use std::collections::HashMap;

use iceberg::table::Table;

use super::Error;
use crate::api::Reason;
use crate::api::worker::SinkAccept;
use crate::lake::lineage::{End, Lineage};
use crate::watermark::{self, Ancestor, Identity, Obstacle, State, TableView, contract, stand};

/// The writer's state on a table; `None`: it has never written there, or begins anew with leave.
///
/// # Errors
/// The state is not ours to go on from.
pub(super) fn read_state(
    table: &Table,
    lineage: &Lineage,
    identity: &Identity,
    accept: &SinkAccept,
) -> Result<Option<State>, Error> {
    let metadata = table.metadata();
    let properties = metadata.properties();
    if let Some(other) = other_writer(properties, &identity.writer) {
        return Err(Error::refused(
            Reason::WriterMismatch,
            format!(
                "table \"{}\" is written by \"{other}\", not by \"{}\"",
                table.identifier(),
                identity.writer
            ),
        ));
    }
    let ancestry = ancestry(lineage, properties);
    let view = TableView {
        table_uuid: metadata.uuid(),
        table_ref: &identity.table_ref,
        properties,
        lineage: &ancestry,
    };
    let standing = match stand(&identity.writer, &view) {
        Ok(standing) => standing,
        Err(Obstacle::Void { .. }) if accept.table_uuid == Some(metadata.uuid()) => None,
        Err(obstacle) => return Err(of_obstacle(table, &obstacle)),
    };
    let Some(standing) = standing else {
        return Ok(None);
    };
    if standing.rebuilt {
        tracing::info!(table = %table.identifier(), commit_id = %standing.state.commit_id, "state rebuilt from the table's snapshots");
    }
    let mut state = standing.state;
    let theirs = state.identity.installation.clone();
    if theirs != identity.installation
        && !theirs.is_empty()
        && accept.installation.as_ref() != Some(&theirs)
    {
        return Err(Error::refused(
            Reason::InstallationMismatch,
            format!(
                "table \"{}\" is written by installation \"{theirs}\", this is \"{}\"",
                table.identifier(),
                identity.installation
            ),
        ));
    }
    state
        .identity
        .installation
        .clone_from(&identity.installation);
    Ok(Some(state))
}

fn other_writer<'p>(properties: &'p HashMap<String, String>, writer: &str) -> Option<&'p str> {
    let mut writers = properties.keys().filter_map(|key| contract::writer_of(key));
    writers.find(|other| *other != writer)
}

/// The lineage as the finalization core reads it. Summaries older than the commit that wrote the state are not looked at: of
/// them only what tells ours from others is copied.
fn ancestry(lineage: &Lineage, properties: &HashMap<String, String>) -> watermark::Lineage {
    let stated = properties.get(contract::COMMIT_ID);
    let mut below = false;
    let snapshots = lineage.entries.iter().map(|entry| {
        let short = below;
        below |= stated.is_some() && entry.summary().get(contract::COMMIT_ID) == stated;
        let wanted = |key: &str| {
            !short || [contract::COMMIT_ID, contract::WRITER, "source-snapshot-id"].contains(&key)
        };
        let summary = entry.summary().iter().filter(|(key, _)| wanted(key));
        Ancestor {
            snapshot_id: entry.snapshot_id,
            parent_id: entry.parent_id,
            summary: summary
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        }
    });
    watermark::Lineage {
        snapshots: snapshots.collect(),
        broken: lineage.end != End::First,
    }
}

fn of_obstacle(table: &Table, obstacle: &Obstacle) -> Error {
    let reason = match obstacle {
        Obstacle::Newer { .. } => Reason::StateTooNew,
        Obstacle::Damaged { .. } => Reason::StateUnreadable,
        Obstacle::Void { .. } => Reason::TableRecreated,
        Obstacle::RolledBack { .. }
        | Obstacle::LineageUnknown { .. }
        | Obstacle::CherryPicked { .. } => Reason::LineageUnknown,
    };
    Error::refused(
        reason,
        format!("table \"{}\": {obstacle}", table.identifier()),
    )
}
