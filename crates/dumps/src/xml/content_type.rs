//! Converts between the content types of properties and MediaWiki's models and formats.

use rashomon_pages::SlotRecord;

/// MediaWiki's default model and format.
const WIKITEXT: (&str, &str) = ("wikitext", "text/x-wiki");

/// The formats of known models: those of MediaWiki, and that of its extension TemplateStyles.
const FORMATS: [(&str, &str); 6] = [
    WIKITEXT,
    ("css", "text/css"),
    ("javascript", "text/javascript"),
    ("json", "application/json"),
    ("text", "text/plain"),
    ("sanitized-css", "text/css"),
];

/// Returns the content type of a slot. `None` if the slot is wikitext, if its format is not a media type, or if it
/// has an unknown model and no format. The type in the property's definition then applies.
pub(super) fn content_type(slot: &SlotRecord) -> Option<String> {
    let model = slot.model.as_deref().unwrap_or(WIKITEXT.0);
    let format = slot.format.as_deref().or_else(|| format_of(model))?;
    if format == WIKITEXT.1 || !is_media_type(format) {
        return None;
    }
    Some(if format.starts_with("text/") { format!("{format}; charset=utf-8") } else { format.to_owned() })
}

/// Like [`content_type()`], but returns the type of wikitext instead of `None`: for a property without a definition.
pub(super) fn content_type_of_slot(slot: &SlotRecord) -> String {
    content_type(slot).unwrap_or_else(|| format!("{}; charset=utf-8", WIKITEXT.1))
}

/// Returns the format and the model of a slot. A format that is not recorded follows from the recorded model, or else
/// from the content type. A model that is not recorded follows from the format, or is `unknown`.
pub(crate) fn format_and_model(slot: Option<&SlotRecord>, content_type: Option<&str>) -> (String, String) {
    let recorded = |get: fn(&SlotRecord) -> &Option<String>| slot.and_then(|slot| get(slot).clone());
    let format = recorded(|slot| &slot.format).unwrap_or_else(|| {
        let essence = content_type
            .and_then(|value| value.split(';').next())
            .map(|value| value.trim().to_ascii_lowercase());
        let by_model = || recorded(|slot| &slot.model).and_then(|model| format_of(&model).map(str::to_owned));
        by_model().or(essence).unwrap_or_else(|| WIKITEXT.1.to_owned())
    });
    let model = recorded(|slot| &slot.model).unwrap_or_else(|| {
        let known = FORMATS.iter().find(|(_, known)| *known == format);
        known.map_or("unknown", |(model, _)| model).to_owned()
    });
    (format, model)
}

fn format_of(model: &str) -> Option<&'static str> {
    FORMATS.iter().find(|(known, _)| *known == model).map(|(_, format)| *format)
}

/// Whether the format of a slot can be stored as a media type. Other formats are kept only in the record.
fn is_media_type(text: &str) -> bool {
    let token = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    text.len() <= 127 && text.split_once('/').is_some_and(|(kind, name)| token(kind) && token(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(model: Option<&str>, format: Option<&str>) -> SlotRecord {
        SlotRecord { model: model.map(Into::into), format: format.map(Into::into), ..SlotRecord::default() }
    }

    #[test]
    fn only_valid_types_other_than_wikitext_are_returned() {
        assert_eq!(content_type(&slot(None, None)), None);
        assert_eq!(content_type(&slot(Some("wikitext"), Some("text/x-wiki"))), None);
        assert_eq!(content_type(&slot(Some("css"), Some("text/css"))).unwrap(), "text/css; charset=utf-8");
        assert_eq!(content_type(&slot(Some("css"), None)).unwrap(), "text/css; charset=utf-8");
        assert_eq!(content_type(&slot(Some("json"), Some("application/json"))).unwrap(), "application/json");
        assert_eq!(content_type(&slot(Some("odd"), Some("no\r\ntype"))), None);
        assert_eq!(content_type_of_slot(&slot(None, None)), "text/x-wiki; charset=utf-8");
    }

    #[test]
    fn format_and_model_follow_from_record_or_type() {
        let both = |slot: Option<&SlotRecord>, content_type: Option<&str>| {
            let (format, model) = format_and_model(slot, content_type);
            format!("{model} {format}")
        };
        assert_eq!(both(None, None), "wikitext text/x-wiki");
        assert_eq!(both(None, Some("text/x-wiki; charset=utf-8")), "wikitext text/x-wiki");
        assert_eq!(both(None, Some("TEXT/CSS ; charset=utf-8")), "css text/css");
        assert_eq!(both(None, Some("image/png")), "unknown image/png");
        assert_eq!(both(Some(&slot(Some("css"), None)), None), "css text/css");
        assert_eq!(
            both(Some(&slot(Some("sanitized-css"), Some("text/css"))), Some("text/css")),
            "sanitized-css text/css"
        );
    }
}
