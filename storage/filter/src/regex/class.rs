//! Sets of characters: Java's predefined classes and properties, and how a set is written.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

use super::flags;

pub(super) type Set = ClassUnicode;

/// Why a pattern is refused.
pub(super) type Refusal = String;

/// What nothing matches, in a translated pattern.
pub(super) const NOTHING: &str = "[^\\x{0}-\\x{10ffff}]";

pub(super) fn range(first: char, last: char) -> Set {
    Set::new([ClassUnicodeRange::new(first, last)])
}

pub(super) fn of_chars(chars: &str) -> Set {
    Set::new(chars.chars().map(|char| ClassUnicodeRange::new(char, char)))
}

fn of_ranges(ranges: &[(char, char)]) -> Set {
    Set::new(ranges.iter().map(|&(first, last)| ClassUnicodeRange::new(first, last)))
}

pub(super) fn contains(set: &Set, char: char) -> bool {
    set.ranges().iter().any(|range| range.start() <= char && char <= range.end())
}

fn negated(mut set: Set) -> Set {
    set.negate();
    set
}

/// A range under the flags about case: with CASE_INSENSITIVE alone only ASCII letters have another case.
pub(super) fn folded_range(first: char, last: char, flags: i32) -> Set {
    assert!(
        first <= last,
        "a range from {first:?} back to {last:?} is refused: it would be taken the other way round"
    );
    let mut set = range(first, last);
    if flags & flags::CASE_INSENSITIVE == 0 {
        return set;
    }
    if flags & flags::UNICODE_CASE != 0 {
        set.case_fold_simple();
        return set;
    }
    for (from, to) in [('a', 'A'), ('A', 'a')] {
        let (low, high) = (first.max(from), last.min((from as u8 + 25) as char));
        if low <= high {
            let turn = |char: char| (char as u8 - from as u8 + to as u8) as char;
            set.union(&range(turn(low), turn(high)));
        }
    }
    set
}

/// The characters that end a line.
pub(super) fn line_ends(flags: i32) -> Set {
    of_chars(if flags & flags::UNIX_LINES != 0 { "\n" } else { "\n\r\u{85}\u{2028}\u{2029}" })
}

/// `\d \w \s \h \v` and their negations; `None` for another letter.
pub(super) fn predefined(letter: char, flags: i32) -> Option<Set> {
    let unicode = flags & flags::UNICODE_CHARACTER_CLASS != 0;
    let set = match letter.to_ascii_lowercase() {
        'd' if unicode => parsed(r"\p{Nd}")?,
        'd' => range('0', '9'),
        'w' if unicode => parsed(r"\w")?,
        'w' => of_ranges(&[('a', 'z'), ('A', 'Z'), ('_', '_'), ('0', '9')]),
        's' if unicode => parsed(r"\p{White_Space}")?,
        's' => of_chars(" \t\n\u{b}\u{c}\r"),
        'h' => {
            let mut set = of_chars(" \t\u{a0}\u{1680}\u{180e}\u{202f}\u{205f}\u{3000}");
            set.union(&range('\u{2000}', '\u{200a}'));
            set
        }
        'v' => of_chars("\n\u{b}\u{c}\r\u{85}\u{2028}\u{2029}"),
        _ => return None,
    };
    Some(if letter.is_ascii_uppercase() { negated(set) } else { set })
}

/// The set of `\p{name}`.
pub(super) fn property(name: &str, flags: i32) -> Result<Set, Refusal> {
    let unknown = || format!("unknown or unsupported character property {name:?}");
    let word =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_- ".contains(c));
    if let Some((key, value)) = name.split_once('=') {
        if !word(value) {
            return Err(unknown());
        }
        return match key.to_ascii_lowercase().as_str() {
            "sc" | "script" => parsed(&format!(r"\p{{Script={value}}}")),
            "blk" | "block" => block(value),
            "gc" | "general_category" => parsed(&format!(r"\p{{General_Category={value}}}")),
            _ => None,
        }
        .ok_or_else(unknown);
    }
    if !word(name) {
        return Err(unknown());
    }
    if let Some(name) = name.strip_prefix("In") {
        return block(name).ok_or_else(unknown);
    }
    if let Some(name) = name.strip_prefix("Is") {
        let binary = is_binary_property(name).then(|| parsed(&format!(r"\p{{{name}}}"))).flatten();
        let category = || parsed(&format!(r"\p{{General_Category={name}}}"));
        let script = || parsed(&format!(r"\p{{Script={name}}}"));
        return binary.or_else(category).or_else(script).ok_or_else(unknown);
    }
    let ascii = if flags & flags::UNICODE_CHARACTER_CLASS != 0 { unicode_posix(name) } else { posix(name) };
    let category = || {
        let cased = name == "LC";
        let known = matches!(name.len(), 1 | 2) && name.starts_with(|c: char| c.is_ascii_uppercase());
        if cased {
            parsed(r"[\p{Lu}\p{Ll}\p{Lt}]")
        } else {
            known.then(|| parsed(&format!(r"\p{{General_Category={name}}}"))).flatten()
        }
    };
    let mut set = ascii.or_else(|| java_lang(name)).or_else(category).ok_or_else(unknown)?;
    // Under CASE_INSENSITIVE the classes of one case stand for all of them.
    let of_case = ["Lower", "Upper", "Lu", "Ll", "Lt", "javaLowerCase", "javaUpperCase", "javaTitleCase"];
    if flags & flags::CASE_INSENSITIVE != 0 && of_case.contains(&name) {
        set = match name {
            "Lower" | "Upper" => property("Alpha", flags)?,
            "javaLowerCase" | "javaUpperCase" | "javaTitleCase" => {
                parsed(r"[\p{Lowercase}\p{Uppercase}\p{Lt}]").ok_or_else(unknown)?
            }
            _ => property("LC", flags)?,
        };
    }
    Ok(set)
}

