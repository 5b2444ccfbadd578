//! Bytes of memory per entry and per pending entry, counted by the allocator.

use bytes::Bytes;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_stream::*;

/// Counts what is live, with the rounding of a usual allocator: 16 bytes.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

fn rounded(size: usize) -> usize {
    size.next_multiple_of(16)
}

// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(rounded(layout.size()), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(rounded(layout.size()), Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ENTRIES: u64 = 60_000;

fn filled(fields: usize, value_len: usize) -> Machine {
    let mut machine = Machine::new();
    let all = Command::SetOwnedSlots { ranges: vec![SlotRange { first: Slot(0), last: Slot(16383) }] };
    machine.apply(Stamp { now_ms: 1 }, &all, false);
    for at in 0..ENTRIES {
        let pair = |n: usize| {
            [Bytes::from(format!("field{n}")), Bytes::from(vec![b'0' + (at % 10) as u8; value_len])]
        };
        let add = Command::Xadd(Xadd {
            key: Bytes::from_static(b"s"),
            no_mkstream: false,
            trim: None,
            id: AddId::Auto,
            fields: (0..fields).flat_map(pair).collect(),
        });
        machine.apply(Stamp { now_ms: 1_700_000_000_000 + at / 3 }, &add, false);
    }
    machine
}

fn live() -> f64 {
    LIVE.load(Ordering::Relaxed) as f64
}

/// One test, since the counter is the process'.
#[test]
fn entries_and_pending_rows_are_small() {
    for (fields, value_len, bytes_max) in [(1, 10, 22.0), (5, 10, 72.0), (1, 200, 224.0)] {
        let before = live();
        let machine = filled(fields, value_len);
        let each = (live() - before) / ENTRIES as f64;
        println!("{fields} x {value_len} B: {each:.1} B an entry");
        assert!(each < bytes_max, "{fields} x {value_len} B: {each:.1} B an entry");
        let estimate = machine.stats().memory_bytes as f64 / ENTRIES as f64;
        assert!((0.8..1.25).contains(&(estimate / each)), "estimated {estimate:.1} B, counted {each:.1} B");
    }
    let mut machine = filled(1, 10);
    let group =
        |change| Command::Xgroup { key: Bytes::from_static(b"s"), group: Bytes::from_static(b"g"), change };
    let create =
        GroupChange::Create { at: GroupStart::Id(EntryId::MIN), mkstream: false, entries_read: None };
    machine.apply(Stamp { now_ms: 1 }, &group(create), false);
    let before = live();
    for at in 0..ENTRIES / 10 {
        let read = Command::Xreadgroup(Xreadgroup {
            group: Bytes::from_static(b"g"),
            consumer: Bytes::from(format!("consumer{}", at % 4)),
            count: Some(10),
            noack: false,
            keys: vec![(Bytes::from_static(b"s"), GroupReadId::New)],
            woken: false,
        });
        machine.apply(Stamp { now_ms: 1_700_000_100_000 + at }, &read, false);
    }
    assert_eq!(machine.stats().pending, ENTRIES);
    let each = (live() - before) / ENTRIES as f64;
    println!("{each:.1} B a pending entry");
    assert!(each <= 32.0, "{each:.1} B a pending entry");
    // Acknowledged in turn, except every tenth, the list packs together again.
    for at in 0..ENTRIES {
        let id = EntryId::new(1_700_000_000_000 + at / 3, at % 3);
        if at % 10 != 0 {
            let ack = Command::Xack {
                key: Bytes::from_static(b"s"),
                group: Bytes::from_static(b"g"),
                ids: vec![Bytes::from(id.to_string())],
            };
            machine.apply(Stamp { now_ms: 1 }, &ack, false);
        }
    }
    assert_eq!(machine.stats().pending, ENTRIES / 10);
    let each = (live() - before) / (ENTRIES / 10) as f64;
    println!("{each:.1} B a pending entry among acknowledged ones");
    assert!(each <= 64.0, "{each:.1} B a pending entry among acknowledged ones");
}
