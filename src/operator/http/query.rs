//! What a reader may ask for: the parameters of each path, defined once for the parser and the `OpenAPI` document.
//!
//! Pure. A parameter that is wrong is named with its value and what to write instead; one that is not known is refused, because a
//! mistyped filter would otherwise answer for everything.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{super::Key, answers::Problem};
use crate::{
    api::{
        quantity::{parse_instant_us, parse_length_us},
        schema::{Selector, SelectorOperator, SelectorRequirement},
    },
    process::clock::length,
    sensor::Question,
    watermark::Term,
};

/// The longest wait of one request.
const LONGEST_WAIT_US: i64 = 120 * 1_000_000;

/// The longest page of a list.
const LONGEST_PAGE: usize = 500;

/// A page where no length is asked for.
const USUAL_PAGE: usize = 100;

/// The words of a verdict, as `tidemark wait` says them.
pub(super) const VERDICTS: [&str; 5] = ["ready", "not-yet", "incomplete", "held", "other-evidence"];

/// A parameter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) says: &'static str,
    pub(super) example: &'static str,
    pub(super) required: bool,
}

const BEFORE: Parameter = Parameter {
    name: "before",
    says: "The first instant after the interval that is asked about, ISO 8601 with an offset.",
    example: "2026-11-30T13:00:00Z",
    required: true,
};

const FROM: Parameter = Parameter {
    name: "from",
    says: "The first instant of the interval; one cell of the table before `before` where it is left out.",
    example: "2026-11-30T12:00:00Z",
    required: false,
};

const ACCEPT: Parameter = Parameter {
    name: "accept",
    says: "The terms that the claim may rest on, separated by commas: resolved, minimum, heartbeat, caught-up, percentile, clock. All where it is left out.",
    example: "minimum,caught-up",
    required: false,
};

/// What `…/ready` knows.
pub(super) const OF_READY: [Parameter; 4] = [
    BEFORE,
    FROM,
    ACCEPT,
    Parameter {
        name: "wait",
        says: "How long to wait for an answer that is settled, up to 2m. 0s where it is left out.",
        example: "30s",
        required: false,
    },
];

/// What the list knows.
pub(super) const OF_LIST: [Parameter; 10] = [
    Parameter {
        name: "namespace",
        says: "Only pipelines of this namespace.",
        example: "shop",
        required: false,
    },
    Parameter {
        name: "labelSelector",
        says: "Only pipelines with these labels, as kubectl -l takes them: key=value, key!=value, key in (a,b), key notin (a,b), key, !key.",
        example: "team=orders",
        required: false,
    },
    Parameter {
        name: "table",
        says: "Only pipelines that write this table.",
        example: "shop.orders",
        required: false,
    },
    Parameter {
        name: "condition",
        says: "Only pipelines with this answer of a condition, as Type:True, Type:False or Type:Unknown.",
        example: "Advancing:False",
        required: false,
    },
    Parameter {
        required: false,
        says: "Judges each pipeline over the interval up to this instant.",
        ..BEFORE
    },
    FROM,
    ACCEPT,
    Parameter {
        name: "verdict",
        says: "Only pipelines with this verdict; it goes with `before`.",
        example: "not-yet",
        required: false,
    },
    Parameter {
        name: "limit",
        says: "How many at most, from 1 to 500. 100 where it is left out.",
        example: "100",
        required: false,
    },
    Parameter {
        name: "continue",
        says: "Where to go on: the `continue` of the page before.",
        example: "shop/orders",
        required: false,
    },
];

/// A question about one pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) question: Question,
    pub(super) wait: Duration,
}

/// A question about many.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Listing {
    pub(super) namespace: Option<String>,
    pub(super) labels: Selector,
    pub(super) table: Option<String>,
    pub(super) condition: Option<(String, String)>,
    pub(super) question: Option<Question>,
    pub(super) verdict: Option<String>,
    pub(super) limit: usize,
    pub(super) after: Option<Key>,
}

/// The parameters of a request by name.
struct Given(BTreeMap<String, String>);

