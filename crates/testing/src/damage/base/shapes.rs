//! The shapes of the stores.

use std::{num::NonZeroUsize, time::Duration};

use anyhow::Result;
use rashomon_pages::operations::EraseOptions;
use rashomon_pages::{
    BucketName, DomainName, Namespace, PageInfo, Policy, Retention, Revision, SealOptions, Settings, SiteInfo,
};

use super::{
    Base, settings,
    writer::{Writer, page, text},
};

const DAY: Duration = Duration::from_secs(24 * 3600);

pub(super) async fn all() -> Result<Vec<Base>> {
    Ok(vec![wiki().await?, deep().await?, large().await?, culled().await?, archived().await?])
}

/// Several domains and pages, long titles, several renders of a revision, replaced properties, and imported
/// metadata.
async fn wiki() -> Result<Base> {
    let mut writer = Writer::new(settings(false)).await?;
    let first = page("en.example.org", "Main_Page")?;
    let long =
        page("en.example.org", &format!("Long_{}", text("a long title", 240).replace([' ', '\n'], "_")))?;
    let odd = page("en.example.org", "Ünïcode_&_more?")?;
    let other = page("de.example.org", "Hauptseite")?;
    let third = page("third.example", "Only_page")?;
    for rev in 1..=3 {
        writer.edit(&first, rev, &[("wikitext", 300), ("html", 900)]).await?;
        writer.step().await?;
    }
    for rev in 11..=14 {
        writer.edit(&long, rev, &[("wikitext", 2_500), ("html", 9_000), ("data-parsoid", 200)]).await?;
    }
    let info = SiteInfo {
        name: Some("An example".to_owned()),
        database: Some("enexample".to_owned()),
        base: None,
        generator: None,
        case: None,
        namespaces: vec![Namespace { key: 0, case: None, name: String::new() }],
        language: None,
        as_of: None,
    };
    writer.buckets()?.catalog().put_site_info(&first.domain, &info).await?;
    writer.step().await?;
    let tid = writer.render(&first, 2, &[("html", 1_200)]).await?;
    writer.step().await?;
    writer.replace(&first, tid, &[("html", 3_000)]).await?;
    writer.edit(&odd, 21, &[("wikitext", 50)]).await?;
    writer.step().await?;
    let info = PageInfo {
        as_of: Revision::MAX,
        page_id: Some(7),
        namespace: Some(0),
        redirect: None,
        restrictions: None,
    };
    writer.buckets()?.catalog().put_page_info(&first, &info).await?;
    for rev in 31..=36 {
        writer.edit(&other, rev, &[("wikitext", 400), ("html", 600)]).await?;
    }
    writer.step().await?;
    writer.edit(&third, 41, &[("wikitext", 20_000), ("html", 40_000)]).await?;
    writer.edit(&first, 51, &[("wikitext", 500), ("html", 950)]).await?;
    writer.step().await?;
    writer.kill().await?;
    writer.finish("wiki", false).await
}

/// Enough rows for trees with several levels.
async fn deep() -> Result<Base> {
    let mut writer = Writer::new(settings(false)).await?;
    let mut rev = 0;
    for round in 0..4 {
        for number in 0..7 {
            let title =
                format!("{number:02}_{}", text(&format!("title {number}"), 230).replace([' ', '\n'], "_"));
            let page = page("deep.example", &title)?;
            for _ in 0..5 {
                rev += 1;
                writer
                    .edit(&page, rev, &[("wikitext", 500 + 37 * (rev as usize % 9)), ("html", 800)])
                    .await?;
            }
        }
        if round > 0 {
            writer.step().await?;
        }
    }
    writer.finish("deep", false).await
}

/// Bodies above 1 MB, which are cut into chunks.
async fn large() -> Result<Base> {
    let mut writer = Writer::new(settings(false)).await?;
    let page_of = |title: &str| page("large.example", title);
    writer.edit(&page_of("Large")?, 1, &[("wikitext", 1_300_000)]).await?;
    writer.step().await?;
    writer.edit(&page_of("Small")?, 2, &[("wikitext", 300)]).await?;
    writer.edit(&page_of("Large")?, 3, &[("wikitext", 1_200_000), ("html", 100)]).await?;
    writer.step().await?;
    writer.finish("large", false).await
}

/// A store whose superseded bodies were culled, so that its file has free pages.
async fn culled() -> Result<Base> {
    let policy = Policy { delete_probability: 0.0, ..Policy::default() };
    let (skew, retention) = (policy.skew, Retention { policy: Some(policy), ..Retention::default() });
    let retaining = Settings { retention, skew, ..Settings::default() };
    let mut writer = Writer::new(retaining).await?;
    let (one, two) = (page("culled.example", "One")?, page("culled.example", "Two")?);
    for rev in 1..=6 {
        writer.edit(&one, rev, &[("wikitext", 30_000), ("html", 50_000)]).await?;
        writer.edit(&two, rev + 100, &[("wikitext", 3_000), ("html", 500)]).await?;
    }
    writer.step().await?;
    writer.pass(4 * DAY);
    while writer
        .buckets()?
        .maintenance()
        .sweep(NonZeroUsize::new(1_000).unwrap_or(NonZeroUsize::MIN))
        .await?
        .entries
        > 0
    {}
    writer.step().await?;
    writer.edit(&two, 201, &[("wikitext", 900), ("html", 1_700)]).await?;
    writer.step().await?;
    writer.finish("culled", false).await
}

/// Superseded revisions in blocks of the archive, and erased revisions.
async fn archived() -> Result<Base> {
    let mut writer = Writer::new(settings(true)).await?;
    let (one, two) = (page("sealed.example", "One")?, page("sealed.example", "Two")?);
    let domain = DomainName::new("sealed.example")?;
    for rev in 1..=12 {
        writer.edit(&one, rev, &[("wikitext", 2_000), ("html", 3_000)]).await?;
    }
    for rev in 21..=26 {
        writer.edit(&two, rev, &[("wikitext", 400)]).await?;
    }
    writer.step().await?;
    writer.pass(3 * DAY);
    writer
        .buckets()?
        .maintenance()
        .seal(&domain, &BucketName::page(), SealOptions::default(), &mut |_| {})
        .await?;
    writer.step().await?;
    let erasing = EraseOptions {
        by: Some("Ann".to_owned()),
        reason: Some("private".to_owned()),
        ..EraseOptions::default()
    };
    let erased = Revision::new(4).unwrap_or(Revision::MIN);
    rashomon_pages::operations::erase(writer.buckets()?, &one, erased, erasing).await?;
    writer.step().await?;
    writer.edit(&two, 27, &[("wikitext", 500), ("html", 700)]).await?;
    writer.render(&one, 12, &[("html", 2_500)]).await?;
    writer.step().await?;
    writer.kill().await?;
    writer.finish("archived", true).await
}
