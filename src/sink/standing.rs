//! What a table says of its writer: where it goes on, or why that is not ours to decide.
//!
//! In: the table as loaded and its history. No I/O, and no guess: whatever does not fit is refused with its reason, and only
//! what a person has agreed to is overlooked.

use std::collections::HashMap;

use iceberg::table::Table;

use super::Error;
use crate::api::Reason;
use crate::api::worker::SinkAccept;
use crate::lake::lineage::Lineage;
use crate::watermark::{Asker, Identity, Obstacle, Standing, State, TableView, contract, stand};

/// Why a table is not gone on from.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Nothing on the table changes by it.
    Plain(Error),
    /// A person has to decide, and what the table claims may have to be taken away meanwhile.
    Obstacle(Obstacle),
}

/// Where the writer stands on a table.
///
/// # Errors
/// The table is not ours to go on from.
pub(super) fn read_standing(
    table: &Table,
    lineage: &Lineage,
    identity: &Identity,
    asker: &Asker<'_>,
    accept: &SinkAccept,
) -> Result<Standing, Refusal> {
    let metadata = table.metadata();
    let properties = metadata.properties();
    if let Some(other) = other_writer(properties, &identity.writer) {
        return Err(Refusal::Plain(Error::refused(
            Reason::WriterMismatch,
            format!(
                "table \"{}\" is written by \"{other}\", not by \"{}\"",
                table.identifier(),
                identity.writer
            ),
        )));
    }
    let ancestry = lineage.ancestry();
    let view = TableView {
        table_uuid: metadata.uuid(),
        table_ref: &identity.table_ref,
        properties,
        lineage: &ancestry,
    };
    let mut standing = stand(asker, &view).map_err(Refusal::Obstacle)?;
    match &mut standing {
        Standing::GoesOn(going_on) => {
            if going_on.rebuilt {
                tracing::info!(table = %table.identifier(), commit_id = %going_on.state.commit_id, "state rebuilt from the table's snapshots");
            }
            install(table, &mut going_on.state, identity, accept)?;
            if let Some(rolled_back) = &mut going_on.rolled_back {
                tracing::warn!(table = %table.identifier(), commit_id = %rolled_back.lost, to = %going_on.state.commit_id, "the table was rolled back");
            }
        }
        Standing::Begins(beginning) => {
            if let Some(kept) = &mut beginning.kept {
                install(table, kept, identity, accept)?;
            }
        }
    }
    Ok(standing)
}

/// Makes sure that the state is this installation's, or accepted from another one.
fn install(
    table: &Table,
    state: &mut State,
    identity: &Identity,
    accept: &SinkAccept,
) -> Result<(), Refusal> {
    let theirs = &state.identity.installation;
    if *theirs != identity.installation
        && !theirs.is_empty()
        && accept.installation.as_ref() != Some(theirs)
    {
        return Err(Refusal::Plain(Error::refused(
            Reason::InstallationMismatch,
            format!(
                "table \"{}\" is written by installation \"{theirs}\", this is \"{}\"",
                table.identifier(),
                identity.installation
            ),
        )));
    }
    state
        .identity
        .installation
        .clone_from(&identity.installation);
    Ok(())
}

fn other_writer<'p>(properties: &'p HashMap<String, String>, writer: &str) -> Option<&'p str> {
    let mut writers = properties.keys().filter_map(|key| contract::writer_of(key));
    writers.find(|other| *other != writer)
}

/// An obstacle as a person reads it, with what takes it away.
pub(super) fn of_obstacle(table: &Table, obstacle: &Obstacle) -> Error {
    let newest = table.metadata().current_snapshot_id();
    let id = newest.map_or_else(|| "<snapshot id>".to_owned(), |id| id.to_string());
    let way_on = match obstacle {
        Obstacle::Newer { .. } => String::new(),
        Obstacle::Void { here, .. } => {
            format!("; sink.accept.tableUuid: {here} begins anew on it")
        }
        Obstacle::Damaged { .. }
        | Obstacle::Replaced { .. }
        | Obstacle::LineageUnknown { .. }
        | Obstacle::CherryPicked { .. } => {
            format!("; sink.accept.lineage: {id} goes on from main as it is now")
        }
    };
    let name = table.identifier();
    Error::refused(
        of(obstacle),
        format!("table \"{name}\": {obstacle}{way_on}"),
    )
}

/// The reason that an obstacle is shown as.
pub(super) fn of(obstacle: &Obstacle) -> Reason {
    match obstacle {
        Obstacle::Newer { .. } => Reason::StateTooNew,
        Obstacle::Damaged { .. } => Reason::StateUnreadable,
        Obstacle::Void { .. } => Reason::TableRecreated,
        Obstacle::Replaced { .. } => Reason::TableReplaced,
        Obstacle::LineageUnknown { .. } => Reason::LineageUnknown,
        Obstacle::CherryPicked { .. } => Reason::CherryPicked,
    }
}
