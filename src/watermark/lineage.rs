//! A table as it stands: its identity, its properties, and the snapshots that lead to the newest of a ref.
//!
//! Whoever loads a table puts it into these types; nothing is copied and nothing decided here. Snapshots of other programs
//! are entries like ours, told apart by the names in their summaries.

use std::borrow::Cow;
use std::collections::HashMap;

use uuid::Uuid;

use super::contract::{COMMIT_ID, WRITER, summary_commit_id};

/// The key by which Iceberg marks a snapshot that was cherry-picked, with the snapshot that it repeats.
pub const SOURCE_SNAPSHOT_ID: &str = "source-snapshot-id";

/// What a cherry-picked snapshot repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Picked {
    /// A commit of this writer of ours: its rows are in the ancestry without its summary.
    Ours(String),
    /// A commit of somebody else's.
    Foreign,
    /// A snapshot that has expired: nobody can tell whose it was.
    Gone,
}

/// A snapshot in the ancestry of a ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor<'a> {
    /// Its id.
    pub snapshot_id: i64,
    /// Its parent's.
    pub parent_id: Option<i64>,
    /// Its summary.
    pub summary: Cow<'a, HashMap<String, String>>,
    /// What it repeats, where it was cherry-picked.
    pub picked: Option<Picked>,
}

impl Ancestor<'_> {
    /// Whether it is a commit of ours. A copy that took our names along is none: its commit id is that of the original.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.summary.contains_key(COMMIT_ID) && self.picked.is_none()
    }

    /// Whether it is a commit of a writer of ours.
    #[must_use]
    pub fn is_of(&self, writer: &str) -> bool {
        self.is_own() && self.summary.get(WRITER).is_some_and(|name| name == writer)
    }

    /// Our commit id.
    #[must_use]
    pub fn commit_id(&self) -> Option<Uuid> {
        summary_commit_id(&self.summary)
    }
}

/// The ancestry of a ref.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage<'a> {
    /// The snapshots, newest first, as far as parent links lead.
    pub snapshots: Vec<Ancestor<'a>>,
    /// Whether they end at a parent that is gone: the rest has expired.
    pub broken: bool,
}

/// What there is to know of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableView<'a> {
    /// Its UUID.
    pub table_uuid: Uuid,
    /// The ref that is read, `main`.
    pub table_ref: &'a str,
    /// Its properties.
    pub properties: &'a HashMap<String, String>,
    /// The ancestry of the ref.
    pub lineage: &'a Lineage<'a>,
}

impl TableView<'_> {
    /// Whether something is about this table and ref.
    pub(super) fn is(&self, table_uuid: Uuid, table_ref: &str) -> bool {
        self.table_uuid == table_uuid && self.table_ref == table_ref
    }
}
