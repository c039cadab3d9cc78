//! Whether a table is what the manifest wants.
//!
//! Nothing is changed here. Everything that differs is named in one error, each with its remedy; what can be mended by adding
//! a nullable column is no difference but an answer.

use std::collections::HashSet;
use std::fmt;

use iceberg::spec::{
    FormatVersion, NestedField, NestedFieldRef, PartitionSpec, Schema, Transform, Type,
};
use iceberg::table::Table;

use super::Error;
use super::storage::is_writable;
use super::table::{Column, Partitioning, TableSpec};

/// Columns that Iceberg reserves: Spark refuses to read a table with one of them.
const RESERVED: [&str; 7] = [
    "_partition",
    "_pos",
    "_file",
    "_spec_id",
    "_deleted",
    "_row_id",
    "_last_updated_sequence_number",
];

/// One difference between table and manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The column, or the part of the table.
    pub subject: String,
    /// What differs, and what to do.
    pub problem: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.problem)
    }
}

pub(super) fn list(problems: &[Problem]) -> String {
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// Compares table and spec: nothing is changed.
///
/// Returns the nullable columns that the table lacks.
///
/// # Errors
/// [`Error::Disagreement`] with everything that differs.
pub fn check(table: &Table, spec: &TableSpec) -> Result<Vec<Column>, Error> {
    let metadata = table.metadata();
    let schema = metadata.current_schema();
    let mut problems = Vec::new();
    if metadata.format_version() == FormatVersion::V1 {
        problems.push(problem(
            "format version",
            "is 1; set the table property format-version to 2",
        ));
    }
    if !is_writable(metadata.location()) {
        problems.push(problem(
            "location",
            &format!(
                "\"{}\" is neither on the local file system nor in a store that speaks S3; create the table under file:///path or s3://bucket/path",
                metadata.location()
            ),
        ));
    }
    if metadata.properties().contains_key("encryption.key-id") {
        problems.push(problem(
            "encryption.key-id",
            "encrypted tables cannot be written; use a table without it",
        ));
    }
    let mut missing = Vec::new();
    let wanted: Vec<&Column> = wanted(spec).collect();
    for column in &wanted {
        match find(schema, &column.name) {
            Found::Exact(field) => problems.extend(compare(column, field)),
            Found::OtherCase(field) => problems.push(problem(
                &column.name,
                &format!(
                    "the table spells it \"{}\"; rename it in one of the two, engines cannot tell them apart",
                    field.name
                ),
            )),
            Found::No if column.required => problems.push(problem(
                &column.name,
                "is not in the table and can be added as a nullable column only; add it to the table by hand, or use a new table",
            )),
            Found::No => missing.push((*column).clone()),
        }
    }
    problems.extend(unfillable(schema, spec, &wanted));
    problems.extend(compare_partitioning(
        metadata.default_partition_spec(),
        schema,
        &spec.partitioning,
    ));
    problems.extend(compare_key(schema, spec));
    if problems.is_empty() {
        return Ok(missing);
    }
    Err(Error::Disagreement {
        table: table.identifier().clone(),
        problems,
    })
}

fn problem(subject: &str, text: &str) -> Problem {
    Problem {
        subject: subject.to_owned(),
        problem: text.to_owned(),
    }
}

pub(super) fn wanted(spec: &TableSpec) -> impl Iterator<Item = &Column> {
    spec.columns.iter().flatten().chain(&spec.metadata_columns)
}

pub(super) fn check_spec(spec: &TableSpec) -> Result<(), Error> {
    let invalid = |field: &'static str, value: &str, problem: &str| Error::Settings {
        field,
        value: value.to_owned(),
        problem: problem.to_owned(),
    };
    let mut names = HashSet::new();
    for column in wanted(spec) {
        if RESERVED.contains(&column.name.as_str()) {
            return Err(invalid(
                "sink.schema",
                &column.name,
                "Iceberg reserves this name; rename the column or choose another sink.metadataPrefix",
            ));
        }
        if !names.insert(column.name.to_lowercase()) {
            return Err(invalid(
                "sink.schema",
                &column.name,
                "two columns have this name, upper and lower case being one; choose another sink.metadataPrefix or rename it",
            ));
        }
        if column.key && !matches!(column.column_type, Type::Primitive(_)) {
            return Err(invalid(
                "sink.key",
                &column.name,
                "a key column has a primitive type",
            ));
        }
    }
    for (column, _) in spec.partitioning.fields() {
        if spec.columns.is_some() && !names.contains(&column.to_lowercase()) {
            return Err(invalid(
                "sink.partitioning",
                &column,
                "there is no such column; name one of sink.schema or a metadata column",
            ));
        }
    }
    Ok(())
}

