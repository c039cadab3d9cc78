//! What people and programs say to each other: the manifest, the conditions and reasons, and what a worker is given and answers.
//!
//! A manifest ([`pipeline`]) is read and checked ([`manifest`]), resolved ([`mod@effective`]), and handed to a worker ([`worker`]).
//!
//! Pure: texts in, values or faults out.

use kube::CustomResourceExt;

pub mod condition;
mod definition;
pub mod effective;
mod finalization;
pub mod gate;
mod hold;
pub mod manifest;
pub mod pipeline;
pub mod pod;
pub mod policy;
mod progress;
pub mod quantity;
pub mod schema;
mod sound;
pub mod status;
pub mod worker;

pub use condition::Reason;
pub use effective::{PropertyCheck, effective};
pub use finalization::built_in_policy;
pub use manifest::{
    Fault, Objects, load_manifests, load_manifests_for, parse_manifests, parse_objects,
};
pub use sound::OutOfBounds;
pub use worker::{EffectiveSpec, Progress};

/// The custom resource definitions, each as a file name and its YAML.
///
/// # Panics
/// Never: a definition can be written as YAML.
#[must_use]
pub fn custom_resource_definitions() -> Vec<(&'static str, String)> {
    [
        (
            "finalizationgates.tidemark.dev.yaml",
            gate::FinalizationGate::crd(),
        ),
        (
            "ingestionpipelines.tidemark.dev.yaml",
            pipeline::IngestionPipeline::crd(),
        ),
        (
            "ingestionpolicies.tidemark.dev.yaml",
            policy::IngestionPolicy::crd(),
        ),
    ]
    .map(|(name, definition)| (name, definition::text(&definition)))
    .into()
}
