//! Opening the change-log table: create it, check it, widen it.
//!
//! In goes what the manifest wants; out comes a table that fits. A missing namespace or table is created. An existing table
//! is checked first (`check`). A nullable column that the table lacks is added; two workers adding it at once both carry on.
//! Nothing else of a table is ever changed.
//!
//! A race with another worker ends in the same table for both: whoever loses loads and checks again.

use std::collections::BTreeMap;

use iceberg::spec::{
    FormatVersion, ListType, MapType, NestedField, NestedFieldRef, Schema, StructType, Transform,
    Type, UnboundPartitionSpec,
};
use iceberg::table::Table;
use iceberg::transaction::{AddColumn, ApplyTransactionAction, Transaction};
use iceberg::{Catalog, ErrorKind, NamespaceIdent, TableCreation, TableIdent};
use tracing::info;

use super::check::{check, check_spec, wanted};
use super::{Error, catalog};

/// Attempts at widening a table that others widen at the same time. Each loss means that another worker made progress, and
/// workers of one table are few.
const WIDEN_ATTEMPTS: usize = 8;

/// A column of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its Iceberg type; ids inside it are drawn anew.
    pub column_type: Type,
    /// Whether it may never be null.
    pub required: bool,
    /// Whether it is part of the source's key; a key column is required.
    pub key: bool,
    /// What it holds, for people.
    pub doc: Option<String>,
}

impl Column {
    /// A nullable column.
    #[must_use]
    pub fn optional(name: impl Into<String>, column_type: Type) -> Self {
        Self {
            name: name.into(),
            column_type,
            required: false,
            key: false,
            doc: None,
        }
    }

    /// A column that is never null.
    #[must_use]
    pub fn required(name: impl Into<String>, column_type: Type) -> Self {
        Self {
            required: true,
            ..Self::optional(name, column_type)
        }
    }

    /// A column of the key.
    #[must_use]
    pub fn key(name: impl Into<String>, column_type: Type) -> Self {
        Self {
            key: true,
            ..Self::required(name, column_type)
        }
    }
}

/// How rows are laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Partitioning {
    /// By the hour of this column, normally the event time.
    Hour(String),
    /// Not at all.
    None,
    /// By these transforms, in this order.
    Transforms(Vec<(String, Transform)>),
}

impl Partitioning {
    pub(super) fn fields(&self) -> Vec<(String, Transform)> {
        match self {
            Self::Hour(column) => vec![(column.clone(), Transform::Hour)],
            Self::None => Vec::new(),
            Self::Transforms(fields) => fields.clone(),
        }
    }
}

/// What the manifest wants of the table.
#[derive(Debug, Clone)]
pub struct TableSpec {
    /// The source's columns; `None` takes those of the table, which then must exist.
    pub columns: Option<Vec<Column>>,
    /// The metadata columns, after the source's.
    pub metadata_columns: Vec<Column>,
    /// How rows are laid out.
    pub partitioning: Partitioning,
    /// Properties of a new table, over the built-in ones. An existing table keeps its own.
    pub properties: BTreeMap<String, String>,
    /// Where a new table lies; else the catalog decides.
    pub location: Option<String>,
}

/// A table that fits.
#[derive(Debug, Clone)]
pub struct OpenTable {
    /// The table as loaded last.
    pub table: Table,
    /// Whether this call created it.
    pub created: bool,
    /// Columns that were missing and are there now.
    pub added: Vec<String>,
}

