//! Reading a table's claim as anyone may: through the catalog alone, without asking a worker.
//!
//! Comes in: a catalog and a table. Goes out: a [`Reading`], what the table says and whether it counts. [`wait`] asks again
//! until a [`Question`] is answered.
//!
//! The readers' rule: a claim counts only if the commit that published it lies in main's history. After a rollback, on a
//! branch, a copy or a table made again, the properties still show the old claim; it is then held, never believed.

use std::{borrow::Cow, collections::HashMap, fmt::Write, sync::Arc, time::Duration};

use iceberg::{Catalog as IcebergCatalog, TableIdent, spec::TableMetadata, table::Table};
use uuid::Uuid;

use crate::{
    api::{
        quantity::instant,
        worker::{self, TableName},
    },
    lake::{self, catalog::CatalogSettings, lineage::lineage},
    process::{clock::Clock, secret::Secret, tls::Authorities},
    watermark::{
        self, Ancestor, Coverage, ForeignClaim, Kept, Lineage, Peer, PeerUnreadable, Reopened,
        State, TableView, Term,
        contract::{self, OwnSummary},
        peers, read_claim,
    },
};

pub mod foreign;
pub mod frontiers;
pub mod history;
pub mod layout;
pub mod print;
#[cfg(test)]
mod testing;
pub mod tune;
pub mod verdict;
pub mod why;

pub use verdict::{Question, Reading, Standing, TableClaim, Verdict};

/// The ref that claims are about.
const MAIN: &str = "main";

/// A catalog with its credential.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// Which one and how to reach it.
    pub settings: worker::Catalog,
    /// Its credential, where it needs one.
    pub credential: Option<Secret>,
    /// Who may have signed its certificate and that of its store, where the settings do not say so.
    pub authorities: Option<Authorities>,
}

/// Why a table could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The catalog failed, or has no such table.
    #[error("table \"{table}\" cannot be read from catalog \"{uri}\"")]
    Lake {
        /// The table.
        table: TableName,
        /// The catalog's address.
        uri: String,
        /// Why.
        source: Box<lake::Error>,
    },
    /// The state of a writer cannot be read.
    #[error("the writers of table \"{table}\" cannot be told")]
    Writers {
        /// The table.
        table: TableName,
        /// Which one, and why.
        source: PeerUnreadable,
    },
    /// The table's name is none for Iceberg.
    #[error("\"{table}\" is no name of a table; write namespace.table")]
    Name {
        /// The name.
        table: TableName,
        /// What the library said.
        source: Box<iceberg::Error>,
    },
}

impl Error {
    /// Whether the catalog answered that there is no such table.
    #[must_use]
    pub fn is_no_such_table(&self) -> bool {
        matches!(self, Self::Lake { source, .. } if matches!(**source, lake::Error::NoSuchTable { .. }))
    }
}

/// How a catalog is reached, and a table's name in it.
///
/// # Errors
/// The name is none.
pub fn address(
    catalog: &Catalog,
    table: &TableName,
) -> Result<(CatalogSettings, TableIdent), Error> {
    let mut settings = CatalogSettings::of(&catalog.settings, catalog.credential.clone());
    // A mistyped path must not be answered by a catalog that is there from now on and has no tables.
    settings.create = false;
    if let Some(authorities) = &catalog.authorities {
        settings.trust(authorities);
    }
    let parts = table.namespace.iter().chain([&table.name]);
    let ident = TableIdent::from_strs(parts).map_err(|source| Error::Name {
        table: table.clone(),
        source: Box::new(source),
    })?;
    Ok((settings, ident))
}

/// Reads one table.
#[derive(Debug)]
pub struct Reader {
    catalog: Arc<dyn IcebergCatalog>,
    name: TableName,
    table: TableIdent,
    uri: String,
}

impl Reader {
    /// Opens the catalog.
    ///
    /// # Errors
    /// The catalog cannot be opened, or the name is none.
    pub async fn open(catalog: &Catalog, table: &TableName) -> Result<Self, Error> {
        let (settings, ident) = address(catalog, table)?;
        let uri = settings.kind.address();
        let opened = lake::catalog::open(&settings).await;
        let lake = |source| Error::Lake {
            table: table.clone(),
            uri: uri.clone(),
            source: Box::new(source),
        };
        Ok(Self {
            catalog: opened.map_err(lake)?,
            name: table.clone(),
            table: ident,
            uri,
        })
    }

    /// What the table says now.
    ///
    /// # Errors
    /// The catalog fails, or has no such table.
    pub async fn read(&self) -> Result<Reading, Error> {
        Ok(reading(&self.name, self.load().await?.metadata()))
    }

    /// The writers of the table, by name.
    ///
    /// # Errors
    /// The catalog fails, or has no such table, or the state of a writer cannot be read.
    pub async fn writers(&self) -> Result<Vec<Peer>, Error> {
        peers("", &self.record().await?.view()).map_err(|source| Error::Writers {
            table: self.name.clone(),
            source,
        })
    }

