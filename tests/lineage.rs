//! Tables that somebody else has changed: each change made by PyIceberg or Spark on a real catalog, while rows flow.
//!
//! Of each: what the pipeline says, what `tidemark get` says before and after, that the way on works, and that afterwards every row is
//! there once and no claim was early.

use std::{process::Command, time::Duration};

use serde_json::Value;

use crate::support::{
    catalog::{Catalog, local_path},
    judge::{Commit, Sent, Verdict, judge},
    kafka::Broker,
    ledger::{Ledger, Plan},
    readers::{Reader, python},
    server::own_name,
    spark::{spark, try_spark},
    wait::within,
    worker::{Pipeline, Worker, ancestry, change, claim, size},
};

const PATIENCE: Duration = Duration::from_mins(2);
/// `tidemark get` where there is no claim, and where there is one that does not count.
const NOT_YET: i32 = 1;
const HELD: i32 = 5;

/// A pipeline under load and its table.
struct Case {
    catalog: &'static Catalog,
    pipeline: Pipeline,
    ledger: Option<Ledger>,
    worker: Option<Worker>,
    /// Shares the partitions with it, where the pipeline has two.
    second: Option<Worker>,
}

impl Case {
    /// Starts load and worker, and waits until the claim has moved.
    fn start(test: &str) -> Self {
        Self::with_workers(test, 1)
    }

    fn with_workers(test: &str, replicas: u32) -> Self {
        let (broker, catalog) = (Broker::shared(), Catalog::shared());
        let pipeline = Pipeline {
            name: test.replace('_', "-"),
            bootstrap: broker.bootstrap(),
            topics: vec![broker.topic(test, 2)],
            catalog_uri: catalog.uri(),
            namespace: own_name(test),
            replicas,
            max_delay: Duration::from_secs(2),
            cell_s: 2,
            sink: String::new(),
        };
        let plan = Plan {
            topic: pipeline.topics[0].clone(),
            partitions: 2,
            rows_per_second: 60,
            lateness: Duration::from_secs(1),
            transactions: None,
            message: change,
        };
        for who in ["worker", "second"] {
            let _ = std::fs::remove_file(Worker::log_of(&pipeline, who));
        }
        let mut case = Self {
            catalog,
            ledger: Some(Ledger::start(broker, plan)),
            worker: None,
            second: None,
            pipeline,
        };
        case.go_on("");
        within(PATIENCE, "the first claim", || case.claim());
        case.await_cells(2);
        within(PATIENCE, "commits", || {
            (case.own().len() >= 6).then_some(())
        });
        case
    }

    /// Starts the worker, with a further field of the sink.
    fn go_on(&mut self, sink: &str) {
        sink.clone_into(&mut self.pipeline.sink);
        self.worker = Some(Worker::start(&self.pipeline, "worker"));
        if self.pipeline.replicas > 1 {
            self.second = Some(Worker::start(&self.pipeline, "second"));
        }
    }

    /// Stops it in order.
    fn stop(&mut self) {
        for worker in [self.worker.take(), self.second.take()] {
            assert!(worker.is_none_or(|worker| worker.terminate().success()));
        }
    }

    fn table(&self) -> Value {
        let table = self
            .catalog
            .table(&self.pipeline.namespace, Pipeline::TABLE);
        table.expect("the table")["metadata"].clone()
    }

    /// The table's name within the catalog.
    fn name(&self) -> String {
        format!("{}.{}", self.pipeline.namespace, Pipeline::TABLE)
    }

    fn claim(&self) -> Option<i64> {
        claim(self.catalog, &self.pipeline.namespace)
    }

    fn property(&self, name: &str) -> Option<String> {
        let table = self
            .catalog
            .table(&self.pipeline.namespace, Pipeline::TABLE)?;
        let value = table["metadata"]["properties"][name].as_str();
        value.map(str::to_owned)
    }

    fn epoch(&self) -> u64 {
        let epoch = self.property("tidemark.epoch");
        epoch.map_or(0, |epoch| epoch.parse().expect("a number"))
    }

    /// Waits until the claim has moved by so many cells, and counts for readers.
    #[track_caller]
    fn await_cells(&self, cells: i64) {
        let first = self.claim().unwrap_or(0);
        let enough = first
            + if first == 0 {
                0
            } else {
                cells * self.pipeline.bounds().cell_us
            };
        within(PATIENCE, "a claim that moves", || {
            self.claim().filter(|claim| *claim > 0 && *claim >= enough)
        });
        let (code, told) = self.get();
        assert_eq!(code, 0, "{told}");
    }

