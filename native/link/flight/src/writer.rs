//! The file of a [`Recorder`], written by one thread.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Recorder;
use crate::file::{self, FileError, HEADER_BYTES, Start, system};
use crate::ring::Ring;
use crate::slot::{self, SLOT_BYTES, SLOT_WORDS};

/// Writes the events of a recorder to a file.
pub struct Writer {
    recorder: Arc<Recorder>,
    directories: Vec<PathBuf>,
    start: Start,
    /// The node's name in the header and in the file's name.
    node: Arc<str>,
    has_header: bool,
    /// For the ring of events, then for the ring of ticks.
    due: [Due; 2],
    /// The file, and its path when it was made.
    file: Option<(File, PathBuf)>,
    /// The end of what is written: a shorter file was truncated.
    end: u64,
}

impl Writer {
    /// The file will be in the first of the directories where it can be made.
    pub fn new(recorder: Arc<Recorder>, directories: Vec<PathBuf>) -> Writer {
        let node = recorder.node();
        Writer {
            recorder,
            directories,
            start: Start::now(),
            node,
            has_header: false,
            due: Default::default(),
            file: None,
            end: 0,
        }
    }

    /// The path of the file, when it was made or renamed.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|(_, path)| path.as_path())
    }

    /// Writes what is new. Makes the file first, if there was an event of a link: again if it was removed, and whole if
    /// it was truncated. Renames it if the node has another name. Waits for the disk as long as that takes, so each
    /// other thread must do without this one.
    ///
    /// Err: what could not be written stays in memory, and the next call tries it again. SIGXFSZ must be blocked: a
    /// write beyond the limit of the process is an error then.
    pub fn write(&mut self) -> Result<(), FileError> {
        self.guarded(Writer::write_new)
    }

    /// After a panic, which is a defect, the next write makes another file.
    fn guarded(&mut self, write: impl FnOnce(&mut Writer) -> Result<(), FileError>) -> Result<(), FileError> {
        catch_unwind(AssertUnwindSafe(|| write(self))).unwrap_or_else(|_| {
            self.file = None;
            Err(FileError::Panicked)
        })
    }

    fn write_new(&mut self) -> Result<(), FileError> {
        if !self.recorder.has_link() {
            return Ok(());
        }
        let node = self.recorder.node();
        let (file, path) = match self.file.take() {
            Some((file, path)) if self.is_there(&file) => self.renamed(file, path, &node)?,
            _ => {
                self.restart();
                file::claim(&self.directories, &node)?
            }
        };
        self.node = node;
        let written = self.write_to(&file).map_err(system("writing", &path));
        self.file = Some((file, path));
        written
    }

    /// Gives the file the node's name. Err: it keeps the one that it has, and the next write tries again.
    fn renamed(&mut self, file: File, path: PathBuf, node: &Arc<str>) -> Result<(File, PathBuf), FileError> {
        if *node == self.node {
            return Ok((file, path));
        }
        match file::rename(&path, node) {
            Ok(path) => {
                self.has_header = false;
                Ok((file, path))
            }
            Err(error) => {
                self.file = Some((file, path));
                Err(error)
            }
        }
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
        self.has_header = false;
        self.end = 0;
        self.due = Default::default();
    }

    fn write_to(&mut self, file: &File) -> io::Result<()> {
        if !self.has_header {
            let header = file::header(&self.node, self.recorder.slots, &self.start);
            file.write_all_at(&header, 0)?;
            self.has_header = true;
            self.end = self.end.max(HEADER_BYTES as u64);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_and_the_next_write_makes_a_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let recorder = Arc::new(Recorder::new("a@host", 65536));
        let _linked = recorder.append(&crate::Event {
            node: "b@host",
            kind: "lost",
            ..crate::Event::default()
        });
        let mut writer = Writer::new(recorder, vec![directory.path().to_owned()]);
        let failed = writer.guarded(|_| panic!("a defect"));
        assert!(matches!(failed, Err(FileError::Panicked)));
        writer.write().expect("a file");
        assert!(writer.path().is_some_and(Path::exists));
    }
}
