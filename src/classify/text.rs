//! Normalises visible text: decodes entities, collapses blanks, lowers letters and counts
//! characters.

/// Longest entity that is decoded, `&` included: `&#x10FFFF;`.
pub(super) const MAX_ENTITY: usize = 10;

/// Collects visible text piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Visible {
    /// Characters so far. An East Asian character counts as two, because it carries about as much
    /// meaning.
    count: usize,
    /// Whether a blank must precede the next character.
    blank: bool,
    /// An incomplete entity.
    entity: String,
    /// All of the text, normalised.
    text: String,
}

impl Visible {
    /// Characters so far.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Writes to `buffer`, which must be empty.
    pub(crate) fn in_buffer(buffer: String) -> Self {
        Self { text: buffer, ..Self::default() }
    }

    /// Takes the buffer back.
    pub(crate) fn into_buffer(self) -> String {
        self.text
    }

    /// All of it, normalised.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Ends the current word and entity: neither continues after a tag.
    pub(crate) fn separate(&mut self) {
        if !self.entity.is_empty() {
            self.in_entity(' ');
        }
        self.blank = true;
    }

    /// Takes the next piece of text.
    pub(crate) fn push(&mut self, text: &str) {
        let mut rest = text;
        if self.entity.is_empty() && text.trim_ascii_start().is_empty() {
            // Most tags are separated by nothing or by a line break.
            self.blank |= !text.is_empty();
            return;
        }
        while let Some(end) = memchr::memchr(b'\n', rest.as_bytes()) {
            self.line(&rest[..=end]);
            rest = &rest[end + 1..];
        }
        self.line(rest);
    }

    fn line(&mut self, line: &str) {
        let begins = line.trim_ascii_start();
        let words = begins.trim_ascii_end();
        if !self.entity.is_empty() || !is_plain(words) {
            return self.characters(line);
        }
        // Most of a page is blanks between tags, and words of plain letters. They are taken as a whole.
        self.blank |= begins.len() < line.len();
        if !words.is_empty() {
            self.take_plain(words);
            self.blank = words.len() < begins.len();
        }
    }

    fn characters(&mut self, text: &str) {
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            let plain = if self.entity.is_empty() { plain_run(rest) } else { 0 };
            if plain > 0 {
                self.take_plain(&rest[..plain]);
                rest = &rest[plain..];
                continue;
            }
            rest = &rest[character.len_utf8()..];
            if self.entity.is_empty() && character != '&' {
                self.take(character);
            } else {
                self.in_entity(character);
            }
        }
    }

    fn take_plain(&mut self, run: &str) {
        self.before();
        let start = self.text.len();
        self.text.push_str(run);
        self.text[start..].make_ascii_lowercase();
        self.count += run.len();
    }

    fn in_entity(&mut self, character: char) {
        let goes_on = match character {
            '&' => self.entity.is_empty(),
            '#' => self.entity == "&",
            _ => character.is_ascii_alphanumeric(),
        };
        if goes_on && self.entity.len() < MAX_ENTITY {
            self.entity.push(character);
            return;
        }
        let entity = std::mem::take(&mut self.entity);
        if let Some(decoded) = decode_entity(&entity) {
            self.take(decoded);
            if character == ';' {
                return;
            }
        } else {
            entity.chars().for_each(|character| self.take(character));
        }
        if character == '&' {
            self.entity.push('&');
        } else {
            self.take(character);
        }
    }

    fn take(&mut self, character: char) {
        if character.is_ascii_graphic() {
            self.before();
            self.text.push(character.to_ascii_lowercase());
            self.count += 1;
        } else if character.is_whitespace() || character.is_control() {
            self.blank = true;
        } else if character == 'İ' {
            // Unicode lowers this letter to two characters, so that no Turkish word would match.
            self.before();
            self.text.push('i');
            self.count += 1;
        } else if !is_invisible(character) {
            self.before();
            self.text.extend(character.to_lowercase());
            self.count += if is_wide(character) { 2 } else { 1 };
        }
    }

    fn before(&mut self) {
        if std::mem::take(&mut self.blank) && self.count > 0 {
            self.text.push(' ');
            self.count += 1;
        }
    }
}

/// Whether `text` consists of words of visible ASCII characters, separated by single blanks,
/// without an entity. Without a branch in the loop, the compiler checks many bytes at once.
fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    let plain = |byte: u8| matches!(byte, b' '..=b'~') & (byte != b'&');
    let pairs = bytes.iter().zip(bytes.iter().skip(1));
    bytes.iter().fold(true, |all, byte| all & plain(*byte))
        && pairs.fold(true, |all, (one, next)| all & ((*one != b' ') | (*next != b' ')))
}

/// How many bytes at the start of `text` are visible ASCII characters outside of an entity.
fn plain_run(text: &str) -> usize {
    text.bytes().position(|b| !b.is_ascii_graphic() || b == b'&').unwrap_or(text.len())
}