/// Opens the table; creates it when the catalog has none, widens it when nullable columns are missing.
///
/// # Errors
/// [`Error::Disagreement`] with everything that differs; [`Error::NoSuchTable`] when it would have to be created from columns
/// that are not given; [`Error::Settings`] for a spec that no table can follow; [`Error::Catalog`] when the catalog fails.
pub async fn open_or_create(
    catalog: &dyn Catalog,
    ident: &TableIdent,
    spec: &TableSpec,
) -> Result<OpenTable, Error> {
    check_spec(spec)?;
    let (table, created) = match catalog::load(catalog, ident).await {
        Ok(table) => (table, false),
        Err(Error::NoSuchTable { .. }) if spec.columns.is_some() => {
            create(catalog, ident, spec).await?
        }
        Err(error) => return Err(error),
    };
    let mut opened = OpenTable {
        table,
        created,
        added: Vec::new(),
    };
    for _ in 0..WIDEN_ATTEMPTS {
        let missing = check(&opened.table, spec)?;
        if missing.is_empty() {
            return Ok(opened);
        }
        let names = missing.iter().map(|column| column.name.clone());
        opened.added.extend(names);
        opened.added.sort();
        opened.added.dedup();
        opened.table = widen(catalog, &opened.table, &missing).await?;
    }
    check(&opened.table, spec)?;
    Ok(opened)
}

async fn create(
    catalog: &dyn Catalog,
    ident: &TableIdent,
    spec: &TableSpec,
) -> Result<(Table, bool), Error> {
    let schema = schema_of(ident, spec)?;
    let partition_spec = partition_spec_of(ident, &schema, &spec.partitioning)?;
    ensure_namespace(catalog, ident).await?;
    let creation = TableCreation::builder()
        .name(ident.name().to_owned())
        .schema(schema)
        .partition_spec(partition_spec)
        .location_opt(spec.location.clone())
        .properties(properties_of(spec))
        .format_version(FormatVersion::V2)
        .build();
    match catalog.create_table(ident.namespace(), creation).await {
        Ok(table) => {
            info!(table = %ident, location = table.metadata().location(), "table created");
            Ok((table, true))
        }
        // Another worker may have come first; the SQL catalog (0.10.1) tells that by an error of its database only.
        Err(source) => match catalog::load(catalog, ident).await {
            Ok(table) => Ok((table, false)),
            Err(_) => Err(Error::Catalog {
                doing: "create the table",
                source: Box::new(source),
            }),
        },
    }
}

async fn ensure_namespace(catalog: &dyn Catalog, ident: &TableIdent) -> Result<(), Error> {
    let failed = |source| Error::Catalog {
        doing: "create the namespace",
        source: Box::new(source),
    };
    let levels = ident.namespace();
    for depth in 1..=levels.len() {
        let namespace = NamespaceIdent::from_vec(levels[..depth].to_vec()).map_err(failed)?;
        if catalog.namespace_exists(&namespace).await.map_err(failed)? {
            continue;
        }
        let created = catalog
            .create_namespace(&namespace, std::collections::HashMap::new())
            .await;
        match created {
            Ok(_) => info!(namespace = %namespace, "namespace created"),
            Err(error) if error.kind() == ErrorKind::NamespaceAlreadyExists => {}
            // As with tables: another worker's may have come first.
            Err(error) => {
                if !catalog.namespace_exists(&namespace).await.map_err(failed)? {
                    return Err(failed(error));
                }
            }
        }
    }
    Ok(())
}

fn properties_of(spec: &TableSpec) -> BTreeMap<String, String> {
    // The log of old metadata files is short and a REST server deletes what leaves it: the snapshots, not old files, are
    // the table's history. `history.expire.*` is left unset, so that a value there is a person's and wins.
    let built_in = [
        ("write.format.default", "parquet"),
        ("write.parquet.compression-codec", "zstd"),
        ("write.metadata.previous-versions-max", "20"),
        ("write.metadata.delete-after-commit.enabled", "true"),
    ];
    let mut properties: BTreeMap<String, String> = built_in
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    properties.extend(spec.properties.clone());
    properties
}

fn schema_of(ident: &TableIdent, spec: &TableSpec) -> Result<Schema, Error> {
    let mut ids = Ids(0);
    let mut fields = Vec::new();
    let mut key = Vec::new();
    for column in wanted(spec) {
        let id = ids.draw();
        if column.key {
            key.push(id);
        }
        let mut field = NestedField::new(
            id,
            column.name.clone(),
            ids.renumber(&column.column_type),
            column.required,
        );
        field.doc.clone_from(&column.doc);
        fields.push(field.into());
    }
    Schema::builder()
        .with_fields(fields)
        .with_identifier_field_ids(key)
        .build()
        .map_err(|source| unbuildable(ident, "sink.schema", &source))
}

