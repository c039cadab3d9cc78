//! `tidemark crds`: the custom resource definitions as one YAML stream.

use std::io::Write;

use super::{Error, Exit};
use crate::api::custom_resource_definitions;

pub(super) fn crds(out: &mut dyn Write) -> Result<Exit, Error> {
    for (_, definition) in custom_resource_definitions() {
        writeln!(out, "---")?;
        out.write_all(definition.as_bytes())?;
    }
    Ok(Exit::Ready)
}
