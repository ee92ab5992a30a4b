//! Reads and writes that wait for nothing, because the system says so first (Unix).
//!
//! The descriptors stay as they are: others may hold them too, and to make them non-blocking would be
//! to make them so for those.

use super::{next_block, read_batch, write};
use crate::wire::lines::{Line, Lines};
use bytes::{Bytes, BytesMut};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::coop::consume_budget;

/// What a pipe takes whole, or a socket, once it says that it takes something. Where another process
/// writes there in between, the write waits for the editor to read.
pub(super) const LITTLE: usize = rustix::pipe::PIPE_BUF;

/// An input whose state is told; an error for what has none, as a file.
pub(super) fn watch<T: AsRawFd + AsFd>(input: T) -> io::Result<AsyncFd<T>> {
    if duplicate(&input)?.metadata()?.is_file() {
        return Err(ErrorKind::Unsupported.into());
    }
    #[expect(deprecated, reason = "its successor is unsafe; standard input is never closed by us")]
    AsyncFd::with_interest(input, Interest::READABLE)
}

/// Reads until the input ends or nobody takes the batches.
pub(super) async fn read_all(
    mut input: AsyncFd<impl Read + AsRawFd + AsFd>,
    mut lines: Lines,
    batches: mpsc::Sender<Vec<Line>>,
) {
    let mut buffer = BytesMut::new();
    loop {
        // A line that is long in coming does not keep the rest of the program from its work.
        consume_budget().await;
        let Ok(mut ready) = input.readable_mut().await else { return };
        let mut batch = Vec::new();
        let more = if is_in(ready.get_inner(), PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            read_batch(ready.get_inner_mut(), &mut buffer, &mut lines, &mut batch)
        } else if ready.ready().is_read_closed() {
            // The end of a named pipe that somebody else has opened since.
            lines.finish(&mut batch);
            false
        } else {
            ready.clear_ready();
            continue;
        };
        let is_wanted = batch.is_empty() || batches.send(batch).await.is_ok();
        if !more || !is_wanted {
            return;
        }
    }
}

/// A descriptor that is waited for as a blocking one is, also where who else holds it made it
/// non-blocking. Nothing is kept on the way, so that of what was written in part only the rest is left.
#[derive(Debug)]
pub(super) struct Patient<T>(pub(super) T);

impl<T: AsFd> Patient<T> {
    fn wait(&self, state: PollFlags) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.0, state)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl<T: Read + AsFd> Read for Patient<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::IN)?,
                read => return read,
            }
        }
    }
}

impl<T: AsFd> Write for Patient<T> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(&self.0, text) {
                Err(Errno::WOULDBLOCK) => self.wait(PollFlags::OUT)?,
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<T: AsFd> AsFd for Patient<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An output that is written to while it takes what is written.
#[derive(Debug)]
pub(super) struct Output {
    output: Patient<File>,
    block: Vec<u8>,
}

impl Output {
    /// `None` for what may say that it takes something and mean a byte, as a terminal does.
    pub(super) fn new(output: impl AsFd) -> Option<Self> {
        let output = duplicate(&output).ok()?;
        let kind = output.metadata().ok()?.file_type();
        let is_known = kind.is_fifo() || kind.is_socket();
        is_known.then(|| Self { output: Patient(output), block: Vec::with_capacity(LITTLE) })
    }

    /// Whether [`LITTLE`] bytes can be written without a wait.
    pub(super) fn takes_a_little(&self) -> bool {
        is_in(&self.output, PollFlags::OUT)
    }

    /// Writes these lines, [`LITTLE`] bytes at most.
    pub(super) fn write(&mut self, lines: &mut VecDeque<Bytes>) -> io::Result<()> {
        let large = next_block(lines, &mut self.block);
        write(&mut self.output, &large, &self.block)
    }
}

fn duplicate(descriptor: &impl AsFd) -> io::Result<File> {
    Ok(descriptor.as_fd().try_clone_to_owned()?.into())
}

/// Whether a descriptor is in such a state, and no other that is told.
pub(super) fn is_in(descriptor: &impl AsFd, states: PollFlags) -> bool {
    let mut asked = [PollFd::new(descriptor, states)];
    let told = poll(&mut asked, Some(&Timespec::default()));
    let [asked] = asked;
    told.is_ok() && !asked.revents().is_empty() && states.contains(asked.revents())
}
