//! After a commit: the processors are told, one commit after the other, at least once.
//!
//! The last commit that each has handled is written with the next commit, so that a crash in between only means to be told
//! again. A processor that fails stops nobody.

use std::sync::PoisonError;

use iceberg::table::Table;

use super::commit::TableSide;
use super::finalize::{Committed, HANDLED};
use crate::lake::lineage::{Entry, Lineage, lineage};

impl TableSide {
    /// Tells the processors of every commit that they have not handled, oldest first. What they have handled is written with
    /// the next commit.
    pub(super) async fn tell_processors(&self, table: &Table) {
        // One at a time: in order, and none twice at once.
        let _turn = self.telling.lock().await;
        for processor in self
            .processors
            .iter()
            .filter(|processor| processor.wants_after())
        {
            let key = format!("{HANDLED}{}", processor.name());
            let pending = self
                .handled
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get(&key)
                .cloned();
            let last = pending.or_else(|| table.metadata().properties().get(&key).cloned());
            for entry in unhandled(&lineage(table.metadata()), last.as_deref()) {
                let committed = told_of(table, entry);
                if let Err(error) = processor.after(&committed).await {
                    let processor = processor.name();
                    tracing::warn!(processor, commit_id = %committed.commit_id, error, "commit not handled; it comes again");
                    break;
                }
                let mut handled = self.handled.lock().unwrap_or_else(PoisonError::into_inner);
                handled.insert(key.clone(), committed.commit_id.to_string());
            }
        }
    }
}

/// Our commits after the one last handled, oldest first; all that are on record where that one has expired. Without one only
/// the newest: what happened before a processor was there is not its business.
fn unhandled<'l>(lineage: &'l Lineage, last: Option<&str>) -> Vec<&'l Entry> {
    let own: Vec<&Entry> = lineage.own().collect();
    let is_last = |entry: &&Entry| entry.commit_id.map(|id| id.to_string()).as_deref() == last;
    let newer = match own.iter().position(is_last) {
        Some(at) => at,
        None if last.is_some() => own.len(),
        None => own.len().min(1),
    };
    own[..newer].iter().rev().copied().collect()
}

fn told_of(table: &Table, entry: &Entry) -> Committed {
    Committed {
        commit_id: entry.commit_id.unwrap_or_default(),
        table: table.identifier().to_string(),
        location: table.metadata().location().to_owned(),
        summary: entry
            .summary()
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    }
}
