//! State and records as text: a version byte and a checked zstd frame of varints, in base64.
//!
//! Times are whole seconds against the commit's, so that a partition with a window of three takes about 40 bytes before
//! compression. The layout of a version never changes; a newer version than this release knows is an error of its own, since
//! a worker that overwrote it would lose what it does not understand.
//!
//! Decoding survives any text. What is damaged is said to be so, never half read.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;

use super::advance::Misfit;
use super::amended::{Amended, AmendedCell, LateData, MAX_AMENDED};
use super::epoch::{Reopened, StepCause};
use super::event_time::{Bounds, SECOND_US};
use super::frontier::{
    FromRule, Heartbeats, MAX_WINDOW, NewestChange, OnJoin, OpenGap, PartitionState,
    PartitionStats, Policy, Quantile, Term, TopicState, Window, WindowEntry,
};
use super::gaps::{Gaps, MAX_GAPS};
use super::grid::Grid;
use super::order::{MAX_RETRACTED, Retracted};
use super::source_position::{Incarnation, MAX_INCARNATIONS, SourcePositions};
use super::state::{
    AskedPartitions, CompleteFrom, Identity, PartitionRecord, Published, Record, State,
};
use super::varint::{Reader, put, put_signed, put_text};

/// The most characters an encoded state takes.
pub const MAX_STATE: usize = 64 * 1024;

const VERSION: u8 = 1;
/// What the claim and full lists of gaps, amended cells and retractions may add after the fit.
const PUBLISHED: usize = 5120;
const LEVEL: i32 = 3;
/// No honest state unpacks to more: 1,000 partitions with full windows and positions take 2 MiB.
const MAX_UNPACKED: u64 = 16 * 1024 * 1024;

/// Text that is no state or record this release can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
pub enum Unreadable {
    /// Written by a newer release: hold, and upgrade the worker.
    #[error("written in version {version}, this release reads {VERSION}: upgrade before going on")]
    Newer {
        /// The version found.
        version: u8,
    },
    /// It names a term that this release does not know: hold, and upgrade the worker.
    #[error("it names term {byte}, which this release does not know: upgrade before going on")]
    Term {
        /// The byte of the term.
        byte: u8,
    },
    /// Cut off, overwritten or made by something else.
    #[error("it is damaged")]
    Damaged,
}

/// How much of a record goes into a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Everything.
    Full,
    /// The ladder is the least event time: always below the rungs.
    NoLadder,
}

impl State {
    /// The state as the property's value.
    ///
    /// # Errors
    /// When it does not fit [`MAX_STATE`]; a state from [`super::advance()`] does.
    pub fn encode(&self) -> Result<String, Misfit> {
        let text = pack(&self.to_bytes());
        if text.len() <= MAX_STATE {
            return Ok(text);
        }
        Err(Misfit::TooBig {
            partitions: self.partitions().count(),
            bytes: text.len(),
            limit: MAX_STATE,
        })
    }

    /// Reads a property's value.
    ///
    /// # Errors
    /// When it is none, or one that this release does not know.
    pub fn decode(text: &str) -> Result<State, Unreadable> {
        let bytes = unpack(text)?;
        let mut reader = Reader::new(&bytes);
        let state = read_state(&mut reader)?;
        if reader.is_done() {
            Ok(state)
        } else {
            Err(Unreadable::Damaged)
        }
    }

    /// Makes the state fit its property: windows are coarsened, then forgotten, then source positions; what is forgotten
    /// holds or counts as news. Leaves room for what is published.
    pub(super) fn fit(&mut self) -> Result<(), Misfit> {
        for window in [MAX_WINDOW / 4, MAX_WINDOW / 8, 4, 3, 2, 0] {
            if self.fits() {
                return Ok(());
            }
            let (policy, now_us) = (self.policy.clone(), self.committed_at_us);
            self.for_each(|partition| partition.window.prune(&policy, now_us, window));
        }
        for positions in [4, 1, 0] {
            if self.fits() {
                return Ok(());
            }
            self.for_each(|partition| partition.positions.truncate(positions));
        }
        self.encode().map(|_| ())
    }

    fn fits(&self) -> bool {
        let bytes = self.to_bytes();
        let limit = MAX_STATE - PUBLISHED;
        // What fits as it is need not be packed to know it; a frame adds less than 64 bytes.
        (bytes.len() + 64).div_ceil(3) * 4 <= limit || pack(&bytes).len() <= limit
    }

    fn for_each(&mut self, change: impl Fn(&mut PartitionState)) {
        for topic in self.topics.values_mut() {
            topic.partitions.values_mut().for_each(&change);
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4096);
        let out = &mut bytes;
        let identity = &self.identity;
        let texts = [
            &identity.writer,
            &identity.cluster_id,
            &identity.installation,
            &identity.table_ref,
            &self.subscription,
        ];
        for text in texts {
            put_text(out, text);
        }
        out.extend_from_slice(identity.table_uuid.as_bytes());
        out.extend_from_slice(self.commit_id.as_bytes());
        let times = Times::against(self.committed_at_us);
        put_signed(out, self.committed_at_us.div_euclid(SECOND_US));
        times.put(out, self.anchored_at_us);
        put_policy(out, &self.policy);
        put_asked(out, times, self.asked.as_ref());
        put_change(out, self.newest_change);
        times.put_some(out, self.newest_heartbeat_us);
        put_published(out, times, &self.published);
        let sources = sources(
            self.partitions()
                .map(|(_, _, partition)| &partition.positions),
        );
        put_sources(out, &sources);
        put(out, self.topics.len() as u64);
        for (name, topic) in &self.topics {
            put_text(out, name);
            put_uuid(out, topic.id);
            put(out, topic.partitions.len() as u64);
            for (partition, state) in &topic.partitions {
                put_signed(out, i64::from(*partition));
                put_partition(out, times, &sources, state);
            }
        }
        bytes
    }
}

