//! Rules that are known to be wrong, each broken in a world of its own: an oracle that lets one pass proves nothing of the
//! right ones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::broker::Log;
use super::plan::{Event, Kind, Plan};
use super::rules::{Honest, Rules};
use super::{draw, play};
use crate::cdc::{RowFacts, SourcePartition};
use crate::kafka::{TopicInfo, TopicPartition};
use crate::sink::errand::Errand;
use crate::sink::fence::Verdict;
use crate::watermark::{
    Advanced, AskedEnd, Asker, Before, Contribution, Obstacle, Sketch, Standing, State, TableView,
    contract, stand,
};

/// Histories after which a wrong rule counts as not caught.
const MOST: u64 = 3_000;

/// Plays histories, each a little bent towards where the rule matters, until the oracle objects; tells how many it took.
fn caught(
    promise: &str,
    bend: impl Fn(&mut Plan),
    rules: impl Fn() -> Box<dyn Rules>,
) -> Option<u64> {
    (1..=MOST).find(|seed| {
        let mut plan = draw::draw(*seed);
        bend(&mut plan);
        let found = play(&plan, &rules).1;
        let caught = found.is_err_and(|breach| breach.promise == promise);
        // The very history is good by the rules of the house.
        if caught {
            assert_eq!(play(&plan, &|| Box::new(Honest)).1, Ok(()), "seed {seed}");
        }
        caught
    })
}

/// Asserts that a rule is caught, and says after how many histories.
fn assert_caught(
    rule: &str,
    promise: &str,
    bend: impl Fn(&mut Plan),
    rules: impl Fn() -> Box<dyn Rules>,
) {
    let histories = caught(promise, bend, rules);
    eprintln!("{rule}: caught by {promise} after {histories:?} histories");
    assert!(
        histories.is_some(),
        "{rule} is not caught in {MOST} histories"
    );
}

fn both_terms(plan: &mut Plan) {
    plan.settings.terms = vec!["minimum".to_owned(), "caught-up".to_owned()];
    plan.settings.heartbeats = 0;
}

fn minimum(plan: &mut Plan) {
    plan.settings.terms = vec!["minimum".to_owned()];
    plan.settings.heartbeats = 0;
}

/// Puts an event between any two.
fn among(plan: &mut Plan, event: impl Fn(u8) -> Event) {
    // A few of the drawn ones are enough beside those that matter.
    let mut events = std::mem::take(&mut plan.events);
    events.truncate(12);
    for (at, own) in events.into_iter().enumerate() {
        plan.events.push(own);
        plan.events.push(event(u8::try_from(at % 256).unwrap()));
    }
}

/// Publishes at least this.
fn raise(mut advanced: Advanced, to_us: i64) -> Advanced {
    let to_us = advanced.state.policy.grid.floor(to_us);
    let published = &mut advanced.state.published;
    published.finalized_before_us = published.finalized_before_us.max(Some(to_us));
    advanced.claim = advanced.state.claim();
    advanced.state_text = advanced.state.encode().unwrap();
    advanced
}

/// Both caps of a claim.
fn caps(advanced: &Advanced) -> Option<i64> {
    let asked = advanced.state.asked.as_ref()?;
    let delay_us = advanced.state.policy.bounds.max_delay_us;
    Some((asked.at_us - delay_us).min(advanced.state.committed_at_us))
}

/// A partition that brought nothing since the last question is left out.
#[derive(Default)]
struct IdleIsExcluded {
    delivered: BTreeMap<(usize, i32), i64>,
}

impl Rules for IdleIsExcluded {
    fn end(&mut self, log: &Log, max_delay_us: i64, honest: AskedEnd) -> AskedEnd {
        let key = (log.topic, log.partition);
        let before = self.delivered.insert(key, honest.delivered);
        if before != Some(honest.delivered) {
            return honest;
        }
        AskedEnd {
            at_us: honest.at_us + max_delay_us,
            high_watermark: honest.delivered,
            ..honest
        }
    }
}

#[test]
fn idle_as_exclusion_is_caught() {
    assert_caught("idle as exclusion", "I1", both_terms, || {
        Box::new(IdleIsExcluded::default())
    });
}

struct LastStableOffset;

