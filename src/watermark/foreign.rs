//! What other systems say about completeness on a table, and how a claim of ours is told in their words.
//!
//! In: properties and summaries, or a claim of ours. Out: instants, each with its name, what it says and what it does not
//! prove; or the values to write.
//!
//! None of them is guarded as ours is: a name is text that outlives a rollback and is copied with a table. So they are read only where
//! there is no claim of ours, and count only for a reader who says so. And none has a word for gaps or for a beginning: told in
//! their words, a claim ends before its first gap.
//!
//! Sources: the sinks of Apache Iceberg for Kafka Connect (`Coordinator`, main and the Tabular predecessor), Netflix's
//! nfflink-connector-iceberg, Apache Gobblin (`IcebergMetadataWriter`), `AutoMQ` Table Topic.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::claim::Claim;
use super::contract::{PREFIX, PropertyChanges, iso};
use super::event_time::{Bounds, in_range};
use super::lineage::Lineage;
use super::state::CompleteFrom;

/// Summary of the Iceberg sink of Kafka Connect: an ISO 8601 instant.
pub const CONNECT_VALID_THROUGH: &str = "kafka.connect.valid-through-ts";
/// Summary of its predecessor: the same in milliseconds.
pub const CONNECT_VTTS: &str = "kafka.connect.vtts";
/// Property of Netflix's Flink sink, one a region, in milliseconds: `flink.watermark.us-east-1`.
pub const FLINK_WATERMARK: &str = "flink.watermark.";
/// Property of Gobblin: by the count of rows of each tier, in milliseconds; -1: none.
pub const GOBBLIN_WATERMARK: &str = "completionWatermark";
/// Property of Gobblin: the zone of its hours.
pub const GOBBLIN_TIMEZONE: &str = "completionWatermarkTimezone";
/// Property of Gobblin: by the sum of all tiers, in milliseconds; -1: none.
pub const GOBBLIN_TOTAL_COUNT: &str = "totalCountCompletionWatermark";
/// Summary of `AutoMQ` Table Topic: in milliseconds; -1: not known.
pub const AUTOMQ_WATERMARK: &str = "automq.watermark";

/// Property: the foreign names that Tidemark writes, of properties and of summaries. It takes its properties away again when it is
/// told to write them no more.
pub const ALSO_WRITTEN: &str = "tidemark.also-written";

/// A system whose words are understood.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::EnumIter, strum::IntoStaticStr,
)]
pub enum System {
    /// The Iceberg sink of Kafka Connect, and its predecessor.
    KafkaConnect,
    /// Netflix's Flink sink for Iceberg.
    Flink,
    /// Apache Gobblin.
    Gobblin,
    /// `AutoMQ` Table Topic.
    AutoMq,
}

impl System {
    /// Every system.
    pub const ALL: [System; 4] = [
        System::KafkaConnect,
        System::Flink,
        System::Gobblin,
        System::AutoMq,
    ];

    /// Its name on a command line and in a report.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            System::KafkaConnect => "kafka-connect",
            System::Flink => "flink",
            System::Gobblin => "gobblin",
            System::AutoMq => "automq",
        }
    }

    /// The system of a name.
    #[must_use]
    pub fn from_label(label: &str) -> Option<System> {
        System::ALL
            .into_iter()
            .find(|system| system.label() == label)
    }

    /// What its value says, after "before this instant".
    #[must_use]
    pub fn says(self) -> &'static str {
        match self {
            System::KafkaConnect => {
                "every Kafka partition was read up to this record timestamp when the snapshot was committed"
            }
            System::Flink => {
                "no file of the last checkpoint held an older row, in the slowest region"
            }
            System::Gobblin => {
                "in each hour before it at least the configured share of the rows counted upstream was there"
            }
            System::AutoMq => {
                "every partition that reported had been read up to this record timestamp"
            }
        }
    }

    /// What its value does not prove.
    #[must_use]
    pub fn proves_not(self) -> &'static str {
        match self {
            System::KafkaConnect => {
                "it is about record timestamps, not event times; rows out of order come later; it does not survive a rollback"
            }
            System::Flink => {
                "a silent source moves it by the clock, and rows out of order come later; it does not survive a rollback"
            }
            System::Gobblin => {
                "a share is not all rows, and a complete hour may lie behind an incomplete one; it does not survive a rollback"
            }
            System::AutoMq => {
                "it is about record timestamps, and partitions that never reported are left out; it does not survive a rollback"
            }
        }
    }
}

