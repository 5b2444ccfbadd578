//! The real world.

use std::any::Any;
use std::fs::{OpenOptions, TryLockError};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use rand::TryRngCore;
use rand::rngs::OsRng;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::{
    BoxFuture, BoxStream, Clock, Disk, Env, File, Job, Listener, Net, Next, OpenMode, Rng, Spawn, Stream,
    TaskHandle, Wake, WriterLoop,
};

/// Connections that the kernel holds for us before they are accepted.
const LISTEN_BACKLOG: u32 = 1024;
/// Silence after which the kernel asks whether the other end is still there.
const KEEPALIVE: Duration = Duration::from_secs(300);
/// The name of the file that [`Disk::lock_dir`] locks.
const LOCK_NAME: &str = "LOCK";

pub(crate) fn env() -> Env {
    Env {
        clock: Arc::new(SystemClock { start: Instant::now() }),
        net: Arc::new(SystemNet),
        disk: Arc::new(SystemDisk),
        rng: Arc::new(SystemRng),
        spawn: Arc::new(SystemSpawn),
    }
}

struct SystemClock {
    start: Instant,
}

impl Clock for SystemClock {
    fn wall_ms(&self) -> u64 {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
    }

    fn mono(&self) -> Duration {
        self.start.elapsed()
    }
}

struct SystemRng;

impl Rng for SystemRng {
    fn fill(&self, out: &mut [u8]) {
        OsRng.try_fill_bytes(out).expect("the system's random source works");
    }
}

struct SystemNet;

#[async_trait]
impl Net for SystemNet {
    async fn bind(&self, addr: SocketAddr) -> io::Result<Box<dyn Listener>> {
        let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        Ok(Box::new(SystemListener(socket.listen(LISTEN_BACKLOG)?)))
    }

    async fn connect(&self, addr: &str) -> io::Result<BoxStream> {
        let stream = TcpStream::connect(addr).await?;
        tune(&stream)?;
        Ok(Box::new(SystemStream(stream)))
    }
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))
}

struct SystemListener(TcpListener);

