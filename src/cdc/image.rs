//! A row image: a JSON object whose fields are the columns of the open row.
//!
//! Some fields are looked at again, as key or as event time: the image remembers where they stand in the message.
#![expect(
    clippy::inline_always,
    reason = "the innermost loop: measured, 464 against 530 ns a row"
)]

use std::mem;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::batch::Rows;
use super::keys::Keys;
use super::scan::{Scan, Text};
use super::schema::RowSchema;
use super::{Bad, UnknownFields};

/// Where a value stands in the message, quotes included.
pub(super) type Span = (usize, usize);

/// Of a field that the image does not have.
const NOWHERE: Span = (0, 0);

#[derive(Clone, Copy)]
enum Slot {
    Column(usize),
    /// A column that is looked at again, and its place in `spans`.
    Watched(usize, usize),
    /// A field without a column that is looked at again.
    Field(usize),
    Unknown,
}

/// The images of one table: after, before, and key have one each, since each has an order of its own.
pub(super) struct Image {
    keys: Keys<Slot>,
    /// Of the key columns in their order, then of the event time.
    spans: Vec<Span>,
    key_columns: usize,
    placeholder: Placeholder,
    unknown: u64,
}

/// What stands for a value that the source left out.
struct Placeholder {
    text: String,
    base64: String,
    nested: [String; 2],
}

impl Image {
    /// `event_field` is the field with the event time; `placeholder` stands for what the source left out, and is empty where no
    /// source does that.
    pub(super) fn new(schema: &RowSchema, event_field: Option<&str>, placeholder: &str) -> Image {
        let key = schema.key();
        let columns = schema.columns().iter().enumerate().map(|(c, column)| {
            let watched = key.iter().position(|key| *key == c);
            let watched =
                watched.or_else(|| (event_field == Some(&*column.name)).then_some(key.len()));
            (
                column.name.clone(),
                watched.map_or(Slot::Column(c), |place| Slot::Watched(c, place)),
            )
        });
        let field = event_field.filter(|name| schema.column_index(name).is_none());
        let field = field.map(|name| (name.to_owned(), Slot::Field(key.len())));
        Image {
            keys: Keys::new(columns.chain(field), Slot::Unknown),
            spans: vec![NOWHERE; key.len() + 1],
            key_columns: key.len(),
            placeholder: Placeholder::new(placeholder),
            unknown: 0,
        }
    }

    /// Fills the open row from the object here.
    pub(super) fn fill(&mut self, scan: &mut Scan<'_>, rows: &mut Rows) -> Result<(), Bad> {
        self.fill_unless(scan, rows, |_, _| false)
    }

    /// The same, but a key column that the row has already stays as it is.
    pub(super) fn fill_rest(&mut self, scan: &mut Scan<'_>, rows: &mut Rows) -> Result<(), Bad> {
        self.fill_unless(scan, rows, Rows::has)
    }

    /// Fills the columns that the open row does not have from the object here, which has been filled from before: what it has
    /// that the table does not was counted then.
    pub(super) fn fill_missing(&mut self, scan: &mut Scan<'_>, rows: &mut Rows) -> Result<(), Bad> {
        let Image {
            keys,
            spans,
            placeholder,
            ..
        } = self;
        scan.object(keys, |scan, slot| match slot {
            Slot::Column(c) | Slot::Watched(c, _) if rows.has(c) => scan.skip(),
            Slot::Column(c) => fill_column(scan, c, rows, placeholder),
            Slot::Watched(c, place) => {
                scan.token();
                let from = scan.at;
                fill_column(scan, c, rows, placeholder)?;
                spans[place] = (from, scan.at);
                Ok(())
            }
            Slot::Field(place) => {
                let found = scan.span()?;
                if spans[place] == NOWHERE {
                    spans[place] = found;
                }
                Ok(())
            }
            Slot::Unknown => scan.skip(),
        })
    }

