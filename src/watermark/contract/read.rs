//! Reading what stands on a table. What cannot be read is an error, never a claim.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

use super::lists::{
    SummaryGaps, parse_amended, parse_asked, parse_gaps, parse_offsets, parse_reopened,
    parse_retracted, parse_stretches,
};
use super::settings::{parse_bounds, parse_complete_from, parse_evidence, parse_policy};
use super::{
    AMENDED, BEGINS, BOUNDS, BadValue, COMMIT_ID, COMMITTED_AT, COMPLETE_FROM, EPOCH, EVIDENCE,
    FINALIZED_BEFORE, GAPS, INSTALLATION, MARGIN_MS, OFFSETS, OpenStretch, OwnSummary, PARTITIONS,
    PARTITIONS_ASKED, POLICY, POLICY_REVISION, REF, REOPENED, RETRACTED, SOURCE_POSITIONS,
    TABLE_UUID, TableClaim, WORKER, WRITER, WRITER_PUBLISHED, parse_iso, parse_ms,
};
use crate::watermark::claim::Claim;
use crate::watermark::state::{Published, Record};

/// The claim in a table's properties; `None` where there is none of ours.
///
/// # Errors
/// When a value is not what its name promises.
#[expect(
    clippy::implicit_hasher,
    reason = "the very type that the Iceberg crate has"
)]
pub fn read_properties(
    properties: &HashMap<String, String>,
) -> Result<Option<TableClaim>, BadValue> {
    if !properties.contains_key(COMMIT_ID) {
        return Ok(None);
    }
    let read = Names(properties);
    Ok(Some(TableClaim {
        commit_id: read.parsed(COMMIT_ID)?,
        table_uuid: read.parsed(TABLE_UUID)?,
        table_ref: read.text(REF)?.to_owned(),
        policy_revision: read.parsed(POLICY_REVISION)?,
        bounds: read.with(BOUNDS, parse_bounds)?,
        claim: Claim {
            epoch: read.parsed(EPOCH)?,
            finalized_before_us: read.some(FINALIZED_BEFORE, parse_iso)?,
            complete_from: read.with(COMPLETE_FROM, parse_complete_from)?,
            gaps: read.some(GAPS, parse_stretches)?.unwrap_or_default(),
            evidence: read.some(EVIDENCE, parse_evidence)?.unwrap_or_default(),
            margin_us: read.some(MARGIN_MS, parse_ms)?,
            reopened: read.some(REOPENED, parse_reopened)?,
            amended: read.some(AMENDED, parse_amended)?.unwrap_or_default(),
            retracted: read.some(RETRACTED, parse_retracted)?.unwrap_or_default(),
        },
    }))
}

/// The commit id in a summary of ours.
#[expect(
    clippy::implicit_hasher,
    reason = "the very type that the Iceberg crate has"
)]
#[must_use]
pub fn summary_commit_id(summary: &HashMap<String, String>) -> Option<Uuid> {
    summary.get(COMMIT_ID)?.parse().ok()
}

/// What a summary of ours says; `None` where it is not ours.
///
/// # Errors
/// When a value is not what its name promises.
#[expect(
    clippy::implicit_hasher,
    reason = "the very type that the Iceberg crate has"
)]
pub fn read_summary(summary: &HashMap<String, String>) -> Result<Option<OwnSummary>, BadValue> {
    if !summary.contains_key(COMMIT_ID) {
        return Ok(None);
    }
    let read = Names(summary);
    let mut policy = read.with(POLICY, parse_policy)?;
    policy.revision = read.parsed(POLICY_REVISION)?;
    let (cluster_id, offsets) = read.with(OFFSETS, parse_offsets)?;
    let mut record = Record {
        commit_id: read.parsed(COMMIT_ID)?,
        committed_at_us: read.with(COMMITTED_AT, parse_iso)?,
        begins: read
            .some(BEGINS, |text| text.parse().ok())?
            .unwrap_or(false),
        policy,
        subscription: offsets.subscription.clone(),
        topics: offsets
            .next
            .keys()
            .map(|(topic, _)| topic.clone())
            .collect(),
        left: offsets.left.clone(),
        asked: read.some(PARTITIONS_ASKED, |text| parse_asked(text, &offsets))?,
        newest_change: None,
        newest_heartbeat_us: None,
        topic_ids: BTreeMap::new(),
        partitions: BTreeMap::new(),
        gone: BTreeSet::new(),
    };
    let positions = summary.get(SOURCE_POSITIONS).map(String::as_str);
    let packed = record.decode_partitions(read.text(PARTITIONS)?, positions);
    packed.map_err(|source| BadValue::Packed {
        name: PARTITIONS.to_owned(),
        source,
    })?;
    // Every partition that is there has an offset.
    let left = record.partitions.keys();
    let left = left.filter(|key| !offsets.next.contains_key(*key));
    record.gone = left.cloned().collect();
    let gaps = read.some(GAPS, parse_gaps)?.unwrap_or_default();
    let of_table = published_of_table(&read, &gaps)?;
    let published = summary.get(WRITER_PUBLISHED);
    let published = published.map(|text| Published::decode(text)).transpose();
    let published = published.map_err(|source| BadValue::Packed {
        name: WRITER_PUBLISHED.to_owned(),
        source,
    })?;
    Ok(Some(OwnSummary {
        writer: read.text(WRITER)?.to_owned(),
        worker: read.text(WORKER)?.to_owned(),
        installation: read.text(INSTALLATION)?.to_owned(),
        cluster_id,
        table_uuid: read.parsed(TABLE_UUID)?,
        table_ref: read.text(REF)?.to_owned(),
        record,
        published: published.unwrap_or_else(|| of_table.clone()),
        of_table,
        open_gaps: gaps.open,
        offsets,
    }))
}

