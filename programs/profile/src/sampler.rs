//! The timer, the signal handler, and the ring between handler and reader.
//!
//! *Thread safety*: a slot of the ring belongs to whoever moved it out of the state that is its own: a handler takes `FREE`
//! to `WRITING` and leaves `FULL`, the reader takes `FULL` and leaves `FREE`. The ring lives until no handler is in it.
//!
//! *Signal safety*: the handler does atomics and three system calls (`prctl`, `getpid`, `process_vm_readv`) and keeps
//! `errno`. It allocates nothing, takes no lock and cannot panic. `process_vm_readv` on the own process reads the stack: the
//! end of a stack is an error of that call there, and would be the end of the process with a plain copy.

use std::cell::UnsafeCell;
use std::io;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use crate::unwind::Registers;

/// What is copied of a stack, from its innermost end.
const STACK_BYTES: usize = 64 << 10;
/// Samples between two looks of the reader.
const SLOTS: usize = 64;
const PAGE_BYTES: usize = 4096;
/// With its terminating zero, as the kernel has it.
const THREAD_NAME_BYTES: usize = 16;

const FREE: u8 = 0;
const WRITING: u8 = 1;
const FULL: u8 = 2;

/// One interrupted thread.
pub(crate) struct Sample {
    thread: [u8; THREAD_NAME_BYTES],
    pub(crate) registers: Registers,
    stack_len: usize,
    stack: Box<[u8]>,
}

impl Sample {
    pub(crate) fn thread(&self) -> String {
        let name = self.thread.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    pub(crate) fn stack(&self) -> &[u8] {
        &self.stack[..self.stack_len]
    }
}

struct Slot {
    state: AtomicU8,
    sample: UnsafeCell<Sample>,
}

struct Ring {
    slots: [Slot; SLOTS],
    next: AtomicUsize,
    lost_count: AtomicU64,
}

// SAFETY: a slot's sample is touched only by whoever owns its state, see the head of this file.
unsafe impl Sync for Ring {}

/// The ring of the sampler that runs, or null.
static RING: AtomicPtr<Ring> = AtomicPtr::new(null_mut());
/// Handlers that run.
static HANDLERS: AtomicUsize = AtomicUsize::new(0);
/// Whether there is a sampler.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Samples the process until it is dropped. A process has one at a time.
pub(crate) struct Sampler {
    ring: Box<Ring>,
}

impl Sampler {
    /// `AlreadyExists` if there is one. The timer counts CPU time of all threads together.
    pub(crate) fn start(samples_per_second: u32) -> io::Result<Sampler> {
        assert!(samples_per_second > 0, "0 is no rate");
        if TAKEN.swap(true, Ordering::SeqCst) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let sampler = Sampler { ring: Box::new(Ring::new()) };
        RING.store((&raw const *sampler.ring).cast_mut(), Ordering::SeqCst);
        install_handler()?;
        set_timer(1_000_000 / samples_per_second.min(1_000_000))?;
        Ok(sampler)
    }

    pub(crate) fn stop_timer(&self) -> io::Result<()> {
        set_timer(0)
    }

    /// Hands out the samples that have come since the last call.
    pub(crate) fn take(&mut self, mut take: impl FnMut(&Sample)) {
        for slot in &self.ring.slots {
            if slot.state.load(Ordering::Acquire) == FULL {
                // SAFETY: a full slot is the reader's, and `&mut self` is the only reader.
                take(unsafe { &*slot.sample.get() });
                slot.state.store(FREE, Ordering::Release);
            }
        }
    }

    /// Samples for which there was no slot.
    pub(crate) fn lost_count(&self) -> u64 {
        self.ring.lost_count.load(Ordering::Relaxed)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        let _ = set_timer(0); // a handler without a ring does nothing
        RING.store(null_mut(), Ordering::SeqCst);
        while HANDLERS.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now(); // it copies some KiB
        }
        TAKEN.store(false, Ordering::SeqCst);
    }
}

impl Ring {
    fn new() -> Ring {
        let slot = |_| {
            let stack = vec![0; STACK_BYTES].into_boxed_slice();
            let sample = Sample {
                thread: [0; THREAD_NAME_BYTES],
                registers: Registers::default(),
                stack_len: 0,
                stack,
            };
            Slot { state: AtomicU8::new(FREE), sample: UnsafeCell::new(sample) }
        };
        Ring { slots: std::array::from_fn(slot), next: AtomicUsize::new(0), lost_count: AtomicU64::new(0) }
    }

