//! Bytes that no client would send: nothing panics, nothing hangs, nothing grows without bound.

#![allow(clippy::disallowed_methods)] // reads testdata

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{hex, list, message};
use halcyon_cell::{Cell, ErrorKind, Result};
use halcyon_env::sim::Dice;
use halcyon_env::{Clock, Patience, SystemClock};
use halcyon_filter::{
    FILTER_DEPTH_MAX, FILTERS_COUNT_MAX, Filter, finish_row, parse_comparator, parse_filter,
};
use halcyon_proto::pb;
use prost::Message;

/// Processor time of this thread, which a busy machine does not make longer.
struct Work(SystemClock, u64);

impl Work {
    fn begin() -> Work {
        let clock = SystemClock::new();
        let begun = clock.thread_ran_ns().expect("the system counts it");
        Work(clock, begun)
    }

    fn done(&self) -> Duration {
        Duration::from_nanos(self.0.thread_ran_ns().expect("as before") - self.1)
    }
}

/// Damage that repeats itself from its seed.
struct Random(Dice);

impl Random {
    /// `HALCYON_SEED` gives another sequence.
    fn new(seed: u64) -> Random {
        let shift = std::env::var("HALCYON_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0u64);
        Random(Dice::new(seed ^ shift.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        self.0.bytes(count)
    }
}

fn seeds(kind: &str) -> Vec<Bytes> {
    let text =
        std::fs::read_to_string(format!("{}/testdata/classes.txt", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let lines = text.lines().filter(|line| line.starts_with(kind));
    lines.map(|line| hex(line.split(' ').nth(2).unwrap())).collect()
}

/// Changes a few bytes, cuts, doubles or joins.
fn mutate(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..1 + random.below(4) {
        if out.is_empty() {
            return random.bytes(8);
        }
        let at = random.below(out.len());
        match random.below(6) {
            0 => out[at] ^= 1 << random.below(8),
            1 => out[at] = random.next() as u8,
            2 => out.truncate(at),
            3 => out.insert(at, random.next() as u8),
            4 => out[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            _ => {
                let piece = out[at..out.len().min(at + 8)].to_vec();
                out.splice(at..at, piece);
            }
        }
    }
    out
}

/// Asks a filter everything that a scan asks, over a few rows.
fn ask(filter: &mut dyn Filter, random: &mut Random) -> Result<()> {
    if random.below(4) == 0 {
        filter.set_reversed(true);
    }
    for row in [&b"a"[..], b"ab\xff", b"row", b"\xff\xff"] {
        let mut cells = Vec::new();
        let cell = |qualifier: &[u8], value: &[u8]| Cell::put(row, b"f", qualifier, 3, value);
        filter.filter_all_remaining()?;
        filter.filter_row_key(cell(b"", b"").get())?;
        for cell in [cell(b"", b""), cell(b"q", b"value"), cell(b"q1", &[0, 0, 0, 1, 9, 9, 9, 9])] {
            let code = filter.filter_cell(cell.get())?;
            if code.is_include() {
                cells.push(filter.transform_cell(cell.clone())?);
            }
            filter.next_cell_hint(cell.get())?;
        }
        finish_row(filter, &mut cells)?;
        filter.is_family_essential(b"f")?;
        filter.reset()?;
    }
    Ok(())
}

#[test]
fn mutated_requests_are_refused_or_answer() {
    let mut random = Random::new(20_261_120);
    let filters = seeds("filter ");
    let comparators = seeds("comparator ");
    let mut parsed = 0;
    for round in 0..60_000 {
        // Mostly the message inside is changed, so that the class is still known.
        let seed = filters[random.below(filters.len())].clone();
        let message = if round % 4 == 0 {
            pb::Filter::decode(&mutate(&seed, &mut random)[..])
        } else {
            pb::Filter::decode(seed).map(|mut filter| {
                let bytes = filter.serialized_filter.unwrap_or_default();
                filter.serialized_filter = Some(mutate(&bytes, &mut random).into());
                filter
            })
        };
        if let Ok(mut filter) = message.map_err(drop).and_then(|message| parse_filter(&message).map_err(drop))
        {
            parsed += 1;
            let _ = ask(&mut *filter, &mut random);
        }
        let seed = comparators[random.below(comparators.len())].clone();
        let mut message = pb::Comparator::decode(seed).unwrap();
        let bytes = message.serialized_comparator.unwrap_or_default();
        message.serialized_comparator = Some(mutate(&bytes, &mut random).into());
        if let Ok(comparator) = parse_comparator(&message) {
            parsed += 1;
            for value in [&b""[..], b"v", b"value", &[0xff; 8]] {
                let _ = comparator.compare(value);
            }
        }
    }
    assert!(parsed > 5_000, "only {parsed} mutations were understood: the test has lost its teeth");
}

#[test]
fn random_messages_of_known_classes_are_refused_or_answer() {
    let mut random = Random::new(7);
    let names = |kind| -> Vec<String> {
        let seeds = seeds(kind);
        seeds.iter().map(|seed| pb::Filter::decode(seed.clone()).unwrap().name).collect()
    };
    let (filters, comparators) = (names("filter "), names("comparator "));
    for _ in 0..60_000 {
        let length = random.below(24);
        // Field numbers and lengths that fit make it past the first byte more often.
        let mut bytes = random.bytes(length);
        if bytes.len() > 2 {
            bytes[0] = [0x08, 0x0a, 0x10, 0x12, 0x18, 0x1a][random.below(6)];
            bytes[1] = random.below(bytes.len()) as u8;
        }
        let name = filters[random.below(filters.len())].clone();
        let message = pb::Filter { name, serialized_filter: Some(bytes.clone().into()) };
        if let Ok(mut filter) = parse_filter(&message) {
            let _ = ask(&mut *filter, &mut random);
        }
        let name = comparators[random.below(comparators.len())].clone();
        let message = pb::Comparator { name, serialized_comparator: Some(bytes.into()) };
        if let Ok(comparator) = parse_comparator(&message) {
            let _ = comparator.compare(b"value");
        }
    }
}

#[test]
fn nesting_and_number_have_limits() {
    let nested = |depth: usize| {
        (1..depth).fold(message("FirstKeyOnlyFilter", &pb::FirstKeyOnlyFilter {}), |filter, _| {
            message("SkipFilter", &pb::SkipFilter { filter })
        })
    };
    let mut deepest = parse_filter(&nested(FILTER_DEPTH_MAX)).unwrap();
    ask(&mut *deepest, &mut Random::new(1)).unwrap();
    assert!(parse_filter(&nested(FILTER_DEPTH_MAX + 1)).is_err());
    assert!(parse_filter(&nested(3_000)).is_err());
    let wide = |count| {
        let one = message("FirstKeyOnlyFilter", &pb::FirstKeyOnlyFilter {});
        list(pb::filter_list::Operator::MustPassOne, vec![one; count])
    };
    assert!(parse_filter(&wide(FILTERS_COUNT_MAX - 1)).is_ok());
    assert!(parse_filter(&wide(FILTERS_COUNT_MAX)).is_err());
}

fn regex(pattern: &str) -> pb::Comparator {
    let message = pb::RegexStringComparator {
        pattern: pattern.to_string(),
        pattern_flags: 32,
        charset: "UTF-8".to_string(),
        engine: None,
    };
    common::comparator("RegexStringComparator", &message)
}

/// Patterns that are known to bring engines down, on values that do it.
#[test]
fn patterns_that_explode_are_stopped() {
    let long = "a".repeat(20_000);
    let patterns = [
        "(a+)+$b".to_string(),
        "^(a|aa)+$b".to_string(),
        "(?=a)(a|aa)+b".to_string(),
        "(a*)*\\1b".to_string(),
        "(?=a)a*a*a*a*a*b".to_string(),
        "(?<=a{1,500})b".to_string(),
        "(?<=\\p{L}{1,5000})b".to_string(),
        "(x+x+)+y(?=z)".to_string(),
        "a{2000000000}".to_string(),
        "((a{1000}){1000}){1000}".to_string(),
        "(?=a)((a{1000}){1000}){1000}".to_string(),
        "(?=a)(?:(?:(?:(?:(?=a)a{99}){99}){99}){99}){99}".to_string(),
        "\\p{L}{100000}".to_string(),
        "\\pL".repeat(80_000),
        "(?=a)\\p{L}{9}b".repeat(500),
        "(".repeat(100_000),
        format!("{}a{}", "(".repeat(100_000), ")".repeat(100_000)),
        "[".repeat(100_000),
        "a|".repeat(100_000),
        format!("{}b", "(?:a?){9}".repeat(1_000)),
        "(?i)".repeat(50_000),
        "\\1".repeat(4_000),
        "a**".to_string(),
    ];
    for pattern in &patterns {
        let work = Work::begin();
        let shown: String = pattern.chars().take(40).collect();
        let outcome = match parse_comparator(&regex(pattern)) {
            Err(error) => format!("refused: {}", error.message().chars().take(120).collect::<String>()),
            Ok(comparator) => {
                let short = comparator.compare(&long.as_bytes()[..30]).map(|order| order.is_eq());
                let long = comparator.compare(long.as_bytes()).map(|order| order.is_eq());
                format!("on 30 letters {short:?}, on 20000 {long:?}")
            }
        };
        let took = work.done();
        println!("{shown:40} {took:?} {outcome}");
        assert!(took < Duration::from_secs(20), "{shown} took {took:?}");
    }
    let stepping = parse_comparator(&regex("(?=a)b")).unwrap();
    assert!(stepping.compare(&vec![b'a'; 200_000]).is_err());
}

#[test]
fn random_patterns_are_refused_or_answer() {
    const PIECES: [&str; 48] = [
        "a",
        "b",
        "A",
        "\\",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "*",
        "+",
        "?",
        "|",
        "^",
        "$",
        ".",
        "-",
        "&&",
        "(?:",
        "(?=",
        "(?!",
        "(?<=",
        "(?<!",
        "(?>",
        "(?i)",
        "(?x)",
        "(?m)",
        "(?<n>",
        "\\k<n>",
        "\\1",
        "\\2",
        "\\Q",
        "\\E",
        "\\d",
        "\\W",
        "\\p{L}",
        "\\P{Alpha}",
        "\\x41",
        "\\u00e4",
        "\\0",
        "7",
        "{2,3}",
        "{1,}",
        "\\b",
        "\\R",
        "#",
        " ",
    ];
    let mut random = Random::new(3);
    let mut compiled = 0;
    for _ in 0..12_000 {
        let pattern: String = (0..1 + random.below(10)).map(|_| PIECES[random.below(PIECES.len())]).collect();
        if let Ok(comparator) = parse_comparator(&regex(&pattern)) {
            compiled += 1;
            for value in ["", "ab", "aAbB\r\n", "ä7 #"] {
                let _ = comparator.compare(value.as_bytes());
            }
        }
    }
    assert!(compiled > 500, "only {compiled} patterns compiled");
}

/// Seven bytes need some MiB, and a request has room for thousands of them.
#[test]
fn many_large_patterns_are_refused() {
    let filter = |at: usize| {
        let comparator = Some(regex(&format!(".{{{}}}", 200 + at % 200)));
        let compare_filter = pb::CompareFilter { compare_op: pb::CompareType::Equal as i32, comparator };
        message("RowFilter", &pb::RowFilter { compare_filter })
    };
    let many = list(pb::filter_list::Operator::MustPassOne, (0..4_000).map(filter).collect());
    let error = parse_filter(&many).err().expect("no request may take that much");
    assert!(error.message().contains("of its filter") || error.message().contains("of a filter"), "{error}");
    let equal = list(pb::filter_list::Operator::MustPassOne, (0..4_000).map(|_| filter(0)).collect());
    parse_filter(&equal).expect("one pattern is compiled once");
}

fn substring(text: String) -> pb::Comparator {
    common::comparator("SubstringComparator", &pb::SubstringComparator { substr: text })
}

/// Each place of a value was compared with as much of the text as agreed: hours for one cell, on whatever thread looked at it.
#[test]
fn long_substrings_are_found_in_time_that_grows_with_the_value() {
    let long = |end: &str| substring("A".repeat(1 << 20) + end);
    let mut value = vec![b'a'; 10 << 20];
    let work = Work::begin();
    assert!(parse_comparator(&long("b")).unwrap().compare(&value).unwrap().is_ne());
    assert!(parse_comparator(&long("")).unwrap().compare(&value).unwrap().is_eq());
    value.push(b'B');
    assert!(parse_comparator(&long("b")).unwrap().compare(&value).unwrap().is_eq(), "at the very end");
    let took = work.done();
    assert!(took < Duration::from_secs(2), "{took:?}");
    let inline = |value: &[u8]| Patience::of_looks(4_096, || parse_comparator(&long("b"))?.compare(value));
    assert_eq!(inline(&value).unwrap_err().kind(), ErrorKind::NeedsDisk);
    assert!(inline(b"aab").unwrap().is_ne());
}

/// A few bytes of pattern become as many states as a text has bytes, and each of these took a walk over the automaton.
#[test]
fn searches_of_long_texts_end_or_are_given_up() {
    let value: Vec<u8> = Random::new(5).bytes(4 << 20).iter().map(|byte| b'a' + byte % 2).collect();
    for (pattern, len_max) in [
        ("[ab]*a[ab]{4000}c", value.len()),
        ("[ab]*a[ab]{40}c", value.len()),
        ("\\b[ab]*a[ab]{4000}c", value.len()),
        ("(?=a)[ab]*a[ab]{100}c", 128 << 10),
        ("(?=a)(?:a(?=[ab]*a[ab]{100}c)|b)*c", 128 << 10),
        ("([ab]*a[ab]{1000})c\\1", 128 << 10),
    ] {
        let comparator = parse_comparator(&regex(pattern)).unwrap();
        // Of the texts that are not too long for it, the longest takes most.
        for len in (0..).map(|halved| len_max >> halved) {
            let work = Work::begin();
            let found = comparator.compare(&value[..len]).map(|order| order.is_eq());
            let took = work.done();
            println!("{pattern:40} on {len} bytes: {took:?} {found:?}");
            assert!(took < Duration::from_secs(60), "{pattern} took {took:?}");
            if !found.as_ref().is_err_and(|error| error.message().contains("are over")) {
                assert!(matches!(found, Ok(false) | Err(_)));
                break;
            }
        }
    }
    // What an automaton gets over in one go is searched, however long it is.
    let log = "2026-11-30 INFO all is well; ".repeat(400_000) + "ERROR 7";
    for pattern in ["error [0-9]+$", "(ERROR|FATAL) \\d", "^.*\\p{Lu}{5} 7$"] {
        let insensitive = pb::RegexStringComparator {
            pattern: pattern.to_string(),
            pattern_flags: 2,
            charset: "UTF-8".to_string(),
            engine: None,
        };
        let comparator =
            parse_comparator(&common::comparator("RegexStringComparator", &insensitive)).unwrap();
        assert!(comparator.compare(log.as_bytes()).unwrap().is_eq(), "{pattern}");
        let inline = Patience::of_looks(4_096, || comparator.compare(log.as_bytes()));
        assert_eq!(inline.unwrap_err().kind(), ErrorKind::NeedsDisk);
    }
}
