//! Reads the editor's lines from standard input and writes lines to standard output.
//!
//! Neither can be waited for without a thread on every system. Where one can tell that a read or a
//! write will not wait ([`ready`]) it is done at once: to wake a thread costs more than a small line.

#[cfg(unix)]
mod ready;

use crate::lock::lock;
use crate::wire::lines::{Line, Lines};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use tokio::sync::{Notify, mpsc, oneshot};

/// What one read asks for, and what one write takes together.
const BLOCK: usize = 64 * 1024;
/// Below this much room a read would be small: a new block is begun. It is more than the buffer of
/// [`io::Stdin`], which a read of so much goes past: nothing may wait in there unseen.
const LEAST_ROOM: usize = 16 * 1024;
/// Reads whose lines may wait for the shell.
const READS: usize = 4;

/// Reads standard input: batches of lines, closed at its end.
pub(super) fn read_editor(limit: usize) -> mpsc::Receiver<Vec<Line>> {
    #[cfg(unix)]
    if let Ok(input) = ready::watch(io::stdin()) {
        let (batches, receiver) = mpsc::channel(READS);
        tokio::spawn(ready::read_all(input, Lines::new(limit), batches));
        return receiver;
    }
    let input = io::stdin();
    #[cfg(unix)]
    let input = ready::Patient(input);
    read(input, limit)
}

/// Reads `input` in a thread: batches of lines, closed at its end.
fn read(input: impl Read + Send + 'static, limit: usize) -> mpsc::Receiver<Vec<Line>> {
    let (batches, receiver) = mpsc::channel(READS);
    std::thread::spawn(move || read_all(input, Lines::new(limit), &batches));
    receiver
}

fn read_all(mut input: impl Read, mut lines: Lines, batches: &mpsc::Sender<Vec<Line>>) {
    let mut buffer = BytesMut::new();
    loop {
        let mut batch = Vec::new();
        let more = read_batch(&mut input, &mut buffer, &mut lines, &mut batch);
        let wanted = batch.is_empty() || batches.blocking_send(batch).is_ok();
        if !more || !wanted {
            return;
        }
    }
}

/// Reads once. Whether there may be more.
fn read_batch(
    input: &mut impl Read,
    buffer: &mut BytesMut,
    lines: &mut Lines,
    batch: &mut Vec<Line>,
) -> bool {
    match read_block(input, buffer) {
        Ok(chunk) if !chunk.is_empty() => {
            lines.push(chunk, batch);
            return true;
        }
        Ok(_) => {}
        // Another program that holds the same input was faster.
        Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
        Err(error) => tracing::warn!("standard input cannot be read: {error}"),
    }
    lines.finish(batch);
    false
}

