//! Text of others, made fit for a person's terminal.

use std::borrow::Cow;

/// Returns whether a terminal would obey `character`, or show the text around it in another order,
/// instead of showing it: control characters but tab and line feed, bidirectional formatting
/// (Unicode Standard Annex 9), line and paragraph separators.
#[must_use]
pub fn is_hidden(character: char) -> bool {
    match character {
        '\t' | '\n' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            true
        }
        _ => character.is_control(),
    }
}

/// Returns `text` with each hidden character ([`is_hidden`]) as an escape such as `\u{1b}`. Text
/// that comes from a file, a guest, a trace or the command line goes through here before a terminal
/// sees it.
///
/// ```
/// assert_eq!(weir_model::printable("\x1b[2J a\u{202e}b\n"), "\\u{1b}[2J a\\u{202e}b\n");
/// ```
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_hidden(character) {
            escaped.extend(character.escape_unicode());
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// Returns `text` with each hidden character as a visible one that is as long in UTF-8, so that
/// every place stays where it is. A carriage return at the end of a line stays.
pub(crate) fn masked(text: &str) -> String {
    let mut characters = text.chars().peekable();
    let mut masked = String::with_capacity(text.len());
    while let Some(character) = characters.next() {
        let ends_line = character == '\r' && characters.peek() == Some(&'\n');
        masked.push(match character.len_utf8() {
            _ if ends_line || !is_hidden(character) => character,
            1 => '?',
            2 => '\u{bf}',
            _ => char::REPLACEMENT_CHARACTER,
        });
    }
    masked
}

/// Returns an address in hexadecimal, in groups of four digits, at least two groups: `0x4000_0000`.
pub(crate) fn hex(address: u64) -> String {
    weir_units::Pa(address).to_string()
}

/// The name among `known` that was probably meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Comparing takes time and memory by the product of both lengths, and no name is that long.
    const LONGEST: usize = 64;
    // Changes that a name is at most away. Lengths that differ by more tell so at once.
    let allowed = |name: &str| 1 + name.len().max(word.len()) / 4;
    known
        .into_iter()
        .filter(|name| word.len() <= LONGEST && word.len().abs_diff(name.len()) <= allowed(name))
        .map(|name| (strsim::damerau_levenshtein(word, name), name))
        .filter(|(distance, name)| *distance <= allowed(name))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str =
        "\0\x07\x08\r\x1b\x7f\u{85}\u{9b}\u{61c}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}\u{2028}";

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        assert_eq!(printable("plain \t\n \u{e4}\u{3b1}"), "plain \t\n \u{e4}\u{3b1}");
        assert!(matches!(printable("plain"), Cow::Borrowed(_)));
        let shown = printable(ALL);
        assert!(shown.is_ascii() && !shown.chars().any(char::is_control), "{shown}");
        assert_eq!(shown.matches("\\u{").count(), ALL.chars().count());
    }

    #[test]
    fn what_is_masked_stays_in_its_place() {
        assert_eq!(masked("a\x1bb\r\nc\u{202e}d\r"), "a?b\r\nc\u{fffd}d?");
        let shown = masked(ALL);
        assert!(!shown.chars().any(is_hidden), "{shown}");
        assert_eq!(shown.len(), ALL.len());
    }
}
