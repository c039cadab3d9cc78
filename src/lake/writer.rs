//! Batches in, data files out.
//!
//! One Parquet file is open per partition value. A batch of one hour goes to its file as it is; otherwise its rows are taken
//! apart first. Files roll at a size, the one least used is closed when too many are open, and the caller closes the
//! largest when memory is short: closing files is all that a bound on memory does here, a commit it is not.
//!
//! The writer runs on a plain thread, not inside an async task: it waits for storage itself. Parquet is encoded straight
//! into memory by [`ArrowWriter`]; the bytes leave in pieces of some MiB.
//!
//! Dropping a writer deletes nothing: its files may be on their way into a commit. Only [`TableWriter::abandon`] and
//! [`discard`] delete, and only what the caller knows was never sent.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::SchemaRef as ArrowSchemaRef;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use iceberg::TableIdent;
use iceberg::arrow::schema_to_arrow_schema;
use iceberg::io::{FileIO, FileWrite};
use iceberg::spec::{
    DataFile, Literal, PartitionKey, PartitionSpecRef, PrimitiveLiteral, SchemaRef, Struct,
    Transform,
};
use iceberg::table::Table;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::Error;
use super::encoding::{dictionary_pays, parquet_properties};
use super::metrics::{Finished, data_file};
use super::names::{DataFileName, data_folder, file_mark};
use super::routing::{Parts, Routing};
use super::storage::local_path;

/// Encoded bytes that wait for storage before they are handed over: a part of a store's upload has at least 5 MiB, and this is
/// small beside what the encoders hold.
const HANDOVER_BYTES: usize = 5 * 1024 * 1024;

/// How a writer bounds what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterSettings {
    /// Files open at once; the least used is closed to open another.
    pub open_files: usize,
    /// Size at which a file is closed and a new one begun.
    pub file_bytes: usize,
    /// Size at which a row group is closed.
    pub row_group_bytes: usize,
}

impl Default for WriterSettings {
    /// 24 files (a day of late hours), 128 MiB each, row groups of 32 MiB.
    fn default() -> Self {
        Self {
            open_files: 24,
            file_bytes: 128 * 1024 * 1024,
            row_group_bytes: 32 * 1024 * 1024,
        }
    }
}

/// The Arrow schema, with field ids, that batches of this table must have.
///
/// # Errors
/// [`Error::Batch`] when the table has a type that Arrow cannot carry.
pub fn arrow_schema(table: &Table) -> Result<ArrowSchemaRef, Error> {
    schema_to_arrow_schema(table.metadata().current_schema())
        .map(Arc::new)
        .map_err(|error| Error::Batch {
            table: table.identifier().clone(),
            problem: error.to_string(),
        })
}

/// Deletes files that no commit was ever sent for. Never call it for files of a commit whose outcome was ever unknown.
///
/// # Errors
/// [`Error::File`] names the first that could not be deleted; the others are deleted.
pub async fn discard(table: &Table, files: &[DataFile]) -> Result<(), Error> {
    delete_all(table.file_io(), files.iter().map(DataFile::file_path)).await
}

async fn delete_all<'a>(io: &FileIO, paths: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let mut first = None;
    for path in paths {
        if let Err(error) = io.delete(path).await {
            first.get_or_insert(Error::file(path, "deleted", error));
        }
    }
    first.map_or(Ok(()), Err)
}

/// Writes the rows of one table into Parquet files, by partition.
pub struct TableWriter {
    shared: Shared,
    routing: Routing,
    settings: WriterSettings,
    /// By partition value.
    open: HashMap<Struct, OpenFile>,
    /// Closed since the last [`finish`](Self::finish).
    closed: Vec<DataFile>,
    /// Leaf columns that a dictionary does not pay for, learned from the files so far.
    plain_columns: BTreeSet<String>,
    /// The last schema a batch came with, once it was found to fit.
    accepted: Option<ArrowSchemaRef>,
    uses: u64,
    files_begun: u64,
}