    /// The table as it is now, to be explained.
    ///
    /// # Errors
    /// The catalog fails, or has no such table.
    pub async fn record(&self) -> Result<TableRecord, Error> {
        Ok(TableRecord::of(&self.name, self.load().await?.metadata()))
    }

    async fn load(&self) -> Result<Table, Error> {
        let loaded = lake::catalog::load(&*self.catalog, &self.table).await;
        loaded.map_err(|source| Error::Lake {
            table: self.name.clone(),
            uri: self.uri.clone(),
            source: Box::new(source),
        })
    }
}

/// What a table has kept: its properties, and the summaries of main's history as far as it reaches.
#[derive(Debug, Clone)]
pub struct TableRecord {
    /// The table, as `namespace.name`.
    pub table: String,
    /// Its newest snapshot on main.
    pub snapshot_id: Option<i64>,
    table_uuid: Uuid,
    properties: HashMap<String, String>,
    lineage: Lineage<'static>,
}

impl TableRecord {
    /// Of one loaded metadata.
    #[must_use]
    pub fn of(name: &TableName, metadata: &TableMetadata) -> Self {
        let history = lineage(metadata);
        Self {
            table: name.to_string(),
            snapshot_id: metadata.current_snapshot_id(),
            table_uuid: metadata.uuid(),
            properties: metadata.properties().clone(),
            lineage: owned(&history.ancestry()),
        }
    }

    /// The state as of the newest commit of ours: the one that it left, or what the summaries on record say.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        let kept = Kept::of(&self.view(), None)?;
        let newest = kept.newest();
        state_of(newest, &self.view()).or_else(|| {
            let mut state = kept.state();
            state.peers = peers(&newest.writer, &self.view()).ok()?;
            Some(state)
        })
    }

    /// The writers that have a state on the table.
    pub(super) fn writer_names(&self) -> impl Iterator<Item = &str> {
        self.properties
            .keys()
            .filter_map(|name| contract::writer_of(name))
    }

    /// What other systems say about the table.
    #[must_use]
    pub fn foreign(&self) -> Vec<ForeignClaim> {
        watermark::foreign::read(&self.properties, &self.lineage)
    }

    /// The same as the finalization core sees it.
    #[must_use]
    pub fn view(&self) -> TableView<'_> {
        TableView {
            table_uuid: self.table_uuid,
            table_ref: MAIN,
            properties: &self.properties,
            lineage: &self.lineage,
        }
    }
}

/// The readers' rule over one loaded metadata.
#[must_use]
pub fn reading(name: &TableName, metadata: &TableMetadata) -> Reading {
    let record = TableRecord::of(name, metadata);
    let (standing, taken_back) = standing(&record.view());
    let foreign = match standing {
        Standing::Unclaimed => record.foreign(),
        Standing::Held(_) | Standing::Claimed(_) => Vec::new(),
    };
    Reading {
        standing,
        taken_back,
        foreign,
        table: record.table,
        snapshot_id: record.snapshot_id,
    }
}

fn standing(view: &TableView<'_>) -> (Standing, Option<Reopened>) {
    match read_claim(view) {
        watermark::Reading::Nothing => (Standing::Unclaimed, None),
        watermark::Reading::Held { why, .. } => (Standing::Held(why.to_string()), None),
        watermark::Reading::Claim(on_table) => {
            let claim = &on_table.claim;
            let none = claim.finalized_before_us.is_none();
            let taken_back = claim.reopened.filter(|_| none);
            (claimed(on_table, view), taken_back)
        }
    }
}

/// The same without the metadata that it was taken from.
fn owned(lineage: &Lineage<'_>) -> Lineage<'static> {
    let owned = |ancestor: &Ancestor<'_>| Ancestor {
        snapshot_id: ancestor.snapshot_id,
        parent_id: ancestor.parent_id,
        summary: Cow::Owned(ancestor.summary.clone().into_owned()),
        picked: ancestor.picked.clone(),
    };
    Lineage {
        snapshots: lineage.snapshots.iter().map(owned).collect(),
        broken: lineage.broken,
    }
}

/// A claim that counts, with what the newest of our snapshots and the state say beside it.
fn claimed(on_table: contract::TableClaim, view: &TableView<'_>) -> Standing {
    let Some(finalized_before_us) = on_table.claim.finalized_before_us else {
        return Standing::Unclaimed;
    };
    let summaries = || {
        view.lineage
            .snapshots
            .iter()
            .map(|snapshot| &*snapshot.summary)
    };
    let newest = summaries().find_map(|summary| contract::read_summary(summary).ok().flatten());
    let state = newest.as_ref().and_then(|own| state_of(own, view));
    let grid = newest.as_ref().map(|own| own.record.policy.grid);
    let undecodable = summaries().filter_map(|summary| {
        summary
            .get(contract::EXCLUDED_UNDECODABLE)?
            .parse::<u64>()
            .ok()
    });
    Standing::Claimed(Box::new(TableClaim {
        finalized_before_us,
        accepted: state
            .as_ref()
            .and_then(|state| accepted(state, view.properties))
            .unwrap_or_default(),
        bounds: view
            .properties
            .get(contract::BOUNDS)
            .cloned()
            .unwrap_or_default(),
        last_final_cell: grid.map(|grid| grid.last_final(finalized_before_us)),
        grid,
        policy_revision: on_table.policy_revision,
        commit_id: on_table.commit_id.to_string(),
        hold: state
            .as_ref()
            .map(|state| why::hold_sentence(&state.hold(true))),
        undecodable: undecodable.sum(),
        claim: on_table.claim,
    }))
}