/// The claim that a summary of ours published, and no more of it; `None` where it is not ours.
///
/// # Errors
/// When a value that the claim is made of is not what its name promises.
#[expect(
    clippy::implicit_hasher,
    reason = "the very type that the Iceberg crate has"
)]
pub fn read_summary_claim(
    summary: &HashMap<String, String>,
) -> Result<Option<TableClaim>, BadValue> {
    if !summary.contains_key(COMMIT_ID) {
        return Ok(None);
    }
    let read = Names(summary);
    let gaps = read.some(GAPS, parse_gaps)?.unwrap_or_default();
    let policy = read.with(POLICY, parse_policy)?;
    let published = published_of_table(&read, &gaps)?;
    Ok(Some(TableClaim {
        commit_id: read.parsed(COMMIT_ID)?,
        table_uuid: read.parsed(TABLE_UUID)?,
        table_ref: read.text(REF)?.to_owned(),
        policy_revision: read.parsed(POLICY_REVISION)?,
        bounds: policy.bounds,
        claim: claim_of(&published, &gaps.open),
    }))
}

fn published_of_table(read: &Names<'_>, gaps: &SummaryGaps) -> Result<Published, BadValue> {
    Ok(Published {
        epoch: read.parsed(EPOCH)?,
        finalized_before_us: read.some(FINALIZED_BEFORE, parse_iso)?,
        complete_from: read.with(COMPLETE_FROM, parse_complete_from)?,
        evidence: read.some(EVIDENCE, parse_evidence)?.unwrap_or_default(),
        gaps: gaps.settled.clone(),
        lost_before_us: gaps.lost_before_us,
        reopened: read.some(REOPENED, parse_reopened)?,
        amended: read.some(AMENDED, parse_amended)?.unwrap_or_default(),
        retracted: read.some(RETRACTED, parse_retracted)?.unwrap_or_default(),
        drained: false,
    })
}

fn claim_of(published: &Published, open_gaps: &[OpenStretch]) -> Claim {
    let mut gaps = published.gaps.clone();
    for open in open_gaps {
        if let Some(from_us) = open.from_us {
            gaps.add(from_us, open.to_us);
        }
    }
    Claim {
        epoch: published.epoch,
        finalized_before_us: published.finalized_before_us,
        complete_from: published.complete_from,
        gaps,
        evidence: published.evidence.clone(),
        margin_us: None,
        reopened: published.reopened,
        amended: published.amended.clone(),
        retracted: published.retracted.clone(),
    }
}

impl OwnSummary {
    /// The claim that the summary's commit published.
    #[must_use]
    pub fn table_claim(&self) -> TableClaim {
        TableClaim {
            commit_id: self.record.commit_id,
            table_uuid: self.table_uuid,
            table_ref: self.table_ref.clone(),
            policy_revision: self.record.policy.revision,
            bounds: self.record.policy.bounds.clone(),
            claim: claim_of(&self.of_table, &self.open_gaps),
        }
    }

    /// What its writer published for itself.
    #[must_use]
    pub fn own_claim(&self) -> Claim {
        claim_of(&self.published, &self.open_gaps)
    }
}

/// Reads values by name.
struct Names<'a>(&'a HashMap<String, String>);

impl<'a> Names<'a> {
    fn bad(&self, name: &str) -> BadValue {
        let shorten = |value: &String| value.chars().take(80).collect();
        BadValue::Value {
            name: name.to_owned(),
            value: self.0.get(name).map(shorten),
        }
    }

    fn text(&self, name: &str) -> Result<&'a str, BadValue> {
        self.0
            .get(name)
            .map(String::as_str)
            .ok_or_else(|| self.bad(name))
    }

    fn with<T>(&self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, BadValue> {
        parse(self.text(name)?).ok_or_else(|| self.bad(name))
    }

    fn parsed<T: std::str::FromStr>(&self, name: &str) -> Result<T, BadValue> {
        self.with(name, |text| text.parse().ok())
    }

    fn some<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, BadValue> {
        match self.0.get(name) {
            None => Ok(None),
            Some(_) => self.with(name, parse).map(Some),
        }
    }
}