impl Rules for LastStableOffset {
    fn end(&mut self, log: &Log, _max_delay_us: i64, honest: AskedEnd) -> AskedEnd {
        AskedEnd {
            high_watermark: log.stable(),
            ..honest
        }
    }
}

#[test]
fn last_stable_offset_for_the_high_watermark_is_caught() {
    let bend = |plan: &mut Plan| {
        both_terms(plan);
        among(plan, |at| match at % 4 {
            0 => Event::Transact {
                partition: at / 4,
                rows: 2,
                delay: 250,
            },
            1 => Event::End {
                partition: at / 8,
                committed: true,
            },
            _ => Event::Wait(100),
        });
    };
    assert_caught("last stable offset", "I1", bend, || {
        Box::new(LastStableOffset)
    });
}

struct NoCaps;

impl Rules for NoCaps {
    fn contribution(&mut self, news: &mut Contribution, _: &[(TopicPartition, i64)]) {
        let far_us = 30 * 86_400 * 1_000_000;
        news.now_us += far_us;
        news.asked
            .iter_mut()
            .for_each(|asked| asked.at_us += far_us);
    }
}

#[test]
fn a_claim_without_its_caps_is_caught() {
    let bend = |plan: &mut Plan| {
        minimum(plan);
        plan.settings.window_ms = 0;
        among(plan, |at| match at % 3 {
            0 => Event::AddPartition { topic: at / 3 },
            1 => Event::Produce {
                partition: at,
                rows: 3,
                delay: 255,
                kind: Kind::Change,
            },
            _ => Event::Flow {
                delay: 0,
                silent: 0,
            },
        });
    };
    assert_caught("neither cap", "I1", bend, || Box::new(NoCaps));
}

struct EqualIsReplay;

impl Rules for EqualIsReplay {
    fn rows(&mut self, rows: &mut [RowFacts], _: &[SourcePartition]) {
        let mut greatest: BTreeMap<u32, i64> = BTreeMap::new();
        for row in rows {
            let before = greatest.insert(row.partition, row.position);
            if before == Some(row.position) {
                row.position -= 1;
            }
        }
    }
}

#[test]
fn an_equal_position_taken_for_a_replay_is_caught() {
    assert_caught(
        "<= in the replay rule",
        "I1",
        |_| {},
        || Box::new(EqualIsReplay),
    );
}

struct ConsumerPosition;

impl Rules for ConsumerPosition {
    fn contribution(&mut self, news: &mut Contribution, delivered: &[(TopicPartition, i64)]) {
        for own in &mut news.partitions {
            let mut reading = delivered.iter();
            let named =
                |at: &TopicPartition| *at.topic == *own.topic && at.partition == own.partition;
            let read = reading.find(|(at, _)| named(at)).map(|(_, next)| *next);
            if let Some(end) = &mut own.asked_end
                && read.is_some_and(|read| read >= end.high_watermark)
            {
                (end.high_watermark, end.delivered) = (0, 0);
            }
        }
    }
}

#[test]
fn the_position_of_the_consumer_for_the_end_of_the_batch_is_caught() {
    let bend = |plan: &mut Plan| {
        both_terms(plan);
        plan.settings.terms.remove(0);
        among(plan, |at| match at % 6 {
            0 => Event::Produce {
                partition: at / 6,
                rows: 5,
                delay: 255,
                kind: Kind::Change,
            },
            1 | 5 => Event::Fetch {
                worker: at / 6,
                records: 1,
            },
            _ => Event::Turn { worker: at / 6 },
        });
    };
    assert_caught("consumer position", "I1", bend, || {
        Box::new(ConsumerPosition)
    });
}

/// The greatest event time is that of all rows.
#[derive(Default)]
struct LatenessOverAll {
    greatest: BTreeMap<(String, i32), i64>,
}

impl Rules for LatenessOverAll {
    fn rows(&mut self, rows: &mut [RowFacts], places: &[SourcePartition]) {
        for row in rows {
            let place = &places[row.partition as usize];
            let key = (place.topic.to_string(), place.partition);
            let greatest = self.greatest.entry(key).or_insert(i64::MIN);
            *greatest = row.event_time_us.max(*greatest);
        }
    }

