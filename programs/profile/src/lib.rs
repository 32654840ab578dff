//! Profiles of the running process, drawn as flame graphs.
//!
//! ```text
//! cpu.rs      a timer of CPU time and the threads' samples: stack bytes, copied in a signal handler (sampler.rs)
//!             -> unwind.rs walks them on a thread of its own -> stacks.rs counts equal stacks
//! alloc.rs    the allocator calls for one allocation in some hundred KiB -> stacks.rs
//! symbols.rs  addresses become function names once, at the end -> folded.rs: names and numbers -> flame_graph.rs: SVG
//! ```
//!
//! A signal handler interrupts a thread anywhere, also within the allocator and with locks held. Ours therefore only
//! copies registers and stack into memory that is there already. The walk through the stack, which needs unwind tables,
//! and the symbols come later and elsewhere. Unwind tables are part of every binary, so frame pointers are not needed.
//!
//! Nothing runs while no profile is taken. x86-64 and 64-bit Arm under Linux.
//!
//! Unsafe code: the signal handler and its ring (`sampler.rs`).
//!
//! When you change what a frame is called, also touch `docs/PROFILING.md`.

mod alloc;
mod cpu;
mod flame_graph;
mod folded;
mod images;
mod sampler;
mod stacks;
mod symbols;
mod unwind;

pub use alloc::AllocationProfile;
pub use cpu::CpuProfile;
pub use flame_graph::FlameGraph;
pub use folded::Folded;

/// What a profile found.
#[derive(Debug)]
pub struct Profile {
    pub folded: Folded,
    /// Samples that were taken.
    pub samples_count: u64,
    /// Samples that were lost, as they came too fast or had too many different stacks.
    pub lost_count: u64,
}
