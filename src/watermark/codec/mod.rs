//! State and records as text: a version byte and a checked zstd frame of varints, in base64.
//!
//! Times are whole seconds against the commit's, so that a partition with a window of three takes about 40 bytes before
//! compression. The layout of a version never changes; a newer version than this release knows is an error of its own, since
//! a worker that overwrote it would lose what it does not understand. What an older version can say is written in it, so that an
//! older release can go on from it.
//!
//! Decoding survives any text. What is damaged is said to be so, never half read.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;
use zstd::bulk::{Compressor, Decompressor};

use super::advance::Misfit;
use super::event_time::SECOND_US;
use super::frontier::{MAX_WINDOW, NewestChange, PartitionState, TopicState};
use super::left::Left;
use super::state::{AskedPartitions, Identity, Published, State};
use super::varint::{Reader, put, put_signed, put_text};

mod left;
mod offsets;
mod partition;
mod policy;
mod published;
mod record;

use left::{put_left, read_left};
pub(super) use offsets::{decode_offsets, is_of_part};
use partition::{put_partition, put_sources, read_partition, read_sources, sources};
use policy::{put_policy, read_policy};
use published::{put_published, read_published};

/// The most characters an encoded state takes.
pub const MAX_STATE: usize = 64 * 1024;

/// The newest version: a state that says what has left.
const VERSION: u8 = 2;
/// Everything else, and a state that nothing has left.
const PLAIN: u8 = 1;
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
pub(in crate::watermark) enum Detail {
    /// Everything.
    Full,
    /// The ladder is the least event time: always below the rungs.
    NoLadder,
    /// Only what begins or breaks off: partitions that are anchored, begin anew or have a gap, without what their rows showed. A commit
    /// that is not on record proves nothing, so a claim derived without it is no higher.
    Bare,
}

impl State {
    /// The state as the property's value.
    ///
    /// # Errors
    /// When it does not fit [`MAX_STATE`]; a state from [`super::advance()`] does.
    pub fn encode(&self) -> Result<String, Misfit> {
        let text = self.pack(&self.to_bytes());
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
        let (version, bytes) = unpack(text)?;
        let mut reader = Reader::new(&bytes);
        let mut state = read_state(&mut reader)?;
        if version > PLAIN {
            let times = Times::against(state.committed_at_us);
            state.left = read_left(&mut reader, times).ok_or(Unreadable::Damaged)?;
        }
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
        (bytes.len() + 64).div_ceil(3) * 4 <= limit || self.pack(&bytes).len() <= limit
    }

    fn pack(&self, bytes: &[u8]) -> String {
        let version = if self.left.is_empty() { PLAIN } else { VERSION };
        pack_as(version, bytes)
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
        if !self.left.is_empty() {
            put_left(out, times, &self.left);
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
        let (_, bytes) = unpack(text)?;
        let mut reader = Reader::new(&bytes);
        let published = read_published(&mut reader, Times::against(0))?;
        if reader.is_done() {
            Ok(published)
        } else {
            Err(Unreadable::Damaged)
        }
    }
}

fn pack(bytes: &[u8]) -> String {
    pack_as(PLAIN, bytes)
}

fn pack_as(version: u8, bytes: &[u8]) -> String {
    let framed = frame(version, bytes).expect("writing into memory does not fail");
    STANDARD.encode(framed)
}

thread_local! {
    /// Making them anew costs more than what they pack: each brings tables of its own, which the first use touches.
    static PACKER: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static UNPACKER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// In one piece: the size is known, so the tables of the packer are small.
fn frame(version: u8, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    PACKER.with_borrow_mut(|packer| {
        let packer = match packer {
            Some(packer) => packer,
            None => packer.insert(packer_with_checksum()?),
        };
        let mut framed = vec![version];
        framed.append(&mut packer.compress(bytes)?);
        Ok(framed)
    })
}

fn packer_with_checksum() -> std::io::Result<Compressor<'static>> {
    let mut packer = Compressor::new(LEVEL)?;
    packer.include_checksum(true)?;
    Ok(packer)
}

/// The version, and what was packed.
fn unpack(text: &str) -> Result<(u8, Vec<u8>), Unreadable> {
    let framed = STANDARD.decode(text).map_err(|_| Unreadable::Damaged)?;
    let (version, frame) = framed.split_first().ok_or(Unreadable::Damaged)?;
    if *version > VERSION {
        return Err(Unreadable::Newer { version: *version });
    }
    let size = zstd::zstd_safe::get_frame_content_size(frame)
        .ok()
        .flatten();
    let size = size.filter(|size| *size <= MAX_UNPACKED && *version >= PLAIN);
    let size = size
        .and_then(|size| usize::try_from(size).ok())
        .ok_or(Unreadable::Damaged)?;
    let unpacked = UNPACKER.with_borrow_mut(|unpacker| {
        let unpacker = match unpacker {
            Some(unpacker) => unpacker,
            None => unpacker.insert(Decompressor::new()?),
        };
        unpacker.decompress(frame, size)
    });
    let bytes = unpacked.map_err(|_| Unreadable::Damaged)?;
    Ok((*version, bytes))
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

#[expect(
    clippy::option_option,
    reason = "the outer one says whether it could be read"
)]
fn read_some_uuid(reader: &mut Reader<'_>) -> Option<Option<Uuid>> {
    Some(if flag(reader)? {
        Some(read_uuid(reader)?)
    } else {
        None
    })
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
        left: Left::default(),
        published,
    })
}