fn unbuildable(ident: &TableIdent, field: &'static str, source: &iceberg::Error) -> Error {
    Error::Settings {
        field,
        value: ident.to_string(),
        problem: source.message().to_owned(),
    }
}

fn partition_spec_of(
    ident: &TableIdent,
    schema: &Schema,
    partitioning: &Partitioning,
) -> Result<UnboundPartitionSpec, Error> {
    let mut builder = UnboundPartitionSpec::builder().with_spec_id(0);
    for (column, transform) in partitioning.fields() {
        let source_id = schema
            .field_id_by_name(&column)
            .ok_or_else(|| Error::Settings {
                field: "sink.partitioning",
                value: column.clone(),
                problem: "there is no such column; name one of sink.schema or a metadata column"
                    .to_owned(),
            })?;
        builder = builder
            .add_partition_field(source_id, partition_name(&column, transform), transform)
            .map_err(|source| unbuildable(ident, "sink.partitioning", &source))?;
    }
    let spec = builder.build();
    // Binding checks that each transform takes its column's type, before a server does it less clearly.
    spec.clone()
        .bind(schema.clone())
        .map_err(|source| unbuildable(ident, "sink.partitioning", &source))?;
    Ok(spec)
}

/// The names that Java's Iceberg gives.
fn partition_name(column: &str, transform: Transform) -> String {
    let suffix = match transform {
        Transform::Identity => return column.to_owned(),
        Transform::Bucket(_) => "bucket",
        Transform::Truncate(_) => "trunc",
        Transform::Year => "year",
        Transform::Month => "month",
        Transform::Day => "day",
        Transform::Hour => "hour",
        Transform::Void => "null",
        Transform::Unknown => "unknown",
    };
    format!("{column}_{suffix}")
}

struct Ids(i32);

impl Ids {
    fn draw(&mut self) -> i32 {
        self.0 += 1;
        self.0
    }

    fn field(&mut self, field: &NestedField) -> NestedFieldRef {
        let id = self.draw();
        let mut field = field.clone();
        field.id = id;
        field.field_type = Box::new(self.renumber(&field.field_type));
        field.into()
    }

    fn renumber(&mut self, column_type: &Type) -> Type {
        match column_type {
            Type::Primitive(_) => column_type.clone(),
            Type::Struct(fields) => Type::Struct(StructType::new(
                fields
                    .fields()
                    .iter()
                    .map(|field| self.field(field))
                    .collect(),
            )),
            Type::List(list) => Type::List(ListType {
                element_field: self.field(&list.element_field),
            }),
            Type::Map(map) => Type::Map(MapType {
                key_field: self.field(&map.key_field),
                value_field: self.field(&map.value_field),
            }),
        }
    }
}

