//! The index of the cache file as it is kept while the process is down. Drawn in `FORMAT.md`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::index::Slot;
use super::space::Layout;
use crate::{BlockOffset, FileIdentity};

const MAGIC: &[u8; 8] = b"HCTIERIX";
const HEADER_MAGIC: &[u8; 8] = b"HCTIERDT";
/// Of both files; another one is not read.
const VERSION: u32 = 1;
pub(super) const HEADER_LEN: usize = 48;
/// Magic, version, stamp, layout and checksum are within it.
const _: () = assert!(8 + 4 + 16 + (8 + 4) + 4 <= HEADER_LEN);

/// What the cache file and its index have in common if they belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bond {
    /// Drawn anew each time the cache file is opened.
    pub stamp: [u8; 16],
    pub layout: Layout,
}

impl Bond {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&self.stamp);
        out.extend_from_slice(&self.layout.segment_bytes.to_be_bytes());
        out.extend_from_slice(&self.layout.segments_count.to_be_bytes());
    }

    fn take(reader: &mut Reader<'_>) -> Option<Bond> {
        if reader.int()? != VERSION {
            return None;
        }
        let stamp = reader.take(16)?.try_into().expect("sixteen bytes");
        let layout = Layout { segment_bytes: reader.long()?, segments_count: reader.int()? };
        (layout.segment_bytes > 0).then_some(Bond { stamp, layout })
    }

    /// The first bytes of the cache file.
    pub fn header(&self) -> Vec<u8> {
        let mut out = HEADER_MAGIC.to_vec();
        self.put(&mut out);
        let sum = crc32c::crc32c(&out);
        out.extend_from_slice(&sum.to_be_bytes());
        out.resize(HEADER_LEN, 0);
        out
    }

    pub fn parse_header(bytes: &[u8]) -> Option<Bond> {
        let mut reader = Reader(bytes);
        reader.expect(HEADER_MAGIC)?;
        let bond = Bond::take(&mut reader)?;
        let guarded = bytes.len() - reader.0.len();
        (reader.int()? == crc32c::crc32c(&bytes[..guarded])).then_some(bond)
    }
}

/// One file's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SavedFile {
    pub identity: FileIdentity,
    /// Where it was.
    pub path: PathBuf,
    /// Offsets in the file, and where in the cache file their records are.
    pub blocks: Vec<(BlockOffset, Slot)>,
}

/// See the head of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Saved {
    pub bond: Bond,
    /// Segments that hold something, oldest first.
    pub segments: Vec<u32>,
    pub files: Vec<SavedFile>,
}

impl Saved {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let count = |len: usize| u32::try_from(len).expect("counts are far below 4 G").to_be_bytes();
        self.bond.put(&mut out);
        out.extend_from_slice(&count(self.segments.len()));
        self.segments.iter().for_each(|segment| out.extend_from_slice(&segment.to_be_bytes()));
        out.extend_from_slice(&count(self.files.len()));
        for SavedFile { identity, path, blocks } in &self.files {
            let path = path.to_string_lossy();
            for text in [identity.name.as_bytes(), path.as_bytes()] {
                out.extend_from_slice(&count(text.len()));
                out.extend_from_slice(text);
            }
            out.extend_from_slice(&identity.len.to_be_bytes());
            out.extend_from_slice(&identity.stamp.to_be_bytes());
            out.extend_from_slice(&count(blocks.len()));
            for (offset, slot) in blocks {
                out.extend_from_slice(&offset.get().to_be_bytes());
                out.extend_from_slice(&slot.position.to_be_bytes());
                out.extend_from_slice(&slot.len.to_be_bytes());
                out.push(u8::from(slot.used));
            }
        }
        let sum = crc32c::crc32c(&out);
        out.extend_from_slice(&sum.to_be_bytes());
        out
    }

    /// `None` if a byte is not as it was written, or if it says what cannot be.
    pub fn parse(bytes: &[u8]) -> Option<Saved> {
        let (guarded, sum) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        if crc32c::crc32c(guarded).to_be_bytes() != sum {
            return None;
        }
        let mut reader = Reader(guarded);
        reader.expect(MAGIC)?;
        let bond = Bond::take(&mut reader)?;
        let segments = (0..reader.int()?).map(|_| reader.int()).collect::<Option<Vec<u32>>>()?;
        let known: HashSet<u32> = segments.iter().copied().collect();
        let is_outside = |segment: &u32| *segment >= bond.layout.segments_count;
        if known.len() != segments.len() || known.iter().any(is_outside) {
            return None; // a segment is filled once
        }
        let mut files = Vec::new();
        for _ in 0..reader.int()? {
            files.push(SavedFile::take(&mut reader, bond.layout, &known)?);
        }
        reader.0.is_empty().then_some(Saved { bond, segments, files })
    }
}