fn read_topics(reader: &mut Reader<'_>, times: Times) -> Option<BTreeMap<String, TopicState>> {
    let sources = read_sources(reader)?;
    let mut topics = BTreeMap::new();
    for _ in 0..reader.count()? {
        let name = reader.text()?.to_owned();
        let id = read_some_uuid(reader)?;
        let mut partitions = BTreeMap::new();
        for _ in 0..reader.count()? {
            let partition = i32::try_from(reader.signed()?).ok()?;
            partitions.insert(partition, read_partition(reader, times, &sources)?);
        }
        topics.insert(name, TopicState { id, partitions });
    }
    Some(topics)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::amended::{Amended, AmendedCell};
    use super::super::epoch::StepCause;
    use super::super::frontier::{
        Heartbeats, OpenGap, PartitionStats, Policy, Quantile, Term, Window, WindowEntry,
    };
    use super::super::left::{LeftPartition, LeftTopic};
    use super::super::order::Retracted;
    use super::super::source_position::{Incarnation, SourcePositions};
    use super::super::state::{CompleteFrom, Record};
    use super::super::testing::{TOPIC, Table, at, identity, news, policy};
    use super::policy::read_terms;
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
                    in_order: partition % 2 == 0,
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

    /// A state as the first version wrote it: the layout of `state(2, 1, 1)`.
    const FIRST: &str = "ASi1L/1kEwBlBgC0CgtzaG9wLm9yZGVycwdjbHVzdGVyBGhlcmUEbWFpbgAHAMCk6rANAAGAkJ3pGoCMjZ4CgJiavAQBAAACAgIEAAAAAQAAAQYvMAEBAAkCAAAGAb9wAAG7ngEBnQQAAAEBn5kC/+ABAQGfOAE4Dg4O1CMBAAEAAbDT0tfu3rAGAoaJegHvxAEBpaEBAYcHAb8BAckHANAFgS0ODg7MFQEAAYaJegHgtarY7t6wBgwAsJowqxCIGRCQhRs8zGARDIZCVMslQNdwsjBwygmHpbgE";

    #[test]
    fn a_state_of_the_first_version_is_read_and_one_that_it_can_say_is_written_so() {
        let plain = state(2, 1, 1);
        assert_eq!(State::decode(FIRST).as_ref(), Ok(&plain));
        let version = |state: &State| STANDARD.decode(state.encode().unwrap()).unwrap()[0];
        assert_eq!(version(&plain), PLAIN);
        let mut left = plain.clone();
        left.left = Left::of(BTreeMap::new(), true);
        assert_eq!(version(&left), VERSION);
        assert_eq!(State::decode(&left.encode().unwrap()), Ok(left));
    }

    #[test]
    fn what_has_left_comes_back_as_it_was() {
        let mut state = state(2, 1, 1);
        let next = |next_offset, leader_epoch| LeftPartition {
            next_offset,
            leader_epoch,
        };
        let named = LeftTopic {
            id: Some(Uuid::from_u128(10)),
            at_us: at("09:40"),
            gone: false,
            reached_us: Some(at("09:20:01")),
            partitions: BTreeMap::from([(0, next(1_000_000_007, Some(3))), (4, next(0, None))]),
        };
        let gone = LeftTopic {
            gone: true,
            partitions: BTreeMap::from([(7, next(5, None))]),
            ..LeftTopic::default()
        };
        let topics = [("shop.items", named), ("shop.users", gone)];
        let topics = topics.map(|(name, left)| (name.to_owned(), left));
        state.left = Left::of(topics.into(), true);
        let bytes = state.to_bytes();
        assert_eq!(State::decode(&state.encode().unwrap()), Ok(state));
        assert_eq!(
            State::decode(&pack(&bytes)),
            Err(Unreadable::Damaged),
            "more than the first version has"
        );
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
            left: Left::default(),
            asked: None,
            newest_change: None,
            newest_heartbeat_us: None,
            topic_ids: BTreeMap::new(),
            partitions: BTreeMap::new(),
        }
    }
}