impl Published {
    /// What a writer publishes for itself, for a summary in which the table's claim is that of several.
    pub(super) fn encode(&self) -> String {
        let mut bytes = Vec::new();
        put_published(&mut bytes, Times::against(0), self);
        pack(&bytes)
    }

    /// Reads it back.
    pub(super) fn decode(text: &str) -> Result<Published, Unreadable> {
        let bytes = unpack(text)?;
        let mut reader = Reader::new(&bytes);
        let published = read_published(&mut reader, Times::against(0))?;
        if reader.is_done() {
            Ok(published)
        } else {
            Err(Unreadable::Damaged)
        }
    }
}

impl Record {
    /// The partitions of the record for a summary, without their source positions.
    pub(super) fn encode_partitions(&self, detail: Detail) -> String {
        let mut bytes = Vec::new();
        let out = &mut bytes;
        let times = Times::against(self.committed_at_us);
        put_signed(out, self.committed_at_us.div_euclid(SECOND_US));
        put_change(out, self.newest_change);
        times.put_some(out, self.newest_heartbeat_us);
        put(out, self.topic_ids.len() as u64);
        for (topic, id) in &self.topic_ids {
            put_text(out, topic);
            out.extend_from_slice(id.as_bytes());
        }
        put(out, self.partitions.len() as u64);
        for ((topic, partition), news) in &self.partitions {
            put_text(out, topic);
            put_signed(out, i64::from(*partition));
            put_news(out, times, news, detail);
        }
        pack(&bytes)
    }

    /// The source positions of the record for a summary; `None` when there are none.
    pub(super) fn encode_positions(&self) -> Option<String> {
        let known = self
            .partitions
            .iter()
            .filter_map(|(key, news)| Some((key, news.positions.as_ref()?)));
        let known: Vec<_> = known.collect();
        if known.is_empty() {
            return None;
        }
        let mut bytes = Vec::new();
        let out = &mut bytes;
        let sources = sources(known.iter().map(|(_, positions)| *positions));
        put_sources(out, &sources);
        put(out, known.len() as u64);
        for ((topic, partition), positions) in known {
            put_text(out, topic);
            put_signed(out, i64::from(*partition));
            put_positions(out, &sources, positions);
        }
        Some(pack(&bytes))
    }

    /// Fills the record's partitions from a summary.
    pub(super) fn decode_partitions(
        &mut self,
        text: &str,
        positions: Option<&str>,
    ) -> Result<(), Unreadable> {
        let bytes = unpack(text)?;
        read_news(&mut Reader::new(&bytes), self).ok_or(Unreadable::Damaged)?;
        if let Some(positions) = positions {
            let bytes = unpack(positions)?;
            read_all_positions(&mut Reader::new(&bytes), self).ok_or(Unreadable::Damaged)?;
        }
        Ok(())
    }
}

fn pack(bytes: &[u8]) -> String {
    let framed = frame(bytes).expect("writing into memory does not fail");
    STANDARD.encode(framed)
}

/// In one piece: the size is known, so the tables of the packer are small.
fn frame(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut packer = zstd::bulk::Compressor::new(LEVEL)?;
    packer.include_checksum(true)?;
    let mut framed = vec![VERSION];
    framed.append(&mut packer.compress(bytes)?);
    Ok(framed)
}

fn unpack(text: &str) -> Result<Vec<u8>, Unreadable> {
    let framed = STANDARD.decode(text).map_err(|_| Unreadable::Damaged)?;
    let (version, frame) = framed.split_first().ok_or(Unreadable::Damaged)?;
    if *version > VERSION {
        return Err(Unreadable::Newer { version: *version });
    }
    let size = zstd::zstd_safe::get_frame_content_size(frame)
        .ok()
        .flatten();
    let size = size.filter(|size| *size <= MAX_UNPACKED && *version == VERSION);
    let size = size
        .and_then(|size| usize::try_from(size).ok())
        .ok_or(Unreadable::Damaged)?;
    zstd::bulk::decompress(frame, size).map_err(|_| Unreadable::Damaged)
}

/// Times as seconds against that of the commit.
#[derive(Clone, Copy)]
struct Times {
    base: i64,
}

impl Times {
    fn against(base_us: i64) -> Self {
        Times {
            base: base_us.div_euclid(SECOND_US),
        }
    }

    fn put(self, out: &mut Vec<u8>, us: i64) {
        put_signed(out, us.div_euclid(SECOND_US).wrapping_sub(self.base));
    }

    fn put_some(self, out: &mut Vec<u8>, us: Option<i64>) {
        out.push(u8::from(us.is_some()));
        if let Some(us) = us {
            self.put(out, us);
        }
    }

    fn read(self, reader: &mut Reader<'_>) -> Option<i64> {
        reader
            .signed()?
            .checked_add(self.base)?
            .checked_mul(SECOND_US)
    }

