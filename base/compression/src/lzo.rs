//! LZO1X, which Hadoop's LZO codecs use. The format was checked against `Documentation/staging/lzo.rst` of Linux.
//!
//! ```text
//! 0000LLLL                    after no literals: a run of literals, 3 + L; L = 0: 18 + length bytes
//! 0000DDSS HHHHHHHH           after 1 to 3 literals: 2 bytes, distance (H << 2) + D + 1
//!                             after 4 or more: 3 bytes, distance (H << 2) + D + 2049
//! 01LDDDSS HHHHHHHH           3 + L bytes, distance (H << 3) + D + 1
//! 1LLDDDSS HHHHHHHH           5 + L bytes, distance (H << 3) + D + 1
//! 001LLLLL DDDDDDSS DDDDDDDD  2 + L bytes, L = 0: 33 + length bytes; distance D + 1
//! 0001HLLL DDDDDDSS DDDDDDDD  2 + L bytes, L = 0: 9 + length bytes; distance 16384 + (H << 14) + D; 16384 is the end
//! ```
//!
//! S literals follow each copy. Length bytes are any number of zeros, 255 each, and one other byte.
//! A first byte above 17 stands for that many literals less 17.

const END: [u8; 3] = [0x11, 0, 0];
/// Literals that an instruction of their own is needed for.
const RUN_MIN: usize = 4;
const MATCH_MIN: usize = 4;
/// Distances above these need the next longer form of a copy.
const NEAR_MAX: usize = 1 << 11;
const MIDDLE_MAX: usize = 1 << 14;
const FAR_MAX: usize = (1 << 14) + (1 << 15) - 1;
const HASH_BITS: u32 = 13;

/// Appends the compressed form of `raw` to `out`.
pub(super) fn compress(raw: &[u8], out: &mut Vec<u8>) {
    let mut last_seen = vec![u32::MAX; 1 << HASH_BITS];
    let mut packer = Packer { out, last_copy: None };
    let (mut at, mut literals_from) = (0, 0);
    while at + MATCH_MIN <= raw.len() {
        let four = u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let slot = (four.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize;
        let candidate = std::mem::replace(&mut last_seen[slot], at as u32) as usize;
        let is_match = candidate < at
            && at - candidate <= FAR_MAX
            && raw[candidate..candidate + MATCH_MIN] == raw[at..at + MATCH_MIN];
        if !is_match {
            at += 1;
            continue;
        }
        let same = raw[candidate..].iter().zip(&raw[at..]).take_while(|(a, b)| a == b).count();
        packer.literals(&raw[literals_from..at]);
        packer.copy(at - candidate, same);
        at += same;
        literals_from = at;
    }
    packer.literals(&raw[literals_from..]);
    packer.out.extend_from_slice(&END);
}

struct Packer<'a> {
    out: &'a mut Vec<u8>,
    /// Where the byte with the number of literals of the last copy is; `None` before the first copy.
    last_copy: Option<usize>,
}

impl Packer<'_> {
    fn literals(&mut self, literals: &[u8]) {
        let count = literals.len();
        match self.last_copy {
            _ if count == 0 => {}
            Some(at) if count < RUN_MIN => self.out[at] |= count as u8,
            None if count <= 255 - 17 => self.out.push(17 + count as u8),
            _ => self.instruction(0, 15, count - 3),
        }
        self.out.extend_from_slice(literals);
    }

    fn copy(&mut self, distance: usize, len: usize) {
        debug_assert!((1..=FAR_MAX).contains(&distance) && len >= 3, "no form for {len} from {distance}");
        if distance <= NEAR_MAX && len <= 8 {
            let before = distance - 1;
            self.out.push(((len - 1) << 5 | (before & 7) << 2) as u8);
            self.out.push((before >> 3) as u8);
        } else if distance <= MIDDLE_MAX {
            self.instruction(0x20, 31, len - 2);
            self.out.extend_from_slice(&((distance - 1) as u16).wrapping_shl(2).to_le_bytes());
        } else {
            let before = distance - MIDDLE_MAX;
            self.instruction(0x10 | (before >> 11 & 8) as u8, 7, len - 2);
            self.out.extend_from_slice(&((before & 0x3fff) as u16).wrapping_shl(2).to_le_bytes());
        }
        self.last_copy = Some(self.out.len() - 2);
    }

    /// A length that fits `max` is in the byte of the instruction; what is above that follows.
    fn instruction(&mut self, code: u8, max: usize, len: usize) {
        if len <= max {
            self.out.push(code | len as u8);
            return;
        }
        self.out.push(code);
        let rest = len - max;
        let zeros = (rest - 1) / 255;
        self.out.resize(self.out.len() + zeros, 0);
        self.out.push((rest - zeros * 255) as u8);
    }
}

