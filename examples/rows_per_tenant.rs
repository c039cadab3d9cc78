//! A worker with one accumulator more: rows per tenant, in the summary of every snapshot.
//!
//! ```text
//! cargo run --example rows_per_tenant -- pipeline.yaml tenant
//! ```
//!
//! The second argument names the column. Each commit then says, for example, `shop.rows-per-tenant = {"acme":120,"zeta":7}`:
//! a quota, an invoice or a dashboard reads it from the table's metadata without reading a row.

use std::{collections::BTreeMap, env, error::Error, fs, process::ExitCode, sync::Arc};

use arrow::array::{Array as _, AsArray as _};
use tidemark::{
    api::load_manifests,
    process::{LogFormat, Metrics, clock::Clock, start_logging, stop_on_signals},
    sink::{Accumulator, GRACE, Observed, Worker, WorkerSettings},
};

/// Tenants that a summary names; the others are counted together, so that a summary stays small.
const TENANTS: usize = 100;

/// Counts the rows of one batch by the text of one column.
struct RowsPerTenant {
    column: String,
    rows: BTreeMap<String, u64>,
}

impl Accumulator for RowsPerTenant {
    fn observe(&mut self, rows: &Observed<'_>) {
        let Some(column) = rows.batch.column_by_name(&self.column) else {
            return;
        };
        let Some(tenants) = column.as_string_opt::<i32>() else {
            return;
        };
        for row in (0..tenants.len()).filter(|row| tenants.is_valid(*row)) {
            let tenant = tenants.value(row);
            if let Some(count) = self.rows.get_mut(tenant) {
                *count += 1;
                continue;
            }
            let name = if self.rows.len() < TENANTS {
                tenant
            } else {
                "*"
            };
            *self.rows.entry(name.to_owned()).or_default() += 1;
        }
    }

    fn fold(&mut self, summary: &mut BTreeMap<String, String>) {
        let rows = serde_json::to_string(&self.rows).unwrap_or_default();
        summary.insert("shop.rows-per-tenant".to_owned(), rows);
    }
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(path), Some(column)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: rows_per_tenant MANIFEST COLUMN");
        return Ok(ExitCode::from(2));
    };
    start_logging(LogFormat::Text, None)?;
    let loaded = match load_manifests(&fs::read_to_string(path)?) {
        Ok(loaded) => loaded,
        Err(faults) => {
            for fault in faults {
                eprintln!("{fault}");
            }
            return Ok(ExitCode::from(2));
        }
    };
    let worker = Worker::new(WorkerSettings {
        worker_id: "example".to_owned(),
        installation: String::new(),
        clock: Clock::system(),
        metrics: Metrics::default(),
        grace: GRACE,
    })
    .with_accumulator(Arc::new(move || {
        Box::new(RowsPerTenant {
            column: column.clone(),
            rows: BTreeMap::new(),
        })
    }));
    let stop = stop_on_signals()?;
    worker
        .set_pipelines(loaded.into_iter().map(|(_, spec)| spec).collect())
        .await;
    worker.run(stop).await;
    Ok(ExitCode::SUCCESS)
}
