//! The event time of a row, from wherever the pipeline says.
//!
//! An instant outside 1990–2200 is no event time: what came in its place is kept.

use super::facts::EventTime;
use super::image::Image;
use super::instant::{self, Unit};
use super::kind::Kind;
use super::schema::{Encoding, RowSchema};
use super::{EventTimeFrom, Record};
use crate::watermark::in_range;

/// Reads event times; made once for a decoder.
pub(super) struct EventTimes {
    pub(super) from: EventTimeFrom,
    /// Of a column that says so, or is a date.
    unit: Option<Unit>,
}

impl EventTimes {
    pub(super) fn new(from: EventTimeFrom, schema: &RowSchema) -> EventTimes {
        let column = match &from {
            EventTimeFrom::Column(name) => schema.column_index(name).map(|c| &schema.columns()[c]),
            _ => None,
        };
        let unit = column.and_then(|column| match (column.encoding, &column.kind) {
            (Encoding::Seconds, _) => Some(Unit::Seconds),
            (Encoding::Millis, _) => Some(Unit::Millis),
            (Encoding::Micros, _) => Some(Unit::Micros),
            (Encoding::Nanos, _) => Some(Unit::Nanos),
            (_, Kind::Date) => Some(Unit::Days),
            _ => None,
        });
        EventTimes { from, unit }
    }

    /// The field of the row image that holds the event time.
    pub(super) fn field(&self) -> Option<&str> {
        match &self.from {
            EventTimeFrom::Column(name) => Some(name),
            _ => None,
        }
    }

    /// The event time of the row that `image` filled last. `commit` is asked where the source's commit is meant.
    pub(super) fn of<'m>(
        &self,
        record: &Record<'m>,
        image: (&Image, &RowSchema, &'m [u8]),
        commit: impl FnOnce() -> EventTime<'m>,
    ) -> EventTime<'m> {
        let (image, schema, message) = image;
        match &self.from {
            EventTimeFrom::SourceCommit => commit(),
            EventTimeFrom::Column(name) => match image.event_field(schema, name, message) {
                None | Some(b"null") => EventTime::Missing,
                Some([b'"', text @ .., b'"']) => written(text, self.unit),
                Some(number) => written(number, self.unit),
            },
            EventTimeFrom::Header(name) => match record.headers.last(name) {
                None => EventTime::Missing,
                // Shorter than any text of eight characters that could be meant: a long of these years begins with a zero byte.
                Some(value @ [0, _, _, _, _, _, _, _]) => {
                    let number = value
                        .iter()
                        .fold(0, |number, byte| number << 8 | i64::from(*byte));
                    let us = Unit::by_magnitude(number).and_then(|unit| unit.to_us(number));
                    us.map_or(EventTime::Unusable(value), EventTime::At)
                }
                Some(text) => written(text, None),
            },
            EventTimeFrom::RecordTimestamp => record
                .timestamp_us
                .map_or(EventTime::Missing, |us| usable(us, b"")),
        }
    }
}

fn written(text: &[u8], unit: Option<Unit>) -> EventTime<'_> {
    instant::event_time_us(text, unit).map_or(EventTime::Unusable(text), |us| usable(us, text))
}

/// The instant, unless it is outside the years of event times; `text` is how it came.
pub(super) fn usable(us: i64, text: &[u8]) -> EventTime<'_> {
    if in_range(us) {
        EventTime::At(us)
    } else {
        EventTime::Unusable(text)
    }
}
