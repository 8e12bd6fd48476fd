//! nginx with the best settings for one file.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use xtask::{
    process::find_program,
    service::{Service, free_address},
};

/// Starts nginx, which serves the folder of the file.
pub(crate) fn start(folder: &Path, file: &Path) -> Result<Service> {
    let nginx =
        find_program("nginx").context("nginx is missing: install it (Debian: apt install nginx-light)")?;
    let root = file.parent().context("the path of the file has no folder")?;
    let address = free_address()?;
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    // nginx keeps the file open, as the service keeps the body in memory. Connections are not closed after a
    // number of requests.
    let settings = format!(
        "daemon off;
        {user}
        worker_processes auto;
        pid {folder}/nginx.pid;
        error_log {folder}/nginx-error.log;
        events {{ worker_connections 1024; }}
        http {{
            access_log off;
            sendfile on;
            tcp_nopush on;
            tcp_nodelay on;
            keepalive_timeout 300s;
            keepalive_requests 1000000000;
            open_file_cache max=16 inactive=600s;
            open_file_cache_valid 600s;
            default_type text/html;
            client_body_temp_path {folder}/nginx-body;
            proxy_temp_path {folder}/nginx-proxy;
            fastcgi_temp_path {folder}/nginx-fastcgi;
            uwsgi_temp_path {folder}/nginx-uwsgi;
            scgi_temp_path {folder}/nginx-scgi;
            server {{ listen {address}; root {root}; }}
        }}",
        folder = folder.display(),
        root = root.display(),
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, settings)?;
    let arguments = ["-p".as_ref(), folder.as_os_str(), "-c".as_ref(), file.as_os_str()];
    Service::start_at(address, &nginx, &arguments, &folder.join("nginx.log"))
}