    #[expect(
        clippy::option_option,
        reason = "the outer one says whether it could be read"
    )]
    fn read_some(self, reader: &mut Reader<'_>) -> Option<Option<i64>> {
        Some(if flag(reader)? {
            Some(self.read(reader)?)
        } else {
            None
        })
    }
}

fn flag(reader: &mut Reader<'_>) -> Option<bool> {
    match reader.byte()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn put_uuid(out: &mut Vec<u8>, id: Option<Uuid>) {
    out.push(u8::from(id.is_some()));
    if let Some(id) = id {
        out.extend_from_slice(id.as_bytes());
    }
}

fn read_uuid(reader: &mut Reader<'_>) -> Option<Uuid> {
    Uuid::from_slice(reader.take(16)?).ok()
}

fn put_terms(out: &mut Vec<u8>, terms: &BTreeSet<Term>) {
    put(out, terms.len() as u64);
    out.extend(terms.iter().map(|term| *term as u8));
}

fn read_terms(reader: &mut Reader<'_>) -> Result<BTreeSet<Term>, Unreadable> {
    let count = reader.count().ok_or(Unreadable::Damaged)?;
    let bytes = reader.take(count).ok_or(Unreadable::Damaged)?.iter();
    bytes
        .map(|byte| Term::from_byte(*byte).ok_or(Unreadable::Term { byte: *byte }))
        .collect()
}

fn put_policy(out: &mut Vec<u8>, policy: &Policy) {
    put(out, policy.revision);
    let bounds = &policy.bounds;
    let lengths = [
        policy.grid.cell_us(),
        bounds.allowed_lateness_us,
        bounds.max_delay_us,
        bounds.max_future_skew_us,
        bounds.max_age_us.unwrap_or(-1),
        policy.window_duration_us,
    ];
    for length in lengths {
        put_signed(out, length);
    }
    put_text(out, policy.grid.zone().unwrap_or_default());
    put(out, u64::from(policy.window_commits));
    put_terms(out, &policy.terms);
    out.push(policy.quantile.map_or(0, |rung| rung as u8 + 1));
    out.push(policy.heartbeats as u8);
    match policy.complete_from {
        FromRule::Derived => out.push(0),
        FromRule::Unbounded => out.push(1),
        FromRule::Instant(us) => {
            out.push(2);
            put_signed(out, us);
        }
    }
    out.push(policy.late_data as u8);
    out.push(policy.on_join as u8);
}

fn read_policy(reader: &mut Reader<'_>) -> Result<Policy, Unreadable> {
    let read = (|| {
        let revision = reader.varint()?;
        let cell_us = reader.signed()?;
        let bounds = Bounds {
            allowed_lateness_us: reader.signed()?,
            max_delay_us: reader.signed()?,
            max_future_skew_us: reader.signed()?,
            max_age_us: Some(reader.signed()?).filter(|us| *us >= 0),
        };
        let window_duration_us = reader.signed()?;
        let zone = Some(reader.text()?).filter(|name| !name.is_empty());
        let grid = Grid::in_zone(cell_us, zone).ok()?;
        let window_commits = u32::try_from(reader.varint()?).ok()?;
        Some((revision, grid, bounds, window_duration_us, window_commits))
    })();
    let (revision, grid, bounds, window_duration_us, window_commits) =
        read.ok_or(Unreadable::Damaged)?;
    let terms = read_terms(reader)?;
    let quantile = read_quantile(reader).ok_or(Unreadable::Damaged)?;
    let heartbeats = reader.byte().and_then(Heartbeats::from_repr);
    let heartbeats = heartbeats.ok_or(Unreadable::Damaged)?;
    let complete_from = match reader.byte() {
        Some(0) => FromRule::Derived,
        Some(1) => FromRule::Unbounded,
        Some(2) => FromRule::Instant(reader.signed().ok_or(Unreadable::Damaged)?),
        _ => return Err(Unreadable::Damaged),
    };
    let late_data = reader.byte().and_then(LateData::from_byte);
    let on_join = reader.byte().and_then(OnJoin::from_byte);
    Ok(Policy {
        revision,
        grid,
        bounds,
        window_commits,
        window_duration_us,
        terms,
        quantile,
        heartbeats,
        complete_from,
        late_data: late_data.ok_or(Unreadable::Damaged)?,
        on_join: on_join.ok_or(Unreadable::Damaged)?,
    })
}

#[expect(
    clippy::option_option,
    reason = "the outer one says whether it could be read"
)]
fn read_quantile(reader: &mut Reader<'_>) -> Option<Option<Quantile>> {
    match reader.byte()?.checked_sub(1) {
        None => Some(None),
        Some(rung) => Some(Some(Quantile::from_repr(rung)?)),
    }
}

fn put_asked(out: &mut Vec<u8>, times: Times, asked: Option<&AskedPartitions>) {
    out.push(u8::from(asked.is_some()));
    let Some(asked) = asked else { return };
    times.put(out, asked.at_us);
    put(out, asked.topics.len() as u64);
    for (topic, partitions) in &asked.topics {
        put_text(out, topic);
        put(out, partitions.len() as u64);
        let mut expected = 0_i64;
        for partition in partitions {
            // Zeros, as a rule: partitions are counted from 0 without holes.
            put_signed(out, i64::from(*partition) - expected);
            expected = i64::from(*partition) + 1;
        }
    }
}

