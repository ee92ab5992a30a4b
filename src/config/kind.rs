//! Decides what a flag that names a file may name: to open anything else can wait for ever.

use std::fs::{self, FileType};
use std::io;
use std::path::Path;

/// Where the system shows what a process has opened: `<(command)` of a shell is such a path.
const OPENED: [&str; 2] = ["/dev/fd", "/proc/self/fd"];

/// Whether a path can be read from: a file, or a pipe that whoever started us opened.
///
/// # Errors
/// It is something else, or not there.
pub(super) fn to_read(path: &Path) -> io::Result<()> {
    let kind = fs::metadata(path)?.file_type();
    let can_be = kind.is_file() || is_pipe(kind) && is_opened(path);
    can_be.then_some(()).ok_or_else(no_file)
}

/// Whether a log can be written to a path: to a file, one that is not there yet, a device like `/dev/null`,
/// or a pipe that whoever started us opened.
///
/// # Errors
/// It is something else.
pub fn to_append(path: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    let kind = metadata.file_type();
    let can_be = kind.is_file() || is_device(kind) || is_pipe(kind) && is_opened(path);
    can_be.then_some(()).ok_or_else(no_file)
}

/// What is told of anything else.
pub(super) fn no_file() -> io::Error {
    io::Error::other("it is not a file")
}

fn is_opened(path: &Path) -> bool {
    OPENED.iter().any(|directory| path.starts_with(directory))
}

#[cfg(unix)]
pub(super) fn is_pipe(kind: FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&kind)
}

#[cfg(unix)]
fn is_device(kind: FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_char_device(&kind)
}

#[cfg(not(unix))]
pub(super) fn is_pipe(_: FileType) -> bool {
    false
}

#[cfg(not(unix))]
fn is_device(_: FileType) -> bool {
    false
}
