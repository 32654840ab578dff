//! `hbase-site.xml`: properties by HBase's names, read as Hadoop's `Configuration` reads them.
//!
//! Of two properties with one name the later one counts, unless the first is `<final>`. `<xi:include href="...">` is
//! replaced by the properties of that file; its `<xi:fallback>` is used if the file is missing. References such as
//! `${hbase.tmp.dir}` in values are resolved by `references.rs`.

use std::io;
use std::path::{Path, PathBuf};

use halcyon_env::Env;
use roxmltree::{Document, Node};

use crate::references::{self, Surroundings};

const FILE_NAME: &str = "hbase-site.xml";
const XINCLUDE: &str = "http://www.w3.org/2001/XInclude";
/// Files that include each other: deeper than this is taken for a circle.
const INCLUDES_DEPTH_MAX: usize = 16;

/// One `<property>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    pub name: String,
    pub value: String,
}

/// Reads `hbase-site.xml` of a directory, with references resolved. The error is one sentence that names the file.
pub fn read(env: &Env, dir: &Path) -> Result<Vec<Property>, String> {
    let path = dir.join(FILE_NAME);
    let mut found = Found::default();
    read_file(env, &path, 0, &mut found)?;
    let properties: Vec<_> = found.properties.into_iter().map(|(property, _)| property).collect();
    references::resolve(&properties, &Surroundings::of_process(env))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Properties in the order of their first appearance, each with whether it is final.
#[derive(Default)]
struct Found {
    properties: Vec<(Property, bool)>,
}

impl Found {
    fn add(&mut self, property: Property, is_final: bool) {
        match self.properties.iter_mut().find(|(known, _)| known.name == property.name) {
            Some((_, true)) => {}
            Some(known) => *known = (property, is_final),
            None => self.properties.push((property, is_final)),
        }
    }
}

fn read_file(env: &Env, path: &Path, depth: usize, found: &mut Found) -> Result<(), String> {
    let bytes = env.local.read(path).map_err(|error| format!("cannot read the configuration: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8 text", path.display()))?;
    let mut include = |node: Node<'_, '_>, found: &mut Found| include_file(env, path, depth, node, found);
    parse(&text, found, &mut include).map_err(|error| match error {
        ParseError::Here(error) => format!("{}: {error}", path.display()),
        ParseError::Included(error) => error,
    })
}

enum ParseError {
    /// A sentence without the file's name.
    Here(String),
    /// A whole sentence about an included file.
    Included(String),
}

type Include<'a> = dyn FnMut(Node<'_, '_>, &mut Found) -> Result<(), ParseError> + 'a;

fn parse(text: &str, found: &mut Found, include: &mut Include<'_>) -> Result<(), ParseError> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document =
        Document::parse_with_options(text, options).map_err(|e| ParseError::Here(e.to_string()))?;
    let root = document.root_element();
    if !root.has_tag_name("configuration") {
        return Err(ParseError::Here("the outermost element is not <configuration>".to_string()));
    }
    parse_elements(root, found, include)
}

fn parse_elements(
    parent: Node<'_, '_>,
    found: &mut Found,
    include: &mut Include<'_>,
) -> Result<(), ParseError> {
    for element in parent.children().filter(Node::is_element) {
        if element.has_tag_name("property") {
            parse_property(element, found)?;
        } else if element.has_tag_name("configuration") {
            parse_elements(element, found, include)?;
        } else if element.has_tag_name((XINCLUDE, "include")) {
            include(element, found)?;
        }
    }
    Ok(())
}

/// Name, value and final are elements or attributes.
fn parse_property(element: Node<'_, '_>, found: &mut Found) -> Result<(), ParseError> {
    let part = |tag: &str| {
        let child = element.children().find(|node| node.has_tag_name(tag));
        let of_child = child.map(|node| node.text().unwrap_or("").trim().to_string());
        of_child.or_else(|| element.attribute(tag).map(|text| text.trim().to_string()))
    };
    let name = part("name").filter(|name| !name.is_empty()).ok_or_else(|| {
        let at = element.document().text_pos_at(element.range().start);
        ParseError::Here(format!("the property at line {} has no name", at.row))
    })?;
    if let Some(value) = part("value") {
        found.add(Property { name, value }, part("final").is_some_and(|text| text == "true"));
    }
    Ok(())
}

/// Adds the properties of the file that an `<xi:include>` in `from` names.
fn include_file(
    env: &Env,
    from: &Path,
    depth: usize,
    node: Node<'_, '_>,
    found: &mut Found,
) -> Result<(), ParseError> {
    let href = node.attribute("href").unwrap_or_default();
    let path = included_path(from, href).ok_or_else(|| {
        ParseError::Here(format!("<xi:include href={href:?}> is not a file on the local disk"))
    })?;
    if depth == INCLUDES_DEPTH_MAX {
        return Err(ParseError::Here(format!("more than {INCLUDES_DEPTH_MAX} files include each other")));
    }
    let fallback = node.children().find(|child| child.has_tag_name((XINCLUDE, "fallback")));
    let is_missing = matches!(env.local.open(&path), Err(error) if error.kind() == io::ErrorKind::NotFound);
    if let Some(fallback) = fallback.filter(|_| is_missing) {
        let mut nested =
            |node: Node<'_, '_>, found: &mut Found| include_file(env, from, depth + 1, node, found);
        return parse_elements(fallback, found, &mut nested);
    }
    read_file(env, &path, depth + 1, found).map_err(ParseError::Included)
}

/// A path, or a `file:` address; relative ones begin at the including file.
fn included_path(from: &Path, href: &str) -> Option<PathBuf> {
    let path = match href.split_once(':') {
        None => href,
        Some(("file", rest)) => rest.strip_prefix("//").unwrap_or(rest),
        Some(_) => return None,
    };
    (!path.is_empty()).then(|| from.parent().unwrap_or(Path::new(".")).join(path))
}

/// The value of a property, if it is set.
pub fn find<'a>(properties: &'a [Property], name: &str) -> Option<&'a str> {
    properties.iter().find(|property| property.name == name).map(|property| property.value.trim())
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::SimFileSystem;

    use super::*;

    const DIR: &str = "/conf";

    fn read_files(files: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        let env = SimFileSystem::new().env();
        env.fs.create_dir_all(DIR.as_ref()).unwrap();
        for (name, text) in files {
            env.fs.put_new(&Path::new(DIR).join(name), text.as_bytes()).unwrap();
        }
        Ok(read(&env, DIR.as_ref())?.into_iter().map(|property| (property.name, property.value)).collect())
    }

    fn pairs(text: &str) -> Vec<(String, String)> {
        read_files(&[(FILE_NAME, text)]).unwrap()
    }

    fn owned<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
        pairs.map(|(name, value)| (name.to_string(), value.to_string())).to_vec()
    }

    #[test]
    fn properties_in_order_and_the_last_word_counts() {
        let text = r#"<?xml version="1.0"?>
            <?xml-stylesheet type="text/xsl" href="configuration.xsl"?>
            <!-- a comment -->
            <configuration>
              <property><name>a</name><value>1</value><description>x</description></property>
              <property><name> b </name><value> 2 </value><final>true</final></property>
              <property><name>a</name><value>3</value></property>
              <property><name>b</name><value>4</value></property>
              <property><name>empty</name><value></value></property>
              <property><name>none</name></property>
              <property name="c" value="${a}"/>
            </configuration>"#;
        assert_eq!(pairs(text), owned([("a", "3"), ("b", "2"), ("empty", ""), ("c", "3")]));
    }

    #[test]
    fn what_is_no_configuration_is_told_so() {
        let error = |text: &str| read_files(&[(FILE_NAME, text)]).unwrap_err();
        assert!(error("<configuration>").contains(FILE_NAME));
        assert!(error("<other/>").contains("<configuration>"));
        let nameless = "<configuration>\n<property><value>1</value></property></configuration>";
        assert!(error(nameless).contains("line 2"));
    }

    #[test]
    fn included_files_count_where_they_are_included() {
        let include = |href: &str, inside: &str| {
            format!(
                r#"<configuration xmlns:xi="http://www.w3.org/2001/XInclude">
                   <property><name>a</name><value>1</value></property>
                   <xi:include href="{href}">{inside}</xi:include>
                   <property><name>b</name><value>2</value></property></configuration>"#
            )
        };
        let security = "<configuration><property name='a' value='9'/></configuration>";
        let fallback = "<xi:fallback><property name='c' value='3'/></xi:fallback>";
        let both = |text: &str| read_files(&[(FILE_NAME, text), ("security.xml", security)]);
        assert_eq!(both(&include("security.xml", fallback)), Ok(owned([("a", "9"), ("b", "2")])));
        assert_eq!(both(&include("file:///conf/security.xml", "")), Ok(owned([("a", "9"), ("b", "2")])));
        assert_eq!(both(&include("x.xml", fallback)), Ok(owned([("a", "1"), ("c", "3"), ("b", "2")])));
        assert!(both(&include("x.xml", "")).unwrap_err().contains("/conf/x.xml"));
        assert!(both(&include("http://h/x.xml", "")).unwrap_err().contains("not a file on the local disk"));
        assert!(both(&include(FILE_NAME, "")).unwrap_err().contains("include each other"));
    }
}