/// Adds columns; a race lost to another worker ends in its table.
async fn widen(catalog: &dyn Catalog, table: &Table, missing: &[Column]) -> Result<Table, Error> {
    let ident = table.identifier();
    let mut action = Transaction::new(table).update_schema();
    for column in missing {
        let field_type = Ids(0).renumber(&column.column_type);
        action = action.add_column(match &column.doc {
            Some(doc) => AddColumn::builder()
                .name(column.name.clone())
                .field_type(field_type)
                .doc(doc.clone())
                .build(),
            None => AddColumn::optional(column.name.clone(), field_type),
        });
    }
    let committed = match action.apply(Transaction::new(table)) {
        Ok(transaction) => transaction.commit(catalog).await,
        Err(error) => Err(error),
    };
    let reloaded = catalog::load(catalog, ident).await?;
    match committed {
        Ok(_) => {
            let columns: Vec<&str> = missing.iter().map(|column| column.name.as_str()).collect();
            info!(table = %ident, columns = columns.join(","), "columns added");
            Ok(reloaded)
        }
        // "Already exists", a conflict, or an answer that was lost: the table itself tells whether another round is needed.
        Err(_)
            if reloaded.metadata().current_schema_id() != table.metadata().current_schema_id() =>
        {
            Ok(reloaded)
        }
        Err(source) => Err(Error::Catalog {
            doing: "add columns to the table",
            source: Box::new(source),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use iceberg::spec::PrimitiveType;

    use super::super::fixture::{self, add_row, ident, lake, read_ids, spec};
    use super::super::{Next, catalog as catalogs};
    use super::*;

    fn long() -> Type {
        Type::Primitive(PrimitiveType::Long)
    }

    fn string() -> Type {
        Type::Primitive(PrimitiveType::String)
    }

    fn position() -> Type {
        Type::Struct(StructType::new(vec![
            NestedField::required(7, "incarnation", string()).into(),
            NestedField::required(7, "position", long()).into(),
        ]))
    }

    fn widened() -> TableSpec {
        let mut spec = spec();
        let columns = spec.columns.get_or_insert_default();
        columns.push(Column::optional("city", string()));
        spec.metadata_columns
            .push(Column::optional("_cdc_position", position()));
        spec
    }

    #[tokio::test]
    async fn a_missing_table_is_created_as_wanted() {
        let lake = lake().await;
        let mut wanted = widened();
        wanted
            .properties
            .insert("owner".to_owned(), "shop".to_owned());
        let opened = open_or_create(lake.catalog.as_ref(), &ident(), &wanted)
            .await
            .unwrap();
        assert!(opened.created);
        let metadata = opened.table.metadata();
        assert_eq!(metadata.format_version(), FormatVersion::V2);
        assert_eq!(
            metadata.properties()["write.parquet.compression-codec"],
            "zstd"
        );
        assert_eq!(metadata.properties()["owner"], "shop");
        let schema = metadata.current_schema();
        let key: Vec<i32> = schema.identifier_field_ids().collect();
        assert_eq!(key, [schema.field_id_by_name("id").unwrap()]);
        let fields = metadata.default_partition_spec().fields();
        assert_eq!(fields[0].name, "_cdc_event_time_hour");
        let again = open_or_create(lake.catalog.as_ref(), &ident(), &wanted)
            .await
            .unwrap();
        assert!(!again.created && again.added.is_empty());
    }

    #[tokio::test]
    async fn nullable_columns_are_added_and_old_rows_stay() {
        let lake = lake().await;
        fixture::table(lake.catalog.as_ref()).await;
        add_row(lake.catalog.as_ref(), 1).await;
        let opened = open_or_create(lake.catalog.as_ref(), &ident(), &widened())
            .await
            .unwrap();
        assert_eq!(opened.added, ["_cdc_position", "city"]);
        let schema = opened.table.metadata().current_schema();
        assert!(schema.field_by_name("_cdc_position.position").is_some());
        assert_eq!(read_ids(&opened.table).await, [1]);
    }

    /// Both workers see the column missing; the slower one's change is refused, and it carries on with the other's.
    #[tokio::test]
    async fn two_workers_that_add_the_same_column_both_carry_on() {
        let lake = lake().await;
        fixture::table(lake.catalog.as_ref()).await;
        let other = catalogs::open(&lake.settings).await.unwrap();
        let (spec, ident) = (widened(), ident());
        let (one, two) = tokio::join!(
            open_or_create(lake.catalog.as_ref(), &ident, &spec),
            open_or_create(other.as_ref(), &ident, &spec),
        );
        let (one, two) = (one.unwrap().table, two.unwrap().table);
        assert_eq!(
            one.metadata().current_schema(),
            two.metadata().current_schema()
        );
        let stale = one.metadata().schema_by_id(0).unwrap();
        assert_eq!(stale.as_struct().fields().len(), 3);
    }

    #[tokio::test]
    async fn two_workers_that_create_the_table_get_the_same() {
        let lake = lake().await;
        let mut workers = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let catalog = catalogs::open(&lake.settings).await.unwrap();
            workers.spawn(async move {
                let opened = open_or_create(catalog.as_ref(), &ident(), &spec())
                    .await
                    .unwrap();
                opened.table.metadata().uuid()
            });
        }
        let mut uuids = HashSet::new();
        while let Some(ended) = workers.join_next().await {
            uuids.insert(ended.unwrap());
        }
        assert_eq!(uuids.len(), 1);
    }

    #[tokio::test]
    async fn every_disagreement_is_named() {
        let lake = lake().await;
        let mut theirs = spec();
        theirs.partitioning = Partitioning::None;
        theirs.columns.get_or_insert_default().extend([
            Column::required("amount", long()),
            Column::required("left", long()),
            Column::optional("City", string()),
        ]);
        open_or_create(lake.catalog.as_ref(), &ident(), &theirs)
            .await
            .unwrap();
        let mut ours = spec();
        ours.columns = Some(vec![
            Column::key("id", string()),
            Column::optional("amount", long()),
            Column::key("second", long()),
            Column::optional("city", string()),
        ]);
        let error = open_or_create(lake.catalog.as_ref(), &ident(), &ours)
            .await
            .unwrap_err();
        assert_eq!(error.next(), Next::AwaitChange);
        let Error::Disagreement { problems, .. } = &error else {
            panic!("{error:?}");
        };
        let subjects: Vec<&str> = problems
            .iter()
            .map(|problem| problem.subject.as_str())
            .collect();
        let wanted = [
            "id",
            "amount",
            "second",
            "city",
            "left",
            "partitioning",
            "identifier fields",
        ];
        assert_eq!(subjects, wanted);
        assert!(
            error
                .to_string()
                .contains("id: is long in the table and string in the manifest"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn without_columns_the_table_must_exist_and_its_own_are_taken() {
        let lake = lake().await;
        let mut own = spec();
        own.columns = None;
        let error = open_or_create(lake.catalog.as_ref(), &ident(), &own)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::NoSuchTable { .. }), "{error:?}");
        fixture::table(lake.catalog.as_ref()).await;
        let opened = open_or_create(lake.catalog.as_ref(), &ident(), &own)
            .await
            .unwrap();
        assert!(!opened.created && opened.added.is_empty());
    }

    #[tokio::test]
    async fn specs_no_table_can_follow_are_refused_before_the_catalog_is_asked() {
        let silent = fixture::Meddler::new(lake().await.catalog, fixture::Mischief::Hang);
        let mut reserved = spec();
        reserved
            .metadata_columns
            .push(Column::optional("_partition", long()));
        let mut twice = spec();
        twice.metadata_columns.push(Column::optional("ID", long()));
        let mut nowhere = spec();
        nowhere.partitioning = Partitioning::Transforms(vec![("none".to_owned(), Transform::Day)]);
        for spec in [reserved, twice, nowhere] {
            let error = open_or_create(silent.as_ref(), &ident(), &spec)
                .await
                .unwrap_err();
            assert!(matches!(error, Error::Settings { .. }), "{error:?}");
        }
        let mut untyped = spec();
        untyped.partitioning = Partitioning::Transforms(vec![("note".to_owned(), Transform::Hour)]);
        let error = open_or_create(silent.as_ref(), &ident(), &untyped)
            .await
            .unwrap_err();
        assert!(
            matches!(
                error,
                Error::Settings {
                    field: "sink.partitioning",
                    ..
                }
            ),
            "{error:?}"
        );
    }

    #[tokio::test]
    async fn storage_that_cannot_be_written_is_named() {
        let lake = lake().await;
        let table = fixture::table(lake.catalog.as_ref()).await;
        let mut builder = table.metadata().clone().into_builder(None);
        builder = builder.set_location("gs://bucket/t".to_owned());
        let moved = builder.build().unwrap().metadata;
        let moved = Table::builder()
            .identifier(ident())
            .metadata(Arc::new(moved))
            .file_io(table.file_io().clone())
            .runtime(iceberg::Runtime::current())
            .build()
            .unwrap();
        let error = check(&moved, &spec()).unwrap_err();
        assert!(error.to_string().contains("gs://bucket/t"), "{error}");
    }
}