/// What all files of a writer have in common.
struct Shared {
    table: TableIdent,
    schema: SchemaRef,
    arrow_schema: ArrowSchemaRef,
    spec: PartitionSpecRef,
    io: FileIO,
    runtime: Handle,
    folder: String,
    /// Of this writer, for the names of its files.
    id: Uuid,
    table_uuid: Uuid,
}

struct OpenFile {
    path: String,
    partition: Struct,
    encoder: ArrowWriter<Vec<u8>>,
    /// Made when the first bytes leave: a small file leaves in one piece.
    output: Option<Box<dyn FileWrite>>,
    written_bytes: u64,
    /// Handed over last: a store's client keeps it until it knows whether it is the last part.
    on_its_way_bytes: usize,
    held_bytes: usize,
    last_use: u64,
}

impl TableWriter {
    /// A writer of the table's current schema and partition spec; make a new one when either changes.
    ///
    /// # Errors
    /// [`Error::Batch`] when the table's schema or partition spec cannot be written.
    pub fn new(table: &Table, settings: WriterSettings, runtime: Handle) -> Result<Self, Error> {
        let metadata = table.metadata();
        let schema = metadata.current_schema().clone();
        let spec = metadata.default_partition_spec().clone();
        let folder = data_folder(metadata);
        let routing = Routing::of(&spec, &schema).map_err(|problem| Error::Batch {
            table: table.identifier().clone(),
            problem,
        })?;
        Ok(Self {
            shared: Shared {
                table: table.identifier().clone(),
                arrow_schema: arrow_schema(table)?,
                schema,
                spec,
                io: table.file_io().clone(),
                runtime,
                folder,
                id: file_mark(),
                table_uuid: metadata.uuid(),
            },
            routing,
            settings,
            open: HashMap::new(),
            closed: Vec::new(),
            plain_columns: BTreeSet::new(),
            accepted: None,
            uses: 0,
            files_begun: 0,
        })
    }

    /// The schema that batches must have.
    #[must_use]
    pub fn arrow_schema(&self) -> &ArrowSchemaRef {
        &self.shared.arrow_schema
    }

