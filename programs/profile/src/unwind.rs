//! Walks through copied stacks by the unwind tables of the program and its libraries.

use std::io;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, UnwindRegsNative, Unwinder as _,
    UnwinderNative,
};
use object::{Object, ObjectSection, ReadCache, ReadRef};

use crate::images::{Content, Image, first_address, images};

/// Calls from the outermost to the innermost function. A longer stack loses its outer end.
const DEPTH_MAX: usize = 256;

/// Registers of a thread where it was interrupted. `link` is the return address on processors that have a register for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registers {
    pub(crate) program: u64,
    pub(crate) stack: u64,
    pub(crate) frame: u64,
    #[cfg_attr(target_arch = "x86_64", allow(dead_code))]
    pub(crate) link: u64,
}

type Sections = ExplicitModuleSectionInfo<Vec<u8>>;

/// Knows the program and the libraries that were loaded when it was made.
pub(crate) struct Unwinder {
    unwinder: UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
}

impl Unwinder {
    /// *Blocking*: reads the unwind tables, some megabytes.
    pub(crate) fn of_this_process() -> io::Result<Unwinder> {
        let mut unwinder = UnwinderNative::new();
        for image in images()? {
            // A library without tables is walked through by frame pointers, and the others as they are.
            if let Ok(sections) = sections_of(&image) {
                let name = image.path.display().to_string();
                unwinder.add_module(Module::new(name, image.range.clone(), image.base, sections));
            }
        }
        Ok(Unwinder { unwinder, cache: CacheNative::new() })
    }

    /// Addresses of the stack whose bytes from the stack register on are `stack`, the innermost first. Each lies within
    /// the instruction that ran or called. The walk ends where the copy or the unwind tables do.
    pub(crate) fn addresses(&mut self, registers: Registers, stack: &[u8]) -> Box<[u64]> {
        let mut read = |address: u64| {
            let at = usize::try_from(address.checked_sub(registers.stack).ok_or(())?).map_err(|_| ())?;
            let word = stack.get(at..).and_then(|rest| rest.first_chunk()).ok_or(())?;
            Ok(u64::from_ne_bytes(*word))
        };
        let start = native(registers);
        let mut frames = self.unwinder.iter_frames(registers.program, start, &mut self.cache, &mut read);
        let mut addresses = Vec::new();
        while addresses.len() < DEPTH_MAX
            && let Ok(Some(frame)) = frames.next()
        {
            addresses.push(frame.address_for_lookup());
        }
        addresses.into()
    }
}

#[cfg(target_arch = "x86_64")]
fn native(registers: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.program, registers.stack, registers.frame)
}

#[cfg(target_arch = "aarch64")]
fn native(registers: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(registers.link, registers.stack, registers.frame)
}

fn sections_of(image: &Image) -> io::Result<Sections> {
    match image.content()? {
        Content::File(file) => sections(&ReadCache::new(file)),
        Content::Memory(bytes) => sections(&bytes[..]),
    }
}

fn sections<'d>(image: impl ReadRef<'d>) -> io::Result<Sections> {
    let file = object::File::parse(image).map_err(io::Error::other)?;
    let range = |name| {
        file.section_by_name(name).map(|section| section.address()..section.address() + section.size())
    };
    let bytes = |name| file.section_by_name(name).and_then(|section| section.data().ok()).map(<[u8]>::to_vec);
    Ok(Sections {
        base_svma: first_address(&file),
        text_svma: range(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: bytes(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: bytes(".eh_frame_hdr"),
        ..Sections::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::VDSO;

    #[test]
    fn this_program_and_its_libraries_have_unwind_tables() {
        let images = images().unwrap();
        let own = std::env::current_exe().unwrap();
        for wanted in [own.to_str().unwrap(), "libc.so", VDSO] {
            let image =
                images.iter().find(|image| image.path.to_string_lossy().contains(wanted)).expect(wanted);
            let sections = sections_of(image).unwrap();
            assert!(sections.eh_frame.is_some_and(|bytes| !bytes.is_empty()), "{wanted}");
            assert!(sections.eh_frame_hdr.is_some(), "{wanted}");
        }
    }

    /// Stack and registers may be anything.
    #[test]
    fn garbage_ends_the_walk() {
        let mut unwinder = Unwinder::of_this_process().unwrap();
        let code = garbage_ends_the_walk as fn() as usize as u64;
        let stack: Vec<u8> = (0..4096u64).flat_map(|at| (code + at * 31).to_ne_bytes()).collect();
        for program in [0, 1, code, code + 100, u64::MAX] {
            for (stack_at, frame) in [(0, 0), (4096, 4096 + 64), (u64::MAX - 64, u64::MAX), (4097, 3)] {
                let registers = Registers { program, stack: stack_at, frame, link: code };
                for len in [0, 7, 8, 100, stack.len()] {
                    assert!(unwinder.addresses(registers, &stack[..len]).len() <= DEPTH_MAX);
                }
            }
        }
    }
}
