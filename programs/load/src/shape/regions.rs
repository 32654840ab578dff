//! Many regions: half puts and half gets of small rows, spread over all of them. Each region has a memstore of its own, and
//! files of its own once it was flushed.

use halcyon_client::ClientError;

use crate::run::Outcome;
use crate::shape::Setup;
use crate::shape::own_rows::run_owned;

pub(super) async fn run_shape(setup: &Setup<'_>) -> Result<Outcome, ClientError> {
    run_owned(setup).await
}