impl SavedFile {
    /// `segments` are those that hold something.
    fn take(reader: &mut Reader<'_>, layout: Layout, segments: &HashSet<u32>) -> Option<SavedFile> {
        let name = reader.text()?;
        let path = Path::new(reader.text()?).to_path_buf();
        let identity = FileIdentity { name: name.into(), len: reader.long()?, stamp: reader.long()? };
        let mut blocks = Vec::new();
        for _ in 0..reader.int()? {
            let offset = BlockOffset::new(reader.long()?);
            let slot = Slot { position: reader.long()?, len: reader.int()?, used: reader.take(1)? == [1] };
            layout.segment_of(slot.position, slot.len).filter(|segment| segments.contains(segment))?;
            blocks.push((offset, slot));
        }
        Some(SavedFile { identity, path, blocks })
    }
}

/// What is left to read. Nothing is allocated by a count that was not yet seen to be there.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn expect(&mut self, bytes: &[u8]) -> Option<()> {
        (self.take(bytes.len())? == bytes).then_some(())
    }

    fn int(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = self.int()? as usize;
        std::str::from_utf8(self.take(len)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved() -> Saved {
        let layout = Layout::of(4 << 20);
        let identity = FileIdentity { name: "0123".into(), len: 9, stamp: u64::MAX };
        let slot = |segment, used| Slot { position: layout.start_of(segment), len: 100, used };
        let file = SavedFile {
            identity: identity.clone(),
            path: PathBuf::from("/data/x/0123"),
            blocks: vec![(BlockOffset::ZERO, slot(0, false)), (BlockOffset::new(77), slot(3, true))],
        };
        let empty =
            SavedFile { identity: FileIdentity { len: 8, ..identity }, blocks: Vec::new(), ..file.clone() };
        Saved { bond: Bond { stamp: [7; 16], layout }, segments: vec![3, 0], files: vec![file, empty] }
    }

    #[test]
    fn comes_back_and_is_refused_when_damaged() {
        let saved = saved();
        let bytes = saved.encode();
        assert_eq!(Saved::parse(&bytes).as_ref(), Some(&saved));
        let header = saved.bond.header();
        assert_eq!((header.len(), Bond::parse_header(&header)), (HEADER_LEN, Some(saved.bond)));
        for at in 0..bytes.len() {
            assert_eq!(Saved::parse(&bytes[..at]), None, "cut at {at}");
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                assert_eq!(Saved::parse(&bad), None, "bit {bit} of byte {at}");
            }
        }
        for at in 0..44 {
            let mut bad = header.clone();
            bad[at] ^= 1;
            assert_eq!(Bond::parse_header(&bad), None, "byte {at}");
        }
    }

    /// Such a segment would be free and filled, or be filled twice: two blocks would share its bytes.
    #[test]
    fn a_segment_is_filled_once_and_blocks_are_in_filled_ones() {
        for segments in [vec![3, 0, 3], vec![3], vec![0]] {
            let saved = Saved { segments, ..saved() };
            assert_eq!(Saved::parse(&saved.encode()), None, "{:?}", saved.segments);
        }
    }

    /// With a checksum that fits, as whoever forges it would make one: no count is believed, nothing panics.
    #[test]
    fn forged_bytes_are_refused_or_make_sense() {
        let bytes = saved().encode();
        let guarded = bytes.len() - 4;
        for at in 0..guarded {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bad = bytes.clone();
                bad[at] = value;
                let sum = crc32c::crc32c(&bad[..guarded]).to_be_bytes();
                bad[guarded..].copy_from_slice(&sum);
                if let Some(parsed) = Saved::parse(&bad) {
                    let slots = parsed.files.iter().flat_map(|file| &file.blocks);
                    slots.for_each(|(_, slot)| {
                        assert!(parsed.bond.layout.segment_of(slot.position, slot.len).is_some());
                    });
                }
            }
        }
    }
}
