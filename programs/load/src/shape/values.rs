//! Large values: half puts and half gets, each byte compared.

use halcyon_client::ClientError;

use crate::run::Outcome;
use crate::shape::Setup;
use crate::shape::own_rows::run_owned;

pub(super) async fn run_shape(setup: &Setup<'_>) -> Result<Outcome, ClientError> {
    run_owned(setup).await
}
