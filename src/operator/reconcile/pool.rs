//! The task of a pool: who shares its pods, which pods there are for them, and what is said of each.

use std::{collections::BTreeMap, sync::Arc};

use super::{Reconciler, SOON, children::Carried, worse};
use crate::operator::{
    Key, Owner, PoolKey, Task,
    build::Workers,
    plan::{Sharer, shared, uid_of},
    queue::Outcome,
};

impl Reconciler {
    pub(super) async fn pool(&self, task: &Task, pool: &PoolKey) -> Outcome {
        let owner = Owner::Pool(pool.clone());
        let Some(sharers) = self.sharers(pool, &owner) else {
            return Outcome::Again(SOON);
        };
        let sets = shared(pool, &sharers, &self.fleet.settings.capacity);
        let (mut worst, mut held) = (Outcome::Done, None);
        for workers in &sets {
            let carried = self.carry_out(task, workers).await;
            held = held.or_else(|| carried.held.clone());
            for (uid, member) in &workers.members {
                self.report_member(
                    &Key::new(&pool.namespace, &member.name),
                    uid,
                    (workers, &carried),
                );
            }
            worst = worse(worst, carried.outcome);
        }
        self.wait(task, held);
        let kept: Vec<Key> = sets.into_iter().map(|workers| workers.key).collect();
        worse(worst, self.delete_workers(&owner, &kept).await)
    }

    /// Who shares a pool, with what; `None` while a decision is missing: a member must not be dropped for that.
    fn sharers(&self, pool: &PoolKey, owner: &Owner) -> Option<BTreeMap<String, Sharer>> {
        let state = self.fleet.lock();
        let with = |uid: &str| {
            let mut present = state.index.workers_of(owner);
            present.find_map(|(key, workers)| {
                let entry = workers.entries.get(uid)?;
                Some((key.name.clone(), Arc::clone(entry)))
            })
        };
        let mut sharers = BTreeMap::new();
        for (key, uid, decided) in state.index.pool_members(pool) {
            let (_, entry) = decided?.shared.clone()?;
            let with = with(&uid).map(|(name, _)| name);
            sharers.insert(
                uid,
                Sharer {
                    name: key.name,
                    entry,
                    with,
                },
            );
        }
        // One that has left stays until its new workers have it.
        for (key, pipeline) in state.index.pipelines_of(&pool.namespace) {
            let uid = pipeline.uid.clone();
            let Some((name, entry)) = with(&uid).filter(|_| !sharers.contains_key(&uid)) else {
                continue;
            };
            let mut all = state.index.all_workers_of(&pool.namespace);
            let moved = all.any(|(_, workers)| {
                workers.owner.as_ref() != Some(owner) && workers.entries.contains(&uid)
            });
            if !moved {
                sharers.insert(
                    uid,
                    Sharer {
                        name: key.name.clone(),
                        entry,
                        with: Some(name),
                    },
                );
            }
        }
        Some(sharers)
    }

    /// The report of a pipeline that shares its workers: what was decided about it, and what came of them. Of one that has changed
    /// since, the decision comes first, and the pool after it again.
    fn report_member(&self, key: &Key, uid: &str, (workers, carried): (&Workers, &Carried)) {
        let (pipeline, decided) = {
            let state = self.fleet.lock();
            (state.index.pipeline(key), state.index.decided(key))
        };
        let (Some(pipeline), Some(decided)) = (pipeline, decided) else {
            return;
        };
        let current = pipeline.metadata.generation.unwrap_or_default() == decided.generation;
        let Some(plan) = decided
            .plan
            .as_ref()
            .filter(|_| current && uid_of(&pipeline) == uid)
        else {
            return;
        };
        self.report(key, &pipeline, plan, (Some(&workers.key), Some(carried)));
    }
}
