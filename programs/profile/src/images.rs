//! The program and its libraries, as they are mapped.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSegment};
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};

const PAGE_BYTES: u64 = 4096;
/// The running program, also when its file was replaced.
const SELF: &str = "/proc/self/exe";

/// A file, or the kernel's part of the process, whose code is mapped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) path: PathBuf,
    pub(crate) range: Range<u64>,
    /// Where its first page is mapped.
    pub(crate) base: u64,
}

pub(crate) const VDSO: &str = "[vdso]";

/// The images of this process that have code.
pub(crate) fn images() -> io::Result<Vec<Image>> {
    let maps = Process::myself().and_then(|process| process.maps()).map_err(io::Error::other)?;
    Ok(images_of(maps.into_iter()))
}

/// The mappings come in the order of their addresses.
fn images_of(maps: impl Iterator<Item = MemoryMap>) -> Vec<Image> {
    let mut images: Vec<(Image, bool)> = Vec::new();
    for map in maps {
        let path = match map.pathname {
            MMapPath::Path(path) => path,
            MMapPath::Vdso => PathBuf::from(VDSO),
            _ => continue,
        };
        let has_code = map.perms.contains(MMPermissions::EXECUTE);
        let range = map.address.0..map.address.1;
        match images.last_mut() {
            Some((last, last_has_code)) if last.path == path => {
                last.range.end = range.end;
                *last_has_code |= has_code;
            }
            _ => {
                let base = range.start.saturating_sub(map.offset);
                images.push((Image { path, range, base }, has_code));
            }
        }
    }
    images.into_iter().filter_map(|(image, has_code)| has_code.then_some(image)).collect()
}

/// Where an image is read from.
pub(crate) enum Content {
    File(File),
    Memory(Vec<u8>),
}

impl Image {
    pub(crate) fn content(&self) -> io::Result<Content> {
        if self.path == Path::new(VDSO) {
            let mut bytes = vec![0; (self.range.end - self.range.start) as usize];
            open(Path::new("/proc/self/mem"))?.read_exact_at(&mut bytes, self.range.start)?;
            return Ok(Content::Memory(bytes));
        }
        let path = if self.is_replaced() { Path::new(SELF) } else { &self.path };
        Ok(Content::File(open(path)?))
    }

    /// Whether this is the program and not a library.
    pub(crate) fn is_program(&self) -> bool {
        Path::new(SELF).read_link().is_ok_and(|own| own == self.path)
    }

    /// The kernel says so behind the name.
    fn is_replaced(&self) -> bool {
        self.path.to_string_lossy().ends_with(" (deleted)")
    }
}

/// The lowest address of an image as it was linked, which is mapped at [`Image::base`].
pub(crate) fn first_address<'d>(file: &impl Object<'d>) -> u64 {
    let first = file.segments().map(|segment| segment.address()).min().unwrap_or(0);
    first / PAGE_BYTES * PAGE_BYTES
}

/// The program's own image and not the database's files, which go through `halcyon_env`.
#[allow(clippy::disallowed_methods)]
fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}
