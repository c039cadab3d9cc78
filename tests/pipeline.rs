//! One worker in the test's process: a real broker, a real catalog, short cells.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tidemark::{
    api::{
        EffectiveSpec, Reason,
        worker::{RunState, SecretRef},
    },
    process::clock::Clock,
    sink::{Accumulator, CommitProcessor, Committed, Observed},
};

use crate::support::{
    catalog::{Catalog, request},
    pipeline::{
        PATIENCE, Pipeline, Scene, claimed, is_kept, property, reason, start, start_on, start_with,
        total_records, write,
    },
    proxy::{Fate, Proxy},
    wait::within,
};

/// The whole way: rows are in the table, and a quiet topic closes its cells by being caught up.
#[test]
fn rows_reach_the_table_and_quiet_cells_close() {
    let scene = Scene::new("rows_reach_the_table", 2);
    let keys: Vec<(String, String)> = (0..100)
        .map(|id| {
            (
                format!(r#"{{"id":{id}}}"#),
                format!(r#"{{"text":"row {id}"}}"#),
            )
        })
        .collect();
    let records = |part: usize| {
        keys.iter()
            .skip(part)
            .step_by(2)
            .map(|(key, value)| (key.as_str(), value.as_str()))
    };
    scene.broker.write(&scene.topic, 0, records(0));
    scene.broker.write(&scene.topic, 1, records(1));

    let worker = start(vec![scene.spec()]);
    worker.wait("all rows", |pipeline| pipeline.rows == 100);
    worker.wait("a claim", |pipeline| {
        pipeline
            .claim
            .as_ref()
            .is_some_and(|claim| claim.finalized_before_us.is_some())
    });
    worker.stop();

    let table = scene.table();
    assert_eq!(total_records(&table), 100);
    assert!(property(&table, "tidemark.finalized-before").is_some());
    assert_eq!(property(&table, "tidemark.evidence"), Some("caught-up"));
}

/// What the second session reads begins where the first one ended.
#[test]
fn second_session_goes_on_where_the_first_one_ended() {
    let scene = Scene::new("second_session", 1);
    for round in 0..2_u64 {
        scene.broker.write(
            &scene.topic,
            0,
            [
                (r#"{"id":1}"#, r#"{"text":"a"}"#),
                (r#"{"id":2}"#, r#"{"text":"b"}"#),
            ],
        );
        let worker = start(vec![scene.spec()]);
        worker.wait("two rows", |pipeline| pipeline.rows == 2);
        worker.stop();
        assert_eq!(scene.total_records(), 2 * (round + 1));
    }
}

/// The record before the bad one is committed, and nothing behind it is read.
#[test]
fn record_that_cannot_be_decoded_stops_the_pipeline_exactly_there() {
    let scene = Scene::with_rows("poison", 0..3);
    scene
        .broker
        .write(&scene.topic, 0, [(r#"{"id":"x"}"#, "{}")]);
    scene.write(0, 3..5);
    let worker = start(vec![scene.spec()]);
    worker.wait("the stop", |pipeline| {
        is_kept(pipeline, RunState::Stopped, Reason::Undecodable)
    });
    let at = format!("{}/0", scene.topic);
    worker.wait("the place", |pipeline| {
        let hold = pipeline.hold.as_ref().expect("a hold");
        assert_eq!(hold.partition.as_ref(), Some(&at));
        assert!(hold.cell_end_us.is_some(), "the table has been read");
        true
    });
    worker.stop();
    assert_eq!(scene.total_records(), 3);
}

/// It is kept where it can be looked at, and the rows behind it arrive.
#[test]
fn dead_letter_topic_takes_what_cannot_be_decoded() {
    let scene = Scene::with_rows("dead_letters", 0..3);
    let dead = scene.broker.topic("dead_letters_dead", 1);
    scene
        .broker
        .write(&scene.topic, 0, [(r#"{"id":"x"}"#, "not even json")]);
    scene.write(0, 3..5);
    let source = format!("deadLetter: {{topic: {dead}}}");
    let worker = start(vec![scene.with_source(&source)]);
    worker.wait("all rows and the dead letter", |pipeline| {
        pipeline.rows == 5 && pipeline.dead_letters == 1
    });
    worker.stop();
    assert_eq!(scene.broker.read(&dead, 0, 0), ["not even json"]);
    assert_eq!(scene.total_records(), 5);
}

#[test]
fn records_deleted_before_they_were_read_stop_the_pipeline_or_become_a_gap() {
    let scene = Scene::with_rows("deleted_records", 0..3);
    let worker = start(vec![scene.spec()]);
    worker.wait("three rows", |pipeline| pipeline.rows == 3);
    worker.stop();
    scene.write(0, 3..9);
    scene.broker.delete_records(&scene.topic, 0, 6);

    let worker = start(vec![scene.spec()]);
    worker.wait("the stop", |pipeline| {
        is_kept(pipeline, RunState::Stopped, Reason::OffsetOutOfRange)
    });
    worker.stop();

    let worker = start(vec![scene.with_source("onGap: Continue")]);
    worker.wait("what is left", |pipeline| pipeline.rows == 3);
    worker.stop();
    assert_eq!(scene.total_records(), 6);
}

/// The same name is another topic: its offsets mean nothing to the table.
#[test]
fn recreated_topic_stops_the_pipeline_until_its_id_is_accepted() {
    accept_recreated("recreated", 10..15);
}

/// Nor is it a log that was cut: the way on is another one.
#[test]
fn recreated_topic_is_told_from_a_log_that_ends_before_the_tables_offset() {
    accept_recreated("recreated_shorter", 10..12);
}

fn accept_recreated(test: &str, rows: std::ops::Range<u64>) {
    let scene = Scene::with_rows(test, 0..3);
    let worker = start(vec![scene.spec()]);
    worker.wait("three rows", |pipeline| pipeline.rows == 3);
    scene.broker.delete_topic(&scene.topic);
    scene.broker.create_topic(&scene.topic, 1, &[]);
    let new = rows.end - rows.start;
    scene.write(0, rows);
    let said = Mutex::new(String::new());
    worker.wait("the stop", |pipeline| {
        let error = pipeline.last_error.as_ref();
        let recreated = error.filter(|error| error.reason == Reason::TopicRecreated);
        said.lock()
            .unwrap()
            .clone_from(&recreated.map_or_else(String::new, |error| error.message.clone()));
        is_kept(pipeline, RunState::Stopped, Reason::TopicRecreated)
    });
    worker.stop();
    assert_eq!(scene.total_records(), 3);

    let message = said.into_inner().unwrap();
    let id = message
        .rsplit(' ')
        .next()
        .expect("the message ends with the new id");
    let accept = format!("accept: {{topicIds: [\"{id}\"]}}");
    let worker = start(vec![scene.with_source(&accept)]);
    worker.wait("the new topic's rows", |pipeline| pipeline.rows == new);
    worker.stop();
    assert_eq!(scene.total_records(), 3 + new);
}

#[test]
fn column_added_to_the_specification_is_added_to_the_table() {
    let scene = Scene::with_rows("added_column", 0..2);
    let mut pipeline = scene.pipeline();
    let worker = start(vec![pipeline.spec()]);
    worker.wait("two rows", |pipeline| pipeline.rows == 2);
    worker.stop();

    pipeline.columns = "- {name: text, type: string}\n      - {name: more, type: int}";
    scene.broker.write(
        &scene.topic,
        0,
        [(r#"{"id":9}"#, r#"{"text":"a","more":7}"#)],
    );
    let worker = start(vec![pipeline.spec()]);
    worker.wait("the new row", |pipeline| pipeline.rows == 1);
    worker.stop();
    let fields = scene.table()["metadata"]["schemas"].to_string();
    assert!(fields.contains("\"more\""), "{fields}");

    pipeline.columns = "- {name: text, type: int}";
    let worker = start(vec![pipeline.spec()]);
    worker.wait("the refusal", |pipeline| {
        is_kept(pipeline, RunState::Stopped, Reason::TableMismatch)
    });
    worker.stop();
}

/// Partitions created while a pipeline runs are read from their first record, and are part of the claim.
#[test]
fn new_partition_and_new_topic_of_a_pattern_are_read_from_their_first_record() {
    let scene = Scene::with_rows("growing", 0..2);
    let pattern = format!("topicPattern: '{}.*'", scene.topic);
    let pipeline = Pipeline {
        topics: &pattern,
        ..scene.pipeline()
    };
    let worker = start(vec![pipeline.spec()]);
    worker.wait("two rows", |pipeline| pipeline.rows == 2);
    scene.broker.add_partitions(&scene.topic, 2);
    let other = format!("{}-b", scene.topic);
    scene.broker.create_topic(&other, 1, &[]);
    within(PATIENCE, "rows on the new partition", || {
        let written = std::panic::catch_unwind(|| scene.write(1, 2..4));
        written.is_ok().then_some(())
    });
    write(scene.broker, &other, 0, 4..6);
    worker.wait("six rows", |pipeline| pipeline.rows == 6);
    worker.wait("a claim over three partitions", |pipeline| {
        let claimed = pipeline
            .claim
            .as_ref()
            .is_some_and(|claim| claim.finalized_before_us.is_some());
        claimed && pipeline.partitions.len() == 3
    });
    worker.stop();
    assert_eq!(scene.total_records(), 6);
}

/// Two tables of one worker do not know each other; a specification that comes and goes leaves the other alone.
#[test]
fn pipelines_of_one_worker_come_and_go_by_themselves() {
    let scenes = ["side_by_side_a", "side_by_side_b"].map(|test| Scene::with_rows(test, 0..3));
    let worker = start(scenes.iter().map(Scene::spec).collect());
    worker.wait_for_all("both", 2, |pipeline| pipeline.rows == 3);
    worker.stop();
    for scene in &scenes {
        assert_eq!(scene.total_records(), 3);
    }
}

/// By then whoever maintains the table may take its files for what a killed worker left.
#[test]
fn batch_that_has_waited_for_days_is_read_again_instead_of_committed() {
    let mut scene = Scene::with_rows("waited_for_days", 0..3);
    let proxy = Proxy::start(Catalog::shared().address(), |_| Fate::Pass);
    scene.catalog = Some(proxy.uri());
    let clock = Clock::system();
    let worker = start_on(clock.clone(), vec![scene.spec()]);
    worker.wait("three rows", |pipeline| pipeline.rows == 3);
    proxy.set_down(true);
    let committed = scene.data_files();
    scene.write(0, 3..5);
    worker.wait("the outage", |pipeline| {
        reason(pipeline) == Some(Reason::CatalogUnreachable)
    });
    let waiting = within(PATIENCE, "files of the waiting batch", || {
        let files: Vec<PathBuf> = scene.data_files().difference(&committed).cloned().collect();
        (!files.is_empty()).then_some(files)
    });
    clock.step(37 * 3_600_000_000);
    proxy.set_down(false);
    worker.wait("the same rows, once", |pipeline| pipeline.rows == 5);
    worker.stop();
    assert_eq!(scene.total_records(), 5);
    let left = scene.data_files();
    assert!(waiting.iter().all(|file| !left.contains(file)), "{left:?}");
    assert!(committed.is_subset(&left));
}

/// Nobody looks at the table while its catalog is away or its pipeline stands still, and that is when the age matters.
#[test]
fn claim_ages_while_the_catalog_is_away_and_after_a_stop() {
    let mut scene = Scene::with_rows("age_of_a_claim", 0..3);
    let proxy = Proxy::start(Catalog::shared().address(), |_| Fate::Pass);
    scene.catalog = Some(proxy.uri());
    let worker = start(vec![scene.spec()]);
    let age = || worker.scraped("tidemark_claim_age_seconds");
    let ages = |what: &str| {
        let before = age().expect("the age of a claim");
        within(PATIENCE, what, || (age()? >= before + 3).then_some(()));
    };
    worker.wait("a claim", |pipeline| claimed(pipeline).is_some());
    proxy.set_down(true);
    scene.write(0, 3..4);
    worker.wait("the outage", |pipeline| {
        is_kept(pipeline, RunState::Running, Reason::CatalogUnreachable)
    });
    ages("the catalog is away");
    proxy.set_down(false);
    scene
        .broker
        .write(&scene.topic, 0, [(r#"{"id":"x"}"#, "{}")]);
    worker.wait("the stop", |pipeline| pipeline.state == RunState::Stopped);
    ages("the pipeline stands still");
    worker.stop();
}

/// What is missing before anything is read holds a table of which nothing is known yet; what is there again is over at once.
#[test]
fn pipeline_that_cannot_begin_is_held_by_what_is_missing() {
    let scene = Scene::with_rows("cannot_begin", 0..3);
    let nobody = "127.0.0.1:1";
    let absent = format!("topics: [{}-absent]", scene.topic);
    let with = |change: &dyn Fn(&mut EffectiveSpec)| {
        let mut spec = scene.spec();
        change(&mut spec);
        spec
    };
    let secret = SecretRef {
        name: "nowhere".to_owned(),
        key: "to-be-found".to_owned(),
    };
    let starts = [
        (
            Reason::BrokerUnreachable,
            with(&|spec| nobody.clone_into(&mut spec.source.bootstrap_servers)),
        ),
        (
            Reason::CatalogUnreachable,
            with(&|spec| spec.sink.catalog.uri = format!("http://{nobody}")),
        ),
        (
            Reason::SecretMissing,
            with(&|spec| spec.sink.catalog.credential_ref = Some(secret.clone())),
        ),
        (
            Reason::TopicNotFound,
            Pipeline {
                topics: &absent,
                ..scene.pipeline()
            }
            .spec(),
        ),
    ];
    for (reason, spec) in starts {
        let worker = start(vec![spec]);
        worker.wait(reason.label(), |pipeline| {
            is_kept(pipeline, RunState::Waiting, reason)
        });
        if reason == Reason::TopicNotFound {
            scene
                .broker
                .create_topic(&format!("{}-absent", scene.topic), 1, &[]);
            worker.wait("the topic", |pipeline| {
                pipeline.state == RunState::Running
                    && pipeline.last_error.is_none()
                    && pipeline.lag.is_some()
            });
        }
        worker.stop();
    }
    let refused = start(vec![with(&|spec| spec.worker.replicas = 0)]);
    refused.wait("the refusal", |pipeline| {
        is_kept(pipeline, RunState::Stopped, Reason::SpecInvalid)
    });
    refused.stop();
    let suspended = start(vec![with(&|spec| spec.suspend = true)]);
    suspended.wait("the suspension", |pipeline| {
        let hold = pipeline.hold.as_ref();
        hold.is_some_and(|hold| hold.reason == Reason::Suspended) && pipeline.lag.is_none()
    });
    suspended.stop();
}

struct Texts(u64);

impl Accumulator for Texts {
    fn observe(&mut self, rows: &Observed<'_>) {
        assert!(rows.batch.column_by_name("text").is_some());
        self.0 += rows.facts.len() as u64;
    }

    fn fold(&mut self, summary: &mut BTreeMap<String, String>) {
        summary.insert("test.texts".to_owned(), self.0.to_string());
    }
}

struct Told(Arc<Mutex<Vec<String>>>);

#[async_trait::async_trait]
impl CommitProcessor for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn before(
        &self,
        _: &tidemark::sink::Attempt<'_>,
        plan: &mut tidemark::sink::Plan,
    ) -> Result<(), tidemark::watermark::Misfit> {
        plan.set_properties
            .insert("test.seen".to_owned(), "yes".to_owned());
        Ok(())
    }

    fn wants_after(&self) -> bool {
        true
    }

    async fn after(
        &self,
        committed: &Committed,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let texts = committed.summary.get("test.texts").cloned();
        self.0.lock().unwrap().extend(texts);
        Ok(())
    }
}

/// What a user adds is part of the commit, and is told of it.
#[test]
fn accumulators_and_processors_of_a_user_take_part_in_commits() {
    let scene = Scene::with_rows("extended", 0..4);
    let told = Arc::new(Mutex::new(Vec::new()));
    let processor = Arc::new(Told(Arc::clone(&told)));
    let worker = start_with(vec![scene.spec()], |worker| {
        worker
            .with_accumulator(Arc::new(|| Box::new(Texts(0))))
            .with_processor(processor)
    });
    worker.wait("four rows", |pipeline| pipeline.rows == 4);
    within(PATIENCE, "the processor to be told", || {
        (*told.lock().unwrap() == ["4"]).then_some(())
    });
    worker.stop();
    let table = scene.table();
    assert_eq!(property(&table, "test.seen"), Some("yes"));
}

/// What a pod runs: a changed file is in force without a restart, and one that is gone leaves its table committed.
#[test]
fn worker_takes_a_changed_folder_without_a_restart() {
    let scene = Scene::with_rows("folder", 0..3);
    let mut pipeline = scene.spec();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rows.yaml");
    fs::write(&file, pipeline.to_yaml()).expect("a specification");

    let worker = Program::start(folder.path());
    let rows = |progress: &Value| progress["pipelines"][&pipeline.uid]["rows"].as_u64();
    worker.wait("three rows", |progress| rows(progress) == Some(3));
    pipeline.sink.commit_interval_us = 500_000;
    fs::write(&file, pipeline.to_yaml()).expect("a changed specification");
    let hash =
        |progress: &Value| progress["pipelines"][&pipeline.uid]["specHash"] == *pipeline.hash();
    worker.wait("the changed specification", hash);
    fs::write(&file, "not a specification").expect("a bad file");
    scene.write(0, 3..5);
    worker.wait(
        "two rows more, under the specification of before",
        |progress| rows(progress) == Some(2) && hash(progress),
    );
    scene.write(0, 5..6);
    fs::remove_file(&file).expect("no specification");
    worker.wait("no pipeline", |progress| {
        progress["pipelines"]
            .as_object()
            .is_some_and(serde_json::Map::is_empty)
    });
    worker.terminate();
    assert!(scene.total_records() >= 5);
}

/// `tidemark worker` on a folder. Dropping it kills it.
struct Program {
    process: Child,
    log: PathBuf,
}

impl Program {
    fn start(folder: &Path) -> Self {
        let log = folder.join("log");
        let process = Command::new(env!("CARGO_BIN_EXE_tidemark"))
            .arg("worker")
            .arg("--pipelines")
            .arg(folder)
            .args(["--admin", "127.0.0.1:0", "--log-format", "json"])
            .stdin(Stdio::null())
            .stderr(fs::File::create(&log).expect("a log"))
            .spawn()
            .expect("the program");
        Self { process, log }
    }

    fn wait(&self, what: &str, wanted: impl Fn(&Value) -> bool) {
        within(PATIENCE, what, || {
            let log = fs::read_to_string(&self.log).expect("the log");
            let mut lines = log
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let address = lines.find_map(|line| line["admin"].as_str()?.parse().ok())?;
            let (status, body) = request(address, "GET", "/progress", "")?;
            assert_eq!(status, 200, "{body}");
            wanted(&serde_json::from_str(&body).expect("JSON")).then_some(())
        });
    }

    fn terminate(mut self) {
        let pid = i32::try_from(self.process.id()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("our own child");
        let ended = within(PATIENCE, "an orderly end", || {
            self.process.try_wait().expect("our own child")
        });
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
