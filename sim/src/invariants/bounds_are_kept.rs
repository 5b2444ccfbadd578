//! P12: what can grow stays within its named bound.

pub(crate) const NAME: &str = "bounds_are_kept";

/// One thing that grows: the setting that bounds it, how much there is, and the bound.
pub(crate) type Level = (&'static str, usize, usize);

/// Judges what one node holds.
pub(crate) fn check(node: &str, levels: &[Level]) -> Result<(), String> {
    match levels.iter().find(|(_, now, most)| now > most) {
        Some((setting, now, most)) => Err(format!("{node}: {setting} is {most}, and there are {now}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_bound_allows_is_seen() {
        assert!(check("n1", &[("maxclients", 10, 10), ("queue-commands-max", 3, 4)]).is_ok());
        assert!(check("n1", &[("maxclients", 10, 10), ("queue-commands-max", 5, 4)]).is_err());
    }
}
