//! A bridge on the official Rust SDK's HTTP client: the editor is at standard input and output, the
//! remote agent at the URL in the first argument.

use agent_client_protocol::{ConnectTo, Error, Stdio};
use agent_client_protocol_http::HttpClient;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).ok_or_else(Error::invalid_params)?;
    let agent = HttpClient::new(url).map_err(Error::into_internal_error)?;
    agent.connect_to(Stdio::new()).await
}