impl Given {
    fn of(pairs: Vec<(String, String)>, known: &[Parameter]) -> Result<Self, Problem> {
        let mut given = BTreeMap::new();
        for (name, value) in pairs {
            if !known.iter().any(|parameter| parameter.name == name) {
                let names: Vec<&str> = known.iter().map(|parameter| parameter.name).collect();
                let remedy = format!("leave it out; there are {}", names.join(", "));
                return Err(Problem::parameter(
                    &name,
                    &value,
                    "there is no such parameter",
                    &remedy,
                ));
            }
            if let Some(before) = given.insert(name.clone(), value) {
                return Err(Problem::parameter(
                    &name,
                    &before,
                    "it is given twice",
                    "write it once",
                ));
            }
        }
        Ok(Self(given))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn instant(&self, name: &str) -> Result<Option<i64>, Problem> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let us = parse_instant_us(text).ok_or_else(|| {
            // A plus sign in a query is a space.
            let remedy = "write it in ISO 8601 with its offset, as 2026-11-30T13:00:00Z; a + in an address is written %2B";
            Problem::parameter(name, text, "that is no instant", remedy)
        })?;
        Ok(Some(us))
    }

    fn question(&self) -> Result<Option<Question>, Problem> {
        let (before_us, from_us) = (self.instant("before")?, self.instant("from")?);
        let accept = self.accept()?;
        let Some(before_us) = before_us else {
            let stray = ["from", "accept", "verdict"];
            return match stray.iter().find_map(|name| Some((name, self.text(name)?))) {
                Some((name, value)) => Err(Problem::parameter(
                    name,
                    value,
                    "it says nothing without before",
                    "give before as well",
                )),
                None => Ok(None),
            };
        };
        if let Some(from_us) = from_us.filter(|from_us| *from_us >= before_us) {
            let _ = from_us;
            let value = self.text("from").unwrap_or_default();
            return Err(Problem::parameter(
                "from",
                value,
                "the interval is empty",
                "write an instant that lies before `before`",
            ));
        }
        Ok(Some(Question {
            from_us,
            before_us,
            accept,
            foreign: BTreeSet::new(),
        }))
    }

    fn accept(&self) -> Result<Option<BTreeSet<Term>>, Problem> {
        let Some(names) = self.text("accept") else {
            return Ok(None);
        };
        let terms = names.split(',').map(|name| Term::from_label(name.trim()));
        if let Some(terms) = terms.collect::<Option<BTreeSet<Term>>>() {
            return Ok(Some(terms));
        }
        let known = Term::ALL.map(Term::label).join(", ");
        let remedy = format!("name terms, separated by commas; there are {known}");
        Err(Problem::parameter(
            "accept",
            names,
            "it names what is no term",
            &remedy,
        ))
    }

    fn wait(&self) -> Result<Duration, Problem> {
        let Some(text) = self.text("wait") else {
            return Ok(Duration::ZERO);
        };
        let us = parse_length_us(text).filter(|us| *us <= LONGEST_WAIT_US);
        us.map(length).ok_or_else(|| {
            Problem::parameter(
                "wait",
                text,
                "that is no length up to 2m",
                "write a length, as 30s, and ask again when it is over",
            )
        })
    }

    fn limit(&self) -> Result<usize, Problem> {
        let Some(text) = self.text("limit") else {
            return Ok(USUAL_PAGE);
        };
        let number = text
            .parse()
            .ok()
            .filter(|limit| (1..=LONGEST_PAGE).contains(limit));
        number.ok_or_else(|| {
            Problem::parameter(
                "limit",
                text,
                "that is no number from 1 to 500",
                "write a smaller page, and go on with `continue`",
            )
        })
    }

    fn condition(&self) -> Result<Option<(String, String)>, Problem> {
        let Some(text) = self.text("condition") else {
            return Ok(None);
        };
        let kinds = ["Accepted", "Ready", "Advancing", "Reopened", "Suspended"];
        let pair = text.split_once(':');
        let known = pair.filter(|(kind, answer)| {
            kinds.contains(kind) && ["True", "False", "Unknown"].contains(answer)
        });
        let (kind, answer) = known.ok_or_else(|| {
            let remedy = format!(
                "write Type:Answer, as Ready:False; types are {}, answers True, False, Unknown",
                kinds.join(", ")
            );
            Problem::parameter("condition", text, "that is no condition", &remedy)
        })?;
        Ok(Some((kind.to_owned(), answer.to_owned())))
    }