/// What another system says about a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignClaim {
    /// Whose word it is.
    pub system: System,
    /// The name that it stands under.
    pub name: String,
    /// Complete before this instant, in the system's own sense.
    pub before_us: i64,
    /// The snapshot whose summary has it; `None`: a property.
    pub snapshot_id: Option<i64>,
    /// What stands beside it.
    pub note: Option<String>,
}

/// What other systems say, one value a name. What is not readable, or says that nothing is known, is no claim.
#[expect(
    clippy::implicit_hasher,
    reason = "the very type that the Iceberg crate has"
)]
#[must_use]
pub fn read(properties: &HashMap<String, String>, lineage: &Lineage<'_>) -> Vec<ForeignClaim> {
    let ours = properties.get(ALSO_WRITTEN).map_or("", String::as_str);
    let ours: BTreeSet<&str> = ours.split(',').collect();
    let properties: HashMap<&str, &str> = properties
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .filter(|(name, _)| !ours.contains(name))
        .collect();
    let connect = [
        (CONNECT_VALID_THROUGH, parse_iso as fn(&str) -> Option<i64>),
        (CONNECT_VTTS, parse_ms),
    ];
    let connect = connect
        .into_iter()
        .filter_map(|(name, parse)| in_summaries(lineage, System::KafkaConnect, name, parse));
    let gobblin = [GOBBLIN_WATERMARK, GOBBLIN_TOTAL_COUNT];
    let gobblin = gobblin.into_iter().filter_map(|name| {
        let before_us = parse_ms(properties.get(name)?)?;
        let zone = properties.get(GOBBLIN_TIMEZONE);
        Some(ForeignClaim {
            system: System::Gobblin,
            name: name.to_owned(),
            before_us,
            snapshot_id: None,
            note: zone.map(|zone| format!("its hours are those of {zone}")),
        })
    });
    connect
        .chain(flink(&properties))
        .chain(gobblin)
        .chain(in_summaries(
            lineage,
            System::AutoMq,
            AUTOMQ_WATERMARK,
            parse_ms,
        ))
        .collect()
}

/// The newest summary that has the name: such a value is that of a commit, and stays true for those after it.
fn in_summaries(
    lineage: &Lineage<'_>,
    system: System,
    name: &str,
    parse: fn(&str) -> Option<i64>,
) -> Option<ForeignClaim> {
    // What a commit of ours says in others' words is our claim, and counts as that or not at all.
    let mut with = lineage
        .snapshots
        .iter()
        .filter(|snapshot| !snapshot.is_own());
    let found = with.find(|snapshot| snapshot.summary.contains_key(name))?;
    Some(ForeignClaim {
        system,
        name: name.to_owned(),
        before_us: parse(found.summary.get(name)?)?,
        snapshot_id: Some(found.snapshot_id),
        note: None,
    })
}

/// The least of the regions; one that cannot be read is not known, and then nothing is.
fn flink(properties: &HashMap<&str, &str>) -> Option<ForeignClaim> {
    let regions: BTreeMap<&str, Option<i64>> = properties
        .iter()
        .filter(|(name, _)| name.len() > FLINK_WATERMARK.len() && name.starts_with(FLINK_WATERMARK))
        .map(|(name, text)| (*name, parse_ms(text)))
        .collect();
    let (name, least_us) = regions.iter().min_by_key(|(_, us)| **us)?;
    Some(ForeignClaim {
        system: System::Flink,
        name: (*name).to_owned(),
        before_us: (*least_us)?,
        snapshot_id: None,
        note: (regions.len() > 1).then(|| format!("the least of {} regions", regions.len())),
    })
}

/// Milliseconds since 1970. -1 and other sentinels are none.
fn parse_ms(text: &str) -> Option<i64> {
    let us = text.parse::<i64>().ok()?.checked_mul(1000)?;
    in_range(us).then_some(us)
}

/// As `java.time.OffsetDateTime` writes it: seconds and fractions are left out where they are zero.
fn parse_iso(text: &str) -> Option<i64> {
    let us = text.parse::<jiff::Timestamp>().ok()?.as_microsecond();
    in_range(us).then_some(us)
}

