//! How a session comes to its table, its source and its first offsets.
//!
//! Nothing is read before every partition has an offset on the table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use iceberg::Catalog;
use iceberg::table::Table;
use tokio::sync::Mutex;
use uuid::Uuid;

use super::Session;
use super::errands::note_step;
use crate::api::worker::{CatalogKind, OnGap, RunState};
use crate::cdc::Rows;
use crate::kafka::{
    DeadLetters, Inquirer, Mode, Settings, Source, StartFrom, TopicInfo, TopicPartition,
};
use crate::lake::maintain::Maintainer;
use crate::lake::raw::{self, RawCommitter};
use crate::lake::storage::Lister;
use crate::lake::writer::{TableWriter, WriterSettings};
use crate::lake::{self, catalog, table};
use crate::process::clock::{JUMP_TOLERANCE, JumpWatch};
use crate::sink::buffer::Cadence;
use crate::sink::commit::{Outcome, TableSide};
use crate::sink::errand::Errand;
use crate::sink::heartbeat::SourceHeartbeat;
use crate::sink::identity::{self, Seen};
use crate::sink::ingest::{Ingest, Parts, ROWS_A_FLUSH};
use crate::sink::load::Loaded;
use crate::sink::pipeline::Context;
use crate::sink::question::{PATIENCE, anchors, asked_partitions, known, partitions};
use crate::sink::standing::Leave;
use crate::sink::{Error, open};
use crate::watermark::{self, Anchor, Identity, Origin, Policy, State, keep_offsets};

/// How long a partition may be missing in the answers, at most, until it counts as gone.
const GONE_AFTER: Duration = Duration::from_mins(1);

