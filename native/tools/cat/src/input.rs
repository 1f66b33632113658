//! The input: read by a thread of its own, into a few buffers in turn.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::failure::Failure;

/// Size of a pipe, if the system allows it: a larger one needs fewer switches between reader and writer.
const PIPE_BYTES: usize = 1 << 20;

/// A part of the input, or its end.
pub enum Piece {
    /// The first `bytes` of the buffer.
    Data {
        /// The reader of the piece gives the buffer back, see [`Input::give_back`].
        buffer: Vec<u8>,
        bytes: usize,
    },
    /// All has been read.
    End {
        /// Bytes of the whole input.
        length: u64,
        /// CRC-32 of the whole input; None: `--no-verify`.
        digest: Option<u32>,
    },
}

/// The input, being read.
pub struct Input {
    /// The pieces of the input, in order.
    pub pieces: Receiver<Result<Piece, Failure>>,
    empty: Sender<Vec<u8>>,
}

struct Source {
    name: PathBuf,
    file: File,
}

/// Open files, to be read one after the other.
pub struct Sources(Vec<Source>);

impl Sources {
    /// Opens all files; `-` is the standard input. Without a name: the standard input alone.
    pub fn open(names: &[PathBuf]) -> Result<Self, Failure> {
        let standard = [PathBuf::from("-")];
        let names = if names.is_empty() { &standard } else { names };
        let source = |name: &PathBuf| {
            let file = open(name, io::stdin(), |name| File::open(name))?;
            Ok(Source {
                name: name.clone(),
                file,
            })
        };
        names.iter().map(source).collect::<Result<_, _>>().map(Self)
    }

    /// Bytes that are left to read; None: one of the sources is not a regular file.
    pub fn total(&self) -> Option<u64> {
        self.0.iter().map(|source| bytes_left(&source.file)).sum()
    }

    pub fn read(self, buffer_bytes: usize, buffers: usize, verify: bool) -> Result<Input, Failure> {
        let (to_main, pieces) = bounded(buffers + 1);
        let (empty, to_fill) = bounded(buffers);
        for _ in 0..buffers {
            // The channel has room for all buffers.
            let _ = empty.send(vec![0; buffer_bytes]);
        }
        let mut reader = Reader {
            digest: verify.then(Hasher::new),
            length: 0,
            spare: None,
            to_main,
            to_fill,
        };
        std::thread::Builder::new()
            .name("input".into())
            .spawn(move || reader.run(self))
            .map_err(|error| Failure::local("starting a thread", error))?;
        Ok(Input { pieces, empty })
    }
}

impl Input {
    pub fn give_back(&self, buffer: Vec<u8>) {
        // The thread has ended if all has been read.
        let _ = self.empty.send(buffer);
    }
}

/// Opens a file by its name; `-` is this standard stream.
pub fn open(name: &Path, standard: impl AsFd, open: impl FnOnce(&Path) -> io::Result<File>) -> Result<File, Failure> {
    let opened = if name == Path::new("-") {
        standard.as_fd().try_clone_to_owned().map(File::from)
    } else {
        open(name)
    };
    let file = opened.map_err(|error| Failure::local(format!("opening {}", name.display()), error))?;
    // Fails, without harm, if the file is no pipe, or if the user's pipes may not be so large.
    let _ = rustix::pipe::fcntl_setpipe_size(&file, PIPE_BYTES);
    Ok(file)
}

fn bytes_left(file: &File) -> Option<u64> {
    let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some(metadata.len().saturating_sub(rustix::fs::tell(file).ok()?))
}

struct Reader {
    digest: Option<Hasher>,
    length: u64,
    /// The empty buffer of the read that found the end of the last file.
    spare: Option<Vec<u8>>,
    to_main: Sender<Result<Piece, Failure>>,
    to_fill: Receiver<Vec<u8>>,
}

impl Reader {
    fn run(&mut self, sources: Sources) {
        for source in sources.0 {
            match self.read(&source) {
                Ok(true) => {}
                // The receiver of the pieces is gone.
                Ok(false) => return,
                Err(error) => {
                    let failure = Failure::local(format!("reading {}", source.name.display()), error);
                    let _ = self.to_main.send(Err(failure));
                    return;
                }
            }
        }
        let end = Piece::End {
            length: self.length,
            digest: self.digest.take().map(Hasher::finalize),
        };
        let _ = self.to_main.send(Ok(end));
    }

    /// Reads a source to its end. False: the receiver of the pieces is gone.
    fn read(&mut self, source: &Source) -> io::Result<bool> {
        loop {
            let Some(mut buffer) = self.spare.take().or_else(|| self.to_fill.recv().ok()) else {
                return Ok(false);
            };
            let bytes = fill(&source.file, &mut buffer)?;
            if bytes == 0 {
                self.spare = Some(buffer);
                return Ok(true);
            }
            if let Some(digest) = &mut self.digest {
                digest.update(&buffer[..bytes]);
            }
            self.length += bytes as u64;
            if self.to_main.send(Ok(Piece::Data { buffer, bytes })).is_err() {
                return Ok(false);
            }
        }
    }
}

/// Reads into the buffer until it is full or a read would wait. Waits for the first byte. 0: the end of the input.
fn fill(mut file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if filled > 0 {
                    break;
                }
                wait(&file, PollFlags::IN, None)?;
                continue;
            }
            Err(error) => return Err(error),
        }
        if filled < buffer.len() && !wait(&file, PollFlags::IN, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? {
            break;
        }
    }
    Ok(filled)
}

/// Waits until a file can be read or written. False: the timeout has passed.
pub fn wait(file: &impl AsFd, until: PollFlags, timeout: Option<&Timespec>) -> io::Result<bool> {
    match rustix::event::poll(&mut [PollFd::new(file, until)], timeout) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