    /// Waits for a commit of this epoch.
    #[track_caller]
    fn await_epoch(&self, epoch: u64) {
        within(PATIENCE, &format!("epoch {epoch}"), || {
            (self.epoch() == epoch).then_some(())
        });
    }

    /// What `tidemark get` answers.
    fn get(&self) -> (i32, String) {
        self.get_of(&self.name())
    }

    /// A claim stands on the table, or stood there, and nobody may count on it: by `tidemark get` and by the documented rule.
    #[track_caller]
    fn assert_held(&self) {
        self.assert_held_of(&self.name());
    }

    #[track_caller]
    fn assert_held_of(&self, table: &str) {
        let (code, told) = self.get_of(table);
        assert_eq!(code, HELD, "{told}");
        assert_eq!(self.rule_of(table), "None");
    }

    /// What the rule says that `docs/table-contract.md` gives in Python.
    fn rule_of(&self, table: &str) -> String {
        let answer = python("rule.py", &["--uri", &self.catalog.uri(), "--table", table]);
        answer.trim().to_owned()
    }

    fn get_of(&self, table: &str) -> (i32, String) {
        let answer = Command::new(env!("CARGO_BIN_EXE_tidemark"))
            .args(["get", table, "--catalog-uri", &self.catalog.uri()])
            .output()
            .expect("the program");
        let text = [answer.stdout, answer.stderr].concat();
        let text = String::from_utf8(text).expect("text");
        (answer.status.code().expect("an exit code"), text)
    }

    /// Waits until the pipeline stands still for this reason. Its claim is no longer there for anybody.
    #[track_caller]
    fn await_stop(&self, reason: &str) -> String {
        let worker = self.worker.as_ref().expect("a running worker");
        within(PATIENCE, reason, || {
            let progress: Value = serde_json::from_str(&worker.progress()).ok()?;
            let pipelines = progress["pipelines"].as_object()?;
            let pipeline = pipelines.values().next()?;
            let error = &pipeline["lastError"];
            let stopped = pipeline["state"] == "Stopped" && error["reason"] == reason;
            stopped.then(|| error["message"].as_str().unwrap_or_default().to_owned())
        })
    }

    /// The same, and the claim is withdrawn from the table itself.
    #[track_caller]
    fn await_withdrawal(&self, reason: &str) -> String {
        let message = self.await_stop(reason);
        assert_eq!(
            self.property("tidemark.finalized-before"),
            None,
            "withdrawn"
        );
        self.assert_held();
        message
    }

    /// Stands still for this reason with its claim withdrawn, until its owner agrees to go on from the table as it is: in a second
    /// epoch.
    #[track_caller]
    fn accepts_after(&mut self, reason: &str) {
        let message = self.await_withdrawal(reason);
        self.stop();
        self.go_on(&accept(&message));
        self.await_epoch(2);
    }

    /// The condition `Reopened` as its reason, while it is true.
    fn reopened(&self) -> Option<String> {
        let of = |worker: &Worker| {
            let progress: Value = serde_json::from_str(&worker.progress()).ok()?;
            let pipelines = progress["pipelines"].as_object()?;
            let reopened = &pipelines.values().next()?["claim"]["reopened"];
            reopened["reason"].as_str().map(str::to_owned)
        };
        // Whoever takes it up says it first.
        self.worker.iter().chain(&self.second).find_map(of)
    }

    /// Our snapshots of main, newest first: their ids and claims.
    fn own(&self) -> Vec<(i64, Option<String>)> {
        let table = self.table();
        let all = table["snapshots"].as_array().expect("snapshots");
        let of = |id: &Value| all.iter().find(|snapshot| snapshot["snapshot-id"] == *id);
        let mut own = Vec::new();
        let mut next = of(&table["current-snapshot-id"]);
        while let Some(snapshot) = next {
            let summary = &snapshot["summary"];
            if summary["tidemark.commit-id"].is_string() {
                let claim = summary["tidemark.finalized-before"].as_str();
                let id = snapshot["snapshot-id"].as_i64().expect("an id");
                own.push((id, claim.map(str::to_owned)));
            }
            next = of(&snapshot["parent-snapshot-id"]);
        }
        own
    }