/// The writer's state, where it is that of its newest commit.
fn state_of(own: &OwnSummary, view: &TableView<'_>) -> Option<State> {
    let text = view
        .properties
        .get(&contract::state_property(&own.writer))?;
    let mut state = State::decode(text).ok()?;
    state.peers = peers(&own.writer, view).ok()?;
    (state.commit_id == own.record.commit_id).then_some(state)
}

/// How far each set of terms alone carries the claim: of several writers, whose word it rests on, the least far. `None`: it cannot be
/// told of one.
fn accepted(state: &State, properties: &HashMap<String, String>) -> Option<Vec<verdict::Accepted>> {
    let counts = state.counts();
    let mut states = vec![state.clone()];
    states.retain(|own| counts(own.published.drained, own.published.finalized_before_us));
    let peers = state.peers.iter();
    for peer in peers.filter(|peer| counts(peer.drained, peer.claim.finalized_before_us)) {
        let text = properties.get(&contract::state_property(&peer.writer))?;
        states.push(State::decode(text).ok()?);
    }
    let sets = (1..1_usize << Term::ALL.len()).map(|set| {
        let chosen = |(bit, term): (usize, Term)| (set >> bit & 1 == 1).then_some(term);
        Term::ALL
            .into_iter()
            .enumerate()
            .filter_map(chosen)
            .collect()
    });
    let accepted = sets.map(|terms| verdict::Accepted {
        finalized_before_us: states
            .iter()
            .map(|state| state.accepted(&terms))
            .min()
            .flatten(),
        terms,
    });
    Some(accepted.collect())
}

/// How long and how often to ask.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// When to give up; zero asks once.
    pub timeout: Duration,
    /// How long between two questions.
    pub every: Duration,
}

/// The end of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The verdict on the last reading.
    pub verdict: Verdict,
    /// What the table said last.
    pub reading: Reading,
}

/// Asks until the table is ready, or can never be, or the time is over. `tell` hears what is waited for when it changes.
///
/// # Errors
/// The table does not exist, or the catalog could not be read when the time was over.
pub async fn wait(
    catalog: &Catalog,
    table: &TableName,
    question: &Question,
    (patience, clock): (Patience, &Clock),
    mut tell: impl FnMut(&str),
) -> Result<Answer, Error> {
    let until = clock.monotonic() + patience.timeout;
    let mut told = String::new();
    let mut reader = None;
    loop {
        let asked = ask(&mut reader, catalog, table).await;
        let left = until.saturating_sub(clock.monotonic());
        let waits_for = match asked {
            Err(error) if error.is_no_such_table() || left.is_zero() => return Err(error),
            Err(error) => format!("the catalog cannot be read: {}", chain(&error)),
            Ok(reading) => {
                let verdict = reading.judge(question);
                let settled = matches!(verdict, Verdict::Ready | Verdict::Incomplete(_));
                if settled || left.is_zero() {
                    return Ok(Answer { verdict, reading });
                }
                waits_for(&verdict, &reading, question)
            }
        };
        if waits_for != told {
            tell(&waits_for);
            told = waits_for;
        }
        clock.sleep(patience.every.min(left)).await;
    }
}

/// Opens the catalog when that has not been possible before, and reads.
async fn ask(
    reader: &mut Option<Reader>,
    catalog: &Catalog,
    table: &TableName,
) -> Result<Reading, Error> {
    match reader {
        Some(reader) => reader.read().await,
        None => {
            reader
                .insert(Reader::open(catalog, table).await?)
                .read()
                .await
        }
    }
}

fn withheld(claim: &TableClaim, question: &Question) -> bool {
    let interval = question.interval(claim.grid);
    matches!(
        claim.claim.covers(interval.from_us, interval.before_us),
        Coverage::Withheld { .. }
    )
}

fn waits_for(verdict: &Verdict, reading: &Reading, question: &Question) -> String {
    match (verdict, &reading.standing) {
        (Verdict::Held(why), _) => format!("the claim does not count: {why}"),
        (Verdict::OtherEvidence, _) => "complete, but not by the accepted terms alone".to_owned(),
        (_, Standing::Claimed(claim)) if withheld(claim, question) => {
            "final, but withheld until the claim next rises: rows came late".to_owned()
        }
        (_, Standing::Claimed(claim)) => {
            format!("final before {} so far", instant(claim.finalized_before_us))
        }
        _ => match reading.foreign_before_us(&question.foreign) {
            Some(before_us) => format!("others say complete before {} so far", instant(before_us)),
            None => match reading.taken_back {
                Some(reopened) => print::taken_back_sentence(reopened),
                None => "the table makes no claim yet".to_owned(),
            },
        },
    }
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let _ = write!(text, ": {inner}");
        cause = inner.source();
    }
    text
}
