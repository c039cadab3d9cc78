//! Pipelines in files: manifests for `run`, a folder of effective specifications for `worker`.
//!
//! All faults of all files come in one run. The folder is read again and again, and a file that has become wrong leaves its
//! pipeline as it was: a bad edit stops nothing that runs.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use tracing::{error, info};

use crate::{
    api::{EffectiveSpec, Objects, load_manifests_for, parse_objects},
    kafka::property_fault,
};

/// Why files cannot be run.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// A file or folder cannot be read.
    #[error("\"{}\" cannot be read", .path.display())]
    Unreadable {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Manifests are wrong.
    #[error("{} of the manifests:\n  {}", count(.faults.len()), .faults.join("\n  "))]
    Faults {
        /// All that is wrong, each with its file.
        faults: Vec<String>,
    },
    /// There is no policy to look at.
    #[error("no policy in {}; name files with objects of kind IngestionPolicy", shown(.paths))]
    NoPolicy {
        /// What was looked at.
        paths: Vec<PathBuf>,
    },
    /// There is nothing to run.
    #[error("no pipeline in {}; name files with manifests, or folders with such files", shown(.paths))]
    Nothing {
        /// What was looked at.
        paths: Vec<PathBuf>,
    },
}

fn count(faults: usize) -> String {
    if faults == 1 {
        "a fault".to_owned()
    } else {
        format!("{faults} faults")
    }
}

fn shown(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths
        .iter()
        .map(|path| format!("\"{}\"", path.display()))
        .collect();
    paths.join(", ")
}

/// The pipelines of manifests; a folder stands for its `.yaml`, `.yml` and `.json` files.
pub(super) fn manifests(paths: &[PathBuf]) -> Result<Vec<EffectiveSpec>, Error> {
    let mut specs: BTreeMap<String, (PathBuf, EffectiveSpec)> = BTreeMap::new();
    let mut faults = Vec::new();
    for path in paths
        .iter()
        .map(|path| listed(path))
        .collect::<Result<Vec<_>, _>>()?
        .concat()
    {
        match load_manifests_for(&read(&path)?, property_fault) {
            Err(found) => faults.extend(
                found
                    .iter()
                    .map(|fault| format!("{}: {fault}", path.display())),
            ),
            Ok(loaded) => {
                for (_, spec) in loaded {
                    if let Some((first, _)) = specs.get(&spec.id()) {
                        let (id, first) = (spec.id(), first.display());
                        faults.push(format!("{}: {id}: metadata.name: stands in {first} as well; give each pipeline a name of its own", path.display()));
                    } else {
                        specs.insert(spec.id(), (path.clone(), spec));
                    }
                }
            }
        }
    }
    if !faults.is_empty() {
        return Err(Error::Faults { faults });
    }
    if specs.is_empty() {
        return Err(Error::Nothing {
            paths: paths.to_vec(),
        });
    }
    Ok(specs.into_values().map(|(_, spec)| spec).collect())
}

/// The pipelines, policies and namespaces of files; a folder stands for its `.yaml`, `.yml` and `.json` files.
pub(super) fn objects(paths: &[PathBuf]) -> Result<Objects, Error> {
    let mut objects = Objects::default();
    let mut faults = Vec::new();
    for path in paths
        .iter()
        .map(|path| listed(path))
        .collect::<Result<Vec<_>, _>>()?
        .concat()
    {
        match parse_objects(&read(&path)?) {
            Ok(found) => {
                objects.pipelines.extend(found.pipelines);
                objects.policies.extend(found.policies);
                objects.namespaces.extend(found.namespaces);
            }
            Err(found) => faults.extend(
                found
                    .iter()
                    .map(|fault| format!("{}: {fault}", path.display())),
            ),
        }
    }
    if faults.is_empty() {
        Ok(objects)
    } else {
        Err(Error::Faults { faults })
    }
}

/// A file itself, or the files of a folder that hold YAML or JSON, by name. Hidden ones are none: a mounted `ConfigMap` keeps
/// its older copies there.
fn listed(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let unreadable = |source| Error::Unreadable {
        path: path.to_owned(),
        source,
    };
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries: Result<Vec<_>, _> = fs::read_dir(path).map_err(unreadable)?.collect();
    let mut files: Vec<PathBuf> = entries
        .map_err(unreadable)?
        .into_iter()
        .map(|entry| entry.path())
        .collect();
    files.retain(|file| {
        let hidden = file
            .file_name()
            .is_none_or(|name| name.to_string_lossy().starts_with('.'));
        let ending = file.extension().and_then(|ending| ending.to_str());
        !hidden && file.is_file() && matches!(ending, Some("yaml" | "yml" | "json"))
    });
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::Unreadable {
        path: path.to_owned(),
        source,
    })
}

