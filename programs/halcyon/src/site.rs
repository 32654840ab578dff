//! `hbase-site.xml`: properties by HBase's names.

use std::path::Path;

use halcyon_env::Env;

/// One `<property>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    pub name: String,
    pub value: String,
}

/// Reads `hbase-site.xml` of a directory. The error is one sentence that names the file.
pub fn read(env: &Env, dir: &Path) -> Result<Vec<Property>, String> {
    let path = dir.join("hbase-site.xml");
    let bytes = env.fs.read(&path).map_err(|error| format!("cannot read the configuration: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8 text", path.display()))?;
    parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The properties in order; of two with the same name the later one stands, as in Hadoop, unless the first
/// one was final.
fn parse(text: &str) -> Result<Vec<Property>, String> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(text, options).map_err(|e| e.to_string())?;
    let root = document.root_element();
    if !root.has_tag_name("configuration") {
        return Err("the outermost element is not <configuration>".to_string());
    }
    let mut properties: Vec<(Property, bool)> = Vec::new();
    for element in root.children().filter(|node| node.has_tag_name("property")) {
        let part = |tag: &str| {
            let part = element.children().find(|node| node.has_tag_name(tag));
            part.map(|node| node.text().unwrap_or("").trim().to_string())
        };
        let name = part("name").filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| {
            let at = document.text_pos_at(element.range().start);
            format!("the property at line {} has no name", at.row)
        })?;
        let Some(value) = part("value") else { continue };
        let is_final = part("final").is_some_and(|text| text == "true");
        match properties.iter_mut().find(|(property, _)| property.name == name) {
            Some((_, true)) => {}
            Some(seen) => *seen = (Property { name, value }, is_final),
            None => properties.push((Property { name, value }, is_final)),
        }
    }
    Ok(properties.into_iter().map(|(property, _)| property).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text).unwrap().into_iter().map(|property| (property.name, property.value)).collect()
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
            </configuration>"#;
        let expected = [("a", "3"), ("b", "2"), ("empty", "")];
        assert_eq!(pairs(text), expected.map(|(name, value)| (name.to_string(), value.to_string())));
    }

    #[test]
    fn what_is_no_configuration_is_told_so() {
        assert!(parse("<configuration>").is_err());
        assert!(parse("<other/>").unwrap_err().contains("<configuration>"));
        let nameless = "<configuration>\n<property><value>1</value></property></configuration>";
        assert!(parse(nameless).unwrap_err().contains("line 2"));
    }
}
