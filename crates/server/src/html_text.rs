//! The texts of the HTML pages of this server, before their links are known.

/// The text of an HTML page, as an extension of its answer. The middleware, which knows the prefix of a proxy, writes
/// the body.
#[derive(Debug, Clone)]
pub(crate) struct HtmlText(pub(crate) String);

/// The attributes that contain links.
const LINKS: [&str; 3] = ["href", "src", "action"];

impl HtmlText {
    /// Returns the text with a prefix before all paths in links. Only templates begin attributes: the quotation marks
    /// in other texts are escaped.
    pub(crate) fn with_prefix(self, prefix: Option<&str>) -> String {
        let Some(prefix) = prefix else { return self.0 };
        let prefix = prefix.replace('&', "&#38;");
        LINKS
            .iter()
            .fold(self.0, |text, name| text.replace(&format!(" {name}=\"/"), &format!(" {name}=\"{prefix}/")))
    }
}
