//! Orders of a person, brought onto a table as a worker brings its rows.
//!
//! In: a catalog, a table and an [`Order`]. The commit goes the way of every other: loaded, derived on exactly that base, sent
//! once, tried again after a rival. Workers that run go on from it.
//!
//! Never a first commit: who has not written to a table has nothing to order there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use iceberg::TableIdent;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Error;
use super::commit::{Outcome, TableSide};
use super::errand::Errand;
use super::metrics::WorkerMetrics;
use super::standing::Leave;
use crate::api::Reason;
use crate::api::worker::{OnRollback, SinkAccept};
use crate::lake::catalog::{self, CatalogKind, CatalogSettings};
use crate::lake::raw;
use crate::process::clock::Clock;
use crate::watermark::{Claim, Order, State, contract};

/// How long an order may wait for a catalog, rivals and answers.
const PATIENCE: Duration = Duration::from_mins(2);

/// An order that was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ordered {
    /// The commit that did it; `None`: it was so already.
    pub commit_id: Option<Uuid>,
    /// What the table claims since.
    pub claim: Claim,
}

/// Carries an order out on a table, in the name of one of its writers; of any where that does not matter. `who` is named in the
/// summary as the worker.
///
/// # Errors
/// The catalog or the table refuses, or nothing came of it in two minutes.
pub async fn order(
    settings: &CatalogSettings,
    table: TableIdent,
    (writer, order): (Option<&str>, Order),
    who: &str,
) -> Result<Ordered, Error> {
    let catalog = catalog::open(settings).await?;
    let loaded = catalog::load(&*catalog, &table).await?;
    let metadata = loaded.metadata();
    let state = state_of(metadata.properties(), writer).ok_or_else(|| {
        let named = writer.map_or_else(String::new, |writer| format!(" \"{writer}\""));
        let problem = format!("table \"{table}\" has no writer{named} whose state can be read");
        Error::refused(Reason::SpecInvalid, problem)
    })?;
    let raw = raw::open_raw(settings).await?;
    let clock = Clock::system();
    let side = TableSide {
        by_hand: matches!(settings.kind, CatalogKind::Sql { .. }).then_some(raw),
        catalog,
        ident: table,
        subscription: state.subscription.clone(),
        policy: state.policy.clone(),
        identity: state.identity,
        accept: SinkAccept::default(),
        leave: Leave {
            shared: false,
            orders: true,
        },
        accept_cluster: None,
        on_rollback: OnRollback::Replay,
        memory: Arc::default(),
        spec_id: metadata.default_partition_spec_id(),
        also_write: None,
        processors: Vec::new(),
        worker: who.to_owned(),
        clock: clock.clone(),
        metrics: WorkerMetrics::register(&mut Registry::default(), &clock).pipeline(who, who),
        handled: std::sync::Mutex::default(),
        telling: tokio::sync::Mutex::default(),
    };
    let loaded = side.load().await?;
    if is_done(&order, &loaded.state) && !loaded.is_for_opening() {
        return Ok(Ordered {
            commit_id: None,
            claim: loaded.state.claim(),
        });
    }
    let errand = Errand {
        order: Some(order),
        // A roll-back is taken up by a worker, which knows what its specification makes of one. A drained writer has none that may.
        opening: loaded
            .opening
            .filter(|opening| loaded.state.published.drained && opening.reopens()),
        ..Errand::default()
    };
    let stop = CancellationToken::new();
    let told = |error: &crate::lake::Error| tracing::warn!(%error, "the order waits");
    let settled = tokio::select! {
        settled = side.settle(&errand, &stop, &told) => settled?,
        () = clock.sleep(PATIENCE) => return Err(Error::GivenUp),
    };
    match settled {
        Outcome::Committed(success) => Ok(Ordered {
            commit_id: Some(success.commit_id),
            claim: success.state.claim(),
        }),
        // An order is always worth a commit.
        Outcome::Looked(_) => Err(Error::GivenUp),
    }
}

/// Whether a table is as an order asks for; a stretch can be retracted again, for another reason.
fn is_done(order: &Order, state: &State) -> bool {
    match order {
        Order::Retract(_) => false,
        Order::Drain => state.published.drained,
        Order::Undrain => !state.published.drained,
    }
}

/// The state of a writer of a table, or of the first that can be read.
fn state_of(properties: &HashMap<String, String>, writer: Option<&str>) -> Option<State> {
    let sorted: BTreeMap<&String, &String> = properties.iter().collect();
    let mut states = sorted.into_iter().filter_map(|(name, text)| {
        let known = contract::writer_of(name)?;
        let wanted = writer.is_none_or(|wanted| wanted == known);
        wanted.then(|| State::decode(text).ok()).flatten()
    });
    states.next()
}