/// `text`, normalised like by [`Visible`].
pub(crate) fn normalised(text: &str) -> String {
    let mut visible = Visible { text: String::with_capacity(text.len() + 1), ..Visible::default() };
    visible.push(text);
    // The next character completes an entity at the end.
    visible.push(" ");
    visible.text
}

/// How many characters `text` counts as.
pub(crate) fn weight(text: &str) -> usize {
    text.chars().map(|character| if is_wide(character) { 2 } else { 1 }).sum()
}

/// The length in bytes of the first `most` characters of a text.
pub(super) fn beginning(text: &str, most: usize) -> usize {
    let mut count = 0;
    let ends = |(_, character): &(usize, char)| {
        count += if is_wide(*character) { 2 } else { 1 };
        count > most
    };
    text.char_indices().find(ends).map_or(text.len(), |(at, _)| at)
}

/// Characters without width, which some pages put inside words.
pub(super) const fn is_invisible(character: char) -> bool {
    matches!(character, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
}

/// East Asian scripts.
const fn is_wide(character: char) -> bool {
    matches!(character,
        '\u{1100}'..='\u{11ff}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' | '\u{ff00}'..='\u{ff60}' | '\u{20000}'..='\u{3ffff}')
}

/// The character that `entity` (`&name` or `&#number`, without `;`) stands for.
pub(super) fn decode_entity(entity: &str) -> Option<char> {
    let name = entity.strip_prefix('&')?;
    if let Some(number) = name.strip_prefix('#') {
        let hex = number.strip_prefix(['x', 'X']);
        let code = match hex {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => number.parse(),
        };
        return code.ok().map(|code| char::from_u32(code).unwrap_or('\u{fffd}'));
    }
    NAMED.iter().find(|(known, _)| *known == name).map(|(_, character)| *character)
}

/// The named entities (HTML section 13.5) that occur in the texts of walls: punctuation and the
/// letters of western Europe.
const NAMED: [(&str, char); 58] = [
    ("amp", '&'),
    ("lt", '<'),
    ("gt", '>'),
    ("quot", '"'),
    ("apos", '\''),
    ("nbsp", '\u{a0}'),
    ("copy", '©'),
    ("reg", '®'),
    ("hellip", '…'),
    ("mdash", '—'),
    ("ndash", '–'),
    ("bull", '•'),
    ("lsquo", '‘'),
    ("rsquo", '’'),
    ("ldquo", '“'),
    ("rdquo", '”'),
    ("laquo", '«'),
    ("raquo", '»'),
    ("middot", '·'),
    ("iexcl", '¡'),
    ("iquest", '¿'),
    ("period", '.'),
    ("num", '#'),
    ("colon", ':'),
    ("Agrave", 'À'),
    ("Aacute", 'Á'),
    ("Auml", 'Ä'),
    ("Ccedil", 'Ç'),
    ("Eacute", 'É'),
    ("Ouml", 'Ö'),
    ("Uuml", 'Ü'),
    ("szlig", 'ß'),
    ("agrave", 'à'),
    ("aacute", 'á'),
    ("acirc", 'â'),
    ("atilde", 'ã'),
    ("auml", 'ä'),
    ("ccedil", 'ç'),
    ("egrave", 'è'),
    ("eacute", 'é'),
    ("ecirc", 'ê'),
    ("euml", 'ë'),
    ("igrave", 'ì'),
    ("iacute", 'í'),
    ("icirc", 'î'),
    ("iuml", 'ï'),
    ("ntilde", 'ñ'),
    ("ograve", 'ò'),
    ("oacute", 'ó'),
    ("ocirc", 'ô'),
    ("otilde", 'õ'),
    ("ouml", 'ö'),
    ("ugrave", 'ù'),
    ("uacute", 'ú'),
    ("ucirc", 'û'),
    ("uuml", 'ü'),
    ("shy", '\u{ad}'),
    ("zwnj", '\u{200c}'),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_and_single_characters_give_the_same_text() {
        let pieces = [
            "Plain words",
            " ",
            "\n  indented\twith a tab ",
            "two  blanks",
            "a &amp; b",
            "&am",
            "p; end\n",
            "ÄÖ über\u{ad}all",
            "\u{1}control\u{b}",
            "x",
            "  \n\n",
            "漢字 kanji ",
            "",
        ];
        for first in pieces {
            for second in pieces {
                for third in pieces {
                    let (mut lines, mut characters) = (Visible::default(), Visible::default());
                    for piece in [first, second, third] {
                        lines.push(piece);
                        characters.characters(piece);
                    }
                    assert_eq!(lines.text, characters.text, "{first:?} {second:?} {third:?}");
                    assert_eq!(lines.count, characters.count, "{first:?} {second:?} {third:?}");
                }
            }
        }
    }

    #[test]
    fn an_entity_ends_before_a_tag() {
        let mut visible = Visible::default();
        for piece in ["5 &lt", "6 &quo", "t"] {
            visible.push(piece);
            visible.separate();
        }
        assert_eq!(visible.text(), "5 < 6 &quo t");
    }
}
