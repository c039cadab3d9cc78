//! What a commit says beside its files: the extension points before and after it, and the watermark as their first user.
//!
//! Before: each attempt asks every [`CommitProcessor`] anew, on the base of that attempt, for summary keys and table
//! properties. That part does no I/O: an attempt may fail and come again on another base. After: once the commit is known to be
//! on the table, processors that want it are told, at least once; the last commit that each has handled stands in a table
//! property and is written with the next commit, so that a crash in between only means to be told again.
//!
//! A processor that fails afterwards never stops ingestion.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use iceberg::table::Table;
use uuid::Uuid;

use super::ingest::SealedBatch;
use crate::watermark::{
    Advanced, Contribution, Misfit, Policy, State, System, advance, contract, foreign,
};

/// Prefix of the property that names the last commit a processor has handled.
pub(super) const HANDLED: &str = "tidemark.handled.";

/// One attempt to commit.
#[derive(Clone, Copy)]
pub struct Attempt<'a> {
    /// The table that the commit will land on, or fail.
    pub base: &'a Table,
    /// The state on it.
    pub state: &'a State,
    /// What is committed; `None`: a commit without data.
    pub batch: Option<&'a SealedBatch>,
    /// What the worker brings to the claim.
    pub contribution: &'a Contribution,
}

/// What a commit will write beside its files.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Summary keys of the snapshot.
    pub summary: BTreeMap<String, String>,
    /// Table properties to set.
    pub set_properties: BTreeMap<String, String>,
    /// Table properties to remove.
    pub remove_properties: Vec<String>,
    /// The state after the commit, once the watermark is worked out.
    pub advanced: Option<Advanced>,
}

/// A commit that is on the table.
#[derive(Clone, Debug)]
pub struct Committed {
    /// Its id.
    pub commit_id: Uuid,
    /// The table's name.
    pub table: String,
    /// The table's location.
    pub location: String,
    /// The summary of its snapshot.
    pub summary: BTreeMap<String, String>,
}

/// Takes part in every commit.
#[async_trait]
pub trait CommitProcessor: Send + Sync {
    /// Its name, in lower case with hyphens: part of a table property.
    fn name(&self) -> &'static str;

    /// Adds to the plan of an attempt. Pure: called on each attempt, with another base each time.
    ///
    /// # Errors
    /// The attempt must not be made: the news do not fit the base.
    fn before(&self, attempt: &Attempt<'_>, plan: &mut Plan) -> Result<(), Misfit>;

    /// Whether it wants to be told of commits.
    fn wants_after(&self) -> bool {
        false
    }

    /// Told of a commit, at least once, oldest first.
    ///
    /// # Errors
    /// It could not be handled; it is told again with the next commit.
    async fn after(
        &self,
        _committed: &Committed,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
}

/// The watermark: statistics and answers in, claim and state out.
pub(super) struct Finalization {
    policy: Policy,
}

impl Finalization {
    /// Under this policy.
    #[must_use]
    pub(super) fn new(policy: Policy) -> Self {
        Self { policy }
    }
}

#[async_trait]
impl CommitProcessor for Finalization {
    fn name(&self) -> &'static str {
        "finalization"
    }

    fn before(&self, attempt: &Attempt<'_>, plan: &mut Plan) -> Result<(), Misfit> {
        let advanced = advance(attempt.state, &self.policy, attempt.contribution)?;
        publish(advanced, attempt.contribution, plan);
        Ok(())
    }
}

/// Adds to the plan what the watermark writes.
pub(crate) fn publish(advanced: Advanced, contribution: &Contribution, plan: &mut Plan) {
    plan.summary
        .extend(contract::summary(&advanced, contribution));
    let properties = contract::properties(&advanced);
    plan.set_properties.extend(properties.set);
    plan.remove_properties.extend(properties.remove);
    plan.advanced = Some(advanced);
}

/// The claim in the words of other systems, where its owner wants that. After the watermark.
pub(super) struct ForeignWords<'a> {
    /// Whose; `None`: in those that the table is written in.
    pub(super) systems: Option<&'a BTreeSet<System>>,
}

#[async_trait]
impl CommitProcessor for ForeignWords<'_> {
    fn name(&self) -> &'static str {
        "foreign-words"
    }

    fn before(&self, attempt: &Attempt<'_>, plan: &mut Plan) -> Result<(), Misfit> {
        let Some(Advanced { state, claim, .. }) = &plan.advanced else {
            return Ok(());
        };
        let properties = attempt.base.metadata().properties();
        let written = properties.get(foreign::ALSO_WRITTEN).map(String::as_str);
        let told = foreign::told_to(written);
        let words = foreign::words(
            claim,
            &state.bounds(),
            &state.identity.writer,
            self.systems.unwrap_or(&told),
            written,
        );
        plan.summary.extend(words.summary);
        plan.set_properties.extend(words.properties.set);
        plan.remove_properties.extend(words.properties.remove);
        Ok(())
    }
}

/// Asks all processors for their part, ours first.
///
/// # Errors
/// One of them refuses the attempt.
pub(super) fn plan(
    processors: &[&dyn CommitProcessor],
    attempt: &Attempt<'_>,
) -> Result<Plan, Misfit> {
    let mut plan = Plan::default();
    if let Some(batch) = attempt.batch {
        plan.summary.extend(batch.summary.clone());
    }
    for processor in processors {
        processor.before(attempt, &mut plan)?;
    }
    Ok(plan)
}
