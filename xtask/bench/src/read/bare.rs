//! The smallest possible server with the same libraries: it serves one answer from memory.

use std::{fs, net::SocketAddr, path::Path, path::PathBuf};

use anyhow::Result;
use axum::{
    Router,
    body::Bytes,
    http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG},
    routing::get,
    serve::ListenerExt,
};
use xtask::service::Service;

/// The body that the server serves, and its address.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[arg(long)]
    body: PathBuf,
    #[arg(long)]
    listen: SocketAddr,
}

/// Starts the server in a process of its own, so that it shares no memory and no threads with the load
/// generator.
pub(super) fn start(folder: &Path, file: &Path) -> Result<Service> {
    let arguments = ["bare".as_ref(), "--body".as_ref(), file.as_os_str()];
    Service::start(&std::env::current_exe()?, &arguments, &folder.join("bare.log"))
}

/// Serves until it is killed.
pub(crate) fn serve(options: &Options) -> Result<()> {
    let body = Bytes::from(fs::read(&options.body)?);
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (ETAG, "\"1/8f545ba0-2601-11e3-885c-4160918f0fb9\""),
        (CACHE_CONTROL, "public, max-age=0, s-maxage=86400, must-revalidate"),
    ];
    let app = Router::new().route("/", get(move || std::future::ready((headers, body.clone()))));
    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = tokio::net::TcpListener::bind(options.listen).await?;
        // If this fails, the connection is only slower.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        Ok(axum::serve(listener, app).await?)
    })
}
