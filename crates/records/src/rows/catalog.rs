//! Rows of the catalog.

use rashomon_clock::Timestamp;

use super::Json;
use crate::{
    DomainName, Title,
    catalog::{PageInfo, SiteInfo},
    row_key,
    schemas::{DOMAINS, PAGES, SITE_INFOS, TITLES},
    typed_row,
};

typed_row! {
    /// What an export says of a page.
    pub struct PageInfoRow in PAGES {
        key {}
        values { info: Json<PageInfo> }
    }
}

typed_row! {
    /// What the newest import said of a domain.
    pub struct SiteInfoRow in SITE_INFOS {
        key {}
        values { info: Json<SiteInfo>, stored_at: Timestamp }
    }
}

row_key! {
    /// The title of a page.
    pub struct TitleKey of TITLES { title: Title }
}

row_key! {
    /// A domain.
    pub struct DomainKey of DOMAINS { domain: DomainName }
}