    /// A snapshot of ours to roll back to: by some commits, and so far that the claim falls.
    #[track_caller]
    fn back(&self) -> i64 {
        let own = self.own();
        let newest = own[0].1.clone();
        let lower = |(_, claim): &&(i64, Option<String>)| *claim < newest;
        let back = own.iter().skip(3).find(lower);
        back.expect("a commit with a lower claim").0
    }

    fn python(&self, what: &str, argument: &str) -> String {
        let (uri, name) = (self.catalog.uri(), self.name());
        let arguments = [what, "--uri", &uri, "--table", &name, argument];
        python("change.py", &arguments).trim().to_owned()
    }

    /// Calls one of Iceberg's procedures in Spark until it is not beaten by a commit of ours.
    #[track_caller]
    fn call(&self, procedure: &str, arguments: &str) {
        let name = self.name();
        let sql = format!("CALL lake.system.{procedure}(table => '{name}'{arguments})");
        until_done(&[&sql]);
    }

    /// Ends load and worker once every row is in the table, if that is what is waited for.
    fn finish(mut self, rows: impl Fn(usize) -> usize) -> (Vec<Sent>, Vec<Commit>, Verdict) {
        self.await_cells(2);
        let sent = self.ledger.take().expect("a load").stop();
        let enough = rows(sent.len());
        within(PATIENCE, "the last rows", || {
            (size(self.catalog, &self.pipeline.namespace).0 >= enough).then_some(())
        });
        // One more claim, so that the last rows are judged by it, too.
        self.await_cells(1);
        self.stop();
        let claim = self.property("tidemark.finalized-before");
        assert_eq!(Some(self.rule_of(&self.name())), claim);
        let commits = ancestry(self.catalog, &self.pipeline.namespace);
        let mut verdict = judge(&sent, &commits, self.pipeline.bounds());
        let mut places: Vec<String> = Reader::PyIceberg
            .rows(self.catalog, &self.pipeline.namespace, Pipeline::TABLE)
            .iter()
            .filter(|row| row["_cdc_topic"] == self.pipeline.topics[0].as_str())
            .map(|row| format!("{} {}", row["_cdc_partition"], row["_cdc_offset"]))
            .collect();
        let all = places.len();
        places.sort();
        places.dedup();
        assert_eq!(places.len(), all, "rows that are in the table twice");
        if enough >= sent.len() {
            assert_eq!(all, sent.len(), "every row is there");
        }
        // Of a commit that has expired the rows are left, and not when they came.
        verdict.missing.retain(|(_, partition, offset)| {
            let place = format!("{partition} {offset}");
            places.binary_search(&place).is_err()
        });
        (sent, commits, verdict)
    }
}

/// They neither move the claim nor hold it: what was complete is complete.
#[test]
fn foreign_changes_are_walked_over() {
    let case = Case::start("foreign_changes");
    let lake = format!("lake.{}", case.name());
    let columns = spark(&[&format!("SHOW COLUMNS IN {lake}")]);
    // Rows of somebody else's, of another hour.
    let foreign: Vec<String> = columns
        .iter()
        .map(|column| match column[0].as_str().expect("a name") {
            "_cdc_topic" => "'elsewhere' AS _cdc_topic".to_owned(),
            "_cdc_event_time" => "timestamp'2020-01-01T00:00:00Z' AS _cdc_event_time".to_owned(),
            name => name.to_owned(),
        })
        .collect();
    let rows = format!("SELECT {} FROM {lake} LIMIT 3", foreign.join(", "));
    let dynamic = "SET spark.sql.sources.partitionOverwriteMode=dynamic";

    until_done(&[&format!("INSERT INTO {lake} {rows}")]);
    case.await_cells(1);
    case.call(
        "rewrite_data_files",
        ", options => map('min-input-files', '2')",
    );
    case.await_cells(1);
    until_done(&[dynamic, &format!("INSERT OVERWRITE {lake} {rows}")]);
    case.await_cells(1);
    until_done(&[&format!(
        "DELETE FROM {lake} WHERE _cdc_topic = 'elsewhere'"
    )]);
    case.await_cells(1);

    // A branch of its own, and a snapshot that was staged and published: neither is ours.
    case.python("branch", "audit");
    until_done(&[&format!("INSERT INTO {lake}.branch_audit {rows}")]);
    case.await_cells(1);
    let staged = [
        format!("ALTER TABLE {lake} SET TBLPROPERTIES ('write.wap.enabled' = 'true')"),
        "SET spark.wap.id=staged".to_owned(),
        format!("INSERT INTO {lake} {rows}"),
        "RESET spark.wap.id".to_owned(),
        format!("SELECT snapshot_id FROM {lake}.snapshots WHERE summary['wap.id'] = 'staged'"),
    ];
    let staged: Vec<&str> = staged.iter().map(String::as_str).collect();
    let staged = spark(&staged)[0][0].clone();
    case.await_cells(1);
    case.call("cherrypick_snapshot", &format!(", snapshot_id => {staged}"));
    case.await_cells(1);
    until_done(&[&format!(
        "DELETE FROM {lake} WHERE _cdc_topic = 'elsewhere'"
    )]);
    let own = case.own();
    let old = own[own.len() - 3..].iter();
    let old: Vec<String> = old.map(|(id, _)| id.to_string()).collect();
    case.python("expire", &old.join(","));
    case.await_cells(1);

    assert_eq!(case.epoch(), 1);
    let (sent, commits, verdict) = case.finish(|sent| sent);
    verdict.assert_no_lie(&sent, &commits);
    verdict.assert_moved(8);
}

