//! Settings and rules as text: `lateness=5m,delay=10m,skew=5m`.

use std::collections::{BTreeSet, HashMap};

use super::{iso, parse_iso};
use crate::watermark::amended::LateData;
use crate::watermark::event_time::{Bounds, SECOND_US};
use crate::watermark::frontier::{FromRule, Heartbeats, OnJoin, Policy, Quantile, Term};
use crate::watermark::grid::Grid;
use crate::watermark::state::CompleteFrom;

const UNITS: [(&str, i64); 5] = [
    ("d", 86_400 * SECOND_US),
    ("h", 3_600 * SECOND_US),
    ("m", 60 * SECOND_US),
    ("s", SECOND_US),
    ("us", 1),
];

/// A length as people write it, in the greatest unit that divides it: `5m`, `90s`, `1500000us`.
pub(super) fn length_text(us: i64) -> String {
    let unit = UNITS
        .into_iter()
        .find(|(_, unit)| us != 0 && us % unit == 0);
    let (name, unit) = unit.unwrap_or(("s", SECOND_US));
    format!("{}{name}", us / unit)
}

pub(super) fn parse_length(text: &str) -> Option<i64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, name) = text.split_at(digits);
    let (_, unit) = UNITS.into_iter().find(|(unit, _)| *unit == name)?;
    number.parse::<i64>().ok()?.checked_mul(unit)
}

/// The bounds as `tidemark.bounds` has them, `lateness=5m,delay=10m,skew=5m`.
#[must_use]
pub fn bounds_text(bounds: &Bounds) -> String {
    let mut text = format!(
        "lateness={},delay={},skew={}",
        length_text(bounds.allowed_lateness_us),
        length_text(bounds.max_delay_us),
        length_text(bounds.max_future_skew_us)
    );
    if let Some(age_us) = bounds.max_age_us {
        text.push_str(",age=");
        text.push_str(&length_text(age_us));
    }
    text
}

pub(super) fn pairs(text: &str) -> Option<HashMap<&str, &str>> {
    text.split(',').map(|pair| pair.split_once('=')).collect()
}

pub(super) fn parse_bounds(text: &str) -> Option<Bounds> {
    bounds_of(&pairs(text)?)
}

pub(super) fn bounds_of(pairs: &HashMap<&str, &str>) -> Option<Bounds> {
    Some(Bounds {
        allowed_lateness_us: parse_length(pairs.get("lateness")?)?,
        max_delay_us: parse_length(pairs.get("delay")?)?,
        max_future_skew_us: parse_length(pairs.get("skew")?)?,
        max_age_us: match pairs.get("age") {
            Some(age) => Some(parse_length(age)?),
            None => None,
        },
    })
}

pub(super) fn policy_text(policy: &Policy) -> String {
    let terms: Vec<&str> = policy.terms.iter().map(|term| term.label()).collect();
    let from = match policy.complete_from {
        FromRule::Derived => "derived".to_owned(),
        FromRule::Unbounded => UNBOUNDED.to_owned(),
        FromRule::Instant(us) => iso(us),
    };
    let zone = policy.grid.zone();
    let zone = zone.map_or_else(String::new, |name| format!(",zone={name}"));
    let mut text = format!(
        "cell={}{zone},{},window={},window-duration={},terms={},from={from},late={},join={}",
        length_text(policy.grid.cell_us()),
        bounds_text(&policy.bounds),
        policy.window_commits,
        length_text(policy.window_duration_us),
        terms.join("+"),
        policy.late_data.label(),
        policy.on_join.label(),
    );
    if let Some(rung) = policy.quantile {
        text.push_str(",quantile=");
        text.push_str(rung.label());
    }
    text.push_str(match policy.heartbeats {
        Heartbeats::None => "",
        Heartbeats::Connector => ",heartbeats=connector",
        Heartbeats::Table => ",heartbeats=table",
    });
    text
}

pub(super) fn parse_policy(text: &str) -> Option<Policy> {
    let pairs = pairs(text)?;
    let terms = pairs
        .get("terms")?
        .split('+')
        .filter(|label| !label.is_empty());
    Some(Policy {
        revision: 0,
        grid: Grid::in_zone(
            parse_length(pairs.get("cell")?)?,
            pairs.get("zone").copied(),
        )
        .ok()?,
        bounds: bounds_of(&pairs)?,
        window_commits: pairs.get("window")?.parse().ok()?,
        window_duration_us: parse_length(pairs.get("window-duration")?)?,
        terms: terms.map(Term::from_label).collect::<Option<_>>()?,
        quantile: match pairs.get("quantile") {
            Some(label) => Some(Quantile::from_label(label)?),
            None => None,
        },
        heartbeats: match pairs.get("heartbeats") {
            None => Heartbeats::None,
            Some(&"connector") => Heartbeats::Connector,
            Some(&"table") => Heartbeats::Table,
            Some(_) => return None,
        },
        complete_from: match *pairs.get("from")? {
            "derived" => FromRule::Derived,
            UNBOUNDED => FromRule::Unbounded,
            instant => FromRule::Instant(parse_iso(instant)?),
        },
        late_data: LateData::from_label(pairs.get("late")?)?,
        on_join: OnJoin::from_label(pairs.get("join")?)?,
    })
}

pub(super) fn evidence_text(evidence: &BTreeSet<Term>) -> String {
    let labels: Vec<&str> = evidence.iter().map(|term| term.label()).collect();
    labels.join(",")
}

pub(super) fn parse_evidence(text: &str) -> Option<BTreeSet<Term>> {
    let labels = text.split(',').filter(|label| !label.is_empty());
    labels.map(Term::from_label).collect()
}

pub(super) fn complete_from_text(from: CompleteFrom) -> String {
    match from {
        CompleteFrom::Unbounded => UNBOUNDED.to_owned(),
        CompleteFrom::From(us) => iso(us),
    }
}

pub(super) fn parse_complete_from(text: &str) -> Option<CompleteFrom> {
    if text == UNBOUNDED {
        return Some(CompleteFrom::Unbounded);
    }
    parse_iso(text).map(CompleteFrom::From)
}

pub(super) const UNBOUNDED: &str = "unbounded";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watermark::testing::policy;

    #[test]
    fn lengths_are_written_in_the_greatest_unit_that_divides() {
        for (us, text) in [
            (0, "0s"),
            (90 * SECOND_US, "90s"),
            (86_400 * SECOND_US, "1d"),
            (1_500, "1500us"),
        ] {
            assert_eq!(length_text(us), text);
            assert_eq!(parse_length(text), Some(us));
        }
        for bad in ["", "5", "m", "5 m", "-5m", "5w", "99999999999999d"] {
            assert_eq!(parse_length(bad), None, "{bad}");
        }
    }

    #[test]
    fn bounds_with_an_age_come_back() {
        let mut bounds = policy().bounds;
        bounds.max_age_us = Some(86_400 * SECOND_US);
        assert_eq!(bounds_text(&bounds), "lateness=5m,delay=10m,skew=5m,age=1d");
        assert_eq!(parse_bounds(&bounds_text(&bounds)), Some(bounds));
    }
}