    fn contribution(&mut self, news: &mut Contribution, _: &[(TopicPartition, i64)]) {
        for own in &mut news.partitions {
            let greatest = self.greatest.get(&(own.topic.clone(), own.partition));
            if let (Some(stats), Some(greatest)) = (&mut own.stats, greatest) {
                stats.greatest_us = stats.greatest_us.max(*greatest);
            }
        }
    }
}

#[test]
fn lateness_over_rows_without_a_say_is_caught() {
    let bend = |plan: &mut Plan| {
        minimum(plan);
        plan.settings.window_commits = 1;
        plan.settings.window_ms = 0;
        among(plan, |at| match at % 2 {
            0 => Event::Produce {
                partition: at / 2,
                rows: 1,
                delay: 0,
                kind: Kind::Future,
            },
            _ => Event::Flow {
                delay: at.wrapping_mul(97),
                silent: 0,
            },
        });
    };
    assert_caught("lateness over rows without a say", "I1", bend, || {
        Box::new(LatenessOverAll::default())
    });
}

/// A broker that cannot tell is taken for one that has nothing, and nothing holds nothing.
struct EmptySet;

impl Rules for EmptySet {
    fn topics(&mut self, honest: Option<Vec<TopicInfo>>) -> Option<Vec<TopicInfo>> {
        Some(honest.unwrap_or_default())
    }

    fn advanced(&mut self, news: &Contribution, honest: Advanced) -> Advanced {
        let empty = news
            .asked
            .as_ref()
            .is_some_and(|asked| asked.topics.is_empty());
        match caps(&honest) {
            Some(cap_us) if empty => raise(honest, cap_us),
            _ => honest,
        }
    }
}

#[test]
fn an_empty_partition_set_that_holds_nothing_is_caught() {
    let bend = |plan: &mut Plan| {
        both_terms(plan);
        among(plan, |at| match at % 3 {
            0 => Event::Unanswered { questions: 1 },
            1 => Event::Transact {
                partition: at / 3,
                rows: 1,
                delay: 200,
            },
            _ => Event::Wait(300),
        });
    };
    assert_caught("an empty partition set", "I1", bend, || Box::new(EmptySet));
}

/// One window over the commits of all partitions.
#[derive(Default)]
struct OneWindow {
    commits: VecDeque<(i64, i64)>,
}

impl Rules for OneWindow {
    fn advanced(&mut self, news: &Contribution, honest: Advanced) -> Advanced {
        let stats: Vec<_> = news.partitions.iter().filter_map(|own| own.stats).collect();
        let least = stats.iter().map(|stats| stats.least_us).min();
        let greatest = stats.iter().map(|stats| stats.greatest_us).max();
        let policy = &honest.state.policy;
        self.commits.extend(least.zip(greatest));
        while self.commits.len() > policy.window_commits as usize {
            self.commits.pop_front();
        }
        let least = self.commits.iter().map(|(least, _)| *least).min();
        let greatest = self.commits.iter().map(|(_, greatest)| *greatest).max();
        let lateness_us = policy.bounds.allowed_lateness_us;
        match (least.zip(greatest), caps(&honest)) {
            (Some((least, greatest)), Some(cap_us)) => {
                raise(honest, least.min(greatest - lateness_us).min(cap_us))
            }
            _ => honest,
        }
    }
}

#[test]
fn one_window_over_all_partitions_is_caught() {
    assert_caught("one window over all partitions", "I1", minimum, || {
        Box::new(OneWindow::default())
    });
}

/// A quantile of the digests of whole commits, merged, in place of the least of each partition's own.
#[derive(Default)]
struct MergedDigest {
    commits: VecDeque<Sketch>,
}

impl Rules for MergedDigest {
    fn advanced(&mut self, news: &Contribution, honest: Advanced) -> Advanced {
        let policy = &honest.state.policy;
        self.commits.extend(news.event_times.clone());
        while self.commits.len() > policy.window_commits as usize {
            self.commits.pop_front();
        }
        let lateness_us = policy.bounds.allowed_lateness_us;
        match (Sketch::merge(&self.commits), caps(&honest)) {
            (Some(merged), Some(cap_us)) => {
                let value = merged
                    .quantile(0.05)
                    .min(merged.greatest_us() - lateness_us);
                raise(honest, value.min(cap_us))
            }
            _ => honest,
        }
    }
}

