//! Compares `docs/configuration.md` with the code: every setting, property and exit code must be described
//! there correctly.

use std::path::Path;

use crate::configuration::{ByteSize, ClusterSettings, ENVIRONMENT_PREFIX, RawSettings, Settings};
use clap::CommandFactory as _;
use rashomon_pages::{Definitions, Versions};

use crate::{arguments::Arguments, exit};

fn reference() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    std::fs::read_to_string(path).unwrap()
}

/// The name, the default and the meaning of every setting, from the help texts.
fn settings() -> Vec<(String, String, String)> {
    let command = Arguments::command();
    let serve = command.find_subcommand("serve").unwrap();
    let heading = Some("Settings (also possible in the configuration file, there with '_' instead of '-')");
    let settings = serve.get_arguments().filter(|argument| argument.get_help_heading() == heading);
    settings
        .map(|argument| {
            let help = argument.get_help().unwrap().to_string();
            let (meaning, default) = help.split_once(" [default: ").expect("every setting says its default");
            let name = argument.get_long().unwrap().replace('-', "_");
            (
                name,
                default.strip_suffix(']').expect("it ends there").to_owned(),
                format!("{meaning}{}", choices(argument)),
            )
        })
        .collect()
}

/// The choices of a setting with their descriptions.
fn choices(argument: &clap::Arg) -> String {
    let possible = argument.get_possible_values();
    let described = possible.iter().filter_map(|value| Some((value.get_name(), value.get_help()?)));
    let choices: Vec<String> = described
        .map(|(name, help)| {
            let help = help.to_string();
            let (first, rest) = help.split_at(1);
            format!("`{name}`: {}{rest}", first.to_lowercase())
        })
        .collect();
    if choices.is_empty() { String::new() } else { format!(". {}", choices.join("; ")) }
}

/// The rows of the table that has this heading row.
fn rows<'a>(reference: &'a str, head: &str) -> Vec<&'a str> {
    let (_, table) = reference.split_once(head).expect(head);
    table.lines().skip(2).take_while(|line| line.starts_with('|')).collect()
}

#[test]
fn every_setting_is_in_the_reference_as_in_the_help() {
    let expected: Vec<String> = (settings().into_iter())
        .map(|(name, default, meaning)| format!("| `{name}` | {default} | {meaning} |"))
        .collect();
    let reference = reference();
    assert_eq!(rows(&reference, "| setting | default | meaning |"), expected, "\n{}\n", expected.join("\n"));
}

#[test]
fn defaults_in_the_help_are_those_in_effect() {
    let defaults = toml::Table::try_from(Settings::load(RawSettings::default(), None).unwrap()).unwrap();
    for (name, shown, _) in settings() {
        match defaults.get(&name) {
            Some(toml::Value::String(value)) => assert_eq!(&shown, value, "{name}"),
            Some(value) => assert_eq!(shown, value.to_string(), "{name}"),
            // The help describes these defaults in words.
            None if ["access", "max_unpacks", "stored_headers"].contains(&&*name) => {}
            None => assert_eq!(shown, "none", "{name}"),
        }
    }
}

#[test]
fn every_key_of_a_cluster_is_in_the_reference_with_its_default() {
    // The error about an unknown key lists all known keys.
    let error = toml::from_str::<RawSettings>("[store]\nx = 1").unwrap_err();
    let (_, known) = error.message().split_once("expected one of").unwrap();
    let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    let reference = reference();
    let rows: Vec<Vec<&str>> = rows(&reference, "| key | default | meaning |")
        .into_iter()
        .map(|row| row.split('|').map(str::trim).collect())
        .collect();
    let keys: Vec<&str> = rows.iter().map(|row| row[1].trim_matches('`')).collect();
    assert_eq!(keys, known);
    let defaults = toml::Table::try_from(ClusterSettings::default()).unwrap();
    for (row, key) in rows.iter().zip(keys).filter(|(_, key)| *key != "contact_points") {
        let default = defaults.get(key).map(|value| value.to_string().replace('"', ""));
        assert_eq!(row[2], default.unwrap_or_default(), "{key}");
    }
}

#[test]
fn a_setting_has_one_name_everywhere() {
    let command = Arguments::command();
    let serve = command.find_subcommand("serve").unwrap();
    for (name, ..) in settings() {
        let flag = serve.get_arguments().find(|argument| argument.get_id() == name.as_str()).unwrap();
        let variable = flag.get_env().unwrap().to_str().unwrap();
        assert_eq!(variable, format!("{ENVIRONMENT_PREFIX}{}", name.to_uppercase()));
        // No setting has a value of this type. If the key were unknown, the error would be about the key.
        let error = toml::from_str::<RawSettings>(&format!("{name} = [[]]")).unwrap_err();
        assert!(!error.message().contains("unknown field"), "{name}: {error}");
    }
}

#[test]
fn built_in_properties_are_in_the_reference() {
    let mut expected: Vec<String> = (Definitions::default().iter())
        .map(|(name, definition)| {
            let versions = match definition.versions {
                Versions::Render => "render",
                Versions::Revision => "revision",
            };
            let size = ByteSize(definition.max_size);
            format!("| `{name}` | `{}` | `{versions}` | {size} |", definition.content_type)
        })
        .collect();
    expected.push("| any other | `application/octet-stream` | `render` | 64 MiB |".to_owned());
    let reference = reference();
    let head = "| property | content type | versions | largest body |";
    assert_eq!(rows(&reference, head), expected, "\n{}\n", expected.join("\n"));
}

#[test]
fn exit_codes_are_in_the_reference() {
    let expected: Vec<String> = (exit::TABLE.lines().skip(1))
        .map(|line| {
            let (code, meaning) = line.trim().split_once(' ').unwrap();
            format!("| {code} | {} |", meaning.trim())
        })
        .collect();
    let reference = reference();
    assert_eq!(rows(&reference, "| code | meaning |"), expected, "\n{}\n", expected.join("\n"));
}

#[test]
fn examples_of_the_reference_are_valid() {
    let reference = reference();
    let examples: Vec<&str> =
        (reference.split("```toml\n").skip(1)).map(|rest| rest.split_once("```").unwrap().0).collect();
    assert!(examples.len() >= 2);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), examples.concat()).unwrap();
    Settings::load(RawSettings::default(), Some(file.path())).unwrap();
}
