use halcyon_rpc::{Call, Outcome};

use crate::errors::unsupported;

/// Bulk loads are not served yet; clients see a plain do-not-retry answer that names the method.
pub(super) fn call(call: &Call) -> Outcome {
    Outcome::Ready(Err(unsupported(&call.method)))
}