#[expect(
    clippy::option_option,
    reason = "the outer one says whether it could be read"
)]
fn read_asked(reader: &mut Reader<'_>, times: Times) -> Option<Option<AskedPartitions>> {
    if !flag(reader)? {
        return Some(None);
    }
    let at_us = times.read(reader)?;
    let mut topics = BTreeMap::new();
    for _ in 0..reader.count()? {
        let topic = reader.text()?.to_owned();
        let (mut partitions, mut expected) = (BTreeSet::new(), 0_i64);
        for _ in 0..reader.count()? {
            let partition = i32::try_from(reader.signed()?.checked_add(expected)?).ok()?;
            partitions.insert(partition);
            expected = i64::from(partition) + 1;
        }
        topics.insert(topic, partitions);
    }
    Some(Some(AskedPartitions { at_us, topics }))
}

fn put_change(out: &mut Vec<u8>, change: Option<NewestChange>) {
    let Some(change) = change else {
        out.push(0);
        return;
    };
    out.push(if change.snapshot { 2 } else { 1 });
    put_signed(out, change.record_time_us.div_euclid(1000));
}

#[expect(
    clippy::option_option,
    reason = "the outer one says whether it could be read"
)]
fn read_change(reader: &mut Reader<'_>) -> Option<Option<NewestChange>> {
    let snapshot = match reader.byte()? {
        0 => return Some(None),
        1 => false,
        2 => true,
        _ => return None,
    };
    let record_time_us = reader.signed()?.checked_mul(1000)?;
    Some(Some(NewestChange {
        record_time_us,
        snapshot,
    }))
}

fn put_published(out: &mut Vec<u8>, times: Times, published: &Published) {
    put(out, published.epoch);
    times.put_some(out, published.finalized_before_us);
    times.put_some(
        out,
        match published.complete_from {
            CompleteFrom::Unbounded => None,
            CompleteFrom::From(us) => Some(us),
        },
    );
    put_terms(out, &published.evidence);
    let stretches = published.gaps.stretches();
    put(out, stretches.len() as u64);
    for (from_us, to_us) in stretches {
        times.put(out, *from_us);
        times.put(out, *to_us);
    }
    times.put_some(out, published.lost_before_us);
    put_reopened(out, times, published.reopened);
    put_amended(out, times, &published.amended);
    put(out, published.retracted.len() as u64);
    for retracted in &published.retracted {
        times.put(out, retracted.from_us);
        times.put(out, retracted.before_us);
        times.put(out, retracted.at_us);
        put_text(out, &retracted.reason);
    }
    out.push(u8::from(published.drained));
}

fn read_published(reader: &mut Reader<'_>, times: Times) -> Result<Published, Unreadable> {
    let damaged = Unreadable::Damaged;
    let epoch = reader.varint().ok_or(damaged)?;
    let finalized_before_us = times.read_some(reader).ok_or(damaged)?;
    let from = times.read_some(reader).ok_or(damaged)?;
    let evidence = read_terms(reader)?;
    let count = reader
        .count()
        .filter(|count| *count <= MAX_GAPS)
        .ok_or(damaged)?;
    let mut gaps = Gaps::default();
    for _ in 0..count {
        let from_us = times.read(reader).ok_or(damaged)?;
        gaps.add(from_us, times.read(reader).ok_or(damaged)?);
    }
    Ok(Published {
        epoch,
        finalized_before_us,
        complete_from: from.map_or(CompleteFrom::Unbounded, CompleteFrom::From),
        evidence,
        gaps,
        lost_before_us: times.read_some(reader).ok_or(damaged)?,
        reopened: read_reopened(reader, times).ok_or(damaged)?,
        amended: read_amended(reader, times).ok_or(damaged)?,
        retracted: read_retracted(reader, times).ok_or(damaged)?,
        drained: flag(reader).ok_or(damaged)?,
    })
}

fn put_reopened(out: &mut Vec<u8>, times: Times, reopened: Option<Reopened>) {
    let Some(reopened) = reopened else {
        out.push(0);
        return;
    };
    out.push(reopened.cause as u8);
    times.put_some(out, reopened.from_us);
    times.put(out, reopened.before_us);
    times.put(out, reopened.at_us);
}

#[expect(
    clippy::option_option,
    reason = "the outer one says whether it could be read"
)]
fn read_reopened(reader: &mut Reader<'_>, times: Times) -> Option<Option<Reopened>> {
    let cause = match reader.byte()? {
        0 => return Some(None),
        byte => StepCause::from_byte(byte)?,
    };
    Some(Some(Reopened {
        cause,
        from_us: times.read_some(reader)?,
        before_us: times.read(reader)?,
        at_us: times.read(reader)?,
    }))
}

fn put_amended(out: &mut Vec<u8>, times: Times, amended: &Amended) {
    out.push(u8::from(amended.overflow().is_some()));
    times.put_some(out, amended.withheld_at_us());
    put(out, amended.cells().len() as u64);
    for cell in amended.cells().iter().chain(amended.overflow()) {
        times.put(out, cell.from_us);
        times.put(out, cell.before_us);
        put(out, cell.revision);
        put(out, cell.rows);
        times.put(out, cell.at_us);
        out.push(u8::from(cell.withheld));
    }
}

