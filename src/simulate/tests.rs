//! Histories in the time of a unit test, and those that failed once; the many are in `tests/simulation.rs`.

use std::time::Duration;

use super::{Honest, Options, Plan, draw, play, replay, run};

/// Few enough to be played with every change.
#[test]
fn no_promise_is_broken_in_a_few_hundred_histories() {
    let report = run(&Options {
        histories: 200,
        seed: 1,
        at_least: Duration::ZERO,
        threads: 2,
    });
    let failure = report.failure.map(|failure| failure.to_string());
    assert_eq!(failure, None);
}

#[test]
fn a_seed_draws_one_history_and_a_history_comes_back_from_its_text() {
    let plan = draw::draw(7);
    assert_eq!(plan, draw::draw(7));
    assert_ne!(plan, draw::draw(8));
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    let (first, again) = (
        play(&plan, &|| Box::new(Honest)),
        play(&plan, &|| Box::new(Honest)),
    );
    assert_eq!(
        (first.0.seen, first.0.commits),
        (again.0.seen, again.0.commits)
    );
}

fn assert_good(history: &str) {
    let plan: Plan = serde_json::from_str(history).unwrap();
    assert_eq!(replay(&plan), Ok(()));
}

/// The anchors of the new partitions were refused for the id of the topic: the pipeline stood still for good.
#[test]
fn a_topic_made_anew_may_have_more_partitions() {
    assert_good(include_str!(
        "histories/a_topic_made_anew_may_have_more_partitions.json"
    ));
}

/// The gap ended with the least row of the new topic and the lateness, which bounds nothing across two incarnations.
#[test]
fn what_a_deleted_topic_held_is_not_claimed() {
    assert_good(include_str!(
        "histories/what_a_deleted_topic_held_is_not_claimed.json"
    ));
}

/// Rolled back behind the commit that took up a topic made anew, with `onRollback: KeepOffsets`: the jump to its offsets was
/// taken for one within the old topic, so that the gap ended with its least row and the lateness.
#[test]
fn offsets_kept_over_a_rollback_behind_a_new_topic_leave_its_whole_gap() {
    assert_good(include_str!(
        "histories/offsets_kept_over_a_rollback_behind_a_new_topic.json"
    ));
}

/// Both commits were of one second: with the ancestry expired, the one that was rolled back counted as older than what was left.
#[test]
fn a_commit_that_was_rolled_back_is_not_taken_for_an_expired_one() {
    assert_good(include_str!(
        "histories/a_commit_that_was_rolled_back_is_not_taken_for_an_expired_one.json"
    ));
}

/// Rolled back with `onRollback: KeepOffsets`, the offsets of the old topic were sent when it was made anew: the oracle took them
/// for those of the new one, and what was read of that for lost.
#[test]
fn offsets_are_those_of_the_topic_that_was_asked_for() {
    assert_good(include_str!(
        "histories/an_anchor_lands_after_its_topic_was_made_anew.json"
    ));
}

/// Rolled back behind the join while a worker was just opening: the roll-back is one step of the epoch, the topic that joins again
/// the next, and the oracle knew of one cause only.
#[test]
fn a_topic_whose_join_was_rolled_back_joins_again() {
    assert_good(include_str!(
        "histories/a_topic_whose_join_was_rolled_back_joins_again.json"
    ));
}

/// A log was cut, and reading went on behind the gap at the same offset; then the commit that said so was rolled back. What another
/// worker had read behind it fitted the restored offset, and went onto the table without the gap.
#[test]
fn a_batch_of_a_history_that_is_gone_is_read_again() {
    assert_good(include_str!(
        "histories/a_batch_of_a_history_that_is_gone_is_read_again.json"
    ));
}

/// The same where older commits have expired: what is younger than those that are left is gone, not expired.
#[test]
fn a_batch_of_a_history_that_is_gone_is_read_again_where_some_has_expired() {
    assert_good(include_str!(
        "histories/a_batch_of_a_history_that_is_gone_is_read_again_where_some_has_expired.json"
    ));
}

