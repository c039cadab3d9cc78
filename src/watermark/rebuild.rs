//! The state out of the summaries of a writer's own commits.
//!
//! The same steps as on the way forward, taken again. What the chain no longer holds is never made up: a cut leaves windows
//! unknown, and edges where they were published.

use super::codec::Unreadable;
use super::contract::{BadValue, OFFSETS, OwnSummary, read_summary};
use super::frontier::TopicState;
use super::lineage::Ancestor;
use super::standing::Obstacle;
use super::state::{CompleteFrom, Identity, State, unknown};

/// The summaries, oldest first, down to the first that cannot be read; the newest must be.
pub(super) fn readable(
    writer: &str,
    own: &[&Ancestor],
) -> Result<(Vec<OwnSummary>, bool), Obstacle> {
    let mut summaries = Vec::with_capacity(own.len());
    let mut cut = false;
    for snapshot in own {
        match read_summary(&snapshot.summary) {
            Ok(Some(summary)) => summaries.push(summary),
            Ok(None) => {}
            Err(BadValue::Packed { source, .. })
                if summaries.is_empty() && source != Unreadable::Damaged =>
            {
                return Err(Obstacle::Newer {
                    writer: writer.to_owned(),
                    source,
                });
            }
            Err(source) if summaries.is_empty() => {
                return Err(Obstacle::Damaged {
                    writer: writer.to_owned(),
                    source,
                });
            }
            Err(_) => {
                cut = true;
                break;
            }
        }
    }
    summaries.reverse();
    Ok((summaries, cut))
}

/// Takes the steps of the commits after `base`, or of all there are. `cut`: there were more before them. Nothing counts that was
/// committed before the writer began.
pub(super) fn fold(base: Option<State>, summaries: &[OwnSummary], cut: bool) -> State {
    let began = summaries.iter().rposition(|summary| summary.record.begins);
    let (base, cut) = (base.filter(|_| began.is_none()), cut && began.is_none());
    let summaries = &summaries[began.unwrap_or(0)..];
    let newest = summaries.last().expect("the newest summary is readable");
    let oldest_us = summaries[0].record.committed_at_us;
    let cut_us = cut.then_some(oldest_us);
    let mut state = base.unwrap_or_else(|| {
        let (identity, policy) = (identity(newest), newest.record.policy.clone());
        State::new(identity, &newest.offsets.subscription, policy, oldest_us)
    });
    for summary in summaries {
        state.apply(&summary.record, cut_us);
        // Of very many topics a summary has the ids of some.
        for (topic, id) in &summary.offsets.topic_ids {
            if let Some(known) = state.topics.get_mut(topic) {
                known.id = Some(*id);
            }
        }
    }
    state.published = newest.published.clone();
    for ((topic, partition), (next_offset, leader_epoch)) in &newest.offsets.next {
        let topic: &mut TopicState = state.topics.entry(topic.clone()).or_default();
        let known = topic
            .partitions
            .entry(*partition)
            .or_insert_with(|| unknown(cut_us));
        known.next_offset = *next_offset;
        known.leader_epoch = *leader_epoch;
    }
    for (topic, id) in &newest.offsets.topic_ids {
        state.topics.entry(topic.clone()).or_default().id = Some(*id);
    }
    if cut {
        keep_edges(&mut state, newest);
    }
    state
}

/// Whether a state has the id of each topic that has one: without it a topic made anew would be taken for the one before.
pub(super) fn check_ids(state: &State, newest: &OwnSummary) -> Result<(), Obstacle> {
    let mut left_out = newest.offsets.ids_left_out.iter();
    let unknown = |topic: &&String| state.topics.get(*topic).is_some_and(|of| of.id.is_none());
    match left_out.find(unknown) {
        None => Ok(()),
        Some(_) => Err(Obstacle::Damaged {
            writer: newest.writer.clone(),
            source: BadValue::Packed {
                name: OFFSETS.to_owned(),
                source: Unreadable::Damaged,
            },
        }),
    }
}

/// What the lost part of the chain would have said of complete-from and gaps is taken from what was published.
fn keep_edges(state: &mut State, newest: &OwnSummary) {
    for open in &newest.open_gaps {
        if state
            .partition(&open.topic, open.partition)
            .is_some_and(|known| known.gap.is_some())
        {
            continue;
        }
        match open.from_us {
            Some(from_us) => state.published.gaps.add(from_us, open.to_us),
            None => {
                state.published.lost_before_us =
                    state.published.lost_before_us.max(Some(open.to_us));
            }
        }
    }
    if let CompleteFrom::From(us) = newest.published.complete_from {
        state.published.lost_before_us = state.published.lost_before_us.max(Some(us));
    }
}

fn identity(summary: &OwnSummary) -> Identity {
    Identity {
        writer: summary.writer.clone(),
        cluster_id: summary.cluster_id.clone(),
        installation: summary.installation.clone(),
        table_uuid: summary.table_uuid,
        table_ref: summary.table_ref.clone(),
    }
}

/// The state as of the newest own commit, from the one on record or, without it, from all summaries.
pub(super) fn brought_forward(
    state: Option<State>,
    own: &[&Ancestor],
    summaries: &[OwnSummary],
    cut: bool,
) -> State {
    let known = state.and_then(|state| {
        let id = Some(state.commit_id);
        let newer = own.iter().position(|own| own.commit_id() == id)?;
        // As many summaries are behind it as could be read.
        let at = summaries.len().checked_sub(newer)?;
        Some((state, at))
    });
    match known {
        Some((state, at)) => {
            let newer = &summaries[at..];
            if newer.is_empty() {
                state
            } else {
                fold(Some(state), newer, false)
            }
        }
        None => fold(None, summaries, cut),
    }
}