    /// Writes a batch.
    ///
    /// # Errors
    /// [`Error::Batch`] before anything is written; [`Error::File`] when storage fails: the files then hold part of the
    /// batch, so [`abandon`](Self::abandon) them and read the rows anew.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.accept(batch)?;
        let parts = self
            .routing
            .split(batch)
            .map_err(|problem| self.misfit(problem))?;
        match parts {
            Parts::One(partition) => self.append(&partition, batch),
            Parts::Many(parts) => {
                for (partition, part) in parts {
                    self.append(&partition, &part)?;
                }
                Ok(())
            }
        }
    }

    /// Bytes held in memory for open files.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.open.values().map(|file| file.held_bytes).sum()
    }

    /// Files closed since the last [`finish`](Self::finish), and those open.
    #[must_use]
    pub fn file_counts(&self) -> (usize, usize) {
        (self.closed.len(), self.open.len())
    }

    /// Closes the open file that holds the most; returns the bytes freed, 0 when none is open.
    ///
    /// # Errors
    /// [`Error::File`] as in [`write`](Self::write).
    pub fn close_largest(&mut self) -> Result<usize, Error> {
        let largest = self.open.iter().max_by_key(|(_, file)| file.held_bytes);
        let Some((partition, file)) = largest else {
            return Ok(0);
        };
        let (partition, freed) = (partition.clone(), file.held_bytes);
        self.close(&partition)?;
        Ok(freed)
    }

    /// Closes all files and hands them over. The writer goes on with the next rows, and no longer knows these files.
    ///
    /// # Errors
    /// [`Error::File`] as in [`write`](Self::write).
    pub fn finish(&mut self) -> Result<Vec<DataFile>, Error> {
        let partitions: Vec<Struct> = self.open.keys().cloned().collect();
        for partition in partitions {
            self.close(&partition)?;
        }
        Ok(std::mem::take(&mut self.closed))
    }

    /// Forgets and deletes what was written since the last [`finish`](Self::finish): no commit can have been sent for it.
    ///
    /// # Errors
    /// [`Error::File`] names the first file that could not be deleted. All are forgotten.
    pub fn abandon(&mut self) -> Result<(), Error> {
        let open = std::mem::take(&mut self.open);
        let closed = std::mem::take(&mut self.closed);
        let begun = open
            .values()
            .filter(|file| file.output.is_some())
            .map(|file| file.path.as_str());
        let paths = begun.chain(closed.iter().map(DataFile::file_path));
        self.shared
            .runtime
            .block_on(delete_all(&self.shared.io, paths))
    }

    fn misfit(&self, problem: String) -> Error {
        Error::Batch {
            table: self.shared.table.clone(),
            problem,
        }
    }

    /// Parquet takes columns by place and trusts them, so a batch of another order, or a null where none may be, would be
    /// written without an error.
    fn accept(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let fields = self.shared.arrow_schema.fields();
        for (field, column) in fields.iter().zip(batch.columns()) {
            if !field.is_nullable() && column.null_count() > 0 {
                return Err(
                    self.misfit(format!("required column \"{}\" holds a null", field.name()))
                );
            }
        }
        let schema = batch.schema_ref();
        if self
            .accepted
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, schema))
        {
            return Ok(());
        }
        let wanted = &self.shared.arrow_schema;
        if schema.fields().len() != wanted.fields().len() {
            return Err(self.misfit(format!(
                "it has {} columns, the table {}",
                schema.fields().len(),
                wanted.fields().len()
            )));
        }
        for (given, wanted) in schema.fields().iter().zip(wanted.fields()) {
            if given.name() != wanted.name()
                || !given.data_type().equals_datatype(wanted.data_type())
            {
                return Err(self.misfit(format!(
                    "column \"{}\" {} stands where the table has \"{}\" {}",
                    given.name(),
                    given.data_type(),
                    wanted.name(),
                    wanted.data_type()
                )));
            }
        }
        self.accepted = Some(schema.clone());
        Ok(())
    }

    fn append(&mut self, partition: &Struct, rows: &RecordBatch) -> Result<(), Error> {
        if !self.open.contains_key(partition) {
            self.make_room()?;
            let file = self.begin(partition.clone())?;
            self.open.insert(partition.clone(), file);
        }
        self.uses += 1;
        let file = self.open.get_mut(partition).expect("it was just put there");
        file.last_use = self.uses;
        let encoded = file.encoder.write(rows);
        encoded.map_err(|error| Error::file(&file.path, "written", error))?;
        let in_progress = file.encoder.in_progress_size();
        let total = file.encoder.bytes_written() + in_progress;
        if total >= self.settings.file_bytes {
            return self.close(partition);
        }
        if in_progress >= self.settings.row_group_bytes {
            let flushed = file.encoder.flush();
            flushed.map_err(|error| Error::file(&file.path, "written", error))?;
        }
        if file.encoder.inner().len() >= HANDOVER_BYTES {
            self.shared.hand_over(file)?;
        }
        file.held_bytes =
            file.encoder.memory_size() + file.encoder.inner().len() + file.on_its_way_bytes;
        Ok(())
    }

    fn make_room(&mut self) -> Result<(), Error> {
        while self.open.len() >= self.settings.open_files.max(1) {
            let least_used = self.open.iter().min_by_key(|(_, file)| file.last_use);
            let Some((partition, _)) = least_used else {
                break;
            };
            let partition = partition.clone();
            self.close(&partition)?;
        }
        Ok(())
    }

    fn begin(&mut self, partition: Struct) -> Result<OpenFile, Error> {
        let path = self.shared.path(&partition, self.files_begun);
        self.files_begun += 1;
        let encoder = ArrowWriter::try_new(
            Vec::new(),
            self.shared.arrow_schema.clone(),
            Some(parquet_properties(&self.plain_columns)),
        )
        .map_err(|error| self.misfit(error.to_string()))?;
        Ok(OpenFile {
            path,
            partition,
            encoder,
            output: None,
            written_bytes: 0,
            on_its_way_bytes: 0,
            held_bytes: 0,
            last_use: 0,
        })
    }

    fn close(&mut self, partition: &Struct) -> Result<(), Error> {
        let Some(mut file) = self.open.remove(partition) else {
            return Ok(());
        };
        let closed = file.encoder.finish();
        let closed = closed.map_err(|error| Error::file(&file.path, "written", error));
        let closed = closed.and_then(|parquet| {
            self.shared.hand_over(&mut file)?;
            self.shared.complete(&mut file)?;
            Ok(parquet)
        });
        let parquet = match closed {
            Ok(parquet) => parquet,
            Err(error) => {
                // Kept, so that `abandon` deletes what is there of it.
                self.open.insert(partition.clone(), file);
                return Err(error);
            }
        };
        self.learn(&parquet);
        let described = data_file(
            &self.shared.schema,
            Finished {
                path: file.path.clone(),
                size_bytes: file.written_bytes,
                parquet: &parquet,
                partition: file.partition,
                partition_spec_id: self.shared.spec.spec_id(),
            },
        );
        let described = described.map_err(|problem| Error::file(&file.path, "written", problem))?;
        self.closed.push(described);
        Ok(())
    }

    fn learn(&mut self, parquet: &ParquetMetaData) {
        for chunk in parquet
            .row_groups()
            .iter()
            .flat_map(RowGroupMetaData::columns)
        {
            if !dictionary_pays(chunk) {
                self.plain_columns.insert(chunk.column_path().string());
            }
        }
    }
}