enum Found<'a> {
    Exact(&'a NestedFieldRef),
    OtherCase(&'a NestedFieldRef),
    No,
}

fn find<'a>(schema: &'a Schema, name: &str) -> Found<'a> {
    let fields = schema.as_struct().fields();
    if let Some(field) = fields.iter().find(|field| field.name == name) {
        return Found::Exact(field);
    }
    match fields
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case(name))
    {
        Some(field) => Found::OtherCase(field),
        None => Found::No,
    }
}

fn compare(column: &Column, field: &NestedField) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !same_type(&column.column_type, &field.field_type) {
        problems.push(problem(
            &column.name,
            &format!(
                "is {} in the table and {} in the manifest; change one of them, the table's type is never changed here",
                field.field_type, column.column_type
            ),
        ));
    }
    if field.required && !column.required {
        problems.push(problem(
            &column.name,
            "is required in the table and may be null in the changes (a delete carries the key only); make it optional in the table",
        ));
    }
    problems
}

/// Required columns of the table that nobody would fill.
fn unfillable(schema: &Schema, spec: &TableSpec, wanted: &[&Column]) -> Vec<Problem> {
    let key: HashSet<i32> = schema.identifier_field_ids().collect();
    schema
        .as_struct()
        .fields()
        .iter()
        .filter(|field| field.required && field.initial_default.is_none())
        .filter(|field| !wanted.iter().any(|column| column.name.eq_ignore_ascii_case(&field.name)))
        // Without columns in the manifest the table's key is taken for the source's.
        .filter(|field| spec.columns.is_some() || !key.contains(&field.id))
        .map(|field| {
            problem(
                &field.name,
                "is required in the table and not in the manifest; add it to sink.schema as a key column or make it optional in the table",
            )
        })
        .collect()
}

fn compare_partitioning(
    found: &PartitionSpec,
    schema: &Schema,
    wanted: &Partitioning,
) -> Option<Problem> {
    let describe = |fields: &[(String, Transform)]| {
        if fields.is_empty() {
            return "not partitioned".to_owned();
        }
        let fields: Vec<String> = fields
            .iter()
            .map(|(column, transform)| format!("{transform}({column})"))
            .collect();
        fields.join(", ")
    };
    let found: Vec<(String, Transform)> = found
        .fields()
        .iter()
        // A dropped partition field stays in the spec of older tables as a void transform.
        .filter(|field| field.transform != Transform::Void)
        .map(|field| {
            let name = schema
                .name_by_field_id(field.source_id)
                .unwrap_or("a dropped column");
            (name.to_owned(), field.transform)
        })
        .collect();
    let wanted = wanted.fields();
    (found != wanted).then(|| {
        problem(
            "partitioning",
            &format!(
                "is {} in the table and {} in the manifest; set sink.partitioning to the table's, or change the table's in another engine",
                describe(&found),
                describe(&wanted)
            ),
        )
    })
}

fn compare_key(schema: &Schema, spec: &TableSpec) -> Option<Problem> {
    let columns = spec.columns.as_ref()?;
    let found: HashSet<&str> = schema
        .identifier_field_ids()
        .filter_map(|id| schema.name_by_field_id(id))
        .collect();
    let wanted: HashSet<&str> = columns
        .iter()
        .filter(|column| column.key)
        .map(|column| column.name.as_str())
        .collect();
    // A table without identifier fields says nothing about the key.
    if found.is_empty() || wanted.is_empty() || found == wanted {
        return None;
    }
    let describe = |names: &HashSet<&str>| {
        let mut names: Vec<&str> = names.iter().copied().collect();
        names.sort_unstable();
        names.join(", ")
    };
    Some(problem(
        "identifier fields",
        &format!(
            "are {} in the table and {} in the manifest; set sink.key to the table's or change the table's",
            describe(&found),
            describe(&wanted)
        ),
    ))
}

/// Types are the same when they differ in nothing but the ids inside them.
fn same_type(left: &Type, right: &Type) -> bool {
    let same_field = |left: &NestedFieldRef, right: &NestedFieldRef| {
        left.name == right.name && same_type(&left.field_type, &right.field_type)
    };
    match (left, right) {
        (Type::Primitive(left), Type::Primitive(right)) => left == right,
        (Type::Struct(left), Type::Struct(right)) => {
            left.fields().len() == right.fields().len()
                && left
                    .fields()
                    .iter()
                    .zip(right.fields())
                    .all(|(left, right)| same_field(left, right))
        }
        (Type::List(left), Type::List(right)) => same_type(
            &left.element_field.field_type,
            &right.element_field.field_type,
        ),
        (Type::Map(left), Type::Map(right)) => {
            same_type(&left.key_field.field_type, &right.key_field.field_type)
                && same_type(&left.value_field.field_type, &right.value_field.field_type)
        }
        _ => false,
    }
}