/// State lost, then a commit cherry-picked, then the table accepted: the epoch began at 1 again, below that of the newest summary.
#[test]
fn a_table_that_is_accepted_without_its_state_goes_on_in_a_later_epoch() {
    assert_good(include_str!(
        "histories/a_table_that_is_accepted_without_its_state_goes_on_in_a_later_epoch.json"
    ));
}

/// The oracle took rows for those without a say although the commit that had said so was gone.
#[test]
fn a_topic_whose_backfill_was_rolled_back_has_a_say_again() {
    assert_good(include_str!(
        "histories/a_topic_whose_backfill_was_rolled_back_has_a_say_again.json"
    ));
}

/// Rolled back to where it was drained, with later commits gone: only its state tells that, and the oracle missed the step in the
/// summaries.
#[test]
fn the_step_of_a_drained_writer_after_a_roll_back_stands_on_no_table() {
    assert_good(include_str!(
        "histories/the_step_of_a_drained_writer_after_a_roll_back_stands_on_no_table.json"
    ));
}

/// Accepted, with the offsets kept, after the topic was made anew: complete-from fell with the first row of the new one, and what was
/// never read of the old one lay above.
#[test]
fn a_topic_made_anew_before_its_table_was_accepted() {
    assert_good(include_str!(
        "histories/a_topic_made_anew_before_its_table_was_accepted.json"
    ));
}

/// The head of the log was lost, and what was left began with rows that had been sent again: the oracle missed the originals. And the
/// connector had left out the newest, which a real one sends again as well.
#[test]
fn rows_that_are_there_as_copies_alone() {
    assert_good(include_str!(
        "histories/rows_that_are_there_as_copies_alone.json"
    ));
}

/// With `onJoin: Backfill` rows have no say below what the writer itself claims; the oracle took the claim of the table, which another
/// writer holds.
#[test]
fn a_topic_comes_back_to_a_writer_that_is_ahead_of_another() {
    assert_good(include_str!(
        "histories/a_topic_comes_back_to_a_writer_that_is_ahead_of_another.json"
    ));
}

/// The rows of a topic that joined without a step have no say below the claim, also once its log was cut: the oracle counted the new log
/// as another topic.
#[test]
fn a_topic_that_joined_is_cut() {
    assert_good(include_str!("histories/a_topic_that_joined_is_cut.json"));
}

/// The same where it was made anew: what joined is the topic of its name.
#[test]
fn a_topic_that_joined_is_made_anew() {
    assert_good(include_str!(
        "histories/a_topic_that_joined_is_made_anew.json"
    ));
}

/// The same where it was cut while it was away.
#[test]
fn a_topic_is_cut_while_it_is_away() {
    assert_good(include_str!(
        "histories/a_topic_is_cut_while_it_is_away.json"
    ));
}

/// The world left a commit on its way for a whole interval, and the window reached back farther than the oracle allows for.
#[test]
fn a_commit_on_its_way_at_the_end_of_a_round() {
    assert_good(include_str!(
        "histories/a_commit_on_its_way_at_the_end_of_a_round.json"
    ));
}

/// A worker stood still with the first rows of a topic. It was made anew, another worker began in the new one at 0, and what the first
/// one held went onto the table.
#[test]
fn a_batch_of_a_topic_that_is_gone_fits_at_offset_0() {
    assert_good(include_str!(
        "histories/a_batch_of_a_topic_that_is_gone_fits_at_offset_0.json"
    ));
}

/// A worker read on in the new topic as the client lets it, while the state that it compared ids with was the new one's already: rows of
/// both went into one batch.
#[test]
fn a_batch_reaches_over_two_topics_of_one_name() {
    assert_good(include_str!(
        "histories/a_batch_reaches_over_two_topics_of_one_name.json"
    ));
}