fn read_amended(reader: &mut Reader<'_>, times: Times) -> Option<Amended> {
    let overflows = flag(reader)?;
    let withheld_at_us = times.read_some(reader)?;
    let count = reader.count().filter(|count| *count <= MAX_AMENDED)?;
    let mut cells = Vec::with_capacity(count + 1);
    for _ in 0..count + usize::from(overflows) {
        cells.push(AmendedCell {
            from_us: times.read(reader)?,
            before_us: times.read(reader)?,
            revision: reader.varint()?,
            rows: reader.varint()?,
            at_us: times.read(reader)?,
            withheld: flag(reader)?,
        });
    }
    let overflow = if overflows { cells.pop() } else { None };
    Amended::of(cells, overflow, withheld_at_us)
}

fn read_retracted(reader: &mut Reader<'_>, times: Times) -> Option<Vec<Retracted>> {
    let count = reader.count().filter(|count| *count <= MAX_RETRACTED)?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        all.push(Retracted {
            from_us: times.read(reader)?,
            before_us: times.read(reader)?,
            at_us: times.read(reader)?,
            reason: reader.text()?.to_owned(),
        });
    }
    Some(all)
}

/// The names of all sources, each once.
fn sources<'a>(positions: impl Iterator<Item = &'a SourcePositions>) -> Vec<&'a str> {
    let names = positions.flat_map(SourcePositions::incarnations);
    let names: BTreeSet<&str> = names.map(|known| known.source.as_str()).collect();
    names.into_iter().collect()
}

fn put_sources(out: &mut Vec<u8>, sources: &[&str]) {
    put(out, sources.len() as u64);
    for source in sources {
        put_text(out, source);
    }
}

fn read_sources<'a>(reader: &mut Reader<'a>) -> Option<Vec<&'a str>> {
    let count = reader.count()?;
    (0..count).map(|_| reader.text()).collect()
}

fn put_positions(out: &mut Vec<u8>, sources: &[&str], positions: &SourcePositions) {
    put(out, positions.incarnations().len() as u64);
    for known in positions.incarnations() {
        let source = sources.binary_search(&known.source.as_str());
        put(out, source.expect("every source is in the list") as u64);
        put(out, u64::from(known.counter));
        put_signed(out, known.position);
        out.push(u8::from(known.commit_time_us.is_some()));
        if let Some(us) = known.commit_time_us {
            put_signed(out, us);
        }
    }
}

fn read_positions(reader: &mut Reader<'_>, sources: &[&str]) -> Option<SourcePositions> {
    let count = reader.count().filter(|count| *count <= MAX_INCARNATIONS)?;
    let mut incarnations = Vec::with_capacity(count);
    for _ in 0..count {
        let source = usize::try_from(reader.varint()?).ok()?;
        incarnations.push(Incarnation {
            source: (*sources.get(source)?).to_owned(),
            counter: u32::try_from(reader.varint()?).ok()?,
            position: reader.signed()?,
            commit_time_us: if flag(reader)? {
                Some(reader.signed()?)
            } else {
                None
            },
        });
    }
    Some(SourcePositions::from_incarnations(incarnations))
}

fn put_stats(out: &mut Vec<u8>, times: Times, stats: &PartitionStats, detail: Detail) {
    put(out, stats.rows);
    times.put(out, stats.least_us);
    let mut rung_us = stats.least_us;
    for next_us in stats.ladder_us {
        let next_us = if detail == Detail::Full {
            next_us
        } else {
            stats.least_us
        };
        put_signed(out, (next_us - rung_us).div_euclid(SECOND_US));
        rung_us = next_us;
    }
    put_signed(out, (stats.greatest_us - rung_us).div_euclid(SECOND_US));
}

fn read_stats(reader: &mut Reader<'_>, times: Times) -> Option<PartitionStats> {
    let rows = reader.varint()?;
    let least_us = times.read(reader)?;
    let mut rung_us = least_us;
    let mut next = || {
        rung_us = rung_us.checked_add(reader.signed()?.checked_mul(SECOND_US)?)?;
        Some(rung_us)
    };
    let ladder_us = [next()?, next()?, next()?];
    let greatest_us = next()?;
    Some(PartitionStats {
        rows,
        least_us,
        ladder_us,
        greatest_us,
    })
}

fn put_gap(out: &mut Vec<u8>, times: Times, gap: Option<OpenGap>) {
    out.push(u8::from(gap.is_some()));
    if let Some(gap) = gap {
        times.put_some(out, gap.from_us);
        times.put(out, gap.restart_us);
    }
}

#[expect(
    clippy::option_option,
    reason = "the outer one says whether it could be read"
)]
fn read_gap(reader: &mut Reader<'_>, times: Times) -> Option<Option<OpenGap>> {
    if !flag(reader)? {
        return Some(None);
    }
    let from_us = times.read_some(reader)?;
    let restart_us = times.read(reader)?;
    Some(Some(OpenGap {
        from_us,
        restart_us,
    }))
}

fn put_epoch(out: &mut Vec<u8>, leader_epoch: Option<i32>) {
    put_signed(out, leader_epoch.map_or(-1, i64::from));
}

#[expect(
    clippy::option_option,
    reason = "the outer one says whether it could be read"
)]
fn read_epoch(reader: &mut Reader<'_>) -> Option<Option<i32>> {
    let epoch = i32::try_from(reader.signed()?).ok()?;
    Some(Some(epoch).filter(|epoch| *epoch >= 0))
}

