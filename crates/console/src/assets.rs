//! The files of the pages.
//!
//! They are in the binary, and refer to no other host. The content security policy lets a browser load and run nothing
//! else: no script or style within a page, no frame around it.

use axum::Router;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use xxhash_rust::xxh3::xxh3_64;

/// A file of the pages.
pub struct Asset {
    /// Where it is served.
    pub path: &'static str,
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// Its content.
    pub content: &'static str,
}

macro_rules! assets {
    ($($path:literal, $file:literal, $content_type:literal;)*) => {
        /// All files.
        pub const ASSETS: &[Asset] = &[$(Asset {
            path: $path,
            content_type: $content_type,
            content: include_str!(concat!("../web/", $file)),
        }),*];
    };
}

assets! {
    "/", "index.html", "text/html; charset=utf-8";
    "/console/style.css", "style.css", "text/css; charset=utf-8";
    "/console/icon.svg", "icon.svg", "image/svg+xml";
    "/console/main.js", "main.js", "text/javascript; charset=utf-8";
    "/console/api.js", "api.js", "text/javascript; charset=utf-8";
    "/console/dom.js", "dom.js", "text/javascript; charset=utf-8";
    "/console/format.js", "format.js", "text/javascript; charset=utf-8";
    "/console/chart.js", "chart.js", "text/javascript; charset=utf-8";
    "/console/table.js", "table.js", "text/javascript; charset=utf-8";
    "/console/overview.js", "overview.js", "text/javascript; charset=utf-8";
    "/console/cluster.js", "cluster.js", "text/javascript; charset=utf-8";
    "/console/tables.js", "tables.js", "text/javascript; charset=utf-8";
    "/console/tablet.js", "tablet.js", "text/javascript; charset=utf-8";
    "/console/heat.js", "heat.js", "text/javascript; charset=utf-8";
    "/console/heatmap.js", "heatmap.js", "text/javascript; charset=utf-8";
    "/console/slow.js", "slow.js", "text/javascript; charset=utf-8";
    "/console/snapshots.js", "snapshots.js", "text/javascript; charset=utf-8";
    "/console/backups.js", "backups.js", "text/javascript; charset=utf-8";
    "/console/dialogs.js", "dialogs.js", "text/javascript; charset=utf-8";
    "/console/values.js", "values.js", "text/javascript; charset=utf-8";
    "/console/rows.js", "rows.js", "text/javascript; charset=utf-8";
    "/console/rules.js", "rules.js", "text/javascript; charset=utf-8";
    "/console/sign_in.js", "sign_in.js", "text/javascript; charset=utf-8";
}

/// The limits of a page in a browser.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The routes.
pub fn router() -> Router {
    ASSETS.iter().fold(Router::new(), |router, asset| {
        router.route(asset.path, get(async move |headers: HeaderMap| asset.answer(&headers)))
    })
}

impl Asset {
    /// The answer to a request with these headers. A browser that has the file asks whether it is still the same.
    fn answer(&self, headers: &HeaderMap) -> Response {
        let tag = format!("\"{:016x}\"", xxh3_64(self.content.as_bytes()));
        let fixed: [(HeaderName, &str); 6] = [
            (header::CONTENT_TYPE, self.content_type),
            (header::CACHE_CONTROL, "no-cache"),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        ];
        let is_known = headers
            .get(header::IF_NONE_MATCH)
            .is_some_and(|known| known.as_bytes() == tag.as_bytes());
        let tag = [(header::ETAG, tag)];
        match is_known {
            true => (StatusCode::NOT_MODIFIED, fixed, tag).into_response(),
            false => (fixed, tag, self.content).into_response(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Every module that a page imports is served, and no file names another host.
    #[test]
    fn files_refer_to_each_other_only() {
        let served: BTreeSet<&str> = ASSETS.iter().map(|asset| asset.path).collect();
        for asset in ASSETS {
            let content = asset.content;
            for import in content.split("from \"./").skip(1) {
                let name = import.split('"').next().unwrap();
                assert!(
                    served.contains(format!("/console/{name}").as_str()),
                    "{}: {name}",
                    asset.path
                );
            }
            for path in content.split("=\"/console/").skip(1) {
                let name = path.split('"').next().unwrap();
                assert!(
                    served.contains(format!("/console/{name}").as_str()),
                    "{}: {name}",
                    asset.path
                );
            }
            // The name of the namespace of SVG is no address that anybody asks.
            let content = content.replace("http://www.w3.org/2000/svg", "");
            assert!(
                !content.contains("http://") && !content.contains("https://"),
                "{}",
                asset.path
            );
        }
    }

    #[test]
    fn the_page_has_no_script_and_no_style_of_its_own() {
        let page = ASSETS[0].content;
        assert!(!page.contains("style=") && !page.contains("<style") && !page.contains(" on"));
        assert_eq!(
            page.matches("<script").count(),
            page.matches("<script type=\"module\" src=").count()
        );
    }

    #[test]
    fn a_known_file_is_not_sent_again() {
        let first = ASSETS[0].answer(&HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        let again = ASSETS[0].answer(&headers);
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert!(again.headers().contains_key(header::CONTENT_SECURITY_POLICY));
    }
}
