//! How much memory does a decoder ask for, beside what it was given?
//!
//! A length that an input merely claims must not be believed. So the most that a target has at a time is held to a
//! multiple of its input, whether libFuzzer feeds it or a test replays what was found.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What a decoder may have at a time: so much in any case, and so much for each byte of its input. An empty element of
/// a list takes two bytes of a message and some hundred in memory, twice while the list grows.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// In any case.
    pub fixed: isize,
    /// For each byte of input.
    pub per_byte: isize,
}

/// Of what decodes one message.
pub const MESSAGE: Allowance = Allowance { fixed: 256 * 1024, per_byte: 1_024 };
/// Of what makes a whole state: its records sit in chunks.
pub const STATE: Allowance = Allowance { fixed: 4 * 1024 * 1024, per_byte: 4_096 };

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, with a count of what each thread has.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: isize) {
    // A thread that ends has no count any more, and nobody who asks for it.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

// SAFETY: every call goes to the system's allocator as it came, and its answer back.
#[expect(unsafe_code, reason = "an allocator has no other form")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller keeps what `alloc` wants.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller keeps what `alloc_zeroed` wants.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller keeps what `dealloc` wants.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(signed(size) - signed(layout.size()));
        // SAFETY: the caller keeps what `realloc` wants.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Does something with an input; fails if it has more at a time than it may.
pub fn bounded<T>(bytes: &[u8], allowance: Allowance, run: impl FnOnce() -> T) -> T {
    let before = NOW.get();
    MOST.set(before);
    let done = run();
    let most = MOST.get() - before;
    let allowed = allowance.fixed + allowance.per_byte * signed(bytes.len());
    assert!(most <= allowed, "{} bytes of input took {most} of memory", bytes.len());
    done
}
