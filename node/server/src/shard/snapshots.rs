//! The machine's snapshot in the shape that consensus moves around: chunks of bytes.

use weir_raft::{SnapshotSink, SnapshotSource};
use weir_stream::{Machine, Restore, Snapshot};

/// Bytes encoded between two yields of the task that writes a snapshot.
const CHUNK_BYTES: usize = 256 << 10;

struct Source(Snapshot);

impl SnapshotSource for Source {
    fn next_chunk(&mut self, out: &mut Vec<u8>) -> bool {
        self.0.next_chunk(CHUNK_BYTES, out)
    }
}

struct Sink(Restore);

impl SnapshotSink for Sink {
    fn chunk(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.0.push(bytes).map_err(|e| e.to_string())
    }
}

pub(super) fn source(snapshot: Snapshot) -> Box<dyn SnapshotSource> {
    Box::new(Source(snapshot))
}

pub(super) fn sink() -> Box<dyn SnapshotSink> {
    Box::new(Sink(Machine::restore()))
}

pub(super) fn finish(sink: Box<dyn SnapshotSink>) -> Result<Machine, String> {
    let sink: Box<dyn std::any::Any> = sink;
    match sink.downcast::<Sink>() {
        Ok(sink) => {
            #[cfg_attr(not(debug_assertions), expect(unused_mut))]
            let mut machine = sink.0.finish().map_err(|e| e.to_string())?;
            #[cfg(debug_assertions)]
            super::planted::forget(&mut machine);
            Ok(machine)
        }
        Err(_) => Err("a sink of another kind was handed back".to_owned()),
    }
}