    /// By the handler.
    fn record(&self, registers: Registers) {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % SLOTS;
        let slot = &self.slots[at];
        if slot.state.compare_exchange(FREE, WRITING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lost_count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // SAFETY: the slot is this handler's from `FREE` to `FULL`.
        let sample = unsafe { &mut *slot.sample.get() };
        sample.registers = registers;
        // SAFETY: the kernel writes 16 bytes at most, which the name has.
        unsafe { libc::prctl(libc::PR_GET_NAME, sample.thread.as_mut_ptr()) };
        sample.stack_len = read_memory(registers.stack as usize, &mut sample.stack);
        slot.state.store(FULL, Ordering::Release);
    }
}

/// Copies memory of this process, as far as there is memory. Returns how much that was. Each page is a request of its own,
/// as the kernel promises to answer parts of a call and not parts of a request.
fn read_memory(start: usize, target: &mut [u8]) -> usize {
    const REQUESTS: usize = STACK_BYTES / PAGE_BYTES + 1;
    let mut pages = [libc::iovec { iov_base: null_mut(), iov_len: 0 }; REQUESTS];
    let (mut at, mut left, mut count) = (start, target.len(), 0);
    for page in &mut pages {
        let len = (PAGE_BYTES - at % PAGE_BYTES).min(left);
        *page = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: len };
        at = at.wrapping_add(len);
        left -= len;
        count += libc::c_ulong::from(len > 0);
    }
    let local = libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() };
    // SAFETY: the kernel writes into `target` only and checks all addresses that it reads.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, pages.as_ptr(), count, 0) };
    usize::try_from(read).unwrap_or(0).min(target.len())
}

extern "C" fn on_signal(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the address is the calling thread's own for as long as it lives.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    HANDLERS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: a ring is freed after `RING` was null and then no handler ran; this one runs since before it looked.
    if let Some(ring) = unsafe { RING.load(Ordering::SeqCst).as_ref() }
        // SAFETY: the kernel passes the interrupted thread's context.
        && let Some(context) = unsafe { context.cast::<libc::ucontext_t>().as_ref() }
    {
        ring.record(registers(context));
    }
    HANDLERS.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { *errno = before };
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let general = &context.uc_mcontext.gregs;
    Registers {
        program: general[libc::REG_RIP as usize] as u64,
        stack: general[libc::REG_RSP as usize] as u64,
        frame: general[libc::REG_RBP as usize] as u64,
        link: 0,
    }
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Registers {
    let machine = &context.uc_mcontext;
    Registers { program: machine.pc, stack: machine.sp, frame: machine.regs[29], link: machine.regs[30] }
}

/// The handler stays: a signal that is still on its way after the end would otherwise end the process.
fn install_handler() -> io::Result<()> {
    // SAFETY: the structure consists of numbers and pointers that may be null.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(_, _, _) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the handler does what a handler may do, see the head of this file.
    let failed = unsafe { libc::sigaction(libc::SIGPROF, &action, null_mut()) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A signal after each period of CPU time; none with 0.
fn set_timer(period_us: u32) -> io::Result<()> {
    let period = libc::timeval {
        tv_sec: libc::time_t::from(period_us / 1_000_000),
        tv_usec: libc::suseconds_t::from(period_us % 1_000_000),
    };
    let timer = libc::itimerval { it_interval: period, it_value: period };
    // SAFETY: the kernel reads the structure.
    let failed = unsafe { libc::setitimer(libc::ITIMER_PROF, &timer, null_mut()) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_up_to_its_end() {
        let bytes: Vec<u8> = (0..10_000u32).map(|at| at as u8).collect();
        let mut copy = vec![0; bytes.len()];
        assert_eq!(read_memory(bytes.as_ptr() as usize, &mut copy), bytes.len());
        assert_eq!(copy, bytes);
        assert_eq!(read_memory(8, &mut copy), 0, "nothing is mapped there");
        assert_eq!(read_memory(usize::MAX - 8, &mut copy), 0);
        let pages = halcyon_allocator::Pages::map(2 << 20).unwrap();
        let end = pages.base().as_ptr() as usize + pages.len();
        let mut copy = vec![1; STACK_BYTES];
        let read = read_memory(end - 5000, &mut copy);
        // another mapping may follow at once
        assert!(read >= 5000 && copy[..5000].iter().all(|byte| *byte == 0), "{read}");
    }
}
