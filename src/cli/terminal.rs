//! The terminal of `tidegate top`: its size and its keys. Its previous state is restored at the
//! end.

use std::{
    io::{self, Read as _, Write as _},
    sync::mpsc::{self, Receiver},
    thread,
};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Switches to the alternate screen and hides the cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";
/// Rows and columns if the terminal does not report its size.
const COMMON: (usize, usize) = (24, 80);

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// A character.
    Char(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    /// Ctrl-C.
    Interrupt,
}

/// A terminal that sends each key at once, without echo.
pub(super) struct Terminal {
    before: Option<Termios>,
    pub(super) keys: Receiver<Key>,
}

impl Terminal {
    /// Takes over the terminal. If standard input is not a terminal, there are no keys.
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
            tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        }
        let (sender, keys) = mpsc::channel();
        // The thread ends with the process, because a blocking read cannot be interrupted.
        thread::spawn(move || {
            let mut bytes = [0; 64];
            while let Ok(count @ 1..) = io::stdin().lock().read(&mut bytes) {
                for key in parse(&bytes[..count]) {
                    if sender.send(key).is_err() {
                        return;
                    }
                }
            }
        });
        write(ENTER)?;
        Ok(Self { before, keys })
    }

    /// Rows and columns.
    pub(super) fn size() -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => {
                (size.ws_row.into(), size.ws_col.into())
            }
            _ => COMMON,
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The shell continues after this, and a failure cannot be reported.
        drop(write(LEAVE));
        if let Some(before) = &self.before {
            tcsetattr(io::stdin(), OptionalActions::Now, before).ok();
        }
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Parses the keys that a terminal sent; ignores unknown ones.
fn parse(bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    let text = String::from_utf8_lossy(bytes);
    let mut rest = text.as_ref();
    while let Some(first) = rest.chars().next() {
        let (key, length) = match first {
            '\x1b' if rest.starts_with("\x1b[A") || rest.starts_with("\x1bOA") => {
                (Some(Key::Up), 3)
            }
            '\x1b' if rest.starts_with("\x1b[B") || rest.starts_with("\x1bOB") => {
                (Some(Key::Down), 3)
            }
            '\x1b' if rest.len() == 1 => (Some(Key::Escape), 1),
            '\x1b' => (None, rest.len()),
            '\x03' => (Some(Key::Interrupt), 1),
            '\r' | '\n' => (Some(Key::Enter), 1),
            '\x7f' | '\x08' => (Some(Key::Backspace), 1),
            first if first.is_control() => (None, 1),
            first => (Some(Key::Char(first)), first.len_utf8()),
        };
        keys.extend(key);
        rest = &rest[length..];
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_terminal_escape_sequences() {
        let expected = [Key::Char('/'), Key::Char('é'), Key::Enter, Key::Up, Key::Down];
        assert_eq!(parse("/é\r\x1b[A\x1bOB".as_bytes()), expected);
        assert_eq!(parse(b"\x1b"), [Key::Escape]);
        assert_eq!(parse(b"\x1b[5~"), []);
        assert_eq!(parse(b"\x03\x7f"), [Key::Interrupt, Key::Backspace]);
    }
}