fn is_binary_property(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    [
        "ALPHABETIC",
        "LETTER",
        "IDEOGRAPHIC",
        "LOWERCASE",
        "UPPERCASE",
        "TITLECASE",
        "WHITE_SPACE",
        "WHITESPACE",
        "CONTROL",
        "PUNCTUATION",
        "HEX_DIGIT",
        "HEXDIGIT",
        "ASSIGNED",
        "NONCHARACTER_CODE_POINT",
        "NONCHARACTERCODEPOINT",
        "DIGIT",
        "ALNUM",
        "BLANK",
        "GRAPH",
        "PRINT",
        "WORD",
        "JOIN_CONTROL",
        "JOINCONTROL",
        "EMOJI",
        "EMOJI_PRESENTATION",
        "EMOJI_MODIFIER",
        "EMOJI_MODIFIER_BASE",
        "EMOJI_COMPONENT",
        "EXTENDED_PICTOGRAPHIC",
    ]
    .contains(&name.as_str())
}

fn posix(name: &str) -> Option<Set> {
    Some(match name {
        "Lower" => range('a', 'z'),
        "Upper" => range('A', 'Z'),
        "ASCII" => range('\0', '\x7f'),
        "Alpha" => of_ranges(&[('a', 'z'), ('A', 'Z')]),
        "Digit" => range('0', '9'),
        "Alnum" => of_ranges(&[('a', 'z'), ('A', 'Z'), ('0', '9')]),
        "Punct" => of_ranges(&[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')]),
        "Graph" => range('!', '~'),
        "Print" => range(' ', '~'),
        "Blank" => of_chars(" \t"),
        "Cntrl" => of_ranges(&[('\0', '\x1f'), ('\x7f', '\x7f')]),
        "XDigit" => of_ranges(&[('0', '9'), ('a', 'f'), ('A', 'F')]),
        "Space" => of_chars(" \t\n\u{b}\u{c}\r"),
        "L1" => range('\0', '\u{ff}'),
        "all" => range('\0', char::MAX),
        _ => return None,
    })
}

fn unicode_posix(name: &str) -> Option<Set> {
    match name {
        "Lower" => parsed(r"\p{Lowercase}"),
        "Upper" => parsed(r"\p{Uppercase}"),
        "Alpha" => parsed(r"\p{Alphabetic}"),
        "Digit" => parsed(r"\p{Nd}"),
        "Alnum" => parsed(r"[\p{Alphabetic}\p{Nd}]"),
        "Punct" => parsed(r"\p{P}"),
        "Graph" => parsed(r"[^\p{White_Space}\p{Cc}\p{Cs}\p{Cn}]"),
        "Print" => parsed(r"[[^\p{White_Space}\p{Cc}\p{Cs}\p{Cn}]\p{Zs}]"),
        "Blank" => parsed(r"[\p{Zs}\t]"),
        "Cntrl" => parsed(r"\p{Cc}"),
        "XDigit" => parsed(r"[\p{Nd}\p{Hex_Digit}]"),
        "Space" => parsed(r"\p{White_Space}"),
        _ => posix(name),
    }
}

fn java_lang(name: &str) -> Option<Set> {
    match name {
        "javaLowerCase" => parsed(r"\p{Lowercase}"),
        "javaUpperCase" => parsed(r"\p{Uppercase}"),
        "javaAlphabetic" => parsed(r"\p{Alphabetic}"),
        "javaIdeographic" => parsed(r"\p{Ideographic}"),
        "javaTitleCase" => parsed(r"\p{Lt}"),
        "javaDigit" => parsed(r"\p{Nd}"),
        "javaDefined" => parsed(r"\P{Cn}"),
        "javaLetter" => parsed(r"\p{L}"),
        "javaLetterOrDigit" => parsed(r"[\p{L}\p{Nd}]"),
        "javaSpaceChar" => parsed(r"\p{Z}"),
        "javaWhitespace" => parsed(r"[[\p{Z}--[\x{a0}\x{2007}\x{202f}]]\t-\r\x1c-\x1f]"),
        "javaISOControl" => Some(of_ranges(&[('\0', '\x1f'), ('\x7f', '\u{9f}')])),
        _ => None,
    }
}

/// The Unicode blocks that patterns name most; the others are not known here.
fn block(name: &str) -> Option<Set> {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let (first, last) = match name.to_ascii_uppercase().as_str() {
        "BASICLATIN" | "ASCII" => ('\0', '\x7f'),
        "LATIN1SUPPLEMENT" => ('\u{80}', '\u{ff}'),
        "LATINEXTENDEDA" => ('\u{100}', '\u{17f}'),
        "LATINEXTENDEDB" => ('\u{180}', '\u{24f}'),
        "COMBININGDIACRITICALMARKS" => ('\u{300}', '\u{36f}'),
        "GREEK" | "GREEKANDCOPTIC" => ('\u{370}', '\u{3ff}'),
        "CYRILLIC" => ('\u{400}', '\u{4ff}'),
        "ARMENIAN" => ('\u{530}', '\u{58f}'),
        "HEBREW" => ('\u{590}', '\u{5ff}'),
        "ARABIC" => ('\u{600}', '\u{6ff}'),
        "DEVANAGARI" => ('\u{900}', '\u{97f}'),
        "THAI" => ('\u{e00}', '\u{e7f}'),
        "HANGULJAMO" => ('\u{1100}', '\u{11ff}'),
        "GENERALPUNCTUATION" => ('\u{2000}', '\u{206f}'),
        "CURRENCYSYMBOLS" => ('\u{20a0}', '\u{20cf}'),
        "ARROWS" => ('\u{2190}', '\u{21ff}'),
        "MATHEMATICALOPERATORS" => ('\u{2200}', '\u{22ff}'),
        "BOXDRAWING" => ('\u{2500}', '\u{257f}'),
        "CJKSYMBOLSANDPUNCTUATION" => ('\u{3000}', '\u{303f}'),
        "HIRAGANA" => ('\u{3040}', '\u{309f}'),
        "KATAKANA" => ('\u{30a0}', '\u{30ff}'),
        "CJKUNIFIEDIDEOGRAPHS" => ('\u{4e00}', '\u{9fff}'),
        "HANGULSYLLABLES" => ('\u{ac00}', '\u{d7af}'),
        "HALFWIDTHANDFULLWIDTHFORMS" => ('\u{ff00}', '\u{ffef}'),
        _ => return None,
    };
    Some(range(first, last))
}

/// A class in the notation of `regex-syntax`; `None` if it does not know a name in it.
fn parsed(class: &str) -> Option<Set> {
    match regex_syntax::parse(class).ok()?.into_kind() {
        HirKind::Class(Class::Unicode(set)) => Some(set),
        HirKind::Literal(literal) => Some(of_chars(std::str::from_utf8(&literal.0).ok()?)),
        _ => None,
    }
}

/// Writes a set as one atom of `fancy-regex`.
pub(super) fn write(set: &Set, out: &mut String) {
    let ranges = set.ranges();
    if ranges.is_empty() {
        out.push_str(NOTHING);
        return;
    }
    out.push('[');
    for range in ranges {
        write_char(range.start(), out);
        if range.start() != range.end() {
            out.push('-');
            write_char(range.end(), out);
        }
    }
    out.push(']');
}

/// Writes a character that stands for itself, inside or outside of a class.
pub(super) fn write_char(char: char, out: &mut String) {
    if char.is_alphanumeric() {
        out.push(char);
    } else {
        out.push_str(&format!("\\x{{{:x}}}", u32::from(char)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_is_ascii_unless_asked_for_more() {
        let fold = |first, last, flags| {
            let mut out = String::new();
            write(&folded_range(first, last, flags), &mut out);
            out
        };
        assert_eq!(fold('a', 'c', 0), "[a-c]");
        assert_eq!(fold('Y', 'b', flags::CASE_INSENSITIVE), r"[A-BY-by-z]");
        assert_eq!(fold('k', 'k', flags::CASE_INSENSITIVE), "[Kk]");
        assert_eq!(fold('k', 'k', flags::CASE_INSENSITIVE | flags::UNICODE_CASE), "[Kk\u{212a}]");
        assert_eq!(fold('ä', 'ä', flags::CASE_INSENSITIVE), "[ä]");
    }
}
