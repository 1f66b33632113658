//! The output: data is written from the buffers in which it landed.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::event::PollFlags;

use crate::failure::Failure;
use crate::input::{open, wait};
use crate::packet::Packet;

pub struct Output {
    name: PathBuf,
    file: File,
}

impl Output {
    /// Opens a file and empties it; `-` is the standard output.
    pub fn open(name: &Path) -> Result<Self, Failure> {
        Ok(Self {
            name: name.to_owned(),
            file: open(name, io::stdout(), |name| File::create(name))?,
        })
    }

    pub fn write(&self, packet: &Packet) -> Result<(), Failure> {
        let mut at = 0;
        while at < packet.len() {
            match packet.write_to(at, self.file.as_fd()) {
                Ok(0) => return Err(self.failed(ErrorKind::WriteZero.into())),
                Ok(bytes) => at += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait(&self.file, PollFlags::OUT, None).map_err(|error| self.failed(error))?;
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    /// Waits until the file is on the disk. Returns at once for pipes and devices.
    pub fn sync(&self) -> Result<(), Failure> {
        match self.file.sync_all() {
            Err(error) if error.kind() != ErrorKind::InvalidInput => Err(self.failed(error)),
            _ => Ok(()),
        }
    }

    fn failed(&self, error: io::Error) -> Failure {
        let name = match self.name.as_path() {
            name if name == Path::new("-") => "the standard output".into(),
            name => name.display().to_string(),
        };
        Failure::local(format!("writing {name}"), error)
    }
}
