//! Complaints about a file, with the line that they are about.

use std::{fmt, ops::Range};

use toml::Spanned;

/// Why a file cannot be used, with the place in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unusable(pub(crate) String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Complains about places in one text.
pub(super) struct Places<'a>(pub(super) &'a str);

impl Places<'_> {
    pub(super) fn at(&self, span: &Range<usize>, what: &str) -> Unusable {
        let before = &self.0[..span.start.min(self.0.len())];
        let line = before.matches('\n').count();
        let shown = self.0.lines().nth(line).unwrap_or_default();
        Unusable(format!("line {}: {what}\n  | {shown}", line + 1))
    }

    pub(super) fn time(&self, value: &Spanned<f64>, name: &str, most: f64) -> Result<f64, Unusable> {
        let ms = *value.get_ref();
        if ms.is_finite() && (0.0..=most).contains(&ms) {
            return Ok(ms);
        }
        Err(self.at(&value.span(), &format!("{name} = {ms}: a time from 0 to {most} is needed")))
    }

    pub(super) fn count<T>(&self, value: &Spanned<T>, name: &str, from: T, to: T) -> Result<T, Unusable>
    where
        T: PartialOrd + Copy + fmt::Display,
    {
        let count = *value.get_ref();
        if count >= from && count <= to {
            return Ok(count);
        }
        Err(self.at(&value.span(), &format!("{name} = {count}: a number from {from} to {to} is needed")))
    }
}
