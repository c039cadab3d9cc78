//! Where the demo shows itself: a live picture in a terminal, lines anywhere else.
//!
//! The terminal is given back as it was, also when the demo fails.

use std::{io::Write, time::Duration};

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyModifiers},
};

use crate::demo::{
    Error,
    picture::{Picture, tell},
};

/// The place where pictures go.
pub(super) struct Screen<'a> {
    terminal: Option<DefaultTerminal>,
    lines: &'a mut dyn Write,
    last: Picture,
}

impl<'a> Screen<'a> {
    /// Takes over the terminal if `live`, else writes to `lines`.
    ///
    /// # Errors
    /// [`Error::Screen`] when the terminal cannot be taken over.
    pub(super) fn open(live: bool, lines: &'a mut dyn Write) -> Result<Self, Error> {
        let terminal = if live {
            Some(ratatui::try_init().map_err(Error::Screen)?)
        } else {
            None
        };
        Ok(Self {
            terminal,
            lines,
            last: Picture::default(),
        })
    }

    /// Shows a picture: the whole of it, or in words what has changed since the last one.
    ///
    /// # Errors
    /// [`Error::Screen`] when it cannot be written.
    pub(super) fn show(&mut self, picture: &Picture) -> Result<(), Error> {
        if let Some(terminal) = &mut self.terminal {
            terminal
                .draw(|frame| frame.render_widget(picture, frame.area()))
                .map_err(Error::Screen)?;
        } else {
            for line in tell(&self.last, picture) {
                writeln!(self.lines, "{line}").map_err(Error::Screen)?;
            }
            self.lines.flush().map_err(Error::Screen)?;
        }
        self.last = picture.clone();
        Ok(())
    }

    /// Whether a person has asked to end early: `q`, Escape or Ctrl-C, which a terminal in this mode passes on as a key.
    ///
    /// # Errors
    /// [`Error::Screen`] when the terminal is gone.
    pub(super) fn wants_to_quit(&self) -> Result<bool, Error> {
        if self.terminal.is_none() {
            return Ok(false);
        }
        let mut quit = false;
        while event::poll(Duration::ZERO).map_err(Error::Screen)? {
            if let Event::Key(key) = event::read().map_err(Error::Screen)? {
                let interrupted =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                quit |= interrupted || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
            }
        }
        Ok(quit)
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        if self.terminal.is_some() {
            // The terminal may be gone; there is nobody left to tell.
            let _ = ratatui::try_restore();
        }
    }
}