fn put_partition(out: &mut Vec<u8>, times: Times, sources: &[&str], state: &PartitionState) {
    put_signed(out, state.next_offset);
    put_epoch(out, state.leader_epoch);
    times.put_some(out, state.anchor_us);
    times.put_some(out, state.backfill_before_us);
    times.put_some(out, state.first_least_us);
    times.put_some(out, state.caught_up_us);
    times.put_some(out, state.heartbeat_us);
    times.put_some(out, state.resolved_us);
    put_gap(out, times, state.gap);
    times.put_some(out, state.window.dropped_at_us);
    put(out, state.window.entries.len() as u64);
    for entry in &state.window.entries {
        times.put(out, entry.committed_at_us);
        put(out, u64::from(entry.commits));
        put_stats(out, times, &entry.stats, Detail::Full);
    }
    put_positions(out, sources, &state.positions);
}

fn read_partition(
    reader: &mut Reader<'_>,
    times: Times,
    sources: &[&str],
) -> Option<PartitionState> {
    let mut state = PartitionState {
        next_offset: reader.signed()?,
        leader_epoch: read_epoch(reader)?,
        anchor_us: times.read_some(reader)?,
        backfill_before_us: times.read_some(reader)?,
        first_least_us: times.read_some(reader)?,
        caught_up_us: times.read_some(reader)?,
        heartbeat_us: times.read_some(reader)?,
        resolved_us: times.read_some(reader)?,
        gap: read_gap(reader, times)?,
        window: Window {
            entries: Vec::new(),
            dropped_at_us: times.read_some(reader)?,
        },
        positions: SourcePositions::default(),
    };
    for _ in 0..reader.count()? {
        state.window.entries.push(WindowEntry {
            committed_at_us: times.read(reader)?,
            commits: u32::try_from(reader.varint()?).ok()?,
            stats: read_stats(reader, times)?,
        });
    }
    state.positions = read_positions(reader, sources)?;
    Some(state)
}

fn read_state(reader: &mut Reader<'_>) -> Result<State, Unreadable> {
    let damaged = Unreadable::Damaged;
    let mut texts = || reader.text().map(str::to_owned).ok_or(damaged);
    let (writer, cluster_id, installation) = (texts()?, texts()?, texts()?);
    let (table_ref, subscription) = (texts()?, texts()?);
    let table_uuid = read_uuid(reader).ok_or(damaged)?;
    let commit_id = read_uuid(reader).ok_or(damaged)?;
    let committed_at = reader.signed().ok_or(damaged)?;
    let committed_at_us = committed_at.checked_mul(SECOND_US).ok_or(damaged)?;
    let times = Times { base: committed_at };
    let anchored_at_us = times.read(reader).ok_or(damaged)?;
    let policy = read_policy(reader)?;
    let asked = read_asked(reader, times).ok_or(damaged)?;
    let newest_change = read_change(reader).ok_or(damaged)?;
    let newest_heartbeat_us = times.read_some(reader).ok_or(damaged)?;
    let published = read_published(reader, times)?;
    let topics = read_topics(reader, times).ok_or(damaged)?;
    Ok(State {
        peers: Vec::new(),
        identity: Identity {
            writer,
            cluster_id,
            installation,
            table_uuid,
            table_ref,
        },
        commit_id,
        committed_at_us,
        anchored_at_us,
        subscription,
        policy,
        asked,
        newest_change,
        newest_heartbeat_us,
        topics,
        published,
    })
}

fn read_topics(reader: &mut Reader<'_>, times: Times) -> Option<BTreeMap<String, TopicState>> {
    let sources = read_sources(reader)?;
    let mut topics = BTreeMap::new();
    for _ in 0..reader.count()? {
        let name = reader.text()?.to_owned();
        let id = if flag(reader)? {
            Some(read_uuid(reader)?)
        } else {
            None
        };
        let mut partitions = BTreeMap::new();
        for _ in 0..reader.count()? {
            let partition = i32::try_from(reader.signed()?).ok()?;
            partitions.insert(partition, read_partition(reader, times, &sources)?);
        }
        topics.insert(name, TopicState { id, partitions });
    }
    Some(topics)
}

fn put_news(out: &mut Vec<u8>, times: Times, news: &PartitionRecord, detail: Detail) {
    put_signed(out, news.next_offset);
    put_epoch(out, news.leader_epoch);
    out.push(u8::from(news.reset));
    times.put_some(out, news.anchor_us);
    times.put_some(out, news.backfill_before_us);
    times.put_some(out, news.caught_up_us);
    times.put_some(out, news.heartbeat_us);
    times.put_some(out, news.resolved_us);
    put_gap(out, times, news.gap);
    out.push(u8::from(news.stats.is_some()));
    if let Some(stats) = &news.stats {
        put_stats(out, times, stats, detail);
    }
}

