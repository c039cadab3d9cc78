//! Two pipelines into one table, on a real broker and a real catalog.

use std::process::{Command, Output};

use serde_json::{Value, json};
use tidemark::{
    api::{Reason, worker::RunState},
    process::clock::Clock,
};

use crate::support::{
    catalog::{Catalog, request},
    kafka::Broker,
    pipeline::{Pipeline, claimed, is_kept, property, start, table, total_records, write},
};

fn writer(command: &str, namespace: &str, further: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidemark"))
        .args(["writer", command, &format!("{namespace}.rows")])
        .args(further)
        .args(["--catalog-uri", &Catalog::shared().uri()])
        .output()
        .expect("the program")
}

fn micros(table: &Value, name: &str) -> Option<i64> {
    let instant: jiff::Timestamp = property(table, name)?.parse().expect("an instant");
    Some(instant.as_microsecond())
}

/// What two pipelines into one table have in common.
struct Regions {
    broker: &'static Broker,
    namespace: String,
    bootstrap: String,
    topics: [(String, String); 2],
}

impl Regions {
    /// Three rows in the east, four in the west.
    fn new(test: &str) -> Self {
        let broker = Broker::shared();
        let topics = ["east", "west"].map(|region| {
            let topic = broker.topic(&format!("{test}_{region}"), 1);
            (format!("topics: [{topic}]"), topic)
        });
        write(broker, &topics[0].1, 0, 0..3);
        write(broker, &topics[1].1, 0, 3..7);
        Self {
            broker,
            namespace: Catalog::shared().namespace(test),
            bootstrap: broker.bootstrap(),
            topics,
        }
    }

    fn pipeline(&self, region: usize) -> Pipeline<'_> {
        Pipeline {
            name: ["east", "west"][region],
            bootstrap: &self.bootstrap,
            topics: &self.topics[region].0,
            namespace: &self.namespace,
            sink: ["", "shared: true"][region],
            ..Pipeline::USUAL
        }
    }

    fn writer(&self, region: usize) -> String {
        let namespace = self.namespace.replace('_', "-");
        format!("{namespace}.{}", self.pipeline(region).name)
    }

    fn table(&self) -> Value {
        table(&self.namespace)
    }

    /// A writer's own claim.
    fn own(&self, table: &Value, region: usize) -> Option<i64> {
        let writer = self.writer(region);
        micros(table, &format!("tidemark.writer.{writer}.finalized-before"))
    }

    /// How `tidemark wait` ends that asks once.
    fn wait(&self, before: &str, accept: &str) -> Option<i32> {
        let asked = Command::new(env!("CARGO_BIN_EXE_tidemark"))
            .args(["wait", &format!("{}.rows", self.namespace)])
            .args(["--before", before, "--accept", accept, "--timeout", "0s"])
            .args(["--catalog-uri", &Catalog::shared().uri()])
            .output()
            .expect("the program");
        asked.status.code()
    }

    fn order(&self, command: &str, further: &[&str]) -> Output {
        writer(command, &self.namespace, further)
    }

    /// How many snapshots of the table are by a worker of this name.
    fn commits_of(&self, worker: &str) -> usize {
        let table = self.table();
        let snapshots = table["metadata"]["snapshots"].as_array();
        let own = |snapshot: &&Value| snapshot["summary"]["tidemark.worker"] == worker;
        snapshots.into_iter().flatten().filter(own).count()
    }
}