/// Reads what is there, a block at most; empty at the end of the input.
fn read_block(input: &mut impl Read, buffer: &mut BytesMut) -> io::Result<Bytes> {
    if buffer.len() < LEAST_ROOM {
        buffer.clear();
        // Takes the old block again where nothing refers to it any more.
        buffer.reserve(BLOCK);
        buffer.resize(BLOCK, 0);
    }
    loop {
        match input.read(buffer) {
            Ok(length) => return Ok(buffer.split_to(length).freeze()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The way to the editor: lines are gathered, and wait for the thread that writes them.
#[derive(Debug)]
pub(super) struct Output {
    /// Lines that the writing thread does not know of yet, and their bytes.
    gathered: VecDeque<Bytes>,
    gathered_bytes: usize,
    queue: Arc<Queue>,
    /// Where [`Self::send`] writes by itself what it can.
    #[cfg(unix)]
    at_once: Option<ready::Output>,
    done: oneshot::Receiver<()>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    filled: Condvar,
    /// Bytes of lines that are not yet written.
    bytes: AtomicUsize,
    /// Bytes were written.
    drained: Notify,
    /// The editor closed its end.
    broken: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Bytes>,
    is_last: bool,
    /// The writing thread is awake, and looks for more before it sleeps. To wake it costs more than to
    /// write a line.
    is_awake: bool,
}

impl Output {
    /// Writes to `output` in a thread.
    pub(super) fn new(output: impl Write + Send + 'static) -> Self {
        let queue = Arc::new(Queue::default());
        let shared = Arc::clone(&queue);
        let (is_done, done) = oneshot::channel();
        std::thread::spawn(move || {
            write_all(output, &shared);
            // Whoever waited for it may be gone.
            let _ = is_done.send(());
        });
        Self {
            gathered: VecDeque::new(),
            gathered_bytes: 0,
            queue,
            #[cfg(unix)]
            at_once: None,
            done,
        }
    }

    /// Writes to standard output.
    pub(super) fn editor() -> Self {
        let output = io::stdout();
        #[cfg(unix)]
        let output = ready::Patient(output);
        Self {
            #[cfg(unix)]
            at_once: ready::Output::new(io::stdout()),
            ..Self::new(output)
        }
    }

    /// Gathers one line, without its LF. It is written after [`Self::send`] at the latest.
    pub(super) fn line(&mut self, line: Bytes) {
        self.queue.bytes.fetch_add(line.len() + 1, Ordering::Relaxed);
        self.gathered_bytes += line.len() + 1;
        self.gathered.push_back(line);
        if self.gathered_bytes >= BLOCK {
            self.send();
        }
    }

    /// Writes what was gathered, where that waits for nothing; else hands it over.
    pub(super) fn send(&mut self) {
        #[cfg(unix)]
        self.write_at_once();
        if !self.gathered.is_empty() {
            self.gathered_bytes = 0;
            let mut waiting = lock(&self.queue.waiting);
            waiting.lines.append(&mut self.gathered);
            self.queue.wake(&mut waiting);
        }
    }

    /// Writes what was gathered, if it is little, nothing waits before it, and the editor's end takes
    /// it at once.
    #[cfg(unix)]
    fn write_at_once(&mut self) {
        let Some(output) = &mut self.at_once else { return };
        let is_little = (1..=ready::LITTLE).contains(&self.gathered_bytes);
        if !is_little || !self.queue.is_idle() || !output.takes_a_little() {
            return;
        }
        let written = mem::take(&mut self.gathered_bytes);
        if output.write(&mut self.gathered).is_err() {
            self.queue.broken.notify_one();
        }
        self.queue.written(written);
    }

    /// Bytes that wait for the editor.
    pub(super) fn waiting(&self) -> usize {
        self.queue.bytes.load(Ordering::Relaxed)
    }

    /// Returns when some of the bytes that waited have been written.
    pub(super) async fn drained(&self) {
        self.queue.drained.notified().await;
    }

    /// Returns when the editor turns out to have closed its end.
    pub(super) fn broken(&self) -> impl Future<Output = ()> + use<> {
        let queue = Arc::clone(&self.queue);
        async move { queue.broken.notified().await }
    }

    /// Returns when all lines are written.
    pub(super) async fn finish(mut self) {
        self.send();
        {
            let mut waiting = lock(&self.queue.waiting);
            waiting.is_last = true;
            self.queue.wake(&mut waiting);
        }
        // Where the thread is gone without a word there is nothing to wait for.
        let _ = self.done.await;
    }
}

impl Queue {
    /// Whether nothing is being written.
    #[cfg(unix)]
    fn is_idle(&self) -> bool {
        let waiting = lock(&self.waiting);
        !waiting.is_awake && waiting.lines.is_empty()
    }

    fn wake(&self, waiting: &mut Waiting) {
        if !mem::replace(&mut waiting.is_awake, true) {
            self.filled.notify_one();
        }
    }

    /// Takes all lines, waiting for the first; `None` after the last.
    fn take(&self, taken: &mut VecDeque<Bytes>) -> Option<()> {
        let mut waiting = lock(&self.waiting);
        while waiting.lines.is_empty() {
            if waiting.is_last {
                return None;
            }
            waiting.is_awake = false;
            waiting = self.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        mem::swap(&mut waiting.lines, taken);
        Some(())
    }

    fn written(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.drained.notify_one();
    }
}

fn write_all(mut output: impl Write, queue: &Queue) {
    let mut lines = VecDeque::new();
    let mut block = Vec::with_capacity(BLOCK);
    let mut is_broken = false;
    while queue.take(&mut lines).is_some() {
        while !lines.is_empty() {
            let large = next_block(&mut lines, &mut block);
            // A broken output takes nothing more, and the queue must not fill behind it.
            if !is_broken && write(&mut output, &large, &block).is_err() {
                is_broken = true;
                queue.broken.notify_one();
            }
            queue.written(large.len() + block.len());
        }
    }
}

/// Gathers the lines of one write in `block`. A line that is a write of its own is not copied but
/// returned, to be written first.
fn next_block(lines: &mut VecDeque<Bytes>, block: &mut Vec<u8>) -> Bytes {
    block.clear();
    while let Some(line) = lines.front()
        && block.len() + line.len() < BLOCK
    {
        block.extend_from_slice(line);
        block.push(b'\n');
        lines.pop_front();
    }
    if block.is_empty()
        && let Some(line) = lines.pop_front()
    {
        block.push(b'\n');
        return line;
    }
    Bytes::new()
}

fn write(output: &mut impl Write, large: &[u8], block: &[u8]) -> io::Result<()> {
    if !large.is_empty() {
        output.write_all(large)?;
    }
    output.write_all(block)?;
    output.flush()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    #[cfg(unix)]
    use rustix::event::PollFlags;
    use std::sync::mpsc::{Sender, channel};

    /// Gives its chunks one read after another.
    struct Chunks(VecDeque<Vec<u8>>);

    impl Read for Chunks {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some(chunk) = self.0.front_mut() else {
                return Ok(0);
            };
            let length = chunk.as_slice().read(buffer)?;
            chunk.drain(..length);
            self.0.retain(|chunk| !chunk.is_empty());
            Ok(length)
        }
    }

    fn lines_of(chunks: &[&[u8]], limit: usize) -> Vec<Line> {
        let chunks = Chunks(chunks.iter().map(|chunk| chunk.to_vec()).collect());
        let mut batches = read(chunks, limit);
        let mut all = Vec::new();
        while let Some(batch) = batches.blocking_recv() {
            all.extend(batch);
        }
        all
    }

    #[test]
    fn s1_lines_come_whole_however_the_reads_cut_them() {
        let whole = |text: &'static str| Line::Whole(Bytes::from_static(text.as_bytes()));
        let lines = lines_of(&[b"{\"a\"", b":1}\n{\"b\":2}\r\n\n{\"c", b"\":3}"], 1024);
        assert_eq!(lines, [whole("{\"a\":1}"), whole("{\"b\":2}"), whole("{\"c\":3}")]);
    }

    #[test]
    fn s4_a_line_over_the_limit_is_told_and_the_next_is_served() {
        let long = vec![b'x'; 40_000];
        let lines = lines_of(&[&long, &long, b"\n{}\n"], 50_000);
        assert_eq!(lines, [Line::TooLong, Line::Whole(Bytes::from_static(b"{}"))]);
    }

    fn waited(future: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future);
    }

    /// Waits for a permission before each write, and tells what was written.
    struct Gate {
        permissions: std::sync::mpsc::Receiver<()>,
        writes: Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.permissions.recv().map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
            self.writes.send(text.to_vec()).unwrap();
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn p6_lines_are_written_together_and_counted_until_they_are() {
        let (permit, permissions) = channel();
        let (writes, written) = channel();
        let mut output = Output::new(Gate { permissions, writes });
        for line in ["a", "b", "c"] {
            output.line(Bytes::from_static(line.as_bytes()));
        }
        assert_eq!(output.waiting(), 6);
        permit.send(()).unwrap();
        waited(output.finish());
        let writes: Vec<Vec<u8>> = written.iter().collect();
        assert_eq!(writes, [b"a\nb\nc\n"]);
    }

    #[test]
    fn s7_a_broken_output_is_told_and_holds_nothing_back() {
        let (_, permissions) = channel();
        let (writes, _written) = channel();
        let mut output = Output::new(Gate { permissions, writes });
        let broken = output.broken();
        for _ in 0..1000 {
            output.line(Bytes::from_static(b"line"));
            output.send();
        }
        waited(broken);
        waited(output.finish());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn s1_what_a_pipe_holds_is_read_as_it_comes_and_its_end_is_the_end() {
        let whole = |text: &'static str| Line::Whole(Bytes::from_static(text.as_bytes()));
        let (input, mut editor) = io::pipe().unwrap();
        let (batches, mut lines) = mpsc::channel(READS);
        tokio::spawn(ready::read_all(ready::watch(input).unwrap(), Lines::new(1024), batches));
        for (written, read) in [("{\"a\":1}\n{\"b\"", "{\"a\":1}"), (":2}\n{\"c\":3}", "{\"b\":2}")]
        {
            editor.write_all(written.as_bytes()).unwrap();
            assert_eq!(lines.recv().await, Some(vec![whole(read)]));
        }
        drop(editor);
        assert_eq!(lines.recv().await, Some(vec![whole("{\"c\":3}")]));
        assert_eq!(lines.recv().await, None);
    }

    /// The runtime says once that a named pipe was closed, and for ever.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn s7_a_named_pipe_that_another_opens_after_its_end_is_at_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let open = |read| std::fs::OpenOptions::new().read(read).write(true).open(&path).unwrap();
        // Both ends, so that neither waits for the other to be opened.
        let both = open(true);
        let input = std::fs::File::open(&path).unwrap();
        let mut editor = open(false);
        drop(both);
        let state = input.try_clone().unwrap();
        let (batches, mut lines) = mpsc::channel(READS);
        tokio::spawn(ready::read_all(ready::watch(input).unwrap(), Lines::new(1024), batches));
        // One batch more than there is room for: the reader waits with it.
        for _ in 0..=READS {
            editor.write_all(b"{}\n").unwrap();
            while ready::is_in(&state, PollFlags::IN) {
                tokio::task::yield_now().await;
            }
        }
        drop(editor);
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        let _another = open(false);
        for _ in 0..=READS {
            assert_eq!(lines.recv().await.map(|batch| batch.len()), Some(1));
        }
        let end = tokio::time::timeout(std::time::Duration::from_secs(5), lines.recv()).await;
        assert_eq!(end, Ok(None));
    }

    /// Another program that reads the same input is always faster.
    #[cfg(unix)]
    struct Taken<T>(T, bool);

    #[cfg(unix)]
    impl<T: Read> Read for Taken<T> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 { Err(ErrorKind::WouldBlock.into()) } else { self.0.read(buffer) }
        }
    }

    #[cfg(unix)]
    impl<T: std::os::fd::AsFd> std::os::fd::AsFd for Taken<T> {
        fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    #[cfg(unix)]
    impl<T: std::os::fd::AsRawFd> std::os::fd::AsRawFd for Taken<T> {
        fn as_raw_fd(&self) -> std::os::fd::RawFd {
            self.0.as_raw_fd()
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn s1_a_non_blocking_input_with_nothing_in_it_is_not_at_its_end() {
        let (input, mut editor) = io::pipe().unwrap();
        let (batches, mut lines) = mpsc::channel(READS);
        let input = ready::watch(Taken(input, false)).unwrap();
        tokio::spawn(ready::read_all(input, Lines::new(1024), batches));
        editor.write_all(b"{}\n").unwrap();
        assert_eq!(lines.recv().await.map(|batch| batch.len()), Some(1));
        drop(editor);
        assert_eq!(lines.recv().await, None);
    }

    #[cfg(unix)]
    #[test]
    fn s5_what_is_non_blocking_is_waited_for_and_carries_all_bytes_once() {
        use std::os::unix::net::UnixStream;
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let text: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_be_bytes).collect();
        let expected = text.clone();
        let mut output = ready::Patient(ours);
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            ready::Patient(theirs).read_to_end(&mut all).map(|_| all)
        });
        write(&mut output, &text, b"end").unwrap();
        drop(output);
        assert!(reader.join().unwrap().unwrap() == [&expected, &b"end"[..]].concat());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn s1_a_file_has_no_state_to_wait_for_and_is_read_in_a_thread() {
        assert!(ready::watch(tempfile::tempfile().unwrap()).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn p6_a_little_is_written_at_once_while_the_pipe_takes_it_and_in_order_after() {
        let (mut editor, pipe) = io::pipe().unwrap();
        let direct = ready::Output::new(pipe.try_clone().unwrap());
        let mut output = Output { at_once: direct, ..Output::new(pipe) };
        let lines: Vec<Bytes> = (0..100)
            .map(|n| Bytes::from(format!("{n:0length$}", length = ready::LITTLE - 1)))
            .collect();
        let mut at_once = 0;
        for line in &lines {
            output.line(line.clone());
            output.send();
            at_once += usize::from(output.waiting() == 0);
        }
        assert!((1..100).contains(&at_once), "a pipe holds {at_once} of them");
        let reader = std::thread::spawn(move || {
            let mut all = String::new();
            editor.read_to_string(&mut all).unwrap();
            all
        });
        output.line(Bytes::from_static(b"last"));
        waited(output.finish());
        let all = reader.join().unwrap();
        let expected = lines.iter().map(|line| std::str::from_utf8(line).unwrap());
        assert!(all.lines().eq(expected.chain(["last"])), "whole and in order");
    }

    /// A terminal says that it takes something where it takes a byte.
    #[cfg(unix)]
    #[test]
    fn p6_what_is_no_pipe_and_no_socket_is_written_to_in_the_thread() {
        use std::os::unix::net::UnixStream;
        let is_written_at_once = |output| ready::Output::new(output).is_some();
        assert!(is_written_at_once(std::fs::File::from(std::os::fd::OwnedFd::from(
            UnixStream::pair().unwrap().0
        ))));
        assert!(!is_written_at_once(std::fs::File::create("/dev/null").unwrap()));
        assert!(!is_written_at_once(tempfile::tempfile().unwrap()));
    }

    #[cfg(unix)]
    #[test]
    fn s7_an_output_that_broke_is_told_whoever_writes_to_it() {
        let (editor, pipe) = io::pipe().unwrap();
        let direct = ready::Output::new(pipe.try_clone().unwrap());
        let mut output = Output { at_once: direct, ..Output::new(pipe) };
        drop(editor);
        output.line(Bytes::from_static(b"line"));
        output.send();
        waited(output.broken());
        waited(output.finish());
    }
}
