//! `rashomon check-config FILE`.

use crate::configuration::{RawSettings, Settings, StoreSettings, unknown_variables};
use rashomon_clock::{Clock as _, SystemClock};

use crate::{
    arguments::{CheckConfigArguments, store_of, variables},
    errors::CommandError,
    exit::Exit,
    output,
    store::store_is_open_to_others,
};

/// Prints the settings that `serve` would use, as a configuration file. Fails if a setting is wrong.
pub(crate) fn run(arguments: CheckConfigArguments) -> Result<Exit, CommandError> {
    let CheckConfigArguments { file, data, raw } = arguments;
    let raw = RawSettings { store: store_of(data, raw.store.clone()), ..raw };
    let settings = Settings::load(raw, file.as_deref())?;
    let warn = |warning: String| output::to_stderr(format_args!("warning: {warning}"));
    if let StoreSettings::Cassandra(cluster) = &settings.store {
        // Check the files that the configuration names, too.
        cluster.read_options(warn)?;
    }
    if let Some(notice) = settings.tls()?.and_then(|tls| tls.expiry_notice(SystemClock::new().now())) {
        warn(notice.to_string());
    }
    unknown_variables(&variables()).into_iter().for_each(warn);
    store_is_open_to_others(&settings.store).into_iter().for_each(warn);
    let printed = toml::to_string(&settings).expect("settings are text, numbers and tables of them");
    output::line(printed.trim_end())?;
    Ok(Exit::Done)
}