/// State lost, and all commits expired beneath those of another writer: the epoch of the table fell, and the claim could rise without it.
#[test]
fn only_the_word_of_another_writer_is_left() {
    assert_good(include_str!(
        "histories/only_the_word_of_another_writer_is_left.json"
    ));
}

/// Another writer was rolled back behind its first commit, and the next commit took the claim of both back: the oracle held its rows
/// against the claim that stood before.
#[test]
fn rows_that_come_with_the_commit_that_takes_a_claim_back() {
    assert_good(include_str!(
        "histories/rows_that_come_with_the_commit_that_takes_a_claim_back.json"
    ));
}

/// Rolled back behind its last commit, with that cherry-picked and then accepted: the other writer had counted the roll-back as a step, the
/// writer began anew with the next, and the oracle knew of one cause only.
#[test]
fn a_writer_begins_anew_after_its_roll_back_was_counted() {
    assert_good(include_str!(
        "histories/a_writer_begins_anew_after_its_roll_back_was_counted.json"
    ));
}

/// Rolled back behind a topic that had joined, and the other one left before it joined again: where nothing was read any more the oracle
/// knew of no join.
#[test]
fn a_topic_joins_after_all_others_have_left() {
    assert_good(include_str!(
        "histories/a_topic_joins_after_all_others_have_left.json"
    ));
}

/// The commit that a writer was rolled back to expired while it was away: the others count one more step of it, and the oracle knew of no
/// cause.
#[test]
fn what_an_absent_writer_was_rolled_back_to_expires() {
    assert_good(include_str!(
        "histories/what_an_absent_writer_was_rolled_back_to_expires.json"
    ));
}

/// Reading went on behind a cut, and with what that took away went the row of the stream: the snapshot never ended, and held the claim
/// rightly.
#[test]
fn the_row_that_ends_a_snapshot_is_one_that_is_read() {
    assert_good(include_str!(
        "histories/the_row_that_ends_a_snapshot_is_passed_over_behind_a_cut.json"
    ));
}

/// The first cut was above what the table held, the second below: the oracle counted what the first had taken away as lost by the second.
#[test]
fn what_a_first_cut_took_away_is_not_lost_by_a_second() {
    assert_good(include_str!("histories/a_log_that_was_cut_twice.json"));
}

/// Accepted, with the offsets kept of a topic that had left and was made anew: the oracle took them for those of the new one.
#[test]
fn offsets_that_are_kept_of_a_topic_that_nobody_names_are_those_of_the_old_one() {
    assert_good(include_str!(
        "histories/the_offsets_of_a_topic_that_nobody_names_are_kept.json"
    ));
}

/// A row that breaks the lateness came behind a cut: how late the rows passed over before can be is not known by it either.
#[test]
fn rows_beyond_the_bounds_behind_a_cut_tell_nothing_of_those_before_it() {
    assert_good(include_str!(
        "histories/rows_beyond_the_bounds_behind_a_cut.json"
    ));
}

/// Accepted once more before anything was read of a topic made anew: what had never been read of the old one was forgotten, and
/// complete-from fell below it with the first row of the new one.
#[test]
fn what_was_never_read_of_a_deleted_topic_outlasts_a_second_accept() {
    assert_good(include_str!(
        "histories/a_table_is_accepted_twice_around_a_topic_made_anew.json"
    ));
}

/// Another writer had counted its roll-back by its state, and without that the epoch of the table fell.
#[test]
fn a_writer_that_was_rolled_back_while_it_was_away_loses_its_state() {
    assert_good(include_str!(
        "histories/a_writer_that_was_rolled_back_while_away_loses_its_state.json"
    ));
}

/// Rows that a roll-back had left out were a gap without a known beginning. With a topic that had left as well the table was accepted, and
/// complete-from fell below them.
#[test]
fn what_a_roll_back_has_left_out_outlasts_an_accept() {
    assert_good(include_str!(
        "histories/a_table_is_accepted_with_what_a_roll_back_had_left_out.json"
    ));
}

