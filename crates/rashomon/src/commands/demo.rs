//! `rashomon demo`.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use crate::configuration::{RawSettings, Settings, StoreUrl};
use crate::sample_wiki::{Loaded, title_in_url};
use rashomon_clock::{Clock, SystemClock};
use tokio::{net::TcpListener, runtime::Handle};

use crate::{
    arguments::{DemoArguments, store_of},
    errors::CommandError,
    exit::Exit,
    logging, output,
    server::{self, ServedStores},
    signals::{Reloads, Signals},
    store::{IfMissing, Store},
    threads::ServerThreads,
};

/// The number of ports that are tried, starting with the default port.
const PORTS_TRIED: u16 = 20;

/// Loads and serves the sample wiki, and prints its address and some commands to try.
pub(crate) fn run(arguments: DemoArguments) -> Result<Exit, CommandError> {
    let threads = ServerThreads::start()?;
    let outcome = threads.run(open_and_serve(arguments, threads.writes()));
    threads.shut_down();
    outcome
}

async fn open_and_serve(arguments: DemoArguments, writes: Handle) -> Result<Exit, CommandError> {
    let DemoArguments { data, store, listen, access } = arguments;
    let chosen = listen.is_some();
    let store = store_of(data, store).unwrap_or(StoreUrl::Memory);
    let mut settings =
        Settings::load(RawSettings { store: Some(store), listen, access, ..RawSettings::default() }, None)?;
    logging::start_for_command();
    let (signals, reloads) = (Signals::listen()?, Reloads::listen()?);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = Store::open(&settings, Arc::clone(&clock), IfMissing::Create).await?;
    let served = ServedStores { store: &store, registry: None, writes: &writes };
    let outcome = load_and_serve(&mut settings, chosen, served, clock, signals, reloads).await;
    store.close().await;
    outcome
}

async fn load_and_serve(
    settings: &mut Settings,
    chosen: bool,
    served: ServedStores<'_>,
    clock: Arc<dyn Clock>,
    signals: Signals,
    reloads: Reloads,
) -> Result<Exit, CommandError> {
    let loaded = crate::sample_wiki::load(served.store.buckets(), crate::sample_wiki::history()?).await?;
    let wanted = settings.merged.listen.0;
    let listener = if chosen { server::listen(wanted).await? } else { listen_nearby(wanted).await? };
    let address = (listener.local_addr())
        .map_err(|source| CommandError::Io { doing: "cannot listen".to_owned(), source })?;
    settings.serve_at_hosts(crate::sample_wiki::domain(), &["localhost".to_owned(), host(address.ip())]);
    if address.port() != wanted.port() && wanted.port() != 0 {
        output::line(format_args!(
            "Port {} is in use; the demo is on port {}.\n",
            wanted.port(),
            address.port()
        ))?;
    }
    output::line(welcome(address, loaded))?;
    server::serve(listener, served, settings, None, clock, signals, reloads).await?;
    Ok(Exit::Done)
}

/// Listens on the first free one of [`PORTS_TRIED`] ports, starting with the wanted port.
async fn listen_nearby(wanted: SocketAddr) -> Result<TcpListener, CommandError> {
    let mut address = wanted;
    for port in wanted.port()..wanted.port().saturating_add(PORTS_TRIED) {
        address.set_port(port);
        match server::listen(address).await {
            Err(CommandError::Io { source, .. }) if source.kind() == std::io::ErrorKind::AddrInUse => {}
            listening => return listening,
        }
    }
    server::listen(wanted).await
}

/// An IP address in the notation of URLs.
fn host(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// The welcome text: what to open in the browser and what to paste into a shell.
fn welcome(address: SocketAddr, loaded: Loaded) -> String {
    let wiki = format!("http://{address}/v1/{}/page", crate::sample_wiki::domain());
    let dessert = title_in_url("Kitchen/Île_aux_Phoques/Crème_brûlée");
    format!(
        "A sample wiki, of {} and {}, is open in your browser at

    http://{address}/

and for programs. Paste these lines into another terminal:

# The newest html of a page
curl '{wiki}/Main_Page?rev/latest/html'

# The metadata of a page: revision, time, author, properties
curl '{wiki}/{dessert}?rev/latest/'

# The history of a page, latest first
curl '{wiki}/The_Night_of_the_Marigold?rev/&limit=3'

# The same page as it was at noon on a day of its first dispute
curl -L '{wiki}/The_Night_of_the_Marigold?rev/2004-11-13T12:00:00Z/wikitext'

# A page of your own
curl --data _rev=1 --data _user=You --data-urlencode 'html=<p>I was there, and saw it otherwise.</p>' '{wiki}/Accounts/Yours?rev/'

Ctrl-C stops the demo.",
        output::counted(loaded.revisions, "revision"),
        output::counted(loaded.renders, "render"),
    )
}