#[test]
fn a_quantile_of_merged_digests_is_caught() {
    assert_caught("merged-digest quantile", "I1", minimum, || {
        Box::new(MergedDigest::default())
    });
}

/// The newest cell that everybody who has rows of it has passed, whatever lies before it.
#[derive(Default)]
struct NewestFirst {
    cells: BTreeMap<i64, BTreeSet<(String, i32)>>,
}

impl Rules for NewestFirst {
    fn advanced(&mut self, news: &Contribution, honest: Advanced) -> Advanced {
        let state = &honest.state;
        let grid = state.policy.grid;
        for own in &news.partitions {
            for us in own
                .stats
                .iter()
                .flat_map(|stats| [stats.least_us, stats.greatest_us])
            {
                let cell = self.cells.entry(grid.floor(us)).or_default();
                cell.insert((own.topic.clone(), own.partition));
            }
        }
        let passed = |end_us: i64, (topic, partition): &(String, i32)| {
            let known = state.partition(topic, *partition);
            let frontier = known.and_then(|known| state.view().frontier(known));
            frontier.is_some_and(|value| value.value_us >= end_us)
        };
        let cap_us = caps(&honest);
        let complete = self.cells.iter().rev().find(|(start_us, partitions)| {
            let end_us = grid.end(**start_us);
            Some(end_us) <= cap_us && partitions.iter().all(|named| passed(end_us, named))
        });
        match complete.map(|(start_us, _)| grid.end(*start_us)) {
            Some(end_us) => raise(honest, end_us),
            None => honest,
        }
    }
}

#[test]
fn a_scan_from_the_newest_cell_on_is_caught() {
    assert_caught("newest-first scan", "I1", minimum, || {
        Box::new(NewestFirst::default())
    });
}

/// The properties count, whatever became of the commit that wrote them.
struct PropertyKept;

impl Rules for PropertyKept {
    fn stand(&mut self, asker: &Asker<'_>, view: &TableView<'_>) -> Result<Standing, Obstacle> {
        let mut honest = stand(asker, view)?;
        let text = view.properties.get(&contract::state_property(asker.writer));
        if let (Standing::GoesOn(on), Some(Ok(state))) =
            (&mut honest, text.map(|text| State::decode(text)))
            && on.rolled_back.take().is_some()
        {
            on.state = state;
        }
        Ok(honest)
    }
}

#[test]
fn a_property_kept_over_a_rollback_is_caught() {
    let bend = |plan: &mut Plan| {
        among(plan, |at| match at % 3 {
            0 => Event::Rollback { back: 1 + at % 3 },
            _ => Event::Wait(500),
        });
    };
    assert_caught("a property kept over a rollback", "I5", bend, || {
        Box::new(PropertyKept)
    });
}

struct NameOnly;

impl Rules for NameOnly {
    fn knows_topic_ids(&self) -> bool {
        false
    }
}

#[test]
fn offsets_keyed_by_the_name_of_a_topic_are_caught() {
    let bend = |plan: &mut Plan| {
        among(plan, |at| match at % 8 {
            0 => Event::Recreate { topic: at / 8 },
            _ => Event::Produce {
                partition: at,
                rows: 5,
                delay: 30,
                kind: Kind::Change,
            },
        });
    };
    assert_caught("offsets by topic name", "I5", bend, || Box::new(NameOnly));
}

/// A batch goes onto every base that stands at its offsets, whatever one thing says of what lies before them.
#[derive(Clone, Copy)]
enum BlindTo {
    TopicIds,
    LeaderEpochs,
    Gaps,
}

impl Rules for BlindTo {
    fn judge(&mut self, errand: &Errand, base: &State, lost_answer: bool) -> Verdict {
        let mut errand = errand.clone();
        for news in &mut errand.news {
            let there = Before::of(base, &news.topic, news.partition);
            let (Some(before), Some(there)) = (&mut news.before, there) else {
                continue;
            };
            match self {
                BlindTo::TopicIds => before.topic_id = there.topic_id,
                BlindTo::LeaderEpochs => before.leader_epoch = there.leader_epoch,
                BlindTo::Gaps => before.gap = there.gap,
            }
        }
        errand.judge(base, lost_answer)
    }
}

