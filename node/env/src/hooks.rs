//! What tests may change about the world of a real process, by environment variables.
//!
//! Builds without debug assertions, release builds among them, have none of this and refuse to run when one is set:
//! a test that believes in a hook that is not there would prove nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::forgetful::ForgetfulDisk;
use crate::planted::{self, Bug};
use crate::{Clock, Env};

/// Every hook's name begins like this.
pub const PREFIX: &str = "WEIR_TEST_";
/// How often a clock's file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The hooks that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hooks {
    /// `WEIR_TEST_CLOCK=FILE`: the wall clock is this many milliseconds off; the file may change.
    clock: Option<PathBuf>,
    /// `WEIR_TEST_DISK=forgetful` or `torn`: what is not synced dies with the process, in the second case not all of it.
    disk: Option<bool>,
    /// `WEIR_TEST_BUG=NAME`: a bug is planted.
    bug: Option<Bug>,
}

impl Hooks {
    /// Reads them from the variables of a process.
    ///
    /// # Errors
    /// One is set in a build that has none, or is not known, or has a value that is not.
    pub fn of(variables: impl Iterator<Item = (String, String)>) -> Result<Hooks, String> {
        let mut hooks = Hooks::default();
        for (name, value) in variables.filter(|(name, _)| name.starts_with(PREFIX)) {
            if !cfg!(debug_assertions) {
                return Err(format!(
                    "{name} is a hook for tests and this build has none; builds with debug assertions have \
                     (cargo profiles dev and ci)"
                ));
            }
            match (name.as_str(), value.as_str()) {
                ("WEIR_TEST_CLOCK", file) if !file.is_empty() => hooks.clock = Some(file.into()),
                ("WEIR_TEST_DISK", "forgetful") => hooks.disk = Some(false),
                ("WEIR_TEST_DISK", "torn") => hooks.disk = Some(true),
                ("WEIR_TEST_DISK", _) => return Err(format!("{name}={value}: forgetful or torn")),
                ("WEIR_TEST_BUG", bug) => {
                    let known = || Bug::ALL.map(|(name, _)| name).join(", ");
                    let bug = Bug::ALL.iter().find(|(name, _)| *name == bug);
                    hooks.bug = Some(bug.ok_or_else(|| format!("{name}={value}: one of {}", known()))?.1);
                }
                _ => {
                    return Err(format!(
                        "{name}={value}: the hooks are WEIR_TEST_CLOCK, WEIR_TEST_DISK, WEIR_TEST_BUG"
                    ));
                }
            }
        }
        Ok(hooks)
    }

    /// Whether any is set.
    pub fn any(&self) -> bool {
        *self != Hooks::default()
    }

    /// The real world with these hooks; plants the bug.
    pub fn env(&self) -> Env {
        let mut env = Env::system();
        if let Some(file) = &self.clock {
            env.clock = Arc::new(OffClock::new(env.clock, file.clone()));
        }
        if let Some(torn) = self.disk {
            env.disk = Arc::new(ForgetfulDisk::new(env.disk, torn));
        }
        if self.bug.is_some() {
            planted::plant(self.bug);
        }
        env
    }
}

/// A wall clock that is off by what a file says.
struct OffClock {
    below: Arc<dyn Clock>,
    file: PathBuf,
    /// When the file is looked at again, and what it said.
    seen: Mutex<(Duration, i64)>,
}

impl OffClock {
    fn new(below: Arc<dyn Clock>, file: PathBuf) -> Self {
        Self { below, file, seen: Mutex::new((Duration::ZERO, 0)) }
    }
}

impl Clock for OffClock {
    fn wall_ms(&self) -> u64 {
        let now = self.below.mono();
        let mut seen = self.seen.lock();
        if now >= seen.0 {
            let said = std::fs::read_to_string(&self.file).ok();
            let offset = said.and_then(|text| text.trim().parse().ok()).unwrap_or(seen.1);
            *seen = (now + LOOK_EVERY, offset);
        }
        self.below.wall_ms().saturating_add_signed(seen.1)
    }

    fn mono(&self) -> Duration {
        self.below.mono()
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    fn hooks(variables: &[(&str, &str)]) -> Result<Hooks, String> {
        Hooks::of(variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())))
    }

    #[test]
    fn other_variables_are_no_hooks_and_an_unknown_hook_is_refused() {
        assert_eq!(hooks(&[("WEIR_PORT", "7001"), ("HOME", "/")]), Ok(Hooks::default()));
        for (name, value) in [
            ("WEIR_TEST_X", "1"),
            ("WEIR_TEST_DISK", "perfect"),
            ("WEIR_TEST_BUG", "moth"),
            ("WEIR_TEST_CLOCK", ""),
        ] {
            let refused = hooks(&[(name, value)]).unwrap_err();
            assert!(refused.starts_with(name), "{refused}");
        }
        assert_eq!(hooks(&[("WEIR_TEST_BUG", "fsync")]).unwrap().bug, Some(Bug::NoSync));
    }

    #[test]
    fn a_clock_is_off_by_what_its_file_says() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("clock");
        std::fs::write(&file, "-5000\n").unwrap();
        let path = file.display().to_string();
        let clock = hooks(&[("WEIR_TEST_CLOCK", &path)]).unwrap().env().clock;
        let real = Env::system().clock;
        let off = |clock: &dyn Clock| clock.wall_ms() as i64 - real.wall_ms() as i64;
        assert!((-5_100..-4_900).contains(&off(&*clock)));
        std::fs::write(&file, "60000").unwrap();
        std::thread::sleep(LOOK_EVERY * 2);
        assert!((59_900..60_100).contains(&off(&*clock)));
    }
}

#[cfg(all(test, not(debug_assertions)))]
mod tests_without {
    use super::*;

    #[test]
    fn a_build_without_hooks_refuses_to_run_when_one_is_set() {
        let set = [("WEIR_TEST_DISK".to_owned(), "forgetful".to_owned())];
        let refused = Hooks::of(set.into_iter()).unwrap_err();
        assert!(refused.contains("this build has none"), "{refused}");
        assert_eq!(Hooks::of(std::iter::empty()), Ok(Hooks::default()));
    }
}
