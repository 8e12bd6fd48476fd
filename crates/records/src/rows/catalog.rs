//! The rows of the catalog.

use rashomon_clock::Timestamp;

use super::Json;
use crate::{
    DomainName, PageInfo, SiteInfo, Title, row_key,
    schemas::{DOMAINS, PAGES, SITE_INFOS, TITLES},
    typed_row,
};

typed_row! {
    /// The page info of a page.
    pub struct PageInfoRow in PAGES {
        key {}
        values { info: Json<PageInfo> }
    }
}

typed_row! {
    /// The site info of a domain, from the newest import.
    pub struct SiteInfoRow in SITE_INFOS {
        key {}
        values { info: Json<SiteInfo>, stored_at: Timestamp }
    }
}

row_key! {
    /// The key of a title.
    pub struct TitleKey of TITLES { title: Title }
}

row_key! {
    /// The key of a domain.
    pub struct DomainKey of DOMAINS { domain: DomainName }
}
