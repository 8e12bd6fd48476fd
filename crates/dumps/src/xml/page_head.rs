//! The elements before the first revision of a page. The schema requires a namespace and a number, so both are derived
//! from the title if they are not recorded.

use rashomon_pages::{PageInfo, Sha1, SiteInfo, Title};

use super::PageHead;

/// The first number for pages without a number. It is above every number that a wiki has reached. All generated numbers
/// are below 2^53, so a reader with floating-point numbers represents them exactly.
const FIRST_MADE_UP_ID: i64 = 1 << 52;

/// Makes the elements before a page's first revision.
pub(crate) fn page_head<'a>(
    title: &Title,
    info: Option<&'a PageInfo>,
    site: Option<&SiteInfo>,
) -> PageHead<'a> {
    let text = title.to_text();
    let namespace = info.and_then(|info| info.namespace).unwrap_or_else(|| namespace_of(&text, site));
    PageHead {
        // The schema forbids the negative numbers of MediaWiki's virtual namespaces, so 0 is written for them.
        namespace: namespace.max(0),
        page_id: info
            .and_then(|info| info.page_id)
            .filter(|id| *id > 0)
            .unwrap_or_else(|| make_page_id(title)),
        redirect: info.and_then(|info| info.redirect.as_deref()),
        restrictions: info.and_then(|info| info.restrictions.as_deref()),
        title: text,
    }
}

/// Returns a number that depends only on the title, so every export has the same number for the page.
fn make_page_id(title: &Title) -> i64 {
    let Sha1(bytes) = Sha1::of(title.as_str().as_bytes());
    let number = bytes[..8].iter().fold(0, |number, byte| number << 8 | i64::from(*byte));
    FIRST_MADE_UP_ID | (number & (FIRST_MADE_UP_ID - 1))
}

/// The namespace of a title, or 0 if its prefix is not a known namespace of the wiki.
fn namespace_of(title: &str, site: Option<&SiteInfo>) -> i64 {
    let Some((prefix, _)) = title.split_once(':') else { return 0 };
    let namespaces = site.map_or(&[][..], |site| &site.namespaces);
    let named =
        namespaces.iter().find(|namespace| !prefix.is_empty() && namespace.name.replace('_', " ") == prefix);
    named.map_or(0, |namespace| namespace.key)
}

#[cfg(test)]
mod tests {
    use rashomon_pages::Namespace;

    use super::*;

    #[test]
    fn page_without_a_number_gets_a_stable_one() {
        let title = |text| Title::new(text).unwrap();
        let head = page_head(&title("A page"), None, None);
        assert_eq!(head.title, "A page");
        assert_eq!(head.page_id, page_head(&title("A_page"), None, None).page_id);
        assert_ne!(head.page_id, page_head(&title("B"), None, None).page_id);
        assert!((1 << 52..1 << 53).contains(&head.page_id));
    }

    #[test]
    fn namespace_is_taken_from_the_prefix_of_the_title() {
        let namespace = |key, name: &str| Namespace { key, case: None, name: name.to_owned() };
        let site = SiteInfo {
            name: None,
            database: None,
            base: None,
            generator: None,
            case: None,
            namespaces: vec![namespace(-1, "Special"), namespace(0, ""), namespace(3, "User talk")],
            language: None,
            as_of: None,
        };
        let of = |title: &str| page_head(&Title::new(title).unwrap(), None, Some(&site)).namespace;
        assert_eq!(of("User talk:Ann"), 3);
        assert_eq!(of("Elsewhere:Ann"), 0);
        assert_eq!(of(":Ann"), 0);
        assert_eq!(of("Special:Export"), 0);
    }
}
