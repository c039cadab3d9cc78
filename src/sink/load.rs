//! A table as it is loaded: where its writer stands, and the withdrawal of a claim that no longer counts.
//!
//! Every look at the table comes through here, so that a table that is not ours to go on from is found by whoever looks first. A
//! withdrawal takes nothing but the claim: state, epoch and offsets stay for whoever decides what to do.

use std::collections::BTreeMap;

use iceberg::table::Table;
use uuid::Uuid;

use super::Error;
use super::commit::TableSide;
use super::standing::{Refusal, of, of_obstacle, read_standing};
use crate::api::worker::OnRollback;
use crate::lake::catalog;
use crate::lake::commit::Append;
use crate::lake::lineage::{End, Lineage, lineage};
use crate::watermark::{Accepted, Asker, Obstacle, Opening, Seen, Standing, State, contract};

/// A table as loaded, and what it says.
pub(super) struct Loaded {
    /// The table.
    pub table: Table,
    /// Its history.
    pub lineage: Lineage,
    /// The writer's state on it; new when it begins.
    pub state: State,
    /// A state whose offsets are gone on from instead of those of `state`.
    pub kept: Option<Box<State>>,
    /// What waits for a commit that takes it up: the writer's first, or a step of the epoch after a roll-back.
    pub opening: Option<Opening>,
    /// Whether the table's properties claim something else than its newest commit: the next one rewrites them.
    pub differs: bool,
}

impl Loaded {
    /// Whether only the opening of a session may commit here.
    pub(super) fn is_for_opening(&self) -> bool {
        self.opening.is_some()
    }

    /// Whether the history is gone that ended with this commit: another worker has taken up a roll-back behind it. Where a partition
    /// stands as it did, the fence would let rows pass, although what was known of the partition there is not known here. A look at the
    /// new history does not make them its own.
    pub(super) fn has_lost(&self, derived_from: Option<Uuid>) -> bool {
        // What has expired is older than what is left.
        let oldest = self.lineage.own().last().and_then(|own| own.commit_id);
        let is_left = |id: Uuid| self.lineage.end == End::First || oldest < Some(id);
        let known = derived_from.filter(|id| !id.is_nil() && *id != self.state.commit_id);
        known.is_some_and(|id| is_left(id) && self.lineage.find(id).is_none())
    }
}

impl TableSide {
    /// The table leads to another history than the one that was read on.
    pub(super) fn rolled_back(&self) -> Error {
        Error::RolledBack {
            table: self.ident.to_string(),
        }
    }

    /// Loads the table and reads the writer's state.
    ///
    /// # Errors
    /// The catalog does not answer, or the table is not what it was.
    pub(super) async fn load(&self) -> Result<Loaded, Error> {
        let table = catalog::load(&*self.catalog, &self.ident).await?;
        self.check_known(&table)?;
        let lineage = lineage(table.metadata());
        let asker = Asker {
            writer: &self.identity.writer,
            accept: Accepted {
                table_uuid: self.accept.table_uuid,
                snapshot_id: self.accept.lineage,
            },
            keep_offsets: self.on_rollback == OnRollback::KeepOffsets,
            seen: self.memory.seen(),
            now_us: self.clock.now_us(),
        };
        let accept = (&self.accept, self.leave);
        let standing = read_standing(&table, &lineage, &self.identity, &asker, accept);
        let standing = match standing {
            Ok(standing) => standing,
            Err(Refusal::Plain(error)) => return Err(error),
            Err(Refusal::Obstacle(obstacle)) => {
                let table = self.withdraw(table, &obstacle).await;
                return Err(of_obstacle(&table, &obstacle));
            }
        };
        let mut loaded = self.of_standing(table, lineage, standing);
        let states = [Some(&mut loaded.state), loaded.kept.as_deref_mut()];
        if self.accept_cluster.as_ref() == Some(&self.identity.cluster_id) {
            for state in states.into_iter().flatten() {
                state
                    .identity
                    .cluster_id
                    .clone_from(&self.identity.cluster_id);
            }
        }
        if !loaded.is_for_opening() {
            self.memory.see(Seen::of(&loaded.state));
        }
        Ok(loaded)
    }

    /// Refuses another table than the one that was seen before, unless its owner has agreed to it. Nothing is written to it: it
    /// may be somebody else's.
    fn check_known(&self, table: &Table) -> Result<(), Error> {
        let here = table.metadata().uuid();
        let other = self.memory.known_table().filter(|known| *known != here);
        match other {
            Some(table_uuid) if self.accept.table_uuid != Some(here) => Err(of_obstacle(
                table,
                &Obstacle::Void {
                    here,
                    table_uuid,
                    table_ref: self.identity.table_ref.clone(),
                },
            )),
            _ => Ok(()),
        }
    }

    fn of_standing(&self, table: Table, lineage: Lineage, standing: Standing) -> Loaded {
        let opening = standing.opening();
        let (state, kept, differs) = match standing {
            Standing::Begins(beginning) => {
                let state = beginning.state(
                    self.identity.clone(),
                    &self.subscription,
                    self.policy.clone(),
                    self.clock.now_us(),
                );
                (state, beginning.kept, false)
            }
            Standing::GoesOn(going_on) => {
                let kept = going_on
                    .rolled_back
                    .and_then(|rolled_back| rolled_back.kept);
                let differs = going_on.differs && opening.is_none();
                (going_on.state, kept, differs)
            }
        };
        Loaded {
            table,
            lineage,
            state,
            kept,
            opening,
            differs,
        }
    }

    /// Takes a claim away from the properties that no longer counts, in a snapshot without data. What fails comes again with the
    /// next look. Gives the table as it is then.
    async fn withdraw(&self, table: Table, obstacle: &Obstacle) -> Table {
        let metadata = table.metadata();
        let changes = contract::withdrawal(metadata.properties());
        // Without any snapshot there would be none to name in sink.accept.lineage.
        let needed = changes.is_some() || metadata.current_snapshot().is_none();
        if !obstacle.withdraws() || !needed {
            return table;
        }
        let changes = changes.unwrap_or_default();
        let reason = of(obstacle).label();
        let append = Append {
            commit_id: Uuid::now_v7(),
            withdraws: true,
            summary: BTreeMap::from([
                (contract::WITHDRAWN.to_owned(), reason.to_owned()),
                (contract::WRITER.to_owned(), self.identity.writer.clone()),
                (contract::WORKER.to_owned(), self.worker.clone()),
            ]),
            set_properties: changes.set,
            remove_properties: changes.remove,
            ..Append::default()
        };
        match self.send(&table, &append).await {
            Ok(table) => {
                tracing::warn!(table = %self.ident, reason, "the claim is withdrawn");
                table
            }
            Err(error) => {
                tracing::warn!(table = %self.ident, reason, %error, "the claim could not be withdrawn; readers hold it");
                table
            }
        }
    }
}
