//! `?scope=`: this instance, or the cluster.

use super::passed_request::FORWARDED;
use generate::error::ApiError;
use http::HeaderMap;
use wire::item_page::Query;

/// Subject of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListScope {
    /// The instance that answers.
    Instance,
    /// All living instances.
    Cluster,
}

impl ListScope {
    /// Parses the field `scope` of the query string. A request that another instance has passed on is about this instance.
    ///
    /// # Errors
    /// The value is neither `instance` nor `cluster`.
    pub(crate) fn parse(
        query: &Query,
        headers: &HeaderMap,
        default: Self,
    ) -> Result<Self, ApiError> {
        let scopes = [("instance", Self::Instance), ("cluster", Self::Cluster)];
        let given = query.one_of("scope", scopes)?;
        Ok(if headers.contains_key(FORWARDED) {
            Self::Instance
        } else {
            given.unwrap_or(default)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_request_is_about_this_instance() {
        let scope = |query: &str, forwarded: bool| {
            let query = Query::of(&format!("/v1/streams{query}").parse().unwrap()).unwrap();
            let mut headers = HeaderMap::new();
            if forwarded {
                headers.insert(FORWARDED, "1".parse().unwrap());
            }
            ListScope::parse(&query, &headers, ListScope::Cluster).ok()
        };
        let rows = [
            ("", false, Some(ListScope::Cluster)),
            ("?scope=cluster", false, Some(ListScope::Cluster)),
            ("?scope=instance", false, Some(ListScope::Instance)),
            ("", true, Some(ListScope::Instance)),
            ("?scope=cluster", true, Some(ListScope::Instance)),
            ("?scope=all", false, None),
        ];
        for (query, forwarded, expected) in rows {
            assert_eq!(scope(query, forwarded), expected, "{query} {forwarded}");
        }
    }
}