fn read_news(reader: &mut Reader<'_>, record: &mut Record) -> Option<()> {
    let committed_at = reader.signed()?;
    let times = Times { base: committed_at };
    record.committed_at_us = committed_at.checked_mul(SECOND_US)?;
    record.newest_change = read_change(reader)?;
    record.newest_heartbeat_us = times.read_some(reader)?;
    for _ in 0..reader.count()? {
        let topic = reader.text()?.to_owned();
        record.topic_ids.insert(topic, read_uuid(reader)?);
    }
    for _ in 0..reader.count()? {
        let topic = reader.text()?.to_owned();
        let partition = i32::try_from(reader.signed()?).ok()?;
        let news = PartitionRecord {
            next_offset: reader.signed()?,
            leader_epoch: read_epoch(reader)?,
            reset: flag(reader)?,
            anchor_us: times.read_some(reader)?,
            backfill_before_us: times.read_some(reader)?,
            caught_up_us: times.read_some(reader)?,
            heartbeat_us: times.read_some(reader)?,
            resolved_us: times.read_some(reader)?,
            gap: read_gap(reader, times)?,
            stats: if flag(reader)? {
                Some(read_stats(reader, times)?)
            } else {
                None
            },
            positions: None,
        };
        record.partitions.insert((topic, partition), news);
    }
    reader.is_done().then_some(())
}

