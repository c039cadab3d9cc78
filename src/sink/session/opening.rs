//! How a session comes to its table, its source and its first offsets.
//!
//! Nothing is read before every partition has an offset on the table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use iceberg::table::Table;
use tokio::sync::Mutex;

use super::Session;
use super::errands::note_step;
use crate::api::worker::{CatalogKind, EventTime, RunState};
use crate::cdc::Rows;
use crate::kafka::{DeadLetters, Inquirer, Mode, Source, StartFrom, TopicPartition};
use crate::lake::maintain::Maintainer;
use crate::lake::raw::{self, RawCommitter};
use crate::lake::writer::{TableWriter, WriterSettings};
use crate::lake::{catalog, table};
use crate::process::clock::{JUMP_TOLERANCE, JumpWatch};
use crate::sink::buffer::Cadence;
use crate::sink::commit::{Outcome, TableSide};
use crate::sink::errand::Errand;
use crate::sink::identity::{self, Seen};
use crate::sink::ingest::{Ingest, Parts, ROWS_A_FLUSH};
use crate::sink::pipeline::Context;
use crate::sink::question::{PATIENCE, anchors, asked_partitions, known, partitions};
use crate::sink::{Error, of_lake, open};
use crate::watermark::{Identity, Policy, State};

impl<'c> Session<'c> {
    /// Opens table and source, and commits the anchors of partitions that the table does not know.
    ///
    /// # Errors
    /// Something is missing, or is not what it was.
    pub(in crate::sink) fn open(context: &'c Context) -> Result<Self, Error> {
        let runtime = context.runtime.clone();
        let settings = open::kafka_settings(&context.spec, &context.worker);
        let inquirer = Arc::new(Inquirer::create(&settings)?);
        let opened = runtime.block_on(open_table(context, &inquirer))?;
        let (side, table, mut state) = (Arc::new(opened.side), opened.table, opened.state);
        state = settle_start(context, &side, &inquirer, state)?;
        let (schema, decoder) = open::decoder(&context.spec, &table)?;
        let dead_letters = context.spec.source.dead_letter.as_ref();
        let dead_letters = dead_letters
            .map(|topic| DeadLetters::create(&settings, topic))
            .transpose()?;
        let creates_only = matches!(
            context.spec.event_time,
            EventTime::Column {
                creates_only: true,
                ..
            }
        );
        let ingest = Ingest::new(Parts {
            decoder,
            rows: Rows::new(&schema, ROWS_A_FLUSH),
            writer: TableWriter::new(&table, WriterSettings::default(), runtime.clone())?,
            dead_letters,
            accumulators: context.accumulators.clone(),
            policy: side.policy.clone(),
            claim_us: state.published.finalized_before_us,
            creates_only,
            budget: context.budget,
        });
        let mode = if context.spec.worker.replicas > 1 {
            Mode::Group
        } else {
            Mode::Assign
        };
        let source = Source::create(&settings, mode, known(&state).len())?;
        let seed = seed(&context.worker, &context.spec.uid);
        let mut cadence = Cadence::new(
            open::commit_interval(&context.spec),
            context.spec.worker.replicas,
            seed,
        );
        let now = context.clock.monotonic();
        cadence.start(now);
        let maintainer = open::maintain_settings(&context.spec)
            .map(|settings| Arc::new(Mutex::new(Maintainer::new(settings, Some(opened.raw)))));
        let mut session = Self {
            context,
            side,
            state,
            inquirer,
            source,
            ingest,
            cadence,
            maintainer,
            asking: None,
            answer: None,
            under_way: None,
            watch: JumpWatch::new(JUMP_TOLERANCE * context.clock.factor()),
            ends: BTreeMap::new(),
            subscribed: Vec::new(),
            resting: false,
            poisoned: false,
            committed: false,
            limit: context.abandon.child_token(),
        };
        session.start_reading(&table)?;
        Ok(session)
    }

    fn start_reading(&mut self, table: &Table) -> Result<(), Error> {
        let context = self.context;
        match self.source.mode() {
            Mode::Assign => {
                let all: Vec<TopicPartition> = self.wanted().into_iter().collect();
                self.take_over(&all)?;
            }
            Mode::Group => {
                self.subscribe()?;
            }
        }
        context.status.enter(RunState::Running);
        self.show();
        tracing::info!(
            pipeline = %context.spec.id(), table = %context.spec.sink.table, partitions = known(&self.state).len(),
            policy_revision = self.side.policy.revision, "reading",
        );
        let (side, table) = (Arc::clone(&self.side), table.clone());
        context
            .runtime
            .spawn(async move { side.tell_processors(&table).await });
        Ok(())
    }
}

struct Opened {
    side: TableSide,
    table: Table,
    state: State,
    raw: Arc<dyn RawCommitter>,
}