/// By Spark while two workers run, by `PyIceberg` while none does, and forward again: the rows that are gone are read again.
#[test]
fn a_roll_back_is_followed_and_a_restore_as_well() {
    let mut case = Case::with_workers("roll_back", 2);
    let back = case.back();
    case.call("rollback_to_snapshot", &format!(", snapshot_id => {back}"));
    case.await_epoch(2);
    let reason = within(PATIENCE, "the condition", || case.reopened());
    assert_eq!(reason, "RolledBack");
    case.await_cells(2);
    assert_eq!(case.epoch(), 2, "the second worker takes nothing up again");
    within(PATIENCE, "its end", || {
        case.reopened().is_none().then_some(())
    });

    case.stop();
    let newest = case.own()[0].0;
    case.python("rollback", &case.back().to_string());
    case.assert_held();
    case.go_on("");
    case.await_epoch(3);
    case.await_cells(2);

    // To what was newest before: the commits since then are what is gone now.
    case.call(
        "set_current_snapshot",
        &format!(", snapshot_id => {newest}"),
    );
    case.await_epoch(4);
    case.await_cells(2);
    assert_eq!(case.epoch(), 4);
    let (_, _, verdict) = case.finish(|sent| sent);
    verdict.assert_true();
    verdict.assert_moved(6);
}

/// `onRollback: KeepOffsets`: what is gone stays gone, and nobody is told that it is there.
#[test]
fn kept_offsets_leave_a_gap_in_the_claim() {
    let mut case = Case::start("kept_offsets");
    case.stop();
    case.python("rollback", &case.back().to_string());
    case.go_on("onRollback: KeepOffsets");
    case.await_epoch(2);
    let (sent, commits, verdict) = case.finish(|_| 1);
    verdict.assert_no_lie(&sent, &commits);
    assert!(!verdict.missing.is_empty(), "rows that are gone: {verdict}");
    let gaps = |commit: &Commit| !commit.gaps.is_empty();
    assert!(commits.iter().any(gaps), "a gap is part of the claim");
}

/// Its rows are there and those before them are not.
#[test]
fn a_cherry_picked_commit_of_ours_stops_the_pipeline_until_somebody_decides() {
    let mut case = Case::start("cherry_picked");
    case.stop();
    for (round, way_on) in ["undone", "accepted"].into_iter().enumerate() {
        let (back, picked) = (case.back(), case.own()[1].0);
        case.call("rollback_to_snapshot", &format!(", snapshot_id => {back}"));
        case.call("cherrypick_snapshot", &format!(", snapshot_id => {picked}"));
        case.assert_held();
        case.go_on("");
        let message = case.await_withdrawal("CherryPicked");
        case.stop();
        if way_on == "undone" {
            case.python("rollback", &back.to_string());
            case.go_on("");
        } else {
            case.go_on(&accept(&message));
        }
        case.await_epoch(2 + round as u64);
        case.await_cells(3);
        case.stop();
    }
    case.go_on("");
    let (sent, commits, verdict) = case.finish(|_| 1);
    verdict.assert_no_lie(&sent, &commits);
}

/// Compaction and an expiry that keeps only its snapshot: what is on the table cannot be told from what it says of us.
#[test]
fn an_expiry_of_all_our_snapshots_withdraws_the_claim_until_it_is_accepted() {
    let mut case = Case::start("expired");
    case.stop();
    case.call(
        "rewrite_data_files",
        ", options => map('min-input-files', '2')",
    );
    let later = ", older_than => timestamp'2100-01-01T00:00:00Z', retain_last => 1";
    case.call("expire_snapshots", later);
    assert!(case.own().is_empty());
    case.assert_held();
    case.go_on("");
    case.accepts_after("LineageUnknown");
    let (sent, commits, verdict) = case.finish(|sent| sent);
    verdict.assert_no_lie(&sent, &commits);
}

