//! What the pages lead to is there: every link, every section that a program names.

use std::{collections::BTreeSet, fs, path::Path};

use regex::Regex;
use strum::{EnumMessage, IntoEnumIterator};
use tidemark::api::condition::{Course, Reason};

use crate::house;

const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> BTreeSet<String> {
    let heading = Regex::new(r"(?m)^#+ +(.*)$").unwrap();
    let dropped = Regex::new(r"[^\p{L}\p{N}_\- ]").unwrap();
    let of = |found: regex::Captures<'_>| {
        let lower = found[1].to_lowercase();
        dropped.replace_all(&lower, "").replace(' ', "-")
    };
    heading.captures_iter(page).map(of).collect()
}

/// Whoever follows a link in an hour of need finds what it promises.
#[test]
fn every_link_leads_somewhere() {
    let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let mut pages = house::files("docs", &["md"]);
    pages.extend(house::files("charts", &["md"]));
    pages.extend(
        [
            "README.md",
            "CHANGELOG.md",
            "SECURITY.md",
            "CONTRIBUTING.md",
        ]
        .map(String::from),
    );
    let mut dead = Vec::new();
    for path in &pages {
        let file = Path::new(PACKAGE).join(path);
        let page = text(&file);
        for found in link.captures_iter(&page) {
            let target = &found[1];
            if target.contains("://") {
                continue;
            }
            let (to, anchor) = target.split_once('#').unwrap_or((target, ""));
            let other = if to.is_empty() {
                file.clone()
            } else {
                file.parent().unwrap().join(to)
            };
            let there =
                other.exists() && (anchor.is_empty() || anchors(&text(&other)).contains(anchor));
            if !there {
                dead.push(format!("{path}: {target}"));
            }
        }
    }
    assert!(pages.len() > 15, "{pages:?}");
    assert_eq!(dead, Vec::<String>::new());
}

/// The sections of a page below headings of one depth, each with its heading.
fn sections<'p>(page: &'p str, mark: &str) -> Vec<(&'p str, &'p str)> {
    let parts = page.split(mark).skip(1);
    parts
        .map(|part| part.split_once('\n').unwrap_or((part, "")))
        .collect()
}

/// Whoever is on call meets a reason, and finds what it means for readers, where to look and what becomes of it.
#[test]
fn every_reason_has_its_section_in_the_runbook() {
    let page = text(&Path::new(PACKAGE).join("docs/runbook.md"));
    let courses = sections(&page, "\n## ");
    let mut unexplained = Vec::new();
    for course in Course::iter() {
        let title = course.get_documentation().unwrap();
        let whole = courses.iter().find(|(heading, _)| *heading == title);
        let (_, whole) = whole.unwrap_or_else(|| panic!("no section \"{title}\""));
        let introduction = whole.split("\n### ").next().unwrap();
        let of_course = sections(whole, "\n### ");
        let told: BTreeSet<&str> = of_course.iter().map(|(heading, _)| *heading).collect();
        let expected: BTreeSet<&str> = Reason::iter()
            .filter(|reason| reason.course() == course)
            .map(Reason::label)
            .collect();
        assert_eq!(told, expected, "the sections of \"{title}\"");
        assert_eq!(of_course.len(), told.len(), "a section stands twice");
        for (reason, section) in of_course {
            let says = |what: &str| section.contains(&format!("- {what}"));
            let readers =
                says("Readers") || introduction.contains("Readers") || course == Course::Gate;
            if !readers || !(says("Then:") || says("Do:")) {
                unexplained.push(reason);
            }
        }
    }
    assert_eq!(unexplained, Vec::<&str>::new());
}
