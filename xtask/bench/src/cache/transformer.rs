//! A transformer that answers from memory.

use std::{fs, net::SocketAddr, path::Path, path::PathBuf};

use anyhow::Result;
use axum::{Router, body::Bytes, http::header::CONTENT_TYPE, routing::post, serve::ListenerExt};
use xtask::service::Service;

/// The answer of the transformer, and its address.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[arg(long)]
    body: PathBuf,
    #[arg(long)]
    content_type: String,
    #[arg(long)]
    listen: SocketAddr,
}

/// The path of the step.
pub(super) const PATH: &str = "/step";

/// Starts the transformer in a process of its own.
pub(super) fn start(folder: &Path, body: &Path, content_type: &str) -> Result<Service> {
    let arguments = [
        "transformer".as_ref(),
        "--body".as_ref(),
        body.as_os_str(),
        "--content-type".as_ref(),
        content_type.as_ref(),
    ];
    Service::start(&std::env::current_exe()?, &arguments, &folder.join("transformer.log"))
}

/// Serves until it is killed.
pub(crate) fn serve(options: &Options) -> Result<()> {
    let body = Bytes::from(fs::read(&options.body)?);
    let content_type = [(CONTENT_TYPE, options.content_type.clone())];
    // Like every transformer, this one receives the document of the request.
    let app = Router::new()
        .route(PATH, post(move |_: Bytes| std::future::ready((content_type.clone(), body.clone()))));
    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = tokio::net::TcpListener::bind(options.listen).await?;
        // If this fails, the connection is only slower.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        Ok(axum::serve(listener, app).await?)
    })
}
