//! What a process has used, as the kernel counts it: CPU, memory, and the load of the machine beside it.

use std::{collections::BTreeMap, fs};

/// Ticks of `/proc/<pid>/stat` are hundredths of a second on every Linux that this runs on.
const TICK_NS: u64 = 10_000_000;

/// A process of this machine: a process id, or `self`.
pub(crate) struct Process(String);

impl Process {
    /// This one.
    pub(crate) fn own() -> Self {
        Self("self".to_owned())
    }

    /// Another one.
    pub(crate) fn of(pid: u32) -> Self {
        Self(pid.to_string())
    }

    /// CPU time of all its threads, those that ended as well, in steps of 10 ms.
    pub(crate) fn cpu_ns(&self) -> u64 {
        let stat = self.read("stat");
        // The name in parentheses may hold anything; user and system time are the 12th and 13th field after it.
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let ticks = |at: usize| -> u64 {
            let field = fields.split_whitespace().nth(at);
            field
                .and_then(|field| field.parse().ok())
                .expect("a count of ticks")
        };
        (ticks(11) + ticks(12)) * TICK_NS
    }

    /// CPU time of its living threads in ns, by the name of the thread without its number.
    pub(crate) fn threads(&self) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        let tasks = fs::read_dir(format!("/proc/{}/task", self.0)).expect("a living process");
        for task in tasks.flatten() {
            let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let name = read("comm")
                .trim()
                .trim_end_matches(|c: char| c.is_ascii_digit())
                .to_owned();
            let ns = read("schedstat")
                .split_whitespace()
                .next()
                .and_then(|ns| ns.parse().ok());
            *found.entry(name).or_default() += ns.unwrap_or(0);
        }
        found
    }

    /// How many threads it has.
    pub(crate) fn thread_count(&self) -> usize {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.0));
        tasks.expect("a living process").count()
    }

    /// A line of `/proc/<pid>/status` in MiB: `VmRSS`, `VmHWM`, `RssAnon`.
    pub(crate) fn memory_mib(&self, line: &str) -> f64 {
        let status = self.read("status");
        let found = status.lines().find(|one| one.starts_with(line));
        let kib: Option<u32> = found.and_then(|one| one.split_whitespace().nth(1)?.parse().ok());
        f64::from(kib.expect("a line of the process's status")) / 1024.0
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.0)).expect("a living process")
    }
}

/// CPU time of this thread in ns.
pub(crate) fn thread_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("a kernel with schedstat");
    text.split_whitespace()
        .next()
        .and_then(|ns| ns.parse().ok())
        .expect("a count of ns")
}

/// Runnable tasks of the machine over the last minute.
pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").expect("a Linux machine");
    text.split_whitespace()
        .next()
        .and_then(|load| load.parse().ok())
        .expect("a number")
}

/// Number and kind of the processors.
pub(crate) fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").expect("a Linux machine");
    let models: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, model)| model)
        .collect();
    format!(
        "{} × {}",
        models.len(),
        models.first().unwrap_or(&"unknown processor")
    )
}