    #[inline(always)]
    fn fill_unless(
        &mut self,
        scan: &mut Scan<'_>,
        rows: &mut Rows,
        keep: impl Fn(&Rows, usize) -> bool,
    ) -> Result<(), Bad> {
        let Image {
            keys,
            spans,
            placeholder,
            unknown,
            ..
        } = self;
        spans.fill(NOWHERE);
        scan.object(keys, |scan, slot| match slot {
            Slot::Column(c) => fill_column(scan, c, rows, placeholder),
            Slot::Watched(c, place) => {
                scan.token();
                let from = scan.at;
                if keep(rows, c) {
                    scan.skip()?;
                } else {
                    fill_column(scan, c, rows, placeholder)?;
                }
                spans[place] = (from, scan.at);
                Ok(())
            }
            Slot::Field(place) => {
                spans[place] = scan.span()?;
                Ok(())
            }
            Slot::Unknown => {
                *unknown += 1;
                scan.skip()
            }
        })
    }

    /// Passes over the object here; finds out where its key columns stand.
    pub(super) fn locate_key(
        &mut self,
        scan: &mut Scan<'_>,
        spans: &mut [Span],
    ) -> Result<(), Bad> {
        spans.fill(NOWHERE);
        scan.object(&mut self.keys, |scan, slot| match slot {
            Slot::Watched(_, place) if place < spans.len() => {
                spans[place] = scan.span()?;
                Ok(())
            }
            _ => scan.skip(),
        })
    }

    /// A row without an image is next.
    pub(super) fn forget(&mut self) {
        self.spans.fill(NOWHERE);
    }

    /// Where the key columns of the last row stand.
    pub(super) fn key_spans(&self) -> &[Span] {
        &self.spans[..self.key_columns]
    }

    /// The field that `event_field` names in the last row, if the image had it. A key column can be it too.
    pub(super) fn event_field<'m>(
        &self,
        schema: &RowSchema,
        name: &str,
        message: &'m [u8],
    ) -> Option<&'m [u8]> {
        let in_key = schema
            .key()
            .iter()
            .position(|c| schema.columns()[*c].name == name);
        let (from, to) = self.spans[in_key.unwrap_or(self.key_columns)];
        message.get(from..to).filter(|written| !written.is_empty())
    }

    /// Moves what was passed over since the last call.
    pub(super) fn report(&mut self, fields: &mut UnknownFields) {
        fields.count += mem::take(&mut self.unknown);
        self.keys.report(fields);
    }
}

impl Placeholder {
    fn new(text: &str) -> Placeholder {
        Placeholder {
            text: text.to_owned(),
            base64: STANDARD.encode(text),
            nested: [
                format!("[\"{text}\"]"),
                format!("{{\"{text}\":\"{text}\"}}"),
            ],
        }
    }

    /// By length first: the usual text is of another.
    #[inline(always)]
    fn could_be(&self, length: usize) -> bool {
        length == self.text.len() || length == self.base64.len()
    }

    #[cold]
    fn is(&self, written: &[u8], base64: bool) -> bool {
        !self.text.is_empty()
            && (*written == *self.text.as_bytes()
                || (base64 && *written == *self.base64.as_bytes()))
    }

    fn is_nested(&self, written: &[u8]) -> bool {
        !self.text.is_empty()
            && self
                .nested
                .iter()
                .any(|nested| *written == *nested.as_bytes())
    }
}

#[inline(always)]
fn fill_column(
    scan: &mut Scan<'_>,
    c: usize,
    rows: &mut Rows,
    placeholder: &Placeholder,
) -> Result<(), Bad> {
    match scan.token() {
        b'"' => match scan.text()? {
            Text::Plain(from, to) => {
                if placeholder.could_be(to - from)
                    && placeholder.is(&scan.message[from..to], rows.is_base64(c))
                {
                    return rows.unavailable(c);
                }
                rows.text(c, scan.message, from, to)
            }
            Text::Unescaped => rows.text(c, scan.unescaped.as_bytes(), 0, scan.unescaped.len()),
        },
        b'-' | b'0'..=b'9' => {
            let from = scan.at;
            let number = scan.number()?;
            rows.number(c, number, &scan.message[from..scan.at])
        }
        b'n' => {
            scan.word(b"null")?;
            rows.null(c)
        }
        b't' => {
            scan.word(b"true")?;
            rows.boolean(c, true)
        }
        b'f' => {
            scan.word(b"false")?;
            rows.boolean(c, false)
        }
        b'{' | b'[' => {
            let (from, to) = scan.span()?;
            let written = &scan.message[from..to];
            if placeholder.is_nested(written) {
                rows.unavailable(c)
            } else {
                rows.nested(c, written)
            }
        }
        _ => scan.bad(),
    }
}
