//! Where a writer stands on a table: the question, and the answers that [`super::stand`] gives.
//!
//! A decision, never a guess: what a person has to decide is an [`Obstacle`], and every way on from one is named by the owner
//! of the table in [`Accepted`].

use uuid::Uuid;

use super::advance::{Anchor, Before, Jump, JumpKind, Origin};
use super::codec::Unreadable;
use super::contract::BadValue;
use super::epoch::StepCause;
use super::event_time::floor_second;
use super::frontier::Policy;
use super::state::{Identity, State};
use super::told::Told;
use super::writers::{Peer, PeerUnreadable};

/// Who asks, and what it brings along.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The writer.
    pub writer: &'a str,
    /// What the table's owner has agreed to.
    pub accept: Accepted,
    /// Whether rows that are gone stay gone (`onRollback: KeepOffsets`); else they are read again.
    pub keep_offsets: bool,
    /// The newest commit of the writer that this process has seen on the table.
    pub seen: Option<Seen>,
    /// The clock.
    pub now_us: i64,
}

impl<'a> Asker<'a> {
    /// A writer that knows nothing beside the table, and whose owner has agreed to nothing.
    #[must_use]
    pub fn new(writer: &'a str, now_us: i64) -> Self {
        Asker {
            writer,
            accept: Accepted::default(),
            keep_offsets: false,
            seen: None,
            now_us,
        }
    }
}

/// What a table's owner has agreed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Begin anew on the table with this UUID.
    pub table_uuid: Option<Uuid>,
    /// Begin a new epoch on a table whose main has come to this snapshot.
    pub snapshot_id: Option<i64>,
}

/// A commit of the writer that was seen on a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The table.
    pub table_uuid: Uuid,
    /// The commit.
    pub commit_id: Uuid,
    /// When it was made.
    pub committed_at_us: i64,
    /// Its epoch.
    pub epoch: u64,
    /// What it claimed.
    pub finalized_before_us: Option<i64>,
}

impl Seen {
    /// The commit that a state is of.
    #[must_use]
    pub fn of(state: &State) -> Self {
        Seen {
            table_uuid: state.identity.table_uuid,
            commit_id: state.commit_id,
            committed_at_us: state.committed_at_us,
            epoch: state.published.epoch,
            finalized_before_us: state.published.finalized_before_us,
        }
    }
}

/// Where a writer goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has never committed here, or begins anew with leave.
    Begins(Beginning),
    /// It goes on from the newest own commit in the ancestry.
    GoesOn(Box<GoingOn>),
}

/// What only the opening of a session may take up: a first commit, or a roll-back. The offsets that it brings are those of the
/// commits named here, and would be wrong behind any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The newest commit of the writer that the table leads to; nil: there is none.
    pub on: Uuid,
    /// The newest one that it no longer leads to; nil: none that anything is gone on from.
    pub behind: Uuid,
}

impl Opening {
    /// Whether it is a step of the epoch: the table was rolled back.
    #[must_use]
    pub fn reopens(&self) -> bool {
        !self.on.is_nil()
    }
}

impl Standing {
    /// What is to be taken up; `None`: the writer goes on.
    #[must_use]
    pub fn opening(&self) -> Option<Opening> {
        match self {
            Standing::Begins(beginning) => Some(Opening {
                on: Uuid::nil(),
                behind: beginning
                    .kept
                    .as_ref()
                    .map_or(Uuid::nil(), |kept| kept.commit_id),
            }),
            Standing::GoesOn(going_on) => {
                going_on.rolled_back.as_ref().map(|rolled_back| Opening {
                    on: going_on.state.commit_id,
                    behind: rolled_back.lost,
                })
            }
        }
    }
}

/// A first commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beginning {
    /// The last epoch on the table; 0: there was none.
    pub last_epoch: u64,
    /// What had been claimed, and is no longer.
    pub claimed_us: Option<i64>,
    /// A state whose offsets are gone on from, instead of those that the specification says to start at.
    pub kept: Option<Box<State>>,
    /// The other writers of the table.
    pub peers: Vec<Peer>,
    /// What readers were told last.
    pub told: Told,
    /// Whether only what readers were told says what stays outside of the claim: the rows are there, and no state is.
    pub untold: bool,
}

/// The newest own commit in the ancestry, as a state to go on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoingOn {
    /// The state as of that commit, beside the other writers; with a step of the epoch if the table was rolled back to it.
    pub state: State,
    /// Whether it was rebuilt from summaries, wholly or in part.
    pub rebuilt: bool,
    /// Whether the properties claim something else: they are rewritten by the next commit.
    pub differs: bool,
    /// The table was rolled back; the next commit says so, whatever it brings.
    pub rolled_back: Option<RolledBack>,
}

/// A roll-back that no commit has taken up yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolledBack {
    /// The newest commit that is gone.
    pub lost: Uuid,
    /// The state as of it, where its offsets are to be kept.
    pub kept: Option<Box<State>>,
}

impl Beginning {
    /// The state that the first commit is made on.
    #[must_use]
    pub fn state(
        &self,
        identity: Identity,
        subscription: &str,
        policy: Policy,
        now_us: i64,
    ) -> State {
        let mut state = State::new(identity, subscription, policy, now_us);
        state.published.epoch = self.last_epoch;
        // Of one that is new to the table others have claimed it.
        let told_us = self.told.claimed_us.filter(|_| self.last_epoch > 0);
        state.published.finalized_before_us = self.claimed_us.max(told_us);
        let at_us = floor_second(now_us);
        state
            .published
            .step(StepCause::LineageAccepted, None, at_us);
        if self.untold {
            state.published.gaps.clone_from(&self.told.gaps);
        }
        // What had left is on the table as what had not, and what was never read or was taken back stays outside of the claim.
        if let Some(kept) = &self.kept {
            state.left.clone_from(&kept.left);
            let (published, before) = (&mut state.published, &kept.published);
            published.gaps = kept.gaps();
            published.lost_before_us = kept.lost_before_us();
            published.retracted.clone_from(&before.retracted);
        }
        state.peers.clone_from(&self.peers);
        state.follow(&self.told, now_us);
        state
    }
}