/// A claim in the words of other systems: what a commit adds to its summary, and does to the properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// For the summary.
    pub summary: BTreeMap<String, String>,
    /// For the properties. What was written before and is not any more is removed.
    pub properties: PropertyChanges,
}

/// Tells a claim in the words of `systems`. `written`: what the table's [`ALSO_WRITTEN`] says.
///
/// - Kafka Connect and `AutoMQ` speak of record timestamps. A row with a say has an event time of at most its record's timestamp
///   plus the skew, so every row with a say and a record timestamp before *claim − skew* is below the claim, and there.
/// - Gobblin and Flink speak of event times: the claim as it is. Of Flink there is one property a region; ours is named after the
///   writer.
/// - Gobblin's watermark by total counts is about counts that nobody made here, and is not written.
#[must_use]
pub fn words(
    claim: &Claim,
    bounds: &Bounds,
    writer: &str,
    systems: &BTreeSet<System>,
    written: Option<&str>,
) -> Words {
    let mut words = Words::default();
    if let Some(before_us) = told_us(claim) {
        let by_record_us = before_us.saturating_sub(bounds.max_future_skew_us);
        for system in systems {
            let (summary, set) = (&mut words.summary, &mut words.properties.set);
            match system {
                System::KafkaConnect => {
                    summary.insert(CONNECT_VALID_THROUGH.to_owned(), iso(by_record_us));
                    summary.insert(CONNECT_VTTS.to_owned(), ms(by_record_us));
                }
                System::AutoMq => {
                    summary.insert(AUTOMQ_WATERMARK.to_owned(), ms(by_record_us));
                }
                System::Flink => {
                    set.insert(format!("{FLINK_WATERMARK}{writer}"), ms(before_us));
                }
                System::Gobblin => {
                    set.insert(GOBBLIN_WATERMARK.to_owned(), ms(before_us));
                    set.insert(GOBBLIN_TIMEZONE.to_owned(), "UTC".to_owned());
                }
            }
        }
    }
    let set = &words.properties.set;
    let before = written.unwrap_or_default().split(',');
    let gone = before.filter(|name| is_foreign(name) && !set.contains_key(*name));
    words.properties.remove = gone.map(str::to_owned).collect();
    let names: BTreeSet<&str> = set
        .keys()
        .chain(words.summary.keys())
        .map(String::as_str)
        .collect();
    let names = names.into_iter().collect::<Vec<_>>().join(",");
    if !names.is_empty() {
        words.properties.set.insert(ALSO_WRITTEN.to_owned(), names);
    } else if written.is_some() {
        words.properties.remove.push(ALSO_WRITTEN.to_owned());
    }
    words
}

/// The systems in whose words a claim is told by what the table's [`ALSO_WRITTEN`] says: a commit that knows no settings goes on
/// with them.
#[must_use]
pub fn told_to(written: Option<&str>) -> BTreeSet<System> {
    let names = written.unwrap_or_default().split(',');
    names
        .filter_map(|name| match name {
            CONNECT_VALID_THROUGH | CONNECT_VTTS => Some(System::KafkaConnect),
            AUTOMQ_WATERMARK => Some(System::AutoMq),
            GOBBLIN_WATERMARK | GOBBLIN_TIMEZONE => Some(System::Gobblin),
            name if name.starts_with(FLINK_WATERMARK) => Some(System::Flink),
            _ => None,
        })
        .collect()
}

/// Whether a name can be one of another system: none of ours is ever taken away by what somebody wrote into the list.
#[must_use]
pub fn is_foreign(name: &str) -> bool {
    !name.is_empty() && !name.starts_with(PREFIX)
}

/// How far a claim can be told without a word for gaps, and without one for where it begins: not at all before it has begun.
fn told_us(claim: &Claim) -> Option<i64> {
    let claimed_us = claim.finalized_before_us?;
    let gap = claim.gaps.stretches().first();
    let before_us = gap.map_or(claimed_us, |(from_us, _)| claimed_us.min(*from_us));
    let begun = match claim.complete_from {
        CompleteFrom::Unbounded => true,
        CompleteFrom::From(us) => us < before_us,
    };
    begun.then_some(before_us)
}