impl Shared {
    fn path(&self, partition: &Struct, number: u64) -> String {
        let name = DataFileName {
            writer: self.id,
            number,
        };
        let name = name.write(self.table_uuid);
        if self.spec.is_unpartitioned() {
            return format!("{}/{name}", self.folder);
        }
        format!("{}/{}/{name}", self.folder, self.partition_path(partition))
    }

    /// The folder as Java names it. The client (`iceberg` 0.10.1) writes an hour as its number, which nobody can read.
    fn partition_path(&self, partition: &Struct) -> String {
        if let [field] = self.spec.fields()
            && field.transform == Transform::Hour
            && let Some(Some(Literal::Primitive(PrimitiveLiteral::Int(hour)))) =
                partition.fields().first()
            && let Ok(start) = jiff::Timestamp::from_second(i64::from(*hour) * 3600)
        {
            return format!("{}={}", field.name, start.strftime("%Y-%m-%d-%H"));
        }
        let key = PartitionKey::new(
            self.spec.as_ref().clone(),
            self.schema.clone(),
            partition.clone(),
        );
        key.to_path()
    }

    fn hand_over(&self, file: &mut OpenFile) -> Result<(), Error> {
        let bytes = std::mem::take(file.encoder.inner_mut());
        if bytes.is_empty() {
            return Ok(());
        }
        let length = bytes.len();
        if local_path(&file.path).is_none() {
            file.on_its_way_bytes = length;
        }
        let OpenFile { path, output, .. } = file;
        let handed = self.runtime.block_on(async {
            if output.is_none() {
                *output = Some(self.io.new_output(path.as_str())?.writer().await?);
            }
            match output {
                Some(output) => output.write(Bytes::from(bytes)).await,
                None => Ok(()),
            }
        });
        handed.map_err(|error| Error::file(&file.path, "written", error))?;
        file.written_bytes += length as u64;
        Ok(())
    }

