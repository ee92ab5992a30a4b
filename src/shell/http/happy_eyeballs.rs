//! Decides when the next address of a name is tried: one that says nothing hides none that answers (RFC 8305).

use futures_util::stream::{FuturesUnordered, Stream, StreamExt, unfold};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::sleep;

/// How long an address may say nothing before the next is tried as well.
const HEAD_START: Duration = Duration::from_millis(250);

/// A connection to the first address of this host that takes one.
///
/// # Errors
/// It has no address, or none takes one: why not, as the last of them has it.
pub(super) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    first(lookup_host((host, port)).await?.collect()).await
}

async fn first(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut tries = pin!(tries(addresses, HEAD_START));
    let mut last = ErrorKind::AddrNotAvailable.into();
    while let Some((_, tried)) = tries.next().await {
        match tried {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to each of these addresses, and tells what comes of it. The next begins this much later, or as
/// soon as there is an outcome.
pub(crate) fn tries(
    addresses: Vec<SocketAddr>,
    head_start: Duration,
) -> impl Stream<Item = (SocketAddr, io::Result<TcpStream>)> {
    let to = |address| async move { (address, TcpStream::connect(address).await) };
    let mut left = addresses.into_iter();
    let begun: FuturesUnordered<_> = left.next().map(to).into_iter().collect();
    unfold((begun, left), move |(mut begun, mut left)| async move {
        loop {
            tokio::select! {
                Some(tried) = begun.next() => {
                    begun.extend(left.next().map(to));
                    return Some((tried, (begun, left)));
                }
                () = sleep(head_start), if left.len() > 0 => begun.extend(left.next().map(to)),
                else => return None,
            }
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpSocket};
    use tokio::time::timeout;

    /// An address at which nobody answers, for as long as what comes with it is kept.
    pub(crate) async fn silent() -> (SocketAddr, impl Sized) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        // Nobody takes them, and then there is no room for more.
        let mut waiting = Vec::new();
        while let Some(stream) = connected_before_others(address).await {
            waiting.push(stream);
        }
        (address, (listener, waiting))
    }

    /// A connection to this address, unless those come about first that are begun after it. This machine
    /// takes them in order.
    async fn connected_before_others(address: SocketAddr) -> Option<TcpStream> {
        let others = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = others.local_addr().unwrap();
        tokio::select! {
            biased;
            connected = TcpStream::connect(address) => Some(connected.unwrap()),
            () = async {
                for _ in 0..8 {
                    TcpStream::connect(other).await.unwrap();
                }
            } => None,
        }
    }

    #[tokio::test]
    async fn an_address_that_says_nothing_or_refuses_does_not_keep_from_one_that_answers() {
        let (silent, _kept) = silent().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let refusing = listener.local_addr().unwrap();
        drop(listener);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let answering = listener.local_addr().unwrap();
        for addresses in [vec![silent, answering], vec![refusing, silent, refusing, answering]] {
            let connected = timeout(HEAD_START * 8, first(addresses)).await.unwrap().unwrap();
            assert_eq!(connected.peer_addr().unwrap(), answering);
        }
        let refused = first(vec![refusing]).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(first(Vec::new()).await.unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    }
}