/// It keeps its UUID and all its properties, and has lost its rows.
#[test]
fn a_replaced_table_shows_no_claim_until_it_is_accepted() {
    let mut case = Case::start("replaced");
    let lake = format!("lake.{}", case.name());
    let made = spark(&[&format!("SHOW CREATE TABLE {lake}")]);
    let made = made[0][0].as_str().expect("a statement").to_owned();
    let (made, _) = made.split_once("LOCATION").expect("a location");
    let replace = made.replacen("CREATE TABLE", "CREATE OR REPLACE TABLE", 1);
    let before = case.table()["table-uuid"].clone();
    until_done(&[
        &replace,
        &format!("ALTER TABLE {lake} SET IDENTIFIER FIELDS id"),
    ]);
    assert_eq!(case.table()["table-uuid"], before);
    case.accepts_after("TableReplaced");
    let (_, _, verdict) = case.finish(|sent| sent);
    verdict.assert_true();
}

/// Nothing on it is ours, and nothing that it says is.
#[test]
fn a_table_made_again_is_not_gone_on_from_without_leave() {
    let mut case = Case::start("made_again");
    let uuid = case.python("make", "");
    let message = case.await_stop("TableRecreated");
    assert!(message.contains(&uuid), "{message}");
    let (code, told) = case.get();
    assert_eq!(code, NOT_YET, "{told}");
    case.stop();
    case.go_on(&format!("accept: {{tableUuid: {uuid}}}"));
    let (_, _, verdict) = case.finish(|sent| sent);
    verdict.assert_true();
}

/// `CREATE TABLE … LIKE … INCLUDING PROPERTIES` brings claim and state along: neither is about the copy.
#[test]
fn a_copy_of_the_definition_shows_no_claim_and_begins_anew_with_leave() {
    let mut case = Case::start("copied");
    let namespace = case.catalog.namespace("copied_like");
    let copy = format!("{namespace}.{}", Pipeline::TABLE);
    let uuid = case.python("like", &copy);
    case.assert_held_of(&copy);
    case.await_cells(1);
    case.stop();
    case.pipeline.namespace = namespace;
    case.go_on("");
    let message = case.await_stop("TableRecreated");
    assert!(message.contains(&uuid), "{message}");
    case.stop();
    case.go_on(&format!("accept: {{tableUuid: {uuid}}}"));
    let (_, _, verdict) = case.finish(|sent| sent);
    verdict.assert_true();
}

/// A backup of the metadata, registered again: its properties are as old as its snapshots, and look whole.
#[test]
fn a_table_restored_from_old_metadata_is_a_roll_back_for_whoever_saw_more() {
    let case = Case::start("restored");
    let old = case
        .catalog
        .table(&case.pipeline.namespace, Pipeline::TABLE);
    let old = old.expect("the table")["metadata-location"].clone();
    let old = old.as_str().expect("a location");
    let backup = local_path(old).with_file_name("backup.metadata.json");
    std::fs::copy(local_path(old), &backup).expect("a copy of the metadata");
    let backup = backup.display();
    case.await_cells(2);
    let lake = format!("lake.{}", case.name());
    spark(&[
        &format!("DROP TABLE {lake}"),
        &format!(
            "CALL lake.system.register_table(table => '{}', metadata_file => 'file:{backup}')",
            case.name()
        ),
    ]);
    case.await_epoch(2);
    let (_, _, verdict) = case.finish(|sent| sent);
    verdict.assert_true();
}

/// Runs statements in Spark until they are not beaten by a commit of ours.
#[track_caller]
fn until_done(statements: &[&str]) {
    within(PATIENCE, statements[0], || match try_spark(statements) {
        Ok(_) => Some(()),
        Err(error) if error.contains("Found conflicting files") => None,
        Err(error) => panic!("{error}"),
    });
}

/// The way on that a message names.
fn accept(message: &str) -> String {
    let (_, rest) = message
        .split_once("sink.accept.lineage: ")
        .unwrap_or_else(|| panic!("no way on: {message}"));
    let id = rest.split_whitespace().next().expect("an id");
    format!("accept: {{lineage: {id}}}")
}