/// The claim of the table is the least of both, whoever commits; a pipeline that does not say so may not write beside another.
#[test]
fn two_pipelines_share_a_table_and_its_claim_is_the_least_of_both() {
    let regions = Regions::new("two_writers");
    let east = start(vec![regions.pipeline(0).spec()]);
    east.wait("a claim", |pipeline| claimed(pipeline).is_some());
    let alone = Pipeline {
        sink: "",
        ..regions.pipeline(1)
    };
    let refused = start(vec![alone.spec()]);
    refused.wait("the refusal", |pipeline| {
        is_kept(pipeline, RunState::Stopped, Reason::WriterMismatch)
    });
    refused.stop();

    let west = start(vec![regions.pipeline(1).spec()]);
    west.wait("its rows and a claim over both", |pipeline| {
        pipeline.rows == 4 && claimed(pipeline).is_some()
    });
    let now = Clock::system().now_us();
    east.wait("the claim goes on", |pipeline| {
        claimed(pipeline) > Some(now)
    });
    east.stop();
    west.stop();
    let both = regions.table();
    assert_eq!(total_records(&both), 7);
    assert_eq!(property(&both, "tidemark.epoch"), Some("2"));
    let least = regions.own(&both, 0).min(regions.own(&both, 1));
    assert!(least.is_some());
    assert_eq!(micros(&both, "tidemark.finalized-before"), least);
    let listed = regions.order("list", &["-o", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let listed = listed.as_array().expect("a list").iter();
    let names: Vec<&str> = listed.filter_map(|one| one["writer"].as_str()).collect();
    assert_eq!(names, [regions.writer(0), regions.writer(1)]);
}

/// One that is gone holds the claim until it is drained, and cannot commit then before it is let in again.
#[test]
fn a_drained_writer_holds_nothing_and_is_refused_until_it_is_let_in_again() {
    let regions = Regions::new("drained_writer");
    let east = start(vec![regions.pipeline(0).spec()]);
    east.wait("a claim", |pipeline| claimed(pipeline).is_some());
    let west = start(vec![regions.pipeline(1).spec()]);
    west.wait("a claim over both", |pipeline| {
        pipeline.rows == 4 && claimed(pipeline).is_some()
    });
    let now = Clock::system().now_us();
    east.wait("a commit of its own beside the other", |pipeline| {
        claimed(pipeline) > Some(now)
    });
    east.stop();
    let gone = regions.own(&regions.table(), 0);
    west.wait("the one that is left is held", |pipeline| {
        let hold = pipeline.hold.as_ref();
        hold.is_some_and(|hold| hold.reason == Reason::WriterBehind)
    });
    assert_eq!(micros(&regions.table(), "tidemark.finalized-before"), gone);

    let drained = regions.order("drain", &[&regions.writer(0)]);
    assert_eq!(drained.status.code(), Some(0), "{drained:?}");
    let again = regions.order("drain", &[&regions.writer(0)]);
    let said = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(
        said.contains("is drained already: nothing was done"),
        "{again:?}"
    );
    assert_eq!(regions.commits_of("tidemark writer drain"), 1);
    let now = Clock::system().now_us();
    west.wait("the claim goes on without it", |pipeline| {
        claimed(pipeline) > Some(now)
    });
    let again = start(vec![regions.pipeline(0).spec()]);
    again.wait("the drained one is refused", |pipeline| {
        is_kept(pipeline, RunState::Waiting, Reason::WriterDrained)
    });
    assert_eq!(property(&regions.table(), "tidemark.epoch"), Some("2"));

    let undrained = regions.order("undrain", &[&regions.writer(0)]);
    assert_eq!(undrained.status.code(), Some(0), "{undrained:?}");
    write(regions.broker, &regions.topics[0].1, 0, 7..9);
    let now = Clock::system().now_us();
    again.wait("it goes on by itself, and the claim with it", |pipeline| {
        pipeline.rows == 2 && claimed(pipeline) > Some(now)
    });
    again.stop();
    west.stop();
    let end = regions.table();
    assert_eq!(total_records(&end), 9);
    assert_eq!(property(&end, "tidemark.epoch"), Some("3"));
    let again = regions.order("undrain", &[&regions.writer(0)]);
    let said = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(
        said.contains("is not drained: nothing was done"),
        "{again:?}"
    );
    assert_eq!(regions.commits_of("tidemark writer undrain"), 1);
    let unknown = regions.order("drain", &["nobody"]);
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");

    let before = micros(&end, "tidemark.finalized-before");
    for region in [0, 1] {
        let drained = regions.order("drain", &[&regions.writer(region)]);
        assert_eq!(drained.status.code(), Some(0), "{drained:?}");
    }
    let all = regions.table();
    assert!(micros(&all, "tidemark.finalized-before") >= before);
    let evidence = property(&all, "tidemark.evidence").expect("evidence");
    assert!(!evidence.is_empty(), "of whoever claims as much");
    let claim = property(&all, "tidemark.finalized-before").expect("a claim");
    assert_eq!(regions.wait(claim, "minimum,caught-up"), Some(0));
    assert_eq!(regions.wait(claim, "resolved"), Some(6));
}

/// A drained writer may not take up a roll-back, and who let it in again was told that it has to be taken up first.
#[test]
fn a_roll_back_of_a_drained_writer_is_taken_up_by_whoever_lets_it_in_again() {
    let regions = Regions::new("drained_rolled_back");
    let east = start(vec![regions.pipeline(0).spec()]);
    east.wait("its rows", |pipeline| {
        pipeline.rows == 3 && claimed(pipeline).is_some()
    });
    east.stop();
    let order = |command: &str| {
        let done = regions.order(command, &[&regions.writer(0)]);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
    };
    order("drain");
    let drained = regions.table()["metadata"]["current-snapshot-id"].clone();
    order("undrain");
    write(regions.broker, &regions.topics[0].1, 0, 7..9);
    let east = start(vec![regions.pipeline(0).spec()]);
    east.wait("two rows more", |pipeline| pipeline.rows == 2);
    east.stop();
    let epoch = |table: &Value| property(table, "tidemark.epoch").map(str::to_owned);
    assert_eq!(epoch(&regions.table()).as_deref(), Some("2"));

    let back = json!({
        "requirements": [],
        "updates": [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": drained}],
    });
    let path = format!("/v1/namespaces/{}/tables/rows", regions.namespace);
    let answer = request(
        Catalog::shared().address(),
        "POST",
        &path,
        &back.to_string(),
    );
    assert_eq!(answer.map(|(status, _)| status), Some(200));
    let east = start(vec![regions.pipeline(0).spec()]);
    east.wait("the drained one is refused", |pipeline| {
        is_kept(pipeline, RunState::Waiting, Reason::WriterDrained)
    });
    order("undrain");
    let now = Clock::system().now_us();
    east.wait("the rows that are gone are read again", |pipeline| {
        pipeline.rows == 2 && claimed(pipeline) > Some(now)
    });
    east.stop();
    let end = regions.table();
    assert_eq!(total_records(&end), 5);
    assert_eq!(
        epoch(&end).as_deref(),
        Some("4"),
        "rolled back, and let in again"
    );
}
