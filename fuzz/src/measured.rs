//! Bounds the memory that a decoder allocates by the size of its input.
//!
//! A decoder must not trust a length that an input merely claims. Therefore the peak memory of a target is bounded by a
//! multiple of its input, both when libFuzzer feeds it and when a test replays a corpus.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The peak memory that a decoder may use: a fixed part, and a part for each byte of its input. An empty element of a
/// list takes two bytes of a message and some hundred in memory, and twice that while the list grows.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// The fixed part.
    pub fixed: isize,
    /// The part for each byte of input.
    pub per_byte: isize,
}

/// The allowance for decoding one message.
pub const MESSAGE: Allowance = Allowance { fixed: 256 * 1024, per_byte: 1_024 };
/// The allowance for building a whole state, whose records are allocated in chunks.
pub const STATE: Allowance = Allowance { fixed: 4 * 1024 * 1024, per_byte: 4_096 };

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, with a count of each thread's memory.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: isize) {
    // A thread that ends has no count any more, and no target reads it.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

// SAFETY: every call is passed to the system's allocator unchanged, and so is its result.
#[expect(unsafe_code, reason = "an allocator has no other form")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(signed(size) - signed(layout.size()));
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Runs a target on an input, and fails if its peak memory exceeds the allowance.
pub fn bounded<T>(bytes: &[u8], allowance: Allowance, run: impl FnOnce() -> T) -> T {
    let before = NOW.get();
    MOST.set(before);
    let done = run();
    let most = MOST.get() - before;
    let allowed = allowance.fixed + allowance.per_byte * signed(bytes.len());
    assert!(most <= allowed, "{} bytes of input took {most} of memory", bytes.len());
    done
}
