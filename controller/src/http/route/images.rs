//! What names of images stand for.

use axum::Json as Answer;
use axum::extract::State;
use selion_api::rest::ImageView;

use crate::App;
use crate::http::Problem;
use crate::http::caller::Renter;
use crate::http::input::Query;
use crate::http::request::name_image;

/// Longest name that is taken, in bytes.
const LONGEST: usize = 512;

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ImageQuery {
    /// `[HOST[:PORT]/]NAME[:TAG][@sha256:DIGEST]`, or a CID.
    name: String,
}

/// What an image's name stands for now. A tag is asked of its registry; what has a digest is only written in full.
#[utoipa::path(get, path = "/v1/images", operation_id = "resolve_image", tag = "leases", params(ImageQuery), security(("bearer" = [])),
    responses((status = 200, description = "The image by digest or CID, and its tag", body = ImageView)))]
pub(in crate::http) async fn resolve(
    State(app): State<App>,
    caller: Renter,
    Query(query): Query<ImageQuery>,
) -> Result<Answer<ImageView>, Problem> {
    if query.name.len() > LONGEST {
        return Err(Problem::Query(format!("name has {} bytes; at most {LONGEST}", query.name.len())));
    }
    Ok(Answer(name_image(&app, caller.account, &query.name, "/image").await?))
}