/// Appends at most `room` raw bytes to `out`. An error says what is wrong with `packed`.
pub(super) fn decompress(packed: &[u8], room: usize, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let start = out.len();
    let mut input = Input(packed);
    let mut unpacker = Unpacker { out, start, end: start + room };
    let mut literals = 0; // of the last instruction, 4 for more
    if let Some(&first) = packed.first()
        && first > 17
    {
        let count = usize::from(input.byte()? - 17);
        unpacker.literals(&mut input, count)?;
        literals = count.min(RUN_MIN);
    }
    loop {
        let code = input.byte()?;
        let long = usize::from(code);
        let (distance, len, after) = match code {
            0..16 if literals == 0 => {
                let count = 3 + input.length(long, 15, room)?;
                unpacker.literals(&mut input, count)?;
                literals = RUN_MIN;
                continue;
            }
            0..16 => {
                let distance = (usize::from(input.byte()?) << 2) + (long >> 2);
                let is_run = literals == RUN_MIN;
                (distance + if is_run { NEAR_MAX + 1 } else { 1 }, if is_run { 3 } else { 2 }, long & 3)
            }
            16..32 => {
                let len = 2 + input.length(long & 7, 7, room)?;
                let (low, after) = input.distance()?;
                let before = ((long & 8) << 11) + low;
                if before == 0 {
                    return if input.0.is_empty() { Ok(()) } else { Err("bytes after the end") };
                }
                (MIDDLE_MAX + before, len, after)
            }
            32..64 => {
                let len = 2 + input.length(long & 31, 31, room)?;
                let (low, after) = input.distance()?;
                (low + 1, len, after)
            }
            64.. => {
                let distance = (usize::from(input.byte()?) << 3) + (long >> 2 & 7) + 1;
                (distance, (long >> 5) + 1, long & 3)
            }
        };
        unpacker.copy(distance, len)?;
        unpacker.literals(&mut input, after)?;
        literals = after;
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("ends in the middle of an instruction")?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, &'static str> {
        self.take(1).map(|byte| byte[0])
    }

    /// The two bytes behind a copy: distance and number of literals.
    fn distance(&mut self) -> Result<(usize, usize), &'static str> {
        let bytes = self.take(2)?;
        let word = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
        Ok((word >> 2, word & 3))
    }

    /// What is in the instruction, or `max` and the length bytes behind it. None is longer than `room` by much.
    fn length(&mut self, inside: usize, max: usize, room: usize) -> Result<usize, &'static str> {
        if inside > 0 {
            return Ok(inside);
        }
        let mut len = max;
        loop {
            match self.byte()? {
                0 if len <= room => len += 255,
                0 => return Err("a length of more than there are bytes"),
                last => return Ok(len + usize::from(last)),
            }
        }
    }
}

struct Unpacker<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    end: usize,
}