/// Two copies of a worker read one partition. One of them stands still with rows, and these events happen before it goes on.
fn held_back(plan: &mut Plan, meanwhile: &[Event]) {
    plan.settings.partitions = vec![1];
    (plan.settings.workers, plan.settings.copies) = (2, true);
    plan.settings.second.clear();
    let flow = Event::Flow {
        delay: 128,
        silent: 0,
    };
    plan.events = vec![flow, flow, Event::Wait(400), rows(2)];
    plan.events.push(Event::Stall { worker: 1 });
    plan.events.extend(meanwhile);
    // What it was sending goes on before it reads: sent in vain, derived anew, sent.
    plan.events.push(Event::Wake { worker: 1 });
    plan.events.extend([Event::Turn { worker: 1 }; 3]);
}

fn rows(rows: u8) -> Event {
    Event::Produce {
        partition: 0,
        rows,
        delay: 128,
        kind: Kind::Change,
    }
}

fn cut(records: u8) -> Event {
    Event::Cut {
        partition: 0,
        records,
    }
}

const WORK: Event = Event::Work { worker: 0 };

/// The log is cut below what the batch follows, and the other one goes back and reads on to its very offset.
#[test]
fn a_fence_blind_to_leader_epochs_is_caught() {
    let bend = |plan: &mut Plan| held_back(plan, &[cut(3), WORK, rows(1), Event::Wait(400), WORK]);
    assert_caught("a fence without leader epochs", "I5", bend, || {
        Box::new(BlindTo::LeaderEpochs)
    });
}

/// The other one commits the same rows; then the log is cut to where the batch begins, and it goes back there.
#[test]
fn a_fence_blind_to_gaps_is_caught() {
    let bend = |plan: &mut Plan| held_back(plan, &[WORK, cut(2), WORK]);
    assert_caught("a fence without gaps", "I5", bend, || {
        Box::new(BlindTo::Gaps)
    });
}

/// The topic is made anew, and the other one reads the new one up to the very offset.
#[test]
fn a_fence_blind_to_topic_ids_is_caught() {
    let anew = Event::Recreate { topic: 0 };
    let bend = |plan: &mut Plan| held_back(plan, &[anew, WORK, rows(3), Event::Wait(400), WORK]);
    assert_caught("a fence without topic ids", "I5", bend, || {
        Box::new(BlindTo::TopicIds)
    });
}

/// One commit without data for each open cell.
#[derive(Default)]
struct OnceACell {
    made: BTreeSet<Option<i64>>,
}

impl Rules for OnceACell {
    fn may_commit_empty(&mut self, base: &State) -> bool {
        self.made.insert(base.open_cell_end_us())
    }
}

#[test]
fn one_empty_commit_a_cell_and_never_again_is_caught() {
    assert_caught("one empty commit a cell", "I2", both_terms, || {
        Box::new(OnceACell::default())
    });
}

/// A writer of whom nothing is on record any more counts for one more step with every commit of another.
struct StepsOnAndOn;

impl Rules for StepsOnAndOn {
    fn advanced(&mut self, _: &Contribution, mut honest: Advanced) -> Advanced {
        if honest
            .state
            .peers
            .iter()
            .any(|peer| peer.commit_id.is_nil())
        {
            honest.state.published.epoch += 1;
            honest.claim = honest.state.claim();
            honest.state_text = honest.state.encode().unwrap();
        }
        honest
    }
}

#[test]
fn a_step_with_every_commit_beside_a_writer_that_is_gone_is_caught() {
    let bend = |plan: &mut Plan| {
        plan.settings.second = vec![2];
        // The worker of the second pipeline comes after those of the first.
        let worker = u8::try_from(plan.settings.workers.max(1)).unwrap();
        let flow = Event::Flow {
            delay: 30,
            silent: 0,
        };
        plan.events = vec![
            Event::Wake { worker },
            flow,
            flow,
            flow,
            Event::Kill { worker },
            Event::Rollback { back: 1 },
            flow,
            Event::Expire { keep: 1 },
            flow,
            flow,
        ];
    };
    assert_caught("a step with every commit", "I4", bend, || {
        Box::new(StepsOnAndOn)
    });
}
