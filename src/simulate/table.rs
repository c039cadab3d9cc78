//! The catalog and its one table, as far as metadata goes: snapshots with parents and summaries, properties, and a commit that
//! succeeds on the very snapshot it was derived from or not at all.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use uuid::Uuid;

use super::rules::Rules;
use crate::sink::finalize::Plan;
use crate::watermark::{
    Ancestor, Asker, Lineage, Obstacle, Picked, Reading, Standing, TableView, contract, read_claim,
};

/// The ref that is written.
pub(super) const REF: &str = "main";

/// A snapshot.
pub(super) struct Snapshot {
    pub parent_id: Option<i64>,
    pub summary: Rc<HashMap<String, String>>,
    /// That of ours, where it is one.
    commit_id: Option<Uuid>,
    /// What it repeats, where somebody cherry-picked it.
    pub source_id: Option<i64>,
}

/// A table as somebody loaded it.
pub(super) struct Loaded {
    /// Main's snapshot.
    pub main_id: Option<i64>,
    /// Where the writer stands on it.
    pub standing: Result<Standing, Obstacle>,
    /// Whether main's ancestry has expired somewhere.
    pub broken: bool,
}

/// The table.
pub(super) struct Table {
    pub uuid: Uuid,
    pub properties: HashMap<String, String>,
    pub snapshots: BTreeMap<i64, Snapshot>,
    pub main_id: Option<i64>,
    last_id: i64,
    /// What a writer that loads it now is given.
    loaded: BTreeMap<String, Rc<Loaded>>,
}

impl Table {
    pub(super) fn new() -> Self {
        Table {
            uuid: Uuid::from_u128(7),
            properties: HashMap::new(),
            snapshots: BTreeMap::new(),
            main_id: None,
            last_id: 0,
            loaded: BTreeMap::new(),
        }
    }

    /// The table as it is: the state is decoded once for each of its versions.
    pub(super) fn load(&mut self, asker: &Asker<'_>, rules: &mut dyn Rules) -> Rc<Loaded> {
        if let Some(loaded) = self.loaded.get(asker.writer) {
            return Rc::clone(loaded);
        }
        let lineage = self.lineage();
        let view = self.view(&lineage);
        let loaded = Rc::new(Loaded {
            main_id: self.main_id,
            standing: rules.stand(asker, &view),
            broken: lineage.broken,
        });
        let writer = asker.writer.to_owned();
        self.loaded.insert(writer, Rc::clone(&loaded));
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
                picked: snapshot.source_id.map(|id| self.picked(id)),
            });
            next_id = snapshot.parent_id;
        }
        lineage
    }

    /// Whether a commit of ours is in main's ancestry.
    pub(super) fn leads_to(&self, commit_id: Uuid) -> bool {
        let mut next_id = self.main_id;
        while let Some(snapshot) = next_id.and_then(|id| self.snapshots.get(&id)) {
            if snapshot.commit_id == Some(commit_id) {
                return true;
            }
            next_id = snapshot.parent_id;
        }
        false
    }

    /// The oldest commit of ours that is left.
    pub(super) fn oldest(&self) -> Option<Uuid> {
        let mut ancestors = self.ancestors().into_iter().rev();
        ancestors.find_map(|id| self.snapshots[&id].commit_id)
    }

    /// Whose a snapshot is that somebody repeats.
    fn picked(&self, source_id: i64) -> Picked {
        match self.snapshots.get(&source_id) {
            None => Picked::Gone,
            Some(source) => match source.summary.get(contract::WRITER) {
                Some(writer) => Picked::Ours(writer.clone()),
                None => Picked::Foreign,
            },
        }
    }

    /// Snapshots of ours that main does not lead to.
    pub(super) fn aside(&self) -> Vec<i64> {
        let ancestors = self.ancestors();
        let ours = |id: &i64| self.snapshots[id].summary.contains_key(contract::COMMIT_ID);
        let aside = self.snapshots.keys().filter(|id| !ancestors.contains(id));
        aside.copied().filter(ours).collect()
    }

    /// Repeats what a snapshot added, on main.
    pub(super) fn pick(&mut self, source_id: i64) -> i64 {
        let summary = [("operation".to_owned(), "append".to_owned())];
        let snapshot_id = self.append(summary.into());
        let picked = self.snapshots.get_mut(&snapshot_id).expect("just added");
        picked.source_id = Some(source_id);
        self.touch();
        snapshot_id
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
            commit_id: contract::summary_commit_id(&summary),
            summary: Rc::new(summary),
            source_id: None,
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
        self.loaded.clear();
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

    /// Removes all but the newest, whosever that is.
    pub(super) fn expire_to_newest(&mut self) {
        let newest = self.main_id;
        self.snapshots.retain(|id, _| Some(*id) == newest);
        self.touch();
    }

    /// Removes all but the newest ancestors; tells whether any went.
    pub(super) fn expire(&mut self, keep: usize) -> bool {
        let ancestors = self.ancestors();
        let ours = |id: &i64| self.snapshots[id].summary.contains_key(contract::COMMIT_ID);
        // Expiry keeps the newest snapshot of ours, whichever writer's it is.
        let newest = ancestors.iter().position(ours).map_or(0, |at| at + 1);
        let mut kept: BTreeSet<i64> = ancestors.into_iter().take(keep.max(newest)).collect();
        // Whose a copy was nobody could tell without what it repeats.
        let sources = kept.iter().filter_map(|id| self.snapshots[id].source_id);
        let sources: Vec<i64> = sources.collect();
        kept.extend(sources);
        let before = self.snapshots.len();
        self.snapshots.retain(|id, _| kept.contains(id));
        self.touch();
        self.snapshots.len() < before
    }
}