impl Unpacker<'_> {
    fn check_room(&self, count: usize) -> Result<(), &'static str> {
        if count > self.end - self.out.len() { Err("more raw bytes than the record has") } else { Ok(()) }
    }

    fn literals(&mut self, input: &mut Input<'_>, count: usize) -> Result<(), &'static str> {
        self.check_room(count)?;
        self.out.extend_from_slice(input.take(count)?);
        Ok(())
    }

    fn copy(&mut self, distance: usize, len: usize) -> Result<(), &'static str> {
        self.check_room(len)?;
        let here = self.out.len();
        if distance > here - self.start {
            return Err("a copy from before the start");
        }
        if distance >= len {
            self.out.extend_from_within(here - distance..here - distance + len);
        } else {
            (0..len).for_each(|at| self.out.push(self.out[here - distance + at]));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unpacked(packed: &[u8], room: usize) -> Result<Vec<u8>, &'static str> {
        let mut out = b"before".to_vec();
        decompress(packed, room, &mut out)?;
        Ok(out.split_off(6))
    }

    #[test]
    fn every_form_of_literals_and_copies_comes_back() {
        let random = |len: usize, seed: u32| {
            let mut state = seed;
            (0..len).map(move |_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
        };
        let word: Vec<u8> = random(700, 7).collect();
        for literals in [0, 1, 3, 4, 18, 19, 237, 238, 239, 273, 274, 528, 529, 70_000] {
            for len in [4, 5, 8, 9, 33, 34, 288, 289, 543, 544, 700] {
                for gap in [0, 1, 3, 4, 2000, 2048, 16_000, 16_384, 20_000, 48_000, 60_000] {
                    let mut raw: Vec<u8> = random(literals, 1).collect();
                    raw.extend_from_slice(&word[..len]);
                    raw.extend(random(gap, 2));
                    raw.extend_from_slice(&word[..len]);
                    raw.extend(random(literals % 5, 3));
                    let mut packed = Vec::new();
                    compress(&raw, &mut packed);
                    assert!(unpacked(&packed, raw.len()).as_ref() == Ok(&raw), "{literals} {len} {gap}");
                    assert!(unpacked(&packed, raw.len() - 1).is_err());
                }
            }
        }
        let mut packed = Vec::new();
        compress(&[b'a'; 100_000], &mut packed);
        assert!(packed.len() < 500, "{}", packed.len());
        assert!(unpacked(&packed, 100_000).unwrap() == [b'a'; 100_000]);
    }

    /// Forms that other compressors write.
    #[test]
    fn copies_of_two_and_three_bytes_depend_on_the_literals_before() {
        assert_eq!(unpacked(&[18, b'a', 0b0000_0010, 0, b'b', b'c', 0x11, 0, 0], 9).unwrap(), b"aaabc");
        let mut packed = vec![0, 255]; // 18 + 255 literals
        packed.extend([b'x'; 273]);
        packed.extend([0b0000_0000, 0]); // after a run: distance 2049
        packed.extend(END);
        assert_eq!(unpacked(&packed, 1000), Err("a copy from before the start"));
        let mut packed = vec![0];
        packed.extend([0; 7]);
        packed.push(246); // 3 + 15 + 7 * 255 + 246 = 2049
        packed.extend((0..2049).map(|at| at as u8));
        packed.extend([0b0000_0000, 0]);
        packed.extend(END);
        let raw = unpacked(&packed, 3000).unwrap();
        assert_eq!(raw[2049..], [0, 1, 2]);
    }

    #[test]
    fn damage_is_an_error() {
        for (packed, error) in [
            (&[][..], "ends in the middle of an instruction"),
            (&[20, b'a'], "ends in the middle of an instruction"),
            (&[0x11, 0, 0, 0], "bytes after the end"),
            (&[18, b'a', 64, 1, 0x11, 0, 0], "a copy from before the start"),
            (&[18, b'a', 0x20, 200, 0, 0, 0x11, 0, 0], "more raw bytes than the record has"),
            (&[0; 400], "a length of more than there are bytes"),
        ] {
            assert_eq!(unpacked(packed, 100), Err(error), "{packed:?}");
        }
    }
    /// Literals, or a copy: how far back in thousandths of what is there, and how long.
    fn any_raw() -> impl Strategy<Value = Vec<u8>> {
        let literals = prop::collection::vec(0u8..4, 0..40).prop_map(|bytes| (bytes, 0, 0));
        let copies = (0usize..1000, 1usize..1200).prop_map(|(back, len)| (Vec::new(), back, len));
        prop::collection::vec(prop_oneof![literals, copies], 0..120).prop_map(|steps| {
            let mut raw: Vec<u8> = Vec::new();
            for (literals, back, len) in steps {
                raw.extend(literals);
                let distance = (raw.len() * back / 1000 + 1).min(raw.len());
                (0..if distance > 0 { len } else { 0 }).for_each(|_| raw.push(raw[raw.len() - distance]));
            }
            raw
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]
        #[test]
        fn what_is_packed_comes_back_and_damage_stays_in_its_room(
            raw in any_raw(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(),
            less in 1usize..100,
        ) {
            let mut packed = Vec::new();
            compress(&raw, &mut packed);
            prop_assert!(packed.len() <= raw.len() + raw.len() / 16 + 67, "{} of {}", packed.len(), raw.len());
            prop_assert!(unpacked(&packed, raw.len()).as_ref() == Ok(&raw));
            prop_assert!(raw.is_empty() || unpacked(&packed, raw.len().saturating_sub(less)).is_err());
            prop_assert!(unpacked(&packed[..cut.index(packed.len())], raw.len()).is_err());
            for (at, byte) in changes {
                let at = at.index(packed.len());
                packed[at] = byte;
            }
            let mut out = Vec::new();
            let _ = decompress(&packed, raw.len(), &mut out);
            prop_assert!(out.len() <= raw.len());
        }

        #[test]
        fn random_bytes_stay_in_their_room(packed in prop::collection::vec(any::<u8>(), 0..300), room in 0usize..5000) {
            let mut out = Vec::new();
            let _ = decompress(&packed, room, &mut out);
            prop_assert!(out.len() <= room);
        }
    }
}