/// A folder of effective specifications, one a file.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// By file: its text as last read, and the last specification in it that could be read.
    files: BTreeMap<PathBuf, (String, Option<EffectiveSpec>)>,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            files: BTreeMap::new(),
        }
    }

    /// Reads the folder: the specifications, where they differ from the last time.
    pub(super) fn look(&mut self) -> Result<Option<Vec<EffectiveSpec>>, Error> {
        let before = self.specs();
        let mut files = BTreeMap::new();
        for path in listed(&self.path)? {
            let text = read(&path)?;
            let last = self.files.remove(&path);
            let file = match last {
                Some((seen, spec)) if seen == text => (text, spec),
                last => {
                    let spec = parsed(&path, &text).or_else(|| last.and_then(|(_, spec)| spec));
                    (text, spec)
                }
            };
            files.insert(path, file);
        }
        self.files = files;
        let now = self.specs();
        Ok((now != before).then_some(now))
    }

    fn specs(&self) -> Vec<EffectiveSpec> {
        // Two files with one uid would be two copies of a pipeline in one worker: the first by name counts.
        let mut by_uid = BTreeMap::new();
        for spec in self.files.values().filter_map(|(_, spec)| spec.as_ref()) {
            by_uid
                .entry(spec.uid.clone())
                .or_insert_with(|| spec.clone());
        }
        by_uid.into_values().collect()
    }
}

fn parsed(path: &Path, text: &str) -> Option<EffectiveSpec> {
    match EffectiveSpec::from_yaml(text) {
        Ok(spec) => {
            info!(pipeline = %spec.id(), hash = %spec.hash(), "specification loaded");
            Some(spec)
        }
        Err(error) => {
            error!(file = %path.display(), %error, "specification cannot be read; the last one stays in force");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = r"
apiVersion: tidemark.dev/v1alpha1
kind: IngestionPipeline
metadata: {name: NAME, namespace: shop}
spec:
  source: {format: DebeziumJson, kafka: {bootstrapServers: 'k:1', topics: [a]}}
  sink: {table: shop.orders, catalog: {type: Rest, uri: 'http://c'}}
";

    fn spec(name: &str) -> EffectiveSpec {
        load_manifests_for(&MANIFEST.replace("NAME", name), property_fault)
            .unwrap()
            .remove(0)
            .1
    }

    fn names(specs: Option<Vec<EffectiveSpec>>) -> Option<Vec<String>> {
        specs.map(|specs| specs.into_iter().map(|spec| spec.name).collect())
    }

    #[test]
    fn faults_of_all_files_come_in_one_run() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("a.yaml", &MANIFEST.replace("NAME", "orders"));
        write("b.yaml", &MANIFEST.replace("NAME", "orders"));
        write(
            "c.yml",
            &MANIFEST
                .replace("NAME", "c")
                .replace("DebeziumJson", "Avro"),
        );
        write("readme.txt", "no manifest");
        let Err(Error::Faults { faults }) = manifests(&[folder.path().to_owned()]) else {
            panic!("two files are wrong");
        };
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(
            faults[0].contains("b.yaml: shop/orders") && faults[1].contains("c.yml: shop/c"),
            "{faults:?}"
        );
    }

    /// Only the client knows its options; a name that it does not know would otherwise be met when the pipeline runs.
    #[test]
    fn options_that_the_client_does_not_take_are_faults_like_others() {
        let folder = tempfile::tempdir().unwrap();
        let options = "[a, a], properties: {fetch.wait.max.ms.: '100', session.timeout.ms: soon, check.crcs: 'false'}";
        let text = MANIFEST.replace("NAME", "orders").replace("[a]", options);
        fs::write(folder.path().join("orders.yaml"), text).unwrap();
        let Err(Error::Faults { faults }) = manifests(&[folder.path().to_owned()]) else {
            panic!("it is wrong");
        };
        assert_eq!(faults.len(), 4, "{faults:#?}");
        for told in [
            "kafka.topics: \"a, a\": names a topic twice",
            "properties[fetch.wait.max.ms.]: \"100\": is unknown to librdkafka",
            "properties[session.timeout.ms]: \"soon\": is not taken by librdkafka",
            "properties[check.crcs]: \"false\": may not be set",
        ] {
            let of_it = |fault: &&String| fault.contains(told);
            assert_eq!(
                faults.iter().filter(of_it).count(),
                1,
                "{told}: {faults:#?}"
            );
        }
    }

    /// A bad edit must not stop what runs.
    #[test]
    fn file_that_became_wrong_leaves_its_pipeline_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let write =
            |name: &str, spec: &EffectiveSpec| fs::write(file(name), spec.to_yaml()).unwrap();
        write("a.yaml", &spec("a"));
        write("b.yaml", &spec("b"));
        let mut folder = Folder::new(directory.path().to_owned());
        assert_eq!(
            names(folder.look().unwrap()),
            Some(vec!["a".into(), "b".into()])
        );
        assert_eq!(folder.look().unwrap(), None);
        fs::write(file("b.yaml"), "nonsense: 1").unwrap();
        fs::remove_file(file("a.yaml")).unwrap();
        assert_eq!(names(folder.look().unwrap()), Some(vec!["b".into()]));
        let mut changed = spec("b");
        changed.suspend = true;
        write("b.yaml", &changed);
        assert_eq!(folder.look().unwrap(), Some(vec![changed]));
    }
}