impl<'c> Session<'c> {
    /// Opens table and source, and commits the anchors of partitions that the table does not know.
    ///
    /// # Errors
    /// Something is missing, or is not what it was.
    pub(in crate::sink) fn open(context: &'c Context) -> Result<Self, Error> {
        let runtime = context.runtime.clone();
        // Before they are read: what changes meanwhile is seen as a change.
        let secrets = (context.session_secrets(), context.clock.monotonic());
        let settings = open::kafka_settings(&context.spec, &context.worker)?;
        let inquirer = Arc::new(Inquirer::create(&settings)?);
        let opened = runtime.block_on(open_table(context, &inquirer))?;
        let (side, table) = (Arc::new(opened.side), opened.table);
        let state = settle_start(context, &side, &inquirer, opened.loaded)?;
        let (schema, decoder) = open::decoder(&context.spec, &table)?;
        let dead_letters = context.spec.source.dead_letter.as_ref();
        let dead_letters = dead_letters
            .map(|topic| DeadLetters::create(&settings, topic))
            .transpose()?;
        let ingest = Ingest::new(Parts {
            decoder,
            rows: Rows::new(&schema, ROWS_A_FLUSH),
            writer: TableWriter::new(&table, WriterSettings::default(), runtime.clone())?,
            dead_letters,
            accumulators: context.accumulators.clone(),
            policy: side.policy.clone(),
            claim_us: state.published.finalized_before_us,
            creates_only: open::creates_only(&context.spec),
            budget: context.budget,
        });
        let mode = if context.spec.worker.replicas > 1 {
            Mode::Group
        } else {
            Mode::Assign
        };
        let heartbeat = open_heartbeat(context, &settings, &inquirer)?;
        let source = Source::create(&settings, mode, known(&state).len())?;
        let seed = seed(&context.worker, &context.spec.uid);
        let mut cadence = Cadence::new(
            open::commit_interval(&context.spec),
            context.spec.worker.replicas,
            seed,
        );
        let now = context.clock.monotonic();
        cadence.start(now);
        let (raw, files) = (opened.raw, opened.files);
        let maintainer = open::maintain_settings(&context.spec).map(|settings| {
            let maintainer = Maintainer::new(settings, Some(raw)).with_lister(files);
            Arc::new(Mutex::new(maintainer))
        });
        let mut session = Self {
            context,
            side,
            state,
            inquirer,
            heartbeat,
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
            secrets,
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
        self.show();
        context.enter(RunState::Running);
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

/// What hears whether the source is alive, where the specification says how.
fn open_heartbeat(
    context: &Context,
    settings: &Settings,
    inquirer: &Arc<Inquirer>,
) -> Result<Option<Arc<std::sync::Mutex<SourceHeartbeat>>>, Error> {
    let heartbeat = context.spec.source.heartbeat.as_ref();
    let opened = heartbeat.map(|heartbeat| SourceHeartbeat::create(settings, inquirer, heartbeat));
    Ok(opened
        .transpose()?
        .map(|opened| Arc::new(std::sync::Mutex::new(opened))))
}

struct Opened {
    side: TableSide,
    table: Table,
    loaded: Loaded,
    raw: Arc<dyn RawCommitter>,
    files: Lister,
}

/// Opens the table and reads its state.
async fn open_table(context: &Context, inquirer: &Arc<Inquirer>) -> Result<Opened, Error> {
    let spec = &context.spec;
    let settings = open::catalog_settings(&spec.sink.catalog)?;
    let raw = raw::open_raw(&settings).await?;
    let (catalog, files) = catalog::open_with_files(&settings).await?;
    let mut side = table_side(context, catalog, &raw)?;
    // Its history first: a table that is not ours to go on from may have any columns.
    match side.load().await {
        // One that was there and is gone is not made again: what it held would be read again without a word.
        Err(Error::Lake(lake::Error::NoSuchTable { table })) => {
            context.memory.allow_new(&table)?;
        }
        loaded => drop(loaded?),
    }
    let wanted = open::table_spec(spec);
    let opened = table::open_or_create(&*side.catalog, &side.ident, &wanted).await?;
    if opened.created {
        tracing::info!(table = %side.ident, "table created");
    }
    for column in &opened.added {
        tracing::info!(table = %side.ident, column, "column added");
    }
    let asked = Arc::clone(inquirer);
    let cluster_id = tokio::task::spawn_blocking(move || asked.cluster_id(PATIENCE))
        .await
        .map_err(|_| Error::Stopping)??;
    side.identity.cluster_id = cluster_id;
    side.identity.table_uuid = opened.table.metadata().uuid();
    side.spec_id = opened.table.metadata().default_partition_spec_id();
    let loaded = side.load().await?;
    // Beside other writers the properties are of whoever committed last.
    if loaded.differs && loaded.state.peers.is_empty() {
        tracing::warn!(table = %side.ident, commit_id = %loaded.state.commit_id, "the properties claim something else than the newest commit; the next one rewrites them");
    }
    let table_policy: Option<&Policy> = (!loaded.state.is_new()).then_some(&loaded.state.policy);
    side.policy.revision = side.memory.revision(&side.policy, table_policy);
    Ok(Opened {
        side,
        table: opened.table,
        loaded,
        raw,
        files,
    })
}

/// What is needed to load the table, and, once table and cluster are known, to commit to it.
fn table_side(
    context: &Context,
    catalog: Arc<dyn Catalog>,
    raw: &Arc<dyn RawCommitter>,
) -> Result<TableSide, Error> {
    let spec = &context.spec;
    let by_hand = (spec.sink.catalog.kind == CatalogKind::Sql).then(|| Arc::clone(raw));
    Ok(TableSide {
        catalog,
        by_hand,
        ident: open::table_ident(spec)?,
        identity: Identity {
            writer: spec.writer_id.clone(),
            cluster_id: String::new(),
            installation: context.installation.clone(),
            table_uuid: Uuid::nil(),
            table_ref: "main".to_owned(),
        },
        spec_id: 0,
        subscription: open::subscription(spec),
        accept: spec.sink.accept.clone(),
        leave: Leave {
            shared: spec.sink.shared,
            orders: false,
        },
        accept_cluster: spec.source.accept.cluster_id.clone(),
        on_rollback: spec.sink.on_rollback,
        memory: Arc::clone(&context.memory),
        policy: open::policy(spec)?,
        also_write: Some(
            spec.sink
                .also_write
                .iter()
                .map(|also| (*also).into())
                .collect(),
        ),
        processors: context.processors.clone(),
        worker: context.worker.clone(),
        clock: context.clock.clone(),
        metrics: context.metrics.clone(),
        handled: std::sync::Mutex::default(),
        telling: Mutex::default(),
    })
}

/// Compares the cluster with the table, and commits what has to be on the table before anything is read: anchors of partitions that
/// it does not know, and the step of the epoch after a roll-back. Waits for both.
pub(super) fn settle_start(
    context: &Context,
    side: &TableSide,
    inquirer: &Inquirer,
    loaded: Loaded,
) -> Result<State, Error> {
    context.beat();
    let Some(errand) = start(context, side, inquirer, &loaded)? else {
        return Ok(loaded.state);
    };
    let state = carry_out(context, side, &errand, &loaded)?;
    if loaded.state.is_new() && !retired(context, &state).is_empty() {
        // What nobody reads any more can leave now that the table knows it.
        let loaded = context.runtime.block_on(side.load())?;
        return settle_start(context, side, inquirer, loaded);
    }
    Ok(state)
}

/// What has to be on the table before anything is read; `None`: nothing.
fn start(
    context: &Context,
    side: &TableSide,
    inquirer: &Inquirer,
    loaded: &Loaded,
) -> Result<Option<Errand>, Error> {
    let spec = &context.spec;
    let (state, kept) = (&loaded.state, loaded.kept.as_deref());
    let at_us = context.clock.now_us();
    let topics = inquirer.topics(&open::topics(spec), PATIENCE)?;
    // Reading goes on at these offsets, whichever commit they are of.
    let reached = kept.unwrap_or(state);
    let seen = Seen {
        cluster_id: Some(&side.identity.cluster_id),
        topics: &topics,
        accept: &spec.source.accept.topic_ids,
        gone: &gone(context, reached, &topics),
    };
    identity::check(reached, &seen, context)?;
    identity::check_left(state, &topics, &side.subscription, seen.accept)?;
    let mut jumps = identity::jumps(reached, inquirer, &seen, context)?;
    let mut anchors = Vec::new();
    if let Some(kept) = kept {
        let names = |topic: &str| context.names.contains(topic);
        (jumps, anchors) = keep_offsets((state, kept), jumps, names, context.clock.now_us());
    }
    let mut known = known(state);
    known.extend(
        anchors
            .iter()
            .map(|anchor| TopicPartition::new(anchor.topic.as_str(), anchor.partition)),
    );
    let mut unknown = partitions(&topics);
    unknown.retain(|at| !known.contains(at));
    anchors.append(&mut first_offsets(
        context, inquirer, loaded, &topics, unknown,
    )?);
    let retired = retired(context, state);
    let nothing = anchors.is_empty() && jumps.is_empty() && retired.is_empty();
    if nothing && !loaded.is_for_opening() {
        return Ok(None);
    }
    Ok(Some(Errand {
        anchors,
        jumps,
        derived_from: Some(state.commit_id),
        retired,
        asked: Some(asked_partitions(&topics, at_us)),
        opening: loaded.opening,
        ..Errand::default()
    }))
}

/// Where reading begins in partitions that the table does not have: where they left it, or else at their first offset.
fn first_offsets(
    context: &Context,
    inquirer: &Inquirer,
    loaded: &Loaded,
    topics: &[TopicInfo],
    unknown: Vec<TopicPartition>,
) -> Result<Vec<Anchor>, Error> {
    let (spec, state) = (&context.spec, &loaded.state);
    let (back, unknown): (Vec<_>, Vec<_>) = unknown.into_iter().partition(|at| {
        let id = identity::topic_id(topics, &at.topic);
        let left = state.left.next_offset(&at.topic, id, at.partition);
        left.is_some()
    });
    let start_from = if state.is_new() && loaded.kept.is_none() {
        open::start_from(spec)
    } else {
        StartFrom::Earliest
    };
    let mut anchors = anchors(inquirer, topics, &unknown, start_from, &context.clock)?;
    let accept = &spec.source.accept.topic_ids;
    for anchor in &mut anchors {
        // A table that begins has nothing of a topic that may be another by now.
        let known = !state.is_new() || state.left.topics().contains_key(&anchor.topic);
        if known && anchor.topic_id.is_some_and(|id| accept.contains(&id)) {
            anchor.origin = Origin::Anew;
        }
    }
    anchors.append(&mut identity::returns(
        state, &back, topics, inquirer, context,
    )?);
    Ok(anchors)
}

fn carry_out(
    context: &Context,
    side: &TableSide,
    errand: &Errand,
    loaded: &Loaded,
) -> Result<State, Error> {
    let stepped = loaded.is_for_opening();
    let epoch = loaded.state.published.epoch - u64::from(stepped);
    let outcome = context
        .runtime
        .block_on(side.settle(errand, &context.stop, &|error| {
            // An outage is waited out here, however long.
            context.beat();
            context.status.fail(error, context.clock.now_us());
        }))?;
    match outcome {
        Outcome::Committed(success) => {
            side.memory.see(watermark::Seen::of(&success.state));
            note_step(context, epoch, &success.state.published);
            Ok(success.state)
        }
        Outcome::Looked(_) => Ok(context.runtime.block_on(side.load())?.state),
    }
}

/// Partitions that are gone for good, where the specification goes on without them: missing for three commit intervals.
fn gone(context: &Context, state: &State, topics: &[TopicInfo]) -> Vec<TopicPartition> {
    let spec = &context.spec;
    let missing = identity::missing(state, topics, &context.names);
    let patience = (3 * open::commit_interval(spec)).min(GONE_AFTER);
    let now = context.clock.monotonic();
    let gone = context.memory.are_gone(&missing, now, patience);
    if gone && spec.source.on_gap == OnGap::Continue {
        missing
    } else {
        Vec::new()
    }
}

/// The topics that the table or its last answer has, and the specification no longer names.
fn retired(context: &Context, state: &State) -> Vec<String> {
    let asked = state.asked.iter().flat_map(|asked| asked.topics.keys());
    let there: BTreeSet<&String> = state.topics.keys().chain(asked).collect();
    let mut gone = there.into_iter().collect::<Vec<_>>();
    gone.retain(|name| !context.names.contains(name));
    gone.into_iter().cloned().collect()
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
