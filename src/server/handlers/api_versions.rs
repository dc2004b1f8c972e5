//! ApiVersions (API key 18): what this broker serves. An unknown version is answered by the network.
//! Source: `KafkaApis.handleApiVersionsRequest`, KIP-511.

use common::error_code::ErrorCode;
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, api_versions_response::ApiVersion,
};
use network::connection::ClientSoftware;
use protocol::api;

use crate::{broker::Broker, request_context::RequestContext};

/// First version in which a client names its software.
const NAMES_SOFTWARE: i16 = 3;

pub(crate) fn handle(
    broker: &Broker,
    ctx: &RequestContext,
    request: ApiVersionsRequest,
) -> ApiVersionsResponse {
    if ctx.api_version >= NAMES_SOFTWARE {
        let (name, version) = (request.client_software_name, request.client_software_version);
        if !is_software_word(&name) || !is_software_word(&version) {
            let error = ErrorCode::InvalidRequest.code();
            return ApiVersionsResponse::default().with_error_code(error);
        }
        ctx.connection.set_software(ClientSoftware { name, version });
    }
    let keys = api::built().map(|api| {
        ApiVersion::default()
            .with_api_key(api.key as i16)
            .with_min_version(api.min)
            .with_max_version(api.max)
    });
    let response = ApiVersionsResponse::default().with_api_keys(keys.collect());
    if ctx.api_version >= NAMES_SOFTWARE {
        return response.with_finalized_features_epoch(broker.features_epoch());
    }
    response
}

/// Letters, digits, dots and dashes, beginning and ending with a letter or digit.
/// Source: `ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN`.
fn is_software_word(word: &str) -> bool {
    let word = word.as_bytes();
    let ends = word.first().zip(word.last());
    ends.is_some_and(|(first, last)| first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
        && word.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}
