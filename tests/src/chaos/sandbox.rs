//! A place of our own: network, mounts and processes that nobody else sees, and of which nothing is left when we end,
//! however we end.

use anyhow::{Context, Result, bail};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The flag that tells this program that it runs inside.
pub const INSIDE: &str = "--inside";

/// Why this machine does not allow a place of our own; `None`: it does.
pub fn refused() -> Option<String> {
    // The owner of our own process directory is who we are.
    let root = std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    if !root {
        return Some("network namespaces need root".into());
    }
    for (program, package) in [("ip", "iproute2"), ("unshare", "util-linux"), ("mount", "mount")] {
        if !on_path(program) {
            return Some(format!("`{program}` is missing: ops/setup installs it (package {package})"));
        }
    }
    let tried = Command::new("unshare").args(["--net", "--mount", "--pid", "--fork", "true"]).output();
    match tried {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!(
            "this system allows no namespaces: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Some(format!("`unshare` cannot be started: {error}")),
    }
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Starts this program again, inside, with these arguments and [`INSIDE`]. Returns only if that fails.
///
/// # Errors
/// It cannot be started.
pub fn enter(arguments: &[String]) -> Result<std::convert::Infallible> {
    let me = std::env::current_exe()?;
    let error = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(me)
        .args(arguments)
        .arg(INSIDE)
        .exec();
    Err(error).context("unshare")
}

/// Mounts a memory file system; it goes with the sandbox.
///
/// # Errors
/// What `mount` says.
pub fn mount_tmpfs(at: &Path, bytes: Option<u64>) -> Result<()> {
    std::fs::create_dir_all(at)?;
    let size = bytes.map_or_else(|| "mode=755".into(), |bytes| format!("size={bytes},mode=755"));
    run("mount", &["-t", "tmpfs", "-o", &size, "weir-chaos", &at.display().to_string()], "")
}

/// Shows one file in the place of another.
///
/// # Errors
/// What `mount` says.
pub fn bind_file(file: &Path, over: &str) -> Result<()> {
    run("mount", &["--bind", &file.display().to_string(), over], "")
}

/// Runs a command with this input.
///
/// # Errors
/// It ends with another status than 0; the message carries what it said.
pub fn run(program: &str, arguments: &[&str], input: &str) -> Result<()> {
    use std::io::Write;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .with_context(|| format!("`{program}` cannot be started"))?;
    child.stdin.take().context("its input")?.write_all(input.as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {} (input: {input})", arguments.join(" "), said.trim());
    }
    Ok(())
}
