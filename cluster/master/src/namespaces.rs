//! Namespaces, kept in `MasterData/namespaces`.
//!
//! ```text
//! int8 format number 1 | ( varint length | NamespaceDescriptor )*
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use halcyon_cell::{Error, Result};
use halcyon_env::Env;
use halcyon_proto::pb;
use halcyon_schema::{NamespaceDescriptor, TableName, layout};
use prost::Message;

const FORMAT: u8 = 1;

#[derive(Clone)]
pub(crate) struct Namespaces {
    by_name: BTreeMap<String, NamespaceDescriptor>,
}

impl Namespaces {
    /// Those of the file, and always `default` and `hbase`. Namespaces that have a directory but stand nowhere
    /// (a root directory that another program made) are taken in.
    pub(crate) fn load(env: &Env, root: &Path) -> Result<Namespaces> {
        let mut namespaces = Namespaces { by_name: BTreeMap::new() };
        let path = file(root);
        if env.fs.exists(&path) {
            let bytes = env.fs.read(&path)?;
            namespaces.decode(&bytes).map_err(|error| error.context(path.display()))?;
        }
        for name in [TableName::DEFAULT_NAMESPACE, TableName::SYSTEM_NAMESPACE] {
            namespaces.by_name.entry(name.to_string()).or_insert_with(|| NamespaceDescriptor::new(name));
            env.fs.create_dir_all(&layout::namespace_dir(root, name))?;
        }
        if !env.fs.exists(&path) {
            for entry in crate::descriptors::list(&*env.fs, &layout::data_dir(root))? {
                if entry.is_dir && halcyon_schema::check_namespace_name(entry.name.as_bytes()).is_ok() {
                    let name = entry.name;
                    namespaces.by_name.entry(name.clone()).or_insert_with(|| NamespaceDescriptor::new(name));
                }
            }
            namespaces.save(env, root)?;
        }
        Ok(namespaces)
    }

    pub(crate) fn save(&self, env: &Env, root: &Path) -> Result<()> {
        let mut bytes = vec![FORMAT];
        for namespace in self.by_name.values() {
            namespace.to_pb().encode_length_delimited(&mut bytes).expect("a Vec grows as needed");
        }
        Ok(env.fs.replace(&file(root), &bytes)?)
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<()> {
        let Some((&FORMAT, mut rest)) = bytes.split_first() else {
            return Err(Error::corrupt(format!("format {:?}, expected {FORMAT}", bytes.first())));
        };
        while !rest.is_empty() {
            let message = pb::NamespaceDescriptor::decode_length_delimited(&mut rest)
                .map_err(|error| Error::corrupt(error.to_string()))?;
            let namespace = NamespaceDescriptor::from_pb(&message)?;
            self.by_name.insert(namespace.name.clone(), namespace);
        }
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&NamespaceDescriptor> {
        self.by_name.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &NamespaceDescriptor> {
        self.by_name.values()
    }

    pub(crate) fn put(&mut self, namespace: NamespaceDescriptor) {
        self.by_name.insert(namespace.name.clone(), namespace);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
    }
}

/// Whether a namespace always exists.
pub(crate) fn is_reserved(name: &str) -> bool {
    name == TableName::DEFAULT_NAMESPACE || name == TableName::SYSTEM_NAMESPACE
}

fn file(root: &Path) -> PathBuf {
    layout::master_dir(root).join("namespaces")
}