/// Opens the table and reads its state.
async fn open_table(context: &Context, inquirer: &Arc<Inquirer>) -> Result<Opened, Error> {
    let spec = &context.spec;
    let settings = open::catalog_settings(&spec.sink.catalog)?;
    let catalog = catalog::open(&settings).await?;
    let raw = raw::open_raw(&settings).await?;
    let ident = open::table_ident(spec)?;
    let opened = table::open_or_create(&*catalog, &ident, &open::table_spec(spec)).await?;
    if opened.created {
        tracing::info!(table = %ident, "table created");
    }
    for column in &opened.added {
        tracing::info!(table = %ident, column, "column added");
    }
    let asked = Arc::clone(inquirer);
    let cluster_id = tokio::task::spawn_blocking(move || asked.cluster_id(PATIENCE))
        .await
        .map_err(|_| Error::Stopping)??;
    let by_hand = (spec.sink.catalog.kind == CatalogKind::Sql).then(|| Arc::clone(&raw));
    let mut side = TableSide {
        catalog,
        by_hand,
        ident,
        identity: Identity {
            writer: spec.writer_id.clone(),
            cluster_id,
            installation: context.installation.clone(),
            table_uuid: opened.table.metadata().uuid(),
            table_ref: "main".to_owned(),
        },
        spec_id: opened.table.metadata().default_partition_spec_id(),
        subscription: open::subscription(spec),
        accept: spec.sink.accept.clone(),
        accept_cluster: spec.source.accept.cluster_id.clone(),
        policy: open::policy(spec)?,
        processors: context.processors.clone(),
        worker: context.worker.clone(),
        clock: context.clock.clone(),
        metrics: context.metrics.clone(),
        handled: std::sync::Mutex::default(),
        telling: Mutex::default(),
    };
    let loaded = side.load().await?;
    let table_policy: Option<&Policy> = (!loaded.state.is_new()).then_some(&loaded.state.policy);
    side.policy.revision = side.policy.revision_on(table_policy);
    Ok(Opened {
        side,
        table: opened.table,
        state: loaded.state,
        raw,
    })
}

/// Compares the cluster with the table, and commits the anchors of partitions that the table does not know. Waits for both.
pub(super) fn settle_start(
    context: &Context,
    side: &TableSide,
    inquirer: &Inquirer,
    state: State,
) -> Result<State, Error> {
    context.beat();
    let spec = &context.spec;
    let at_us = context.clock.now_us();
    let topics = inquirer.topics(&open::topics(spec), PATIENCE)?;
    let seen = Seen {
        cluster_id: Some(&side.identity.cluster_id),
        topics: &topics,
        accept: &spec.source.accept.topic_ids,
    };
    identity::check(&state, &seen, spec)?;
    let known = known(&state);
    let truncated = std::mem::take(
        &mut *context
            .truncated
            .lock()
            .unwrap_or_else(PoisonError::into_inner),
    );
    let jumps = identity::jumps(&state, inquirer, spec, &context.clock, &truncated)?;
    let asked = state.asked.iter().flat_map(|asked| asked.topics.keys());
    let retired: BTreeSet<&String> = state
        .topics
        .keys()
        .chain(asked)
        .filter(|name| !identity::names(spec, name))
        .collect();
    let retired: Vec<String> = retired.into_iter().cloned().collect();
    let unknown: Vec<TopicPartition> = partitions(&topics)
        .into_iter()
        .filter(|at| !known.contains(at))
        .collect();
    if unknown.is_empty() && jumps.is_empty() && retired.is_empty() && !state.is_new() {
        return Ok(state);
    }
    let start_from = if state.is_new() {
        open::start_from(spec)
    } else {
        StartFrom::Earliest
    };
    let errand = Errand {
        anchors: anchors(inquirer, &topics, &unknown, start_from, &context.clock)?,
        jumps,
        retired,
        asked: Some(asked_partitions(&topics, at_us)),
        ..Errand::default()
    };
    let epoch = state.published.epoch;
    let outcome = context
        .runtime
        .block_on(side.settle(&errand, &context.stop, &|error| {
            // An outage is waited out here, however long.
            context.beat();
            context
                .status
                .fail(of_lake(error), error.to_string(), context.clock.now_us());
        }))?;
    match outcome {
        Outcome::Committed(success) => {
            note_step(context, epoch, &success.state.published);
            Ok(success.state)
        }
        Outcome::Looked(_) => Ok(context.runtime.block_on(side.load())?.state),
    }
}

/// Spreads workers over the interval: the same worker has the same place.
fn seed(worker: &str, uid: &str) -> u64 {
    use sha2::Digest as _;
    let digest = sha2::Sha256::new()
        .chain_update(worker)
        .chain_update(uid)
        .finalize();
    u64::from_be_bytes(digest[..8].try_into().expect("the digest has 32 bytes"))
}