    fn complete(&self, file: &mut OpenFile) -> Result<(), Error> {
        let Some(output) = &mut file.output else {
            return Ok(());
        };
        self.runtime
            .block_on(output.close())
            .map_err(|error| Error::file(&file.path, "written", error))
    }
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use iceberg::expr::Reference;
    use iceberg::spec::Datum;

    use super::super::commit::{Append, commit};
    use super::super::fixture::{self, NINE_US, Row, batch, lake, read_ids, spec, with_writer};
    use super::super::routing::HOUR_US;
    use super::super::table::{Partitioning, open_or_create};
    use super::*;

    fn partitions(files: &[DataFile]) -> Vec<Option<i32>> {
        let mut partitions: Vec<Option<i32>> = files
            .iter()
            .map(|file| match file.partition().fields().first() {
                Some(Some(Literal::Primitive(PrimitiveLiteral::Int(hour)))) => Some(*hour),
                _ => None,
            })
            .collect();
        partitions.sort_unstable();
        partitions
    }

    fn nine() -> i32 {
        i32::try_from(NINE_US / HOUR_US).unwrap()
    }

    async fn written(rows: Vec<Row<'static>>) -> (fixture::Lake, Table, Vec<DataFile>) {
        let lake = lake().await;
        let table = fixture::table(lake.catalog.as_ref()).await;
        let files = with_writer(&table, WriterSettings::default(), move |writer| {
            let batch = batch(writer, &rows);
            writer.write(&batch).unwrap();
            writer.finish().unwrap()
        })
        .await;
        (lake, table, files)
    }

    async fn committed(lake: &fixture::Lake, base: &Table, files: Vec<DataFile>) -> Table {
        let append = Append {
            commit_id: Uuid::now_v7(),
            files,
            ..Append::default()
        };
        commit(lake.catalog.as_ref(), base, &append).await.unwrap()
    }

    #[tokio::test]
    async fn rows_go_to_the_hour_of_their_event_time() {
        let rows = vec![
            (1, None, Some(NINE_US)),
            (2, Some("b"), Some(NINE_US + HOUR_US)),
            (3, Some("c"), None),
            (4, Some("d"), Some(NINE_US + HOUR_US - 1)),
            (5, Some("e"), Some(-1)),
        ];
        let (lake, table, files) = written(rows).await;
        assert_eq!(
            partitions(&files),
            [None, Some(-1), Some(nine()), Some(nine() + 1)]
        );
        let hour = files.iter().find(|file| file.record_count() == 2).unwrap();
        assert!(
            hour.file_path()
                .contains("/data/_cdc_event_time_hour=2026-11-30-09/"),
            "{}",
            hour.file_path()
        );
        assert_eq!(hour.null_value_counts()[&2], 1);
        assert_eq!(hour.lower_bounds()[&1], Datum::long(1));
        assert_eq!(hour.upper_bounds()[&1], Datum::long(4));
        let table = committed(&lake, &table, files).await;
        assert_eq!(read_ids(&table).await, [1, 2, 3, 4, 5]);
    }

    #[tokio::test]
    async fn a_batch_of_one_hour_is_not_taken_apart() {
        let (_lake, _table, files) =
            written(vec![(1, None, Some(NINE_US)), (2, None, Some(NINE_US + 5))]).await;
        assert_eq!(partitions(&files), [Some(nine())]);
        let (_lake, _table, files) = written(vec![(1, None, None), (2, None, None)]).await;
        assert_eq!(partitions(&files), [None]);
    }