fn read_all_positions(reader: &mut Reader<'_>, record: &mut Record) -> Option<()> {
    let sources = read_sources(reader)?;
    for _ in 0..reader.count()? {
        let key = (
            reader.text()?.to_owned(),
            i32::try_from(reader.signed()?).ok()?,
        );
        let positions = read_positions(reader, &sources)?;
        record.partitions.get_mut(&key)?.positions = Some(positions);
    }
    reader.is_done().then_some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{TOPIC, Table, at, identity, news, policy};
    use super::*;

    /// Partitions with full windows, every optional part, and as many sources as fit.
    fn state(partitions: i32, window: i64, sources: u64) -> State {
        let mut state = State::new(identity(), TOPIC, policy(), at("10:00"));
        let topic = state.topics.entry(TOPIC.to_owned()).or_default();
        topic.id = Some(Uuid::from_u128(9));
        for partition in 0..partitions {
            // Numbers without a pattern, so that nothing compresses by luck.
            let odd = |salt: i64| (i64::from(partition) * 7_919 + salt * 104_729) % 900;
            let entries = (0..window).map(|n| WindowEntry {
                committed_at_us: at("10:00") - n * 60 * SECOND_US,
                commits: 1,
                stats: PartitionStats {
                    rows: odd(n).cast_unsigned() + 1,
                    least_us: at("09:00") + odd(n) * SECOND_US,
                    ladder_us: [1, 2, 3].map(|rung| at("09:00") + (odd(n) + rung * 7) * SECOND_US),
                    greatest_us: at("09:30") + odd(n + 7) * SECOND_US,
                },
            });
            let incarnations = (0..sources).map(|source| Incarnation {
                source: format!("shop/{source}"),
                counter: 1,
                position: i64::from(partition) * 1_000_003,
                commit_time_us: Some(at("09:59") + odd(3) * 1_000),
            });
            let known = PartitionState {
                next_offset: i64::from(partition) * 1_000_003,
                leader_epoch: Some(3),
                anchor_us: Some(at("08:00")),
                backfill_before_us: (partition % 7 == 1).then_some(at("06:30")),
                first_least_us: Some(at("07:00") + odd(2) * SECOND_US),
                window: Window {
                    entries: entries.collect(),
                    dropped_at_us: Some(at("09:00")),
                },
                caught_up_us: Some(at("09:50") + odd(1) * SECOND_US),
                heartbeat_us: (partition % 2 == 1).then_some(at("09:49") + odd(5) * SECOND_US),
                resolved_us: (partition % 5 == 1).then_some(at("09:48") + odd(4) * SECOND_US),
                gap: (partition % 3 == 0).then_some(OpenGap {
                    from_us: (partition % 2 == 0).then_some(at("05:00")),
                    restart_us: at("06:00"),
                }),
                positions: SourcePositions::from_incarnations(incarnations.collect()),
            };
            topic.partitions.insert(partition, known);
        }
        state
    }

    #[test]
    fn a_full_state_comes_back_as_it_was() {
        let mut state = state(40, 3, 2);
        state.asked = Some(AskedPartitions {
            at_us: at("09:59"),
            topics: BTreeMap::from([(TOPIC.to_owned(), BTreeSet::from([0, 1, 5, 39]))]),
        });
        state.newest_change = Some(NewestChange {
            record_time_us: at("09:58:01.5"),
            snapshot: true,
        });
        state.newest_heartbeat_us = Some(at("09:57"));
        state.policy.terms = Term::ALL.into();
        state.policy.quantile = Some(Quantile::FivePercent);
        state.policy.heartbeats = Heartbeats::Table;
        state.published.finalized_before_us = Some(at("09:00"));
        state.published.complete_from = CompleteFrom::From(at("08:00"));
        state.published.evidence = Term::ALL.into_iter().collect();
        state.published.gaps.add(at("03:00"), at("04:00"));
        state.published.lost_before_us = Some(at("02:00"));
        state.published.drained = true;
        state
            .published
            .step(StepCause::TopicJoined, Some(at("08:00")), at("09:30"));
        let cell = |from: &str, before: &str, withheld: bool| AmendedCell {
            from_us: at(from),
            before_us: at(before),
            revision: 3,
            rows: 400,
            at_us: at("09:20"),
            withheld,
        };
        let cells = vec![cell("04:00", "05:00", true), cell("07:00", "08:00", false)];
        state.published.retracted = vec![Retracted {
            from_us: at("05:00"),
            before_us: at("06:00"),
            at_us: at("09:40"),
            reason: "a job deleted rows".to_owned(),
        }];
        state.published.amended =
            Amended::of(cells, Some(cell("01:00", "03:00", true)), Some(at("09:00"))).unwrap();
        assert_eq!(State::decode(&state.encode().unwrap()), Ok(state));
    }

    #[test]
    fn a_thousand_partitions_fit_whatever_they_hold() {
        for (window, sources, least_window) in [(3, 1, 2), (64, 16, 0)] {
            let mut state = state(1_000, window, sources);
            state.fit().unwrap();
            let text = state.encode().unwrap();
            assert!(text.len() <= MAX_STATE, "{}", text.len());
            let kept = state
                .partitions()
                .map(|(_, _, known)| known.window.entries.len())
                .min();
            assert!(
                kept >= Some(least_window),
                "{kept:?} entries of {window} are left"
            );
            assert_eq!(State::decode(&text), Ok(state));
        }
    }

    /// Merged entries must still leave the window, or an old row would hold the claim for ever.
    #[test]
    fn a_window_coarsened_at_every_commit_still_slides() {
        let mut window = Window::default();
        let policy = Policy {
            window_commits: 3,
            ..policy()
        };
        for n in 0..40 {
            let us = at("10:00") + n * SECOND_US;
            let stats = PartitionStats {
                rows: 1,
                least_us: us,
                ladder_us: [us; 3],
                greatest_us: us,
            };
            window.push(us, stats);
            window.prune(&policy, us, 2);
            assert!(window.entries.len() <= 2);
            let oldest = window
                .entries
                .iter()
                .map(|entry| entry.stats.least_us)
                .min()
                .unwrap();
            assert!(
                us - oldest <= 5 * SECOND_US,
                "after {n} commits the oldest is {}s old",
                (us - oldest) / SECOND_US
            );
        }
    }

    #[test]
    fn newer_versions_and_unknown_terms_are_told_apart_from_damage() {
        let state = state(2, 1, 1);
        let mut framed = STANDARD.decode(state.encode().unwrap()).unwrap();
        framed[0] = VERSION + 1;
        let newer = Unreadable::Newer {
            version: VERSION + 1,
        };
        assert_eq!(State::decode(&STANDARD.encode(&framed)), Err(newer));
        framed[0] = 0;
        assert_eq!(
            State::decode(&STANDARD.encode(&framed)),
            Err(Unreadable::Damaged)
        );
        let mut reader = Reader::new(&[1, 7]);
        assert_eq!(read_terms(&mut reader), Err(Unreadable::Term { byte: 7 }));
    }

    #[test]
    fn a_summary_of_a_thousand_partitions_stays_small_and_readable() {
        let mut table = Table::new(policy());
        let first = (0..1_000).fold(news("09:00"), |news, partition| {
            news.anchor(partition, 1_000_000_007)
        });
        table.commit(first);
        let rows = (0..1_000).fold(news("10:20").asked("10:19", 1_000), |news, partition| {
            let mut news = news.rows(partition, 1_000_000_007, &["10:10", "10:15:03"]);
            let mut positions = SourcePositions::default();
            positions.judge(
                "shop/1",
                i64::from(partition) * 7_777_777,
                Some(at("10:15") + i64::from(partition)),
            );
            news.partitions.last_mut().unwrap().positions = Some(positions);
            news
        });
        table.commit(rows);
        let summary = &table.lineage.snapshots[0].summary;
        let size: usize = summary
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        assert!(size <= super::super::contract::MAX_SUMMARY, "{size}");
        let read = super::super::contract::read_summary(summary)
            .unwrap()
            .unwrap();
        assert_eq!(read.record.partitions.len(), 1_000);
        assert_eq!(read.offsets.next.len(), 1_000);
    }

    proptest! {
        #[test]
        fn prop_any_text_is_survived(text in ".{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = State::decode(&text);
            let _ = State::decode(&STANDARD.encode(&bytes));
            let _ = State::decode(&pack(&bytes));
            let mut record = record();
            let _ = record.decode_partitions(&pack(&bytes), Some(&pack(&bytes)));
        }

        /// The checksum finds what the varints would believe.
        #[test]
        fn prop_a_flipped_bit_is_found_and_a_flipped_field_survived(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
            let state = state(3, 2, 1);
            let mut framed = STANDARD.decode(state.encode().unwrap()).unwrap();
            let place = at.index(framed.len());
            framed[place] ^= 1 << bit;
            let read = State::decode(&STANDARD.encode(&framed));
            prop_assert!(read.is_err() || read == Ok(state.clone()), "{read:?}");
            let mut bytes = state.to_bytes();
            let place = at.index(bytes.len());
            bytes[place] ^= 1 << bit;
            if let Ok(state) = State::decode(&pack(&bytes)) {
                let _ = (state.encode(), state.claim(), state.hold(true));
            }
        }
    }

    fn record() -> Record {
        Record {
            begins: false,
            gone: BTreeSet::new(),
            commit_id: Uuid::nil(),
            committed_at_us: 0,
            policy: policy(),
            subscription: String::new(),
            topics: BTreeSet::new(),
            asked: None,
            newest_change: None,
            newest_heartbeat_us: None,
            topic_ids: BTreeMap::new(),
            partitions: BTreeMap::new(),
        }
    }
}
