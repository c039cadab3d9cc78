//! The catalog and its one table, as far as metadata goes: snapshots with parents and summaries, properties, and a commit that
//! succeeds on the very snapshot it was derived from or not at all.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use uuid::Uuid;

use super::rules::Rules;
use crate::sink::finalize::Plan;
use crate::watermark::{
    Ancestor, Asker, Lineage, Obstacle, Reading, Standing, TableView, contract, read_claim,
};

/// The writer of every history.
pub(super) const WRITER: &str = "shop.orders";

/// The ref that is written.
pub(super) const REF: &str = "main";

/// A snapshot.
pub(super) struct Snapshot {
    pub parent_id: Option<i64>,
    pub summary: Rc<HashMap<String, String>>,
}

/// A table as somebody loaded it.
pub(super) struct Loaded {
    /// Main's snapshot.
    pub main_id: Option<i64>,
    /// Where the writer stands on it.
    pub standing: Result<Standing, Obstacle>,
    /// The commits of ours in main's ancestry.
    pub commits: BTreeSet<Uuid>,
}

/// The table.
pub(super) struct Table {
    pub uuid: Uuid,
    pub properties: HashMap<String, String>,
    pub snapshots: BTreeMap<i64, Snapshot>,
    pub main_id: Option<i64>,
    last_id: i64,
    /// What whoever loads it now is given.
    loaded: Option<Rc<Loaded>>,
}

impl Table {
    pub(super) fn new() -> Self {
        Table {
            uuid: Uuid::from_u128(7),
            properties: HashMap::new(),
            snapshots: BTreeMap::new(),
            main_id: None,
            last_id: 0,
            loaded: None,
        }
    }

    /// The table as it is: the state is decoded once for each of its versions.
    pub(super) fn load(&mut self, asker: &Asker<'_>, rules: &mut dyn Rules) -> Rc<Loaded> {
        if let Some(loaded) = &self.loaded {
            return Rc::clone(loaded);
        }
        let lineage = self.lineage();
        let loaded = Rc::new(Loaded {
            main_id: self.main_id,
            standing: rules.stand(asker, &self.view(&lineage)),
            commits: lineage
                .snapshots
                .iter()
                .filter_map(Ancestor::commit_id)
                .collect(),
        });
        self.loaded = Some(Rc::clone(&loaded));
        loaded
    }

    pub(super) fn view<'a>(&'a self, lineage: &'a Lineage<'a>) -> TableView<'a> {
        TableView {
            table_uuid: self.uuid,
            table_ref: REF,
            properties: &self.properties,
            lineage,
        }
    }

    /// Main's ancestry.
    pub(super) fn lineage(&self) -> Lineage<'_> {
        let mut lineage = Lineage::default();
        let mut next_id = self.main_id;
        while let Some(snapshot_id) = next_id {
            let Some(snapshot) = self.snapshots.get(&snapshot_id) else {
                lineage.broken = true;
                break;
            };
            lineage.snapshots.push(Ancestor {
                snapshot_id,
                parent_id: snapshot.parent_id,
                summary: Cow::Borrowed(&*snapshot.summary),
                picked: None,
            });
            next_id = snapshot.parent_id;
        }
        lineage
    }

    /// What a reader may count on.
    pub(super) fn read(&self) -> Reading {
        let lineage = self.lineage();
        read_claim(&self.view(&lineage))
    }

    /// Commits, if main is where the plan was derived from; tells the new snapshot, or `None` for a conflict.
    pub(super) fn commit(&mut self, base_id: Option<i64>, plan: &Plan) -> Option<i64> {
        if self.main_id != base_id {
            return None;
        }
        for name in &plan.remove_properties {
            self.properties.remove(name);
        }
        self.properties.extend(plan.set_properties.clone());
        Some(self.append(plan.summary.clone().into_iter().collect()))
    }

    /// Adds a snapshot to main.
    pub(super) fn append(&mut self, summary: HashMap<String, String>) -> i64 {
        self.last_id += 1;
        let snapshot = Snapshot {
            parent_id: self.main_id,
            summary: Rc::new(summary),
        };
        self.snapshots.insert(self.last_id, snapshot);
        self.point(Some(self.last_id));
        self.last_id
    }

    /// Sets main to a snapshot.
    pub(super) fn point(&mut self, main_id: Option<i64>) {
        self.main_id = main_id;
        self.touch();
    }

    /// Whoever loads it next sees what was changed.
    pub(super) fn touch(&mut self) {
        self.loaded = None;
    }

    /// Main's ancestors, newest first, as far as they are there.
    pub(super) fn ancestors(&self) -> Vec<i64> {
        let mut all = Vec::new();
        let mut next_id = self.main_id;
        while let Some((id, snapshot)) = next_id.and_then(|id| self.snapshots.get_key_value(&id)) {
            all.push(*id);
            next_id = snapshot.parent_id;
        }
        all
    }

    /// Removes all but the newest ancestors; tells whether any went.
    pub(super) fn expire(&mut self, keep: usize) -> bool {
        let ancestors = self.ancestors();
        let ours = |id: &i64| self.snapshots[id].summary.contains_key(contract::COMMIT_ID);
        // Expiry keeps the newest snapshot of ours.
        let newest = ancestors.iter().position(ours).map_or(0, |at| at + 1);
        let kept: BTreeSet<i64> = ancestors.into_iter().take(keep.max(newest)).collect();
        let before = self.snapshots.len();
        self.snapshots.retain(|id, _| kept.contains(id));
        self.touch();
        self.snapshots.len() < before
    }
}
