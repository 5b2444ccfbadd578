//! No task of a node panics, and no process of a run dies. A panic ends the run: the hook in `main.rs` tells it.

pub(crate) const NAME: &str = "nothing_panics";

/// What a panic looks like to a reader: one line.
pub(crate) fn text(panic: &str) -> String {
    panic.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_seen_in_one_line() {
        assert_eq!(
            text("panicked at x.rs:1:\nindex out of bounds"),
            "panicked at x.rs:1: index out of bounds"
        );
    }
}