/// The group gave it to a worker that had nothing else to do, and the world did not tell that one before its next commit: its rows came
/// hours late and held the window.
#[test]
fn a_partition_whose_worker_died_is_read_by_another_at_once() {
    assert_good(include_str!(
        "histories/a_partition_whose_worker_died_is_read_by_another.json"
    ));
}

/// Another epoch began with the owner's word, and its gaps without the stretch that had been taken back before.
#[test]
fn a_stretch_that_was_taken_back_stays_so_when_its_table_is_accepted() {
    assert_good(include_str!(
        "histories/a_retracted_stretch_outlasts_an_accept.json"
    ));
}

/// A worker was about to anchor a topic that had joined; meanwhile the table lost all commits and was accepted. Its anchors became the
/// first commit, without the other topic, which was then read again from its first record.
#[test]
fn a_table_begins_anew_with_all_of_its_partitions() {
    assert_good(include_str!(
        "histories/a_table_begins_anew_under_an_opening.json"
    ));
}

/// State lost, and all commits expired beneath those of another writer: only their word still named the stretch.
#[test]
fn a_stretch_that_was_taken_back_stays_so_without_a_state() {
    assert_good(include_str!(
        "histories/a_retracted_stretch_outlasts_a_lost_state.json"
    ));
}

/// The same without a stretch: accepted, the writer begins where its specification says, and the oracle held it to offsets that nothing on
/// the table told any more.
#[test]
fn what_nothing_tells_of_is_there_twice_by_the_owners_word() {
    assert_good(include_str!(
        "histories/a_writer_begins_of_whom_nothing_tells.json"
    ));
}

/// Offsets were kept over a roll-back. The topic was made anew before they landed, another worker took up the roll-back and began there:
/// at the same offset the worker went on in the new topic as far as the old one had been read.
#[test]
fn a_jump_lands_in_no_other_log_than_its_own() {
    assert_good(include_str!(
        "histories/a_jump_lands_in_a_topic_made_anew.json"
    ));
}

/// A commit was repeated and the table accepted while a topic of it was away: the oracle allowed for its rows to be there twice only where
/// the writer began with them.
#[test]
fn what_was_repeated_of_a_topic_that_is_away_is_there_twice_as_well() {
    assert_good(include_str!(
        "histories/a_commit_is_repeated_of_a_topic_that_is_away.json"
    ));
}

/// A log was cut, reading went on behind the gap, and the commit that said so was rolled back. The worker looked at the new history
/// without rows, and its next ones went onto the table as if they had been read on it.
#[test]
fn a_look_at_another_history_does_not_make_what_was_read_part_of_it() {
    assert_good(include_str!(
        "histories/a_look_at_a_history_that_goes_on_elsewhere.json"
    ));
}

/// All commits of a writer expired beneath one whose id was drawn before theirs: its newest one was taken for one that is gone, and it
/// stood still for good.
#[test]
fn the_commit_that_a_table_goes_on_from_is_there_though_it_has_expired() {
    assert_good(include_str!(
        "histories/a_commit_drawn_earlier_lands_later.json"
    ));
}

/// Accepted, with the offsets kept of a topic that nobody names and whose log was cut: the oracle took what was written there later for
/// passed over.
#[test]
fn offsets_that_are_kept_of_a_topic_that_nobody_names_are_those_of_the_log_that_was_read() {
    assert_good(include_str!(
        "histories/the_log_is_cut_of_a_topic_that_is_away.json"
    ));
    assert_good(include_str!(
        "histories/offsets_of_a_gone_commit_are_kept_of_a_topic_that_is_away.json"
    ));
}

/// A topic was made anew, the broker did not name it for a while, and what was read in the new one were signals: their offsets went onto
/// the table without a look at its id.
#[test]
fn offsets_without_rows_are_those_of_the_topic_that_was_read() {
    assert_good(include_str!(
        "histories/a_topic_made_anew_brings_signals_alone.json"
    ));
}
