//! Decides how many connections there are, and how slow they may be (A5).

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep};

/// Connections at once: few, because some systems allow a process 256 open files. More wait in the
/// system's queue. Those who watch are fewer still, so that they alone cannot take all.
const CONNECTIONS: usize = 64;
/// How long the headers of a request may take, the first and each that follows on a connection.
const HEADERS: Duration = Duration::from_secs(5);
/// How long a caller may not read while something is written to it.
const UNREAD: Duration = Duration::from_secs(10);
/// What is read ahead of a request, and written ahead of its reader. Holds the longest request line.
const BUFFER: usize = 64 * 1024;
/// How long nothing is accepted after that failed: the process has too many files open, say.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves HTTP/1.1 to all who connect.
pub(super) async fn accept(
    listener: std::net::TcpListener,
    router: Router,
) -> io::Result<Infallible> {
    let listener = TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let place = Arc::clone(&room).acquire_owned().await.map_err(io::Error::other)?;
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let router = router.clone();
        tokio::spawn(async move {
            serve(stream, router).await;
            drop(place);
        });
    }
}

async fn serve(stream: TcpStream, router: Router) {
    // A connection without it is only slower.
    let _ = stream.set_nodelay(true);
    // An error is a caller that went, was too slow, or does not speak HTTP/1.1.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(BUFFER)
        .serve_connection(
            TokioIo::new(Impatient { stream, unread: None }),
            TowerToHyperService::new(router),
        )
        .await;
}

/// A connection that breaks when its other end does not read.
struct Impatient<S> {
    stream: S,
    /// Runs while nothing can be written.
    unread: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_ready() {
            self.unread = None;
            return written;
        }
        let unread = self.unread.get_or_insert_with(|| Box::pin(sleep(UNREAD)));
        unread.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{Instant, timeout};

    #[tokio::test(start_paused = true)]
    async fn a5_who_does_not_read_for_ten_seconds_is_cut_and_who_reads_slowly_is_not() {
        let (stream, mut slow) = duplex(1);
        let mut writing = Impatient { stream, unread: None };
        let reading = async {
            for _ in 0..10 {
                sleep(UNREAD - Duration::from_secs(1)).await;
                slow.read_u8().await.unwrap();
            }
            slow
        };
        let (written, slow) = tokio::join!(writing.write_all(&[0; 10]), reading);
        assert!(written.is_ok());
        let start = Instant::now();
        let cut = timeout(2 * UNREAD, writing.write_all(&[0; 10])).await.unwrap().unwrap_err();
        assert_eq!((cut.kind(), start.elapsed().as_secs()), (io::ErrorKind::TimedOut, 10));
        drop(slow);
    }
}
