//! What the machine allows: the disk with three writers at once, and the loopback network.

use crate::{Plan, report::Report, report::median};
use anyhow::Result;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

pub(crate) fn measure(plan: &Plan, report: &mut Report) -> Result<()> {
    let long = plan.round.min(Duration::from_secs(3));
    for writers in [1, 3] {
        let threads: Vec<_> = (0..writers)
            .map(|n| {
                let path = plan.dir.join(format!("floor-{n}"));
                std::thread::spawn(move || sync_times(&path, long))
            })
            .collect();
        let mut times = Vec::new();
        for thread in threads {
            times.extend(thread.join().expect("writer")?);
        }
        let name = format!("fdatasync p50, {writers} writer{}", if writers == 1 { "" } else { "s at once" });
        report.figure(&name, median(times), "ms", "512 B into a preallocated file");
    }
    report.figure(
        "loopback round trip p50",
        median(round_trips(long)?),
        "ms",
        "64 B there and back, two threads",
    );
    Ok(())
}

fn sync_times(path: &std::path::Path, long: Duration) -> Result<Vec<f64>> {
    const SIZE: u64 = 8 << 20;
    let file = std::fs::File::options().create(true).truncate(true).write(true).open(path)?;
    let zeros = vec![0; 1 << 20];
    for at in (0..SIZE).step_by(zeros.len()) {
        file.write_all_at(&zeros, at)?;
    }
    file.sync_all()?;
    let began = Instant::now();
    let (mut times, mut at) = (Vec::new(), 0);
    while began.elapsed() < long {
        let one = Instant::now();
        file.write_all_at(&[7; 512], at)?;
        file.sync_data()?;
        times.push(one.elapsed().as_secs_f64() * 1e3);
        at = (at + 512) % SIZE;
    }
    std::fs::remove_file(path)?;
    Ok(times)
}

fn round_trips(long: Duration) -> Result<Vec<f64>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut here = TcpStream::connect(listener.local_addr()?)?;
    let (mut there, _) = listener.accept()?;
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    let echo = std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while there.read_exact(&mut buffer).is_ok() && there.write_all(&buffer).is_ok() {}
    });
    let began = Instant::now();
    let (mut times, mut buffer) = (Vec::new(), [1; 64]);
    while began.elapsed() < long {
        let one = Instant::now();
        here.write_all(&buffer)?;
        here.read_exact(&mut buffer)?;
        times.push(one.elapsed().as_secs_f64() * 1e3);
    }
    drop(here);
    echo.join().expect("echo");
    Ok(times)
}