#[async_trait]
impl Listener for SystemListener {
    async fn accept(&self) -> io::Result<(BoxStream, SocketAddr)> {
        let (stream, peer) = self.0.accept().await?;
        tune(&stream)?;
        Ok((Box::new(SystemStream(stream)), peer))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

struct SystemStream(TcpStream);

impl Stream for SystemStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl AsyncRead for SystemStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for SystemStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}

struct SystemDisk;

impl Disk for SystemDisk {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            // A name that is not UTF-8 is not one of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::CreateNew => {
                options.write(true).create_new(true);
            }
        }
        Ok(Box::new(SystemFile(options.open(path)?)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::File::open(path)?.sync_all()
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn lock_dir(&self, path: &Path) -> io::Result<Box<dyn Any + Send>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path.join(LOCK_NAME))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("{} is in use by another running process", path.display()),
            )),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    fn boot_id(&self) -> io::Result<String> {
        Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = statvfs(path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn total_bytes(&self, path: &Path) -> io::Result<u64> {
        let stat = statvfs(path)?;
        Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
    }
}

struct SystemFile(std::fs::File);

impl File for SystemFile {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(out, offset)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&mut self, len: u64) -> io::Result<()> {
        match fallocate(&self.0, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            // A file system that cannot claim space ahead: only the length is promised there.
            Err(rustix::io::Errno::OPNOTSUPP) if self.len()? < len => self.set_len(len),
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

struct SystemSpawn;

impl Spawn for SystemSpawn {
    fn spawn(&self, name: &'static str, future: BoxFuture<'static, ()>) -> TaskHandle {
        TaskHandle::new(tokio::spawn(async move {
            let _guard = PanicGuard(name);
            future.await;
        }))
    }

    fn blocking(&self, name: &'static str, job: Job) {
        tokio::task::spawn_blocking(move || {
            let _guard = PanicGuard(name);
            job();
        });
    }

    fn writer(&self, name: &'static str, mut body: Box<dyn WriterLoop>, wake: Arc<Wake>) {
        // So that the loop can start jobs.
        let runtime = tokio::runtime::Handle::try_current().ok();
        let run = move || {
            let _guard = PanicGuard(name);
            let _runtime = runtime.as_ref().map(|runtime| runtime.enter());
            loop {
                match body.step() {
                    Next::Again => {}
                    Next::Wait(timeout) => wake.wait_blocking(timeout),
                    Next::End => return,
                }
            }
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(run).expect("the system can start a thread");
    }
}

/// Says which task it was, since tokio only prints the thread.
struct PanicGuard(&'static str);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(task = self.0, "a task panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn a_file_replaced_atomically_holds_the_new_bytes_and_leaves_no_temporary() {
        let dir = tempfile::tempdir().unwrap();
        let disk = env().disk;
        let path = dir.path().join("identity");
        disk.write_atomic(&path, b"old").unwrap();
        disk.write_atomic(&path, b"new!").unwrap();
        assert_eq!(disk.read(&path).unwrap(), b"new!");
        assert_eq!(disk.read_dir(dir.path()).unwrap(), ["identity"]);
    }

    #[test]
    fn a_locked_directory_is_refused_until_the_lock_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let disk = env().disk;
        let lock = disk.lock_dir(dir.path()).unwrap();
        let refused = disk.lock_dir(dir.path()).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        assert!(refused.to_string().contains("in use"), "{refused}");
        drop(lock);
        disk.lock_dir(dir.path()).unwrap();
    }

    #[test]
    fn allocated_space_reads_as_zeros_and_is_the_length() {
        let dir = tempfile::tempdir().unwrap();
        let disk = env().disk;
        let mut file = disk.open(&dir.path().join("f"), OpenMode::CreateNew).unwrap();
        file.allocate(8192).unwrap();
        assert_eq!(file.len().unwrap(), 8192);
        let mut bytes = [1; 16];
        file.read_exact_at(&mut bytes, 8000).unwrap();
        assert_eq!(bytes, [0; 16]);
        assert!(disk.free_bytes(dir.path()).unwrap() > 0);
    }

    #[tokio::test]
    async fn a_stream_carries_bytes_both_ways_without_delay() {
        let env = env();
        let listener = env.net.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let (accepted, connected) = tokio::join!(listener.accept(), env.net.connect(&addr));
        let ((mut server, peer), mut client) = (accepted.unwrap(), connected.unwrap());
        assert_eq!(peer, client.local_addr().unwrap());
        client.write_all(b"ping").await.unwrap();
        let mut got = [0; 4];
        server.read_exact(&mut got).await.unwrap();
        server.write_all(&got).await.unwrap();
        client.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"ping");
    }

    #[test]
    fn a_writer_loop_steps_when_woken_and_ends_when_it_says_so() {
        struct Body(mpsc::Sender<u32>, u32);
        impl WriterLoop for Body {
            fn step(&mut self) -> Next {
                self.1 += 1;
                self.0.send(self.1).unwrap();
                if self.1 == 3 { Next::End } else { Next::Wait(None) }
            }
        }
        let (tx, rx) = mpsc::channel();
        let wake = Wake::new();
        env().spawn.writer("test", Box::new(Body(tx, 0)), wake.clone());
        assert_eq!(rx.recv(), Ok(1));
        wake.wake();
        assert_eq!(rx.recv(), Ok(2));
        wake.wake();
        assert_eq!(rx.recv(), Ok(3));
        assert!(rx.recv().is_err(), "the loop is dropped after its end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_before_the_wait_is_remembered_once() {
        let wake = Wake::new();
        wake.wake();
        wake.wake();
        wake.wait(None).await;
        let before = tokio::time::Instant::now();
        wake.wait(Some(Duration::from_secs(5))).await;
        assert_eq!(before.elapsed(), Duration::from_secs(5));
    }
}
