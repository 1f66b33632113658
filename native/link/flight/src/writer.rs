//! The file of a [`Recorder`], written by one thread.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Recorder;
use crate::file::{self, FileError, HEADER_BYTES, system};
use crate::ring::Ring;
use crate::slot::{self, SLOT_BYTES, SLOT_WORDS};

/// Writes the events of a recorder to a file.
pub struct Writer {
    recorder: Arc<Recorder>,
    directories: Vec<PathBuf>,
    header: Box<[u8; HEADER_BYTES]>,
    /// Of the rings of events and of ticks.
    due: [Due; 2],
    /// The file, and its path when it was made.
    file: Option<(File, PathBuf)>,
    /// The end of what is written: a shorter file was truncated. 0: the header is not written.
    end: u64,
}

impl Writer {
    /// The file will be in the first of the directories that exists.
    pub fn new(recorder: Arc<Recorder>, directories: Vec<PathBuf>) -> Writer {
        let header = Box::new(file::header(&recorder.node, recorder.slots));
        Writer {
            recorder,
            directories,
            header,
            due: Default::default(),
            file: None,
            end: 0,
        }
    }

    /// The path of the file, when it was made.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|(_, path)| path.as_path())
    }

    /// Writes what is new. Makes the file first, if there was an event of a link: anew if it was removed, and whole if
    /// it was truncated. Waits for the disk as long as that takes, so each other thread must do without this one.
    ///
    /// Err: what could not be written stays in memory, and the next call tries it again. SIGXFSZ must be blocked: a
    /// write beyond the limit of the process is an error then.
    pub fn write(&mut self) -> Result<(), FileError> {
        if !self.recorder.has_link() {
            return Ok(());
        }
        let (file, path) = match self.file.take() {
            Some((file, path)) if self.is_there(&file) => (file, path),
            _ => {
                self.restart();
                file::claim(&self.directories, &self.recorder.node)?
            }
        };
        let written = self.write_to(&file).map_err(system("writing", &path));
        self.file = Some((file, path));
        written
    }

    /// False: it was removed, or its file system is gone.
    fn is_there(&mut self, file: &File) -> bool {
        match file.metadata() {
            Ok(found) if found.nlink() > 0 => {
                if found.len() < self.end {
                    self.restart();
                }
                true
            }
            _ => false,
        }
    }

    /// All is due again.
    fn restart(&mut self) {
        self.end = 0;
        self.due = Default::default();
    }

    fn write_to(&mut self, file: &File) -> io::Result<()> {
        if self.end == 0 {
            file.write_all_at(&self.header[..], 0)?;
            self.end = HEADER_BYTES as u64;
        }
        let firsts = [0, self.recorder.slots.events];
        for ((due, ring), first) in self.due.iter_mut().zip(self.recorder.rings()).zip(firsts) {
            due.write(&ring, |slot, bytes| {
                let at = (HEADER_BYTES + (first + slot) * SLOT_BYTES) as u64;
                file.write_all_at(bytes, at)?;
                self.end = self.end.max(at + SLOT_BYTES as u64);
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// The events of a ring that the file does not have.
#[derive(Default)]
struct Due {
    /// All events from this number on.
    next: u64,
    /// Earlier ones, which could not be written, or were not whole.
    earlier: Vec<u64>,
}

impl Due {
    /// Writes each of them that is whole, with its slot's number, until one cannot be written. One that is not whole is
    /// being appended by a thread that will wake the writer, or is lost to a later one.
    fn write(
        &mut self,
        ring: &Ring<'_, SLOT_WORDS>,
        mut put: impl FnMut(usize, &[u8; SLOT_BYTES]) -> io::Result<()>,
    ) -> io::Result<()> {
        let kept = ring.kept();
        self.earlier.retain(|sequence| kept.contains(sequence));
        self.earlier.extend(self.next.max(kept.start)..kept.end);
        self.next = kept.end;
        let mut result = Ok(());
        self.earlier.retain(|&sequence| {
            let Some((event, slot)) = ring.read(sequence).zip(ring.place(sequence)) else {
                return true;
            };
            if result.is_ok() {
                result = put(slot, &slot::bytes(&event));
            }
            result.is_err()
        });
        result
    }
}
