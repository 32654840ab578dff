//! Namespaces.

use halcyon_proto::pb;
use halcyon_schema::{NamespaceDescriptor, TableName};

use super::{Admin, Nonces};
use crate::ClientError;

impl Admin {
    /// Names of all namespaces, sorted.
    pub async fn namespaces(&self) -> Result<Vec<String>, ClientError> {
        let mut names: Vec<String> =
            self.namespace_descriptors().await?.into_iter().map(|namespace| namespace.name).collect();
        names.sort();
        Ok(names)
    }

    /// Descriptors of all namespaces.
    pub async fn namespace_descriptors(&self) -> Result<Vec<NamespaceDescriptor>, ClientError> {
        let request = pb::ListNamespaceDescriptorsRequest {};
        let answer: pb::ListNamespaceDescriptorsResponse =
            self.call("ListNamespaceDescriptors", &request).await?;
        let descriptors = answer.namespace_descriptor.iter();
        descriptors
            .map(|namespace| NamespaceDescriptor::from_pb(namespace).map_err(ClientError::malformed))
            .collect()
    }

    /// A namespace's descriptor; an error if there is no such namespace.
    pub async fn describe_namespace(&self, name: &str) -> Result<NamespaceDescriptor, ClientError> {
        let request = pb::GetNamespaceDescriptorRequest { namespace_name: name.to_string() };
        let answer: pb::GetNamespaceDescriptorResponse =
            self.call("GetNamespaceDescriptor", &request).await?;
        NamespaceDescriptor::from_pb(&answer.namespace_descriptor).map_err(ClientError::malformed)
    }

    /// Names of a namespace's tables, sorted.
    pub async fn namespace_tables(&self, name: &str) -> Result<Vec<TableName>, ClientError> {
        let request = pb::ListTableNamesByNamespaceRequest { namespace_name: name.to_string() };
        let answer: pb::ListTableNamesByNamespaceResponse =
            self.call("ListTableNamesByNamespace", &request).await?;
        let mut names = super::tables::names(&answer.table_name)?;
        names.sort_by(|left, right| left.full_name().cmp(right.full_name()));
        Ok(names)
    }

    /// Creates a namespace.
    pub async fn create_namespace(&self, namespace: &NamespaceDescriptor) -> Result<(), ClientError> {
        let Nonces { group, nonce } = self.nonces();
        let namespace_descriptor = namespace.to_pb();
        let request = pb::CreateNamespaceRequest { namespace_descriptor, nonce_group: group, nonce };
        let answer: pb::CreateNamespaceResponse = self.call("CreateNamespace", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Replaces a namespace's configuration.
    pub async fn modify_namespace(&self, namespace: &NamespaceDescriptor) -> Result<(), ClientError> {
        let Nonces { group, nonce } = self.nonces();
        let namespace_descriptor = namespace.to_pb();
        let request = pb::ModifyNamespaceRequest { namespace_descriptor, nonce_group: group, nonce };
        let answer: pb::ModifyNamespaceResponse = self.call("ModifyNamespace", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Deletes an empty namespace.
    pub async fn delete_namespace(&self, name: &str) -> Result<(), ClientError> {
        let Nonces { group, nonce } = self.nonces();
        let namespace_name = name.to_string();
        let request = pb::DeleteNamespaceRequest { namespace_name, nonce_group: group, nonce };
        let answer: pb::DeleteNamespaceResponse = self.call("DeleteNamespace", &request).await?;
        self.finish(answer.proc_id).await
    }
}
