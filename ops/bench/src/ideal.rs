//! The machine's own limit for three durable copies: three processes that append what clients send to a file, sync
//! it, and answer once two of the three have done so. Framing and nothing else: no consensus, no parsing, no memory.
//!
//! A client's request is a length (u32, little endian) and that many bytes; its answer is a number (u64). The leader
//! sends what has gathered as one batch: the number of its last request (u64), a length (u32), the requests. A
//! follower answers with that number. One batch is on its way at a time, as large as what came meanwhile.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc as threads;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::{LocalSet, spawn_local};

/// Size of the file: written with zeros before the start, then over and over, so that no sync has to write metadata.
const FILE_BYTES: u64 = 64 << 20;

/// One of the three.
#[derive(Debug, clap::Args)]
pub(crate) struct Ideal {
    /// Where it listens on the loopback address.
    #[arg(long)]
    port: u16,
    /// The two others; makes this one the leader.
    #[arg(long, value_delimiter = ',')]
    followers: Vec<u16>,
    /// Where its file goes.
    #[arg(long)]
    dir: PathBuf,
}

impl Ideal {
    pub(crate) async fn run(self) -> Result<()> {
        std::fs::create_dir_all(&self.dir)?;
        let copy = Copy::create(&self.dir.join("copy"))?;
        if self.followers.is_empty() {
            let listener = std::net::TcpListener::bind(("127.0.0.1", self.port))?;
            println!("ready follower");
            return follow(&listener, copy);
        }
        LocalSet::new().run_until(lead(self.port, &self.followers, copy)).await
    }
}

/// The file.
struct Copy {
    file: File,
    at: u64,
}

impl Copy {
    fn create(path: &Path) -> Result<Copy> {
        let file = File::options().create(true).truncate(true).read(true).write(true).open(path)?;
        let zeros = vec![0; 1 << 20];
        for at in (0..FILE_BYTES).step_by(zeros.len()) {
            file.write_all_at(&zeros, at)?;
        }
        file.sync_all()?;
        Ok(Copy { file, at: 0 })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.at + bytes.len() as u64 > FILE_BYTES {
            self.at = 0;
        }
        self.file.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(self.file.sync_data()?)
    }
}

/// Takes whole batches as they come, syncs them together, answers the last.
fn follow(listener: &std::net::TcpListener, mut copy: Copy) -> Result<()> {
    let (mut leader, _) = listener.accept()?;
    leader.set_nodelay(true)?;
    let mut input = Vec::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        let read = leader.read(&mut chunk)?;
        if read == 0 {
            return Ok(());
        }
        input.extend_from_slice(&chunk[..read]);
        let (mut whole, mut last) = (0, None);
        while let Some(header) = input.get(whole..whole + 12) {
            let length = u32::from_le_bytes(header[8..12].try_into()?) as usize;
            if input.len() < whole + 12 + length {
                break;
            }
            last = Some(header[..8].to_vec());
            whole += 12 + length;
        }
        if let Some(last) = last {
            copy.append(&input[..whole])?;
            input.drain(..whole);
            leader.write_all(&last)?;
        }
    }
}

/// A client whose requests are in a batch, and the numbers of them.
type Asked = (Rc<TcpStream>, Vec<u64>);

/// What has gathered since the last batch left.
#[derive(Default)]
struct Gathered {
    requests: RefCell<Vec<u8>>,
    asked: RefCell<Vec<Asked>>,
    last: Cell<u64>,
    rung: Notify,
}

async fn lead(port: u16, followers: &[u16], copy: Copy) -> Result<()> {
    let (stored, mut storing) = mpsc::unbounded_channel();
    let (to_disk, disk) = threads::channel::<(u64, Vec<u8>)>();
    let own = stored.clone();
    std::thread::spawn(move || {
        let mut copy = copy;
        while let Ok((last, batch)) = disk.recv() {
            if copy.append(&batch).is_err() || own.send(last).is_err() {
                std::process::exit(1);
            }
        }
    });
    let mut others = Vec::new();
    for follower in followers {
        let stream = TcpStream::connect(("127.0.0.1", *follower)).await.context("a follower")?;
        stream.set_nodelay(true)?;
        let (mut answers, requests) = stream.into_split();
        let stored = stored.clone();
        spawn_local(async move {
            while let Ok(last) = answers.read_u64_le().await {
                _ = stored.send(last);
            }
        });
        others.push(requests);
    }
    let gathered = Rc::new(Gathered::default());
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("ready leader");
    let accepting = gathered.clone();
    spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            spawn_local(serve(stream, accepting.clone()));
        }
    });
    loop {
        gathered.rung.notified().await;
        while !gathered.asked.borrow().is_empty() {
            // Whoever is about to ask joins.
            tokio::task::yield_now().await;
            let batch = gathered.requests.take();
            let asked = gathered.asked.take();
            let last = gathered.last.get();
            send(&mut others, last, &batch).await?;
            to_disk.send((last, batch)).context("the disk's thread ended")?;
            let mut copies = 0;
            while copies < 2 {
                // Answers to earlier batches come late from the slowest.
                copies += usize::from(storing.recv().await.context("nobody stores")? >= last);
            }
            for (client, numbers) in asked {
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                // A closed connection is no fault; one that is full is.
                if client.try_write(&bytes).map_or(bytes.len(), |sent| sent) < bytes.len() {
                    anyhow::bail!("a client does not read its answers");
                }
            }
        }
    }
}

async fn send(others: &mut [OwnedWriteHalf], last: u64, batch: &[u8]) -> Result<()> {
    let mut message = Vec::with_capacity(batch.len() + 12);
    message.extend_from_slice(&last.to_le_bytes());
    message.extend_from_slice(&u32::try_from(batch.len())?.to_le_bytes());
    message.extend_from_slice(batch);
    for other in others {
        other.write_all(&message).await?;
    }
    Ok(())
}

/// Puts a client's whole requests into what gathers.
async fn serve(stream: TcpStream, gathered: Rc<Gathered>) -> Result<()> {
    stream.set_nodelay(true)?;
    let stream = Rc::new(stream);
    let mut input = bytes::BytesMut::with_capacity(64 << 10);
    loop {
        stream.readable().await?;
        match stream.try_read_buf(&mut input) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        }
        let mut numbers = Vec::new();
        while let Some(header) = input.get(..4) {
            let whole = 4 + u32::from_le_bytes(header.try_into()?) as usize;
            if input.len() < whole {
                break;
            }
            gathered.requests.borrow_mut().extend_from_slice(&input[..whole]);
            bytes::Buf::advance(&mut input, whole);
            gathered.last.set(gathered.last.get() + 1);
            numbers.push(gathered.last.get());
        }
        if !numbers.is_empty() {
            gathered.asked.borrow_mut().push((stream.clone(), numbers));
            gathered.rung.notify_one();
        }
    }
}