    fn verdict(&self) -> Result<Option<String>, Problem> {
        match self.text("verdict") {
            Some(word) if !VERDICTS.contains(&word) => {
                let remedy = format!("write one of {}", VERDICTS.join(", "));
                Err(Problem::parameter(
                    "verdict",
                    word,
                    "that is no verdict",
                    &remedy,
                ))
            }
            word => Ok(word.map(str::to_owned)),
        }
    }

    fn after(&self) -> Result<Option<Key>, Problem> {
        let Some(text) = self.text("continue") else {
            return Ok(None);
        };
        let pair = text.split_once('/').ok_or_else(|| {
            Problem::parameter(
                "continue",
                text,
                "no page ends there",
                "take the `continue` of the page before",
            )
        })?;
        Ok(Some(Key::new(pair.0, pair.1)))
    }
}

impl Ask {
    pub(super) fn of(pairs: Vec<(String, String)>) -> Result<Self, Problem> {
        let given = Given::of(pairs, &OF_READY)?;
        let question = given.question()?.ok_or_else(|| {
            Problem::parameter(
                "before",
                "",
                "it is missing",
                "write the end of the interval, as before=2026-11-30T13:00:00Z",
            )
        })?;
        Ok(Self {
            question,
            wait: given.wait()?,
        })
    }
}

impl Listing {
    pub(super) fn of(pairs: Vec<(String, String)>) -> Result<Self, Problem> {
        let given = Given::of(pairs, &OF_LIST)?;
        let labels = given.text("labelSelector").unwrap_or_default();
        Ok(Self {
            namespace: given.text("namespace").map(str::to_owned),
            labels: selector(labels).ok_or_else(|| {
                Problem::parameter(
                    "labelSelector",
                    labels,
                    "that is no selector",
                    "write it as kubectl -l takes it, as team=orders,tier in (a,b)",
                )
            })?,
            table: given.text("table").map(str::to_owned),
            condition: given.condition()?,
            question: given.question()?,
            verdict: given.verdict()?,
            limit: given.limit()?,
            after: given.after()?,
        })
    }
}

/// A selector as `kubectl -l` takes it; `None` where the text is none.
fn selector(text: &str) -> Option<Selector> {
    let mut requirements = Vec::new();
    for part in parts(text) {
        requirements.push(requirement(part.trim())?);
    }
    Some(Selector {
        match_labels: None,
        match_expressions: (!requirements.is_empty()).then_some(requirements),
    })
}

/// The parts between commas that stand in no parentheses.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0_i32);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if !text.trim().is_empty() {
        parts.push(&text[begin..]);
    }
    parts
}

