//! Standard output and standard error, without control characters that come from files, guests and
//! traces.

use anstream::AutoStream;
use std::{
    fmt,
    io::{self, Write},
};
use weir_model::is_hidden;

/// A stream that lets text, colors and line ends through and shows every other control character,
/// and bidirectional formatting, as an escape such as `\u{1b}` ([`is_hidden`]). Names and values in
/// messages come from files, guests, traces and the command line.
#[derive(Debug)]
pub struct Fit<W> {
    to: W,
    /// The beginning of a character or of a color's sequence without its end, which has not been
    /// written yet.
    pending: Vec<u8>,
    /// Go on without writing when the reader has gone away.
    to_the_end: bool,
}

/// Standard output. When its reader has gone away (`weir check FILE | head -1`) the rest is not
/// written, so that the command goes on to its exit status.
#[must_use]
pub fn stdout() -> Fit<AutoStream<io::StdoutLock<'static>>> {
    Fit { to_the_end: true, ..Fit::new(AutoStream::auto(io::stdout().lock())) }
}

/// Standard output for a while in which others write to it, too.
#[must_use]
pub fn shared_stdout() -> Fit<AutoStream<io::Stdout>> {
    Fit::new(anstream::stdout())
}

/// Standard error.
#[must_use]
pub fn stderr() -> Fit<AutoStream<io::Stderr>> {
    Fit { to_the_end: true, ..Fit::new(anstream::stderr()) }
}

impl<W: Write> Fit<W> {
    /// Writes to `to`.
    pub const fn new(to: W) -> Self {
        Self { to, pending: Vec::new(), to_the_end: false }
    }
}

/// What the beginning of some bytes is.
enum Piece {
    /// Bytes to let through.
    Good(usize),
    /// So many bytes that are a hidden character, or no character at all.
    Bad(usize, char),
    /// Perhaps the beginning of something.
    Open,
}

fn piece(bytes: &[u8]) -> Piece {
    let plain = |byte: &&u8| (b' '..0x7f).contains(*byte) || matches!(**byte, b'\n' | b'\t');
    let good = bytes.iter().take_while(plain).count();
    if good > 0 {
        return Piece::Good(good);
    }
    match bytes {
        [b'\r' | 0x1b] => Piece::Open,
        [b'\r', b'\n', ..] => Piece::Good(2),
        [0x1b, b'[', rest @ ..] => {
            let within = |byte: &&u8| byte.is_ascii_digit() || **byte == b';';
            // Longer than any color.
            let numbers = rest.iter().take(32).take_while(within).count();
            match rest.get(numbers) {
                Some(b'm') => Piece::Good(2 + numbers + 1),
                None if numbers < 32 => Piece::Open,
                _ => Piece::Bad(1, '\x1b'),
            }
        }
        [byte, ..] if byte.is_ascii() => Piece::Bad(1, char::from(*byte)),
        _ => {
            let most = &bytes[..bytes.len().min(4)];
            let valid = match std::str::from_utf8(most) {
                Ok(text) => text,
                Err(error) if error.valid_up_to() > 0 => {
                    std::str::from_utf8(&most[..error.valid_up_to()]).unwrap_or_default()
                }
                Err(error) => match error.error_len() {
                    None => return Piece::Open,
                    Some(length) => return Piece::Bad(length, char::REPLACEMENT_CHARACTER),
                },
            };
            match valid.chars().next() {
                Some(character) if is_hidden(character) => {
                    Piece::Bad(character.len_utf8(), character)
                }
                Some(character) => Piece::Good(character.len_utf8()),
                None => Piece::Open,
            }
        }
    }
}

impl<W: Write> Write for Fit<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let joined;
        let mut rest = if self.pending.is_empty() {
            buffer
        } else {
            self.pending.extend_from_slice(buffer);
            joined = std::mem::take(&mut self.pending);
            &joined[..]
        };
        let mut shown = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            let taken = match piece(rest) {
                Piece::Good(length) => {
                    shown.extend_from_slice(&rest[..length]);
                    length
                }
                Piece::Bad(length, char::REPLACEMENT_CHARACTER) => {
                    shown.extend_from_slice("\u{fffd}".as_bytes());
                    length
                }
                Piece::Bad(length, character) => {
                    shown.extend(character.escape_unicode().map(|c| c as u8));
                    length
                }
                Piece::Open => {
                    self.pending = rest.to_vec();
                    break;
                }
            };
            rest = &rest[taken..];
        }
        match self.to.write_all(&shown) {
            Err(error) if self.to_the_end && error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written?,
        }
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.to.flush() {
            Err(error) if self.to_the_end && error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}

/// Prints a line on standard error. A failure to write is ignored.
pub fn say(text: impl fmt::Display) {
    let _ = writeln!(stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(parts: &[&[u8]]) -> String {
        let mut fit = Fit::new(Vec::new());
        for part in parts {
            fit.write_all(part).expect("a vector takes all");
        }
        String::from_utf8(fit.to).expect("UTF-8")
    }

    /// A pipe without a reader.
    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn without_a_reader_a_command_goes_on_to_its_end() {
        assert!(Fit::new(Closed).write_all(b"a").is_err());
        let mut fit = Fit { to_the_end: true, ..Fit::new(Closed) };
        fit.write_all(b"a").expect("ignored");
        fit.flush().expect("ignored");
    }

    #[test]
    fn colors_and_text_come_through_and_nothing_else() {
        assert_eq!(
            shown(&[b"\x1b[1m\x1b[31merror:\x1b[0m a\tb\r\n"]),
            "\x1b[1m\x1b[31merror:\x1b[0m a\tb\r\n"
        );
        let title = b"\x1b]0;owned\x07 \x1b[2J \x1bc \x08 \r \x7f \xc2\x9b \xe2\x80\xae \xff";
        let escaped = "\\u{1b}]0;owned\\u{7} \\u{1b}[2J \\u{1b}c \\u{8} \\u{d} \\u{7f} \\u{9b} \
                       \\u{202e} \u{fffd}";
        assert_eq!(shown(&[title]), escaped);
    }

    proptest! {
        #[test]
        fn where_it_is_cut_makes_no_difference(bytes in prop::collection::vec(prop::sample::select(
            b"\x1b[3;1mAJ\r\n\xe2\x80\xae\xc3\xa4\xff".as_slice()), 0..60), cut in 0_usize..60)
        {
            let cut = cut.min(bytes.len());
            let whole = shown(&[&bytes, b"."]);
            prop_assert_eq!(&shown(&[&bytes[..cut], &bytes[cut..], b"."]), &whole);
            let left = anstream::adapter::strip_str(&whole).to_string();
            prop_assert!(!left.chars().any(|c| is_hidden(c) && c != '\r'), "{:?}", whole);
        }
    }
}