/// Why a worker cannot go on from a table by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
pub enum Obstacle {
    /// The state was written by a newer release.
    #[error("the state of writer \"{writer}\": {source}")]
    Newer {
        /// The writer.
        writer: String,
        /// What is newer.
        source: Unreadable,
    },
    /// The state cannot be read, and there is no summary to rebuild it from.
    #[error("the state of writer \"{writer}\" is not readable, and no summary is: {source}")]
    Damaged {
        /// The writer.
        writer: String,
        /// What is wrong.
        source: BadValue,
    },
    /// The same of another writer: what all of them claim together cannot be worked out.
    #[error(transparent)]
    Peer(#[from] PeerUnreadable),
    /// State and summaries are those of another table or ref: it is a copy, or it was made again.
    #[error(
        "the table is {here}, and what stands there is about table {table_uuid} ref \"{table_ref}\""
    )]
    Void {
        /// The table that is there.
        here: Uuid,
        /// The table that is named.
        table_uuid: Uuid,
        /// The ref that is named.
        table_ref: String,
    },
    /// The table has its UUID, and no commit of ours in a whole ancestry.
    #[error(
        "the table was replaced, or rolled back behind the first commit of writer \"{writer}\": commit {commit_id} is gone and no other of its commits is there"
    )]
    Replaced {
        /// The writer.
        writer: String,
        /// The commit that is named.
        commit_id: Uuid,
    },
    /// The ancestry is broken and holds no snapshot of ours.
    #[error("the ancestry has expired down to a snapshot above all commits of writer \"{writer}\"")]
    LineageUnknown {
        /// The writer.
        writer: String,
    },
    /// One of our snapshots was cherry-picked.
    #[error("snapshot {snapshot_id} is a cherry-picked copy of a commit of writer \"{writer}\"")]
    CherryPicked {
        /// The writer.
        writer: String,
        /// The copy.
        snapshot_id: i64,
    },
}

impl Obstacle {
    /// Whether the table is this writer's and what it claims has to be taken away from the properties.
    #[must_use]
    pub fn withdraws(&self) -> bool {
        match self {
            Self::Newer { .. } | Self::Damaged { .. } | Self::Peer(_) | Self::Void { .. } => false,
            Self::Replaced { .. } | Self::LineageUnknown { .. } | Self::CherryPicked { .. } => true,
        }
    }
}

/// Goes on where reading had got by a state that is gone, instead of reading again: what is skipped becomes a gap. `moved` are the
/// jumps that the logs force on those offsets. Partitions that the state to go on from does not know are anchored.
///
/// Topics that the specification no longer names (`names`) stay where they are and leave there: nothing of them is skipped. Only
/// where the writer begins anew they are anchored as well, since a table has to know what leaves it.
#[must_use]
pub fn keep_offsets(
    (state, kept): (&State, &State),
    mut moved: Vec<Jump>,
    names: impl Fn(&str) -> bool,
    at_us: i64,
) -> (Vec<Jump>, Vec<Anchor>) {
    let (mut jumps, mut anchors) = (Vec::new(), Vec::new());
    for (topic, partition, reached) in kept.partitions() {
        if !state.is_new() && !names(topic) {
            continue;
        }
        let here = |jump: &Jump| jump.topic == topic && jump.partition == partition;
        let forced = moved.iter().position(here).map(|at| moved.swap_remove(at));
        let offset = forced
            .as_ref()
            .map_or(reached.next_offset, |jump| jump.offset);
        let known = state.partition(topic, partition);
        // A log that was cut by a commit that is gone.
        let back = known.is_some_and(|known| offset < known.next_offset);
        // The commit that took up a topic made anew may be gone as well.
        let there_id = state.topics.get(topic).and_then(|topic| topic.id);
        let reached_id = kept.topics.get(topic).and_then(|topic| topic.id);
        let renewed = there_id.is_some() && reached_id.is_some() && there_id != reached_id;
        let usual = match (renewed, back) {
            (true, _) => JumpKind::Recreated {
                topic_id: reached_id,
            },
            (false, true) => JumpKind::Truncated,
            (false, false) => JumpKind::Forward,
        };
        let forced = forced.map(|jump| jump.kind);
        let kind = forced
            .filter(|kind| !renewed || matches!(kind, JumpKind::Recreated { .. }))
            .unwrap_or(usual);
        let topic_id = match kind {
            JumpKind::Recreated { topic_id } => topic_id,
            _ => kept.topics.get(topic).and_then(|topic| topic.id),
        };
        match known {
            Some(known) if offset != known.next_offset || kind != JumpKind::Forward => {
                jumps.push(Jump {
                    topic: topic.to_owned(),
                    partition,
                    kind,
                    from: known.next_offset,
                    before: Before::of(state, topic, partition),
                    offset,
                    at_us,
                });
            }
            Some(_) => {}
            None if kind == JumpKind::Gone => {}
            None => {
                let elsewhere =
                    kind != JumpKind::Forward || state.left.topics().contains_key(topic);
                anchors.push(Anchor {
                    topic: topic.to_owned(),
                    topic_id,
                    partition,
                    offset,
                    origin: match state.left.next_offset(topic, topic_id, partition) {
                        Some(from) => Origin::Back { from },
                        None if elsewhere => Origin::Anew,
                        None => Origin::New,
                    },
                    at_us,
                });
            }
        }
    }
    (jumps, anchors)
}
