//! What a table says of its writer: where it goes on, or why that is not ours to decide.
//!
//! In: the table as loaded and its history. No I/O, and no guess: whatever does not fit is refused with its reason, and only
//! what a person has agreed to is overlooked.

use iceberg::table::Table;

use super::Error;
use crate::api::Reason;
use crate::api::worker::SinkAccept;
use crate::lake::lineage::Lineage;
use crate::watermark::{Asker, Identity, Obstacle, Standing, State, TableView, stand};

/// Why a table is not gone on from.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Nothing on the table changes by it.
    Plain(Error),
    /// A person has to decide, and what the table claims may have to be taken away meanwhile.
    Obstacle(Obstacle),
}

/// What a writer may do to a table beside going on where it stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leave {
    /// Write to it beside others.
    pub shared: bool,
    /// Bring the orders of a person, which a drained writer takes as well.
    pub orders: bool,
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
    (accept, leave): (&SinkAccept, Leave),
) -> Result<Standing, Refusal> {
    let metadata = table.metadata();
    let properties = metadata.properties();
    let ancestry = lineage.ancestry();
    let view = TableView {
        table_uuid: metadata.uuid(),
        table_ref: &identity.table_ref,
        properties,
        lineage: &ancestry,
    };
    let mut standing = stand(asker, &view).map_err(Refusal::Obstacle)?;
    check_leave(table, identity, &standing, leave)?;
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

/// An unknown writer needs leave to write beside others, and a drained one writes nothing.
fn check_leave(
    table: &Table,
    identity: &Identity,
    standing: &Standing,
    leave: Leave,
) -> Result<(), Refusal> {
    let (table, writer) = (table.identifier(), &identity.writer);
    let (reason, problem) = match standing {
        Standing::GoesOn(going_on) if going_on.state.published.drained && !leave.orders => (
            Reason::WriterDrained,
            format!("writer \"{writer}\" of table \"{table}\" was declared drained"),
        ),
        Standing::Begins(beginning) if beginning.last_epoch == 0 && !leave.shared => {
            let Some(other) = beginning.peers.first() else {
                return Ok(());
            };
            let other = &other.writer;
            (
                Reason::WriterMismatch,
                format!("table \"{table}\" is written by \"{other}\", not by \"{writer}\""),
            )
        }
        _ => return Ok(()),
    };
    Err(Refusal::Plain(Error::refused(reason, problem)))
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

/// An obstacle as a person reads it, with what takes it away.
pub(super) fn of_obstacle(table: &Table, obstacle: &Obstacle) -> Error {
    let way_on = way_on(obstacle, table.metadata().current_snapshot_id());
    let name = table.identifier();
    Error::refused(
        of(obstacle),
        format!("table \"{name}\": {obstacle}{way_on}"),
    )
}

/// What takes an obstacle away, where it is a field. `newest`: main's snapshot.
fn way_on(obstacle: &Obstacle, newest: Option<i64>) -> String {
    let id = newest.map_or_else(|| "<snapshot id>".to_owned(), |id| id.to_string());
    match obstacle {
        Obstacle::Newer { .. } => String::new(),
        Obstacle::Void { here, .. } => {
            format!("; sink.accept.tableUuid: {here} begins anew on it")
        }
        Obstacle::Peer(other) if other.is_newer() => String::new(),
        // Nothing that is said here makes the other one's state readable.
        Obstacle::Peer(other) => {
            let writer = &other.writer;
            format!(
                "; it waits for \"{writer}\", where sink.accept.lineage: {id} goes on from main as it is now"
            )
        }
        Obstacle::Damaged { .. } if newest.is_none() => {
            "; no snapshot is there to go on from: put the property back".to_owned()
        }
        Obstacle::Damaged { .. }
        | Obstacle::Replaced { .. }
        | Obstacle::LineageUnknown { .. }
        | Obstacle::CherryPicked { .. } => {
            format!("; sink.accept.lineage: {id} goes on from main as it is now")
        }
    }
}

/// The reason that an obstacle is shown as.
pub(super) fn of(obstacle: &Obstacle) -> Reason {
    match obstacle {
        Obstacle::Newer { .. } => Reason::StateTooNew,
        Obstacle::Peer(other) if other.is_newer() => Reason::StateTooNew,
        Obstacle::Damaged { .. } | Obstacle::Peer(_) => Reason::StateUnreadable,
        Obstacle::Void { .. } => Reason::TableRecreated,
        Obstacle::Replaced { .. } => Reason::TableReplaced,
        Obstacle::LineageUnknown { .. } => Reason::LineageUnknown,
        Obstacle::CherryPicked { .. } => Reason::CherryPicked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watermark::contract::BadValue;
    use crate::watermark::{PeerUnreadable, Unreadable};

    fn packed(source: Unreadable) -> BadValue {
        let name = "tidemark.writer.shop.west.state".to_owned();
        BadValue::Packed { name, source }
    }

    /// A field was named in the resource of the one that it could not help.
    #[test]
    fn what_is_wrong_with_another_writer_is_taken_away_at_that_one() {
        let peer = |source| {
            Obstacle::Peer(PeerUnreadable {
                writer: "shop.west".to_owned(),
                source: packed(source),
            })
        };
        let lost = peer(Unreadable::Damaged);
        assert_eq!(of(&lost), Reason::StateUnreadable);
        assert_eq!(
            way_on(&lost, Some(7)),
            "; it waits for \"shop.west\", where sink.accept.lineage: 7 goes on from main as it is now"
        );
        let newer = peer(Unreadable::Newer { version: 9 });
        assert_eq!(of(&newer), Reason::StateTooNew);
        assert_eq!(way_on(&newer, Some(7)), "");
    }

    #[test]
    fn a_damaged_state_names_a_snapshot_only_where_there_is_one() {
        let damaged = Obstacle::Damaged {
            writer: "shop.west".to_owned(),
            source: packed(Unreadable::Damaged),
        };
        let names = |newest: Option<i64>| way_on(&damaged, newest).contains("sink.accept.lineage");
        assert!(names(Some(7)) && !names(None));
    }
}