fn ms(us: i64) -> String {
    us.div_euclid(1000).to_string()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::super::testing::{at, policy};
    use super::super::{Amended, Ancestor, Gaps, Term};
    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn lineage(summaries: &[&[(&str, &str)]]) -> Lineage<'static> {
        let number = |at: usize| i64::try_from(summaries.len() - at).unwrap();
        let snapshots = summaries.iter().enumerate().map(|(at, summary)| Ancestor {
            snapshot_id: number(at),
            parent_id: Some(number(at) - 1),
            summary: Cow::Owned(texts(summary)),
            picked: None,
        });
        Lineage {
            snapshots: snapshots.collect(),
            broken: false,
        }
    }

    fn found(properties: &[(&str, &str)], summaries: &[&[(&str, &str)]]) -> Vec<(System, i64)> {
        let read = read(&texts(properties), &lineage(summaries));
        read.into_iter()
            .map(|claim| (claim.system, claim.before_us))
            .collect()
    }

    #[test]
    fn both_names_and_both_forms_of_kafka_connect_are_read() {
        let noon = at("12:00");
        // An OffsetDateTime leaves seconds out where they are zero.
        for text in [
            "2026-11-30T12:00Z",
            "2026-11-30T12:00:00Z",
            "2026-11-30T13:00+01:00",
        ] {
            let summary: &[(&str, &str)] = &[(CONNECT_VALID_THROUGH, text)];
            assert_eq!(
                found(&[], &[summary]),
                [(System::KafkaConnect, noon)],
                "{text}"
            );
        }
        let summary: &[(&str, &str)] = &[(CONNECT_VTTS, "1796040000000")];
        assert_eq!(found(&[], &[summary]), [(System::KafkaConnect, noon)]);
    }

    /// A compaction, or a commit in which a partition said nothing, has no value; the one before stays true.
    #[test]
    fn newest_summary_with_the_name_counts() {
        let of = |text| vec![(CONNECT_VTTS, text)];
        let (old, new) = (of("1796036400000"), of("1796040000000"));
        let history: [&[(&str, &str)]; 3] = [&[("operation", "replace")], &new, &old];
        let read = read(&HashMap::new(), &lineage(&history));
        assert_eq!(read[0].before_us, at("12:00"));
        assert_eq!(read[0].snapshot_id, Some(2));
    }

    #[test]
    fn slowest_region_of_flink_counts_and_an_unreadable_one_holds() {
        let (fast, slow) = (
            ("flink.watermark.eu", "1796043600000"),
            ("flink.watermark.us", "1796040000000"),
        );
        assert_eq!(found(&[fast, slow], &[]), [(System::Flink, at("12:00"))]);
        assert_eq!(found(&[fast, ("flink.watermark.us", "soon")], &[]), []);
        assert_eq!(
            found(&[("flink.watermark.", "1796040000000")], &[]),
            [],
            "no region"
        );
    }

    #[test]
    fn sentinels_are_no_claim() {
        let none = [(GOBBLIN_WATERMARK, "-1"), (GOBBLIN_TOTAL_COUNT, "0")];
        assert_eq!(found(&none, &[&[(AUTOMQ_WATERMARK, "-1")]]), []);
    }

    #[test]
    fn gobblin_has_two_watermarks_and_a_zone() {
        let properties = texts(&[
            (GOBBLIN_WATERMARK, "1796040000000"),
            (GOBBLIN_TOTAL_COUNT, "1796036400000"),
            (GOBBLIN_TIMEZONE, "America/Los_Angeles"),
        ]);
        let read = read(&properties, &Lineage::default());
        let values: Vec<i64> = read.iter().map(|claim| claim.before_us).collect();
        assert_eq!(values, [at("12:00"), at("11:00")]);
        assert_eq!(
            read[0].note.as_deref(),
            Some("its hours are those of America/Los_Angeles")
        );
    }

    fn claim(from: &str, before: Option<&str>) -> Claim {
        Claim {
            epoch: 1,
            finalized_before_us: before.map(at),
            complete_from: CompleteFrom::From(at(from)),
            gaps: Gaps::default(),
            evidence: [Term::Minimum].into(),
            margin_us: None,
            reopened: None,
            retracted: Vec::new(),
            amended: Amended::default(),
        }
    }

    fn told(claim: &Claim, systems: &[System], written: Option<&str>) -> Words {
        let systems = systems.iter().copied().collect();
        words(claim, &policy().bounds, "shop.orders", &systems, written)
    }

    #[test]
    fn claim_is_told_in_each_systems_own_place_and_form() {
        let words = told(&claim("09:00", Some("12:00")), &System::ALL, None);
        let summary = [
            (AUTOMQ_WATERMARK, "1796039700000"),
            (CONNECT_VALID_THROUGH, "2026-11-30T11:55:00Z"),
            (CONNECT_VTTS, "1796039700000"),
        ];
        assert_eq!(words.summary, texts(&summary).into_iter().collect());
        let set = [
            (GOBBLIN_WATERMARK, "1796040000000"),
            (GOBBLIN_TIMEZONE, "UTC"),
            ("flink.watermark.shop.orders", "1796040000000"),
            (
                ALSO_WRITTEN,
                "automq.watermark,completionWatermark,completionWatermarkTimezone,\
                 flink.watermark.shop.orders,kafka.connect.valid-through-ts,kafka.connect.vtts",
            ),
        ];
        assert_eq!(words.properties.set, texts(&set).into_iter().collect());
        assert_eq!(words.properties.remove, [""; 0]);
        let written = words.properties.set.get(ALSO_WRITTEN).map(String::as_str);
        assert_eq!(told_to(written), System::ALL.into());
    }

    /// What is written is what is read.
    #[test]
    fn own_words_are_understood() {
        let words = told(&claim("09:00", Some("12:00")), &System::ALL, None);
        let mut properties: HashMap<String, String> = words.properties.set.into_iter().collect();
        let written = properties.remove(ALSO_WRITTEN);
        let ancestor = Ancestor {
            snapshot_id: 1,
            parent_id: None,
            summary: Cow::Owned(words.summary.into_iter().collect()),
            picked: None,
        };
        let lineage = Lineage {
            snapshots: vec![ancestor],
            broken: false,
        };
        let read = read(&properties, &lineage);
        let systems: BTreeSet<System> = read.iter().map(|claim| claim.system).collect();
        assert_eq!(systems, System::ALL.into());
        // On a table of ours they are no word of others: a claim that was taken back would come back by them.
        properties.extend(written.map(|names| (ALSO_WRITTEN.to_owned(), names)));
        let summary = lineage.snapshots[0].summary.clone().into_owned();
        let own = (super::super::contract::COMMIT_ID.to_owned(), String::new());
        let ancestor = Ancestor {
            summary: Cow::Owned(summary.into_iter().chain([own]).collect()),
            ..lineage.snapshots[0].clone()
        };
        let lineage = Lineage {
            snapshots: vec![ancestor],
            broken: false,
        };
        assert_eq!(super::read(&properties, &lineage), []);
    }

    #[test]
    fn withdrawn_words_are_taken_away_and_nobody_elses() {
        let written = "completionWatermark,completionWatermarkTimezone,flink.watermark.shop.orders,tidemark.epoch";
        let words = told(
            &claim("09:00", Some("12:00")),
            &[System::Flink],
            Some(written),
        );
        assert_eq!(
            words.properties.remove,
            [GOBBLIN_WATERMARK, GOBBLIN_TIMEZONE]
        );
        assert_eq!(
            words.properties.set[ALSO_WRITTEN],
            "flink.watermark.shop.orders"
        );
        let words = told(&claim("09:00", Some("12:00")), &[], Some(GOBBLIN_WATERMARK));
        assert_eq!(words.properties.remove, [GOBBLIN_WATERMARK, ALSO_WRITTEN]);
        assert_eq!(
            told(&claim("09:00", Some("12:00")), &[], None),
            Words::default()
        );
    }

    /// No foreign name can say "but not from four to six".
    #[test]
    fn claim_is_told_up_to_its_first_gap_and_not_before_it_begins() {
        let mut gapped = claim("09:00", Some("12:00"));
        gapped.gaps.add(at("10:00"), at("11:00"));
        let words = told(&gapped, &[System::Gobblin], None);
        assert_eq!(words.properties.set[GOBBLIN_WATERMARK], ms(at("10:00")));
        for none in [claim("12:00", Some("12:00")), claim("09:00", None)] {
            let words = told(&none, &System::ALL, Some(GOBBLIN_WATERMARK));
            assert_eq!(words.summary, BTreeMap::new());
            assert_eq!(words.properties.remove, [GOBBLIN_WATERMARK, ALSO_WRITTEN]);
        }
    }
}