fn requirement(part: &str) -> Option<SelectorRequirement> {
    let list = |rest: &str| {
        let inner = rest.trim().strip_prefix('(')?.strip_suffix(')')?;
        let values: Vec<String> = inner
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        Some(values)
    };
    let (key, operator, values) = if let Some(key) = part.strip_prefix('!') {
        (key, SelectorOperator::DoesNotExist, None)
    } else if let Some((key, rest)) = part.split_once(" notin ") {
        (key, SelectorOperator::NotIn, Some(list(rest)?))
    } else if let Some((key, rest)) = part.split_once(" in ") {
        (key, SelectorOperator::In, Some(list(rest)?))
    } else if let Some((key, value)) = part.split_once("!=") {
        (
            key,
            SelectorOperator::NotIn,
            Some(vec![value.trim().to_owned()]),
        )
    } else if let Some((key, value)) = part.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        (
            key,
            SelectorOperator::In,
            Some(vec![value.trim().to_owned()]),
        )
    } else {
        (part, SelectorOperator::Exists, None)
    };
    let is_name = |text: &str| {
        text.len() <= 316
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
    };
    let key = key.trim();
    let known =
        !key.is_empty() && is_name(key) && values.iter().flatten().all(|value| is_name(value));
    known.then(|| SelectorRequirement {
        key: key.to_owned(),
        operator,
        values,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(query: &[(&str, &str)]) -> Vec<(String, String)> {
        query
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn refused(query: &[(&str, &str)]) -> String {
        Ask::of(pairs(query)).unwrap_err().to_string()
    }

    #[test]
    fn question_is_read() {
        let ask = Ask::of(pairs(&[
            ("before", "2026-11-30T14:00:00+01:00"),
            ("accept", "minimum,caught-up"),
            ("wait", "30s"),
        ]))
        .unwrap();
        assert_eq!(
            ask.question.before_us,
            parse_instant_us("2026-11-30T13:00:00Z").unwrap()
        );
        assert_eq!(
            ask.question.accept,
            Some(BTreeSet::from([Term::Minimum, Term::CaughtUp]))
        );
        assert_eq!(ask.wait, Duration::from_secs(30));
    }

    /// A mistyped question must not get the answer to another one.
    #[test]
    fn what_is_wrong_is_named_with_its_value_and_remedy() {
        assert_eq!(
            refused(&[]),
            "parameter before: it is missing: write the end of the interval, as before=2026-11-30T13:00:00Z"
        );
        let noon = ("before", "2026-11-30T12:00:00Z");
        for (query, starts) in [
            (
                ("form", "x"),
                "parameter form, \"x\": there is no such parameter: leave it out; there are before, from, accept, wait",
            ),
            (
                ("from", "noon"),
                "parameter from, \"noon\": that is no instant: write it in ISO 8601",
            ),
            (
                ("from", "2026-11-30T12:00:00Z"),
                "parameter from, \"2026-11-30T12:00:00Z\": the interval is empty",
            ),
            (
                ("accept", "minimum,magic"),
                "parameter accept, \"minimum,magic\": it names what is no term: name terms, separated by commas; there are resolved, minimum",
            ),
            (
                ("wait", "1h"),
                "parameter wait, \"1h\": that is no length up to 2m",
            ),
            (
                ("before", "2026-11-30T13:00:00Z"),
                "parameter before, \"2026-11-30T12:00:00Z\": it is given twice",
            ),
        ] {
            let told = refused(&[noon, query]);
            assert!(told.starts_with(starts), "{told}");
        }
    }

    #[test]
    fn selector_is_read_as_kubectl_does() {
        let labels = BTreeMap::from([
            ("team".to_owned(), "a".to_owned()),
            ("tier".to_owned(), "gold".to_owned()),
        ]);
        let matches = |text: &str| selector(text).unwrap().matches(&labels);
        for text in [
            "",
            "team=a",
            "team==a",
            "team=a,tier in (gold, silver)",
            "team",
            "!owner",
            "team!=b",
            "owner notin (x,y)",
        ] {
            assert!(matches(text), "{text}");
        }
        for text in [
            "team=b",
            "team,owner",
            "!team",
            "team!=a",
            "tier in (silver)",
            "tier notin (gold)",
        ] {
            assert!(!matches(text), "{text}");
        }
        for text in ["=a", "team in a", "te am", "team=a,,", "a=b=c"] {
            assert_eq!(selector(text), None, "{text}");
        }
    }

    #[test]
    fn list_is_bounded_and_its_filters_are_checked() {
        let listing = Listing::of(Vec::new()).unwrap();
        assert_eq!(listing.limit, 100);
        let refused = |name: &str, value: &str| {
            Listing::of(pairs(&[(name, value)]))
                .unwrap_err()
                .to_string()
        };
        assert!(refused("limit", "501").contains("from 1 to 500"));
        assert!(refused("verdict", "ready").contains("says nothing without before"));
        assert!(refused("condition", "Ready").contains("write Type:Answer"));
        assert!(refused("labelSelector", "team in a").contains("as kubectl -l takes it"));
        assert!(refused("continue", "x").contains("no page ends there"));
    }
}
