//! Compares GET of entries through a forwarding server with GET from the server that has the entries.

use std::{fs, net::SocketAddr, path::Path};

use anyhow::Result;
use xtask::service::Service;

use super::{Bench, blobs::COMPARED, in_turn};
use crate::{reads::Reads, report::Report, service::DOMAIN};

/// Starts a server that forwards the domain to the server at an address.
pub(super) fn start(binary: &Path, folder: &Path, to: SocketAddr) -> Result<Service> {
    let config = folder.join("forwarding.toml");
    fs::write(&config, format!("[registry.\"/{DOMAIN}\"]\nservers = [\"http://{to}\"]\n"))?;
    let data = folder.join("forwarding");
    let arguments =
        ["serve".as_ref(), "--config".as_ref(), config.as_os_str(), "--data".as_ref(), data.as_os_str()];
    Service::start(binary, &arguments, &folder.join("forwarding.log"))
}

pub(super) fn measure(
    bench: &Bench<'_>,
    forwarder: SocketAddr,
    turn: usize,
    report: &mut Report,
) -> Result<()> {
    let (paths, bodies) = COMPARED.store(bench)?;
    let read = |address: SocketAddr| {
        let mut reads =
            Reads::new(&paths, Some(bodies[0].len()), Some(bodies.clone()), bench.options.connections);
        anyhow::Ok(Bench { address, ..*bench }.run(&mut reads)?.per_second())
    };
    let (forwarded, direct) = in_turn(turn, || read(forwarder), || read(bench.address))?;
    report.add(&format!("GET of {}, forwarded", COMPARED.name), "a second", forwarded);
    report.add(&format!("GET of {}, direct", COMPARED.name), "a second", direct);
    report.add("GET, forwarded / direct", "", forwarded / direct);
    Ok(())
}
