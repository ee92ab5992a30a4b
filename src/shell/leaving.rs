//! Notices that the editor is gone without having ended our input (S7).

use std::io;
use tokio::sync::mpsc;

/// Returns when standard output is closed. `output_broken` returns when a write to it failed.
pub(super) async fn editor_gone(output_broken: impl Future<Output = ()>) {
    tokio::select! {
        () = output_broken => tracing::info!("standard output is closed: ending"),
        () = output_closed() => tracing::info!("standard output is closed: ending"),
    }
}

/// Tells of each signal that asks to end: SIGTERM, SIGINT and SIGHUP, elsewhere Ctrl-C.
#[cfg(unix)]
pub(crate) fn signals() -> io::Result<mpsc::Receiver<()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (sender, receiver) = mpsc::channel(1);
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let (mut signals, sender) = (signal(kind)?, sender.clone());
        tokio::spawn(async move {
            while signals.recv().await.is_some() && sender.send(()).await.is_ok() {}
        });
    }
    Ok(receiver)
}

/// Tells of each signal that asks to end: SIGTERM, SIGINT and SIGHUP, elsewhere Ctrl-C.
#[cfg(not(unix))]
pub(crate) fn signals() -> io::Result<mpsc::Receiver<()>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() && sender.send(()).await.is_ok() {}
    });
    Ok(receiver)
}

/// Returns when the reader of standard output closes it, also while nothing is written. Never
/// returns where that cannot be seen; then the next write finds out.
async fn output_closed() {
    #[cfg(unix)]
    if watch(io::stdout()).await.is_ok() {
        return;
    }
    std::future::pending().await
}

/// Returns when nobody reads `output` any more; never for a file, which has no reader.
#[cfg(unix)]
async fn watch(output: impl std::os::fd::AsFd + Send + 'static) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;
    let (closed, is_closed) = tokio::sync::oneshot::channel();
    // A thread, because the runtime can watch only what it owns, and changes how that is written.
    std::thread::spawn(move || {
        // No flags: an error and a hangup are told unasked. That a socket's reader does not send to
        // us is neither.
        let mut output = [PollFd::new(&output, PollFlags::empty())];
        let result = loop {
            match poll(&mut output, None) {
                Err(Errno::INTR) => {}
                result => break result,
            }
        };
        let _ = closed.send(result);
    });
    match is_closed.await {
        Ok(result) => Ok(result.map(drop)?),
        Err(_) => Err(io::ErrorKind::Other.into()),
    }
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    async fn returns(future: impl Future<Output = io::Result<()>>) -> bool {
        tokio::time::timeout(Duration::from_millis(50), future).await.is_ok()
    }

    #[tokio::test]
    async fn s7_a_pipe_that_the_editor_closes_is_noticed_while_nothing_is_written() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"x").unwrap();
        assert!(!returns(watch(writer.try_clone().unwrap())).await);
        drop(reader);
        assert!(returns(watch(writer)).await);
    }

    #[tokio::test]
    async fn s7_a_socket_that_the_editor_only_does_not_write_to_is_not_closed() {
        let (editor, ours) = UnixStream::pair().unwrap();
        editor.shutdown(Shutdown::Write).unwrap();
        assert!(!returns(watch(ours.try_clone().unwrap())).await);
        drop(editor);
        assert!(returns(watch(ours)).await);
    }

    #[tokio::test]
    async fn a_file_has_no_reader_that_could_be_gone() {
        assert!(!returns(watch(tempfile::tempfile().unwrap())).await);
    }
}