    #[tokio::test]
    async fn tables_without_partitions_and_with_others_are_written() {
        let other = Partitioning::Transforms(vec![
            ("_cdc_event_time".to_owned(), Transform::Day),
            ("id".to_owned(), Transform::Bucket(4)),
        ]);
        for (partitioning, least) in [(Partitioning::None, 1), (other, 3)] {
            let lake = lake().await;
            let mut spec = spec();
            spec.partitioning = partitioning;
            let opened = open_or_create(lake.catalog.as_ref(), &fixture::ident(), &spec).await;
            let table = opened.unwrap().table;
            let files = fixture::files(&table, 0..100).await;
            assert!(files.len() >= least, "{}", files.len());
            let table = committed(&lake, &table, files).await;
            assert_eq!(read_ids(&table).await, (0..100).collect::<Vec<i64>>());
        }
    }

    /// The client's own writer gives bounds [m, n] here, and a search for a long value finds nothing.
    #[tokio::test]
    async fn bounds_of_long_strings_hold_over_several_row_groups() {
        let lake = lake().await;
        let table = fixture::table(lake.catalog.as_ref()).await;
        let settings = WriterSettings {
            row_group_bytes: 1,
            ..WriterSettings::default()
        };
        let (low, high) = ("a".repeat(100), "z".repeat(100));
        let (first, last) = (low.clone(), high.clone());
        let files = with_writer(&table, settings, move |writer| {
            let long = batch(
                writer,
                &[
                    (1, Some(&low), Some(NINE_US)),
                    (2, Some(&high), Some(NINE_US)),
                ],
            );
            let short = batch(
                writer,
                &[(3, Some("m"), Some(NINE_US)), (4, Some("n"), Some(NINE_US))],
            );
            writer.write(&long).unwrap();
            writer.write(&short).unwrap();
            writer.finish().unwrap()
        })
        .await;
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].split_offsets().unwrap().len(), 2, "two row groups");
        assert_eq!(files[0].lower_bounds()[&2], Datum::string("a".repeat(16)));
        assert_eq!(
            files[0].upper_bounds()[&2],
            Datum::string(format!("{}{{", "z".repeat(15)))
        );
        let table = committed(&lake, &table, files).await;
        for (value, id) in [(first, 1), (last, 2), ("m".to_owned(), 3)] {
            let filter = Reference::new("note").equal_to(Datum::string(value));
            let scan = table
                .scan()
                .select(["id"])
                .with_filter(filter)
                .build()
                .unwrap();
            let found: Vec<RecordBatch> =
                scan.to_arrow().await.unwrap().try_collect().await.unwrap();
            let rows: usize = found.iter().map(RecordBatch::num_rows).sum();
            assert_eq!(rows, 1, "id {id}");
        }
    }

    #[tokio::test]
    async fn open_files_are_capped_and_the_least_used_is_closed() {
        let lake = lake().await;
        let table = fixture::table(lake.catalog.as_ref()).await;
        let settings = WriterSettings {
            open_files: 2,
            ..WriterSettings::default()
        };
        let (counts, files) = with_writer(&table, settings, |writer| {
            for hour in [0, 1, 0, 2, 0] {
                let batch = batch(writer, &[(hour, None, Some(NINE_US + hour * HOUR_US))]);
                writer.write(&batch).unwrap();
            }
            (writer.file_counts(), writer.finish().unwrap())
        })
        .await;
        assert_eq!(counts, (1, 2), "hour 1 was used least");
        assert_eq!(
            partitions(&files),
            [Some(nine()), Some(nine() + 1), Some(nine() + 2)]
        );
    }

    #[tokio::test]
    async fn files_roll_at_their_size() {
        let lake = lake().await;
        let table = fixture::table(lake.catalog.as_ref()).await;
        let settings = WriterSettings {
            file_bytes: 1,
            ..WriterSettings::default()
        };
        let files = with_writer(&table, settings, |writer| {
            for id in 0..3 {
                let batch = batch(writer, &[(id, None, Some(NINE_US))]);
                writer.write(&batch).unwrap();
            }
            writer.finish().unwrap()
        })
        .await;
        assert_eq!(files.len(), 3);
        let names: std::collections::HashSet<&str> =
            files.iter().map(DataFile::file_path).collect();
        assert_eq!(names.len(), 3, "no name twice");
    }

    #[tokio::test]
    async fn closing_the_largest_frees_what_it_holds() {
        let lake = lake().await;
        let table = fixture::table(lake.catalog.as_ref()).await;
        with_writer(&table, WriterSettings::default(), |writer| {
            assert_eq!(writer.close_largest().unwrap(), 0);
            let long = "x".repeat(1000);
            let many: Vec<Row<'_>> = (0..500)
                .map(|id| (id, Some(long.as_str()), Some(NINE_US)))
                .collect();
            let many = batch(writer, &many);
            let few = batch(writer, &[(1, None, Some(NINE_US + HOUR_US))]);
            writer.write(&many).unwrap();
            writer.write(&few).unwrap();
            let held = writer.held_bytes();
            let freed = writer.close_largest().unwrap();
            assert!(freed > 0 && writer.held_bytes() == held - freed);
            assert_eq!(partitions(&writer.closed), [Some(nine())]);
        })
        .await;
    }

    #[tokio::test]
    async fn abandoned_files_are_gone_and_finished_ones_stay() {
        let lake = lake().await;
        let table = fixture::table(lake.catalog.as_ref()).await;
        let (kept, dropped) = with_writer(&table, WriterSettings::default(), |writer| {
            let nine = batch(writer, &[(1, None, Some(NINE_US))]);
            writer.write(&nine).unwrap();
            let kept = writer.finish().unwrap();
            writer.write(&nine).unwrap();
            writer.close_largest().unwrap();
            let dropped = writer.closed.clone();
            writer.write(&nine).unwrap();
            writer.abandon().unwrap();
            assert_eq!(writer.file_counts(), (0, 0));
            (kept, dropped)
        })
        .await;
        let exists = |file: &DataFile| {
            super::super::catalog::local_path(file.file_path())
                .unwrap()
                .exists()
        };
        assert!(exists(&kept[0]) && !exists(&dropped[0]));
        discard(&table, &kept).await.unwrap();
        assert!(!exists(&kept[0]));
        discard(&table, &kept).await.unwrap();
    }

    #[tokio::test]
    async fn a_batch_of_another_shape_is_refused_before_anything_is_written() {
        let lake = lake().await;
        let table = fixture::table(lake.catalog.as_ref()).await;
        with_writer(&table, WriterSettings::default(), |writer| {
            let good = batch(writer, &[(1, None, Some(NINE_US))]);
            let swapped = good.project(&[0, 2, 1]).unwrap();
            let short = good.project(&[0, 1]).unwrap();
            for bad in [swapped, short] {
                let error = writer.write(&bad).unwrap_err();
                assert!(matches!(error, Error::Batch { .. }), "{error:?}");
            }
            assert_eq!(writer.file_counts(), (0, 0));
        })
        .await;
    }

    /// The first file shows which columns a dictionary does not pay for; the next ones are written without.
    #[tokio::test]
    async fn dictionaries_are_dropped_where_they_do_not_pay() {
        let lake = lake().await;
        let table = fixture::table(lake.catalog.as_ref()).await;
        with_writer(&table, WriterSettings::default(), |writer| {
            let notes = ["new", "paid", "sent"];
            for part in 0..15 {
                let rows: Vec<Row<'_>> = (part * 8192..(part + 1) * 8192)
                    .map(|id| {
                        (
                            id * 7919,
                            Some(notes[usize::try_from(id % 3).unwrap()]),
                            Some(NINE_US + id % 60),
                        )
                    })
                    .collect();
                let batch = batch(writer, &rows);
                writer.write(&batch).unwrap();
            }
            writer.finish().unwrap();
            let plain: Vec<&str> = writer.plain_columns.iter().map(String::as_str).collect();
            assert_eq!(plain, ["id"]);
        })
        .await;
    }
}
