//! `core-site.xml` and `hdfs-site.xml`.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use halcyon_env::FileSystem;

const FILES: [&str; 2] = ["core-site.xml", "hdfs-site.xml"];
/// HDFS's own limit of replacements in one value.
const REPLACEMENTS_MAX: usize = 20;

/// A file that includes itself must end somewhere.
const INCLUDES_MAX: usize = 8;

/// What is done about an element `include`.
type Include<'a> = dyn FnMut(&mut Site, roxmltree::Node<'_, '_>) -> io::Result<()> + 'a;

/// The settings of a Hadoop client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    settings: BTreeMap<String, Setting>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    value: String,
    is_final: bool,
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl Site {
    /// Reads `core-site.xml`, then `hdfs-site.xml` of a directory. Each may be absent, but not both.
    pub fn read(files: &dyn FileSystem, directory: &Path) -> io::Result<Site> {
        let mut site = Site::default();
        let mut found = false;
        for name in FILES {
            match site.add_file(files, &directory.join(name), 0) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                added => {
                    added?;
                    found = true;
                }
            }
        }
        if !found {
            let text = format!(
                "{} has neither core-site.xml nor hdfs-site.xml; name the directory with the settings of HDFS's clients",
                directory.display()
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        Ok(site)
    }

    /// Adds the properties of a file, and of those that it includes, at their place. `NotFound` if it is not there itself.
    fn add_file(&mut self, files: &dyn FileSystem, path: &Path, depth: usize) -> io::Result<()> {
        let name = path.display().to_string();
        let text =
            String::from_utf8(files.read(path)?).map_err(|_| invalid(format!("{name} is not UTF-8")))?;
        self.add_text(&text, &name, &mut |site, include| {
            let href = include.attribute("href").unwrap_or_default();
            // An absolute path stays as it is.
            let other = path.parent().unwrap_or(Path::new("/")).join(href.trim_start_matches("file://"));
            if depth == INCLUDES_MAX {
                return Err(invalid(format!(
                    "{name} includes {href}: files are included more than {depth} deep"
                )));
            }
            match site.add_file(files, &other, depth + 1) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let fallback = include.children().find(|child| child.tag_name().name() == "fallback");
                    let fallback = fallback.ok_or_else(|| {
                        invalid(format!("{name} includes {}, which is not there", other.display()))
                    })?;
                    let properties = fallback.children().filter(|child| child.has_tag_name("property"));
                    properties.into_iter().try_for_each(|property| site.add_property(property, &name))
                }
                added => added,
            }
        })
    }

    /// Adds the properties of one file. A later value replaces an earlier one, unless that is final.
    pub fn add(&mut self, xml: &str, file: &str) -> io::Result<()> {
        self.add_text(xml, file, &mut |_, _| {
            Err(invalid(format!(
                "{file} includes another file, which is not supported; put the properties into {file} itself"
            )))
        })
    }

    fn add_text(&mut self, xml: &str, file: &str, include: &mut Include<'_>) -> io::Result<()> {
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        let document = roxmltree::Document::parse_with_options(xml, options)
            .map_err(|error| invalid(format!("{file} is not well-formed XML: {error}")))?;
        let root = document.root_element();
        if !root.has_tag_name("configuration") {
            let name = root.tag_name().name();
            return Err(invalid(format!("{file} begins with <{name}>, not with <configuration>")));
        }
        for element in root.children().filter(|node| node.is_element()) {
            if element.tag_name().name() == "include" {
                include(self, element)?;
            }
            if element.has_tag_name("property") {
                self.add_property(element, file)?;
            }
        }
        Ok(())
    }

    fn add_property(&mut self, property: roxmltree::Node<'_, '_>, file: &str) -> io::Result<()> {
        let text = |name: &str| {
            let child = property.children().find(|child| child.has_tag_name(name));
            child.map(|child| child.text().unwrap_or_default().trim().to_string())
        };
        let Some(name) = text("name").filter(|name| !name.is_empty()) else {
            let line = property.document().text_pos_at(property.range().start).row;
            return Err(invalid(format!("{file}, line {line}: a property has no name")));
        };
        let Some(value) = text("value") else { return Ok(()) };
        if self.settings.get(&name).is_none_or(|setting| !setting.is_final) {
            let is_final = text("final").is_some_and(|text| text == "true");
            self.settings.insert(name, Setting { value, is_final });
        }
        Ok(())
    }

    /// Sets a value whatever the files say.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.insert(name.to_string(), Setting { value: value.to_string(), is_final: true });
    }

    /// The value with `${name}` replaced by other values; an unknown name stays as it is.
    pub fn get(&self, name: &str) -> Option<String> {
        let mut value = self.settings.get(name)?.value.clone();
        for _ in 0..REPLACEMENTS_MAX {
            let Some((start, end, other)) = self.reference(&value) else { break };
            value.replace_range(start..end, &other);
        }
        Some(value)
    }

    /// The first `${name}` in a value whose name is known: its place and what it stands for.
    fn reference(&self, value: &str) -> Option<(usize, usize, String)> {
        let mut from = 0;
        while let Some(start) = value[from..].find("${").map(|at| at + from) {
            let end = value[start..].find('}')? + start;
            if let Some(setting) = self.settings.get(&value[start + 2..end]) {
                return Some((start, end + 1, setting.value.clone()));
            }
            from = end;
        }
        None
    }

    /// The parts of a value separated by commas, without blanks around them.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let value = self.get(name).unwrap_or_default();
        value.split(',').map(|part| part.trim().to_string()).filter(|part| !part.is_empty()).collect()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.settings.keys()
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::SimFileSystem;

    use super::*;

    fn site(properties: &str) -> io::Result<Site> {
        let mut site = Site::default();
        site.add(&format!("<?xml version=\"1.0\"?>\n<configuration>{properties}</configuration>"), "f.xml")?;
        Ok(site)
    }

    fn property(name: &str, value: &str) -> String {
        format!("<property><name>{name}</name><value>{value}</value></property>\n")
    }

    #[test]
    fn values_are_trimmed_and_refer_to_each_other() {
        let text = property("a", " ${b}/x ")
            + &property("b", "h${c}")
            + &property("loop", "${loop}")
            + &property("d", "${none}");
        let site = site(&text).unwrap();
        assert_eq!(site.get("a").as_deref(), Some("h${c}/x"));
        assert_eq!(site.get("d").as_deref(), Some("${none}"));
        assert_eq!(site.get("loop").as_deref(), Some("${loop}"));
        assert_eq!(site.get("e"), None);
        let site =
            self::site(&(property("a", "${b}${b}") + &property("b", "${c}") + &property("c", "1"))).unwrap();
        assert_eq!(site.get("a").as_deref(), Some("11"));
    }

    #[test]
    fn a_final_value_stays() {
        let fixed = "<property><name>a</name><value>1</value><final>true</final></property>";
        let mut site = site(&(fixed.to_string() + &property("b", "1"))).unwrap();
        site.add(
            &format!("<configuration>{}{}</configuration>", property("a", "2"), property("b", "2")),
            "g.xml",
        )
        .unwrap();
        assert_eq!((site.get("a").as_deref(), site.get("b").as_deref()), (Some("1"), Some("2")));
    }

    #[test]
    fn garbage_is_an_error_that_names_the_file() {
        let refused = |text: &str| Site::default().add(text, "f.xml").unwrap_err().to_string();
        assert!(refused("").starts_with("f.xml is not well-formed XML"));
        assert!(refused("\0\u{1}").starts_with("f.xml is not well-formed XML"));
        assert!(refused("<configuration><property>").starts_with("f.xml is not well-formed XML"));
        assert_eq!(refused("<settings/>"), "f.xml begins with <settings>, not with <configuration>");
        assert_eq!(
            refused("<configuration>\n<property><value>1</value></property></configuration>"),
            "f.xml, line 2: a property has no name"
        );
        assert!(
            refused("<configuration><include href='o.xml'/></configuration>")
                .contains("includes another file")
        );
    }

    /// As Hadoop: relative to the file, at its place, with what stands in if it is not there.
    #[test]
    fn files_include_others() {
        let (fs, dir) = (SimFileSystem::new(), Path::new("/conf"));
        fs.create_dir_all(&dir.join("more")).unwrap();
        let put = |name: &str, text: &str| {
            let head = "<configuration xmlns:xi=\"http://www.w3.org/2001/XInclude\">";
            fs.replace(&dir.join(name), format!("{head}{text}</configuration>").as_bytes()).unwrap();
        };
        let read = || Site::read(&fs, dir);
        put("more/one.xml", &(property("a", "1") + &property("b", "1")));
        put(
            "core-site.xml",
            &(property("a", "0") + "<xi:include href='more/one.xml'/>" + &property("b", "2")),
        );
        let site = read().unwrap();
        assert_eq!((site.get("a").as_deref(), site.get("b").as_deref()), (Some("1"), Some("2")));
        put("core-site.xml", "<xi:include href='file:///conf/more/one.xml'/>");
        assert_eq!(read().unwrap().get("a").as_deref(), Some("1"));
        put("core-site.xml", "<xi:include href='none.xml'/>");
        let error = read().unwrap_err().to_string();
        assert_eq!(error, "/conf/core-site.xml includes /conf/none.xml, which is not there");
        let fallback = format!("<xi:fallback>{}</xi:fallback>", property("a", "7"));
        put("core-site.xml", &format!("<xi:include href='none.xml'>{fallback}</xi:include>"));
        assert_eq!(read().unwrap().get("a").as_deref(), Some("7"));
        put("core-site.xml", "<xi:include href='core-site.xml'/>");
        assert!(read().unwrap_err().to_string().contains("files are included more than 8 deep"));
    }

    #[test]
    fn one_of_the_two_files_is_enough() {
        let (fs, dir) = (SimFileSystem::new(), Path::new("/conf"));
        fs.create_dir_all(dir).unwrap();
        assert_eq!(Site::read(&fs, dir).unwrap_err().kind(), io::ErrorKind::NotFound);
        let file = |text: &str| format!("<configuration>{text}</configuration>").into_bytes();
        fs.put_new(&dir.join("hdfs-site.xml"), &file(&property("a", "2"))).unwrap();
        assert_eq!(Site::read(&fs, dir).unwrap().get("a").as_deref(), Some("2"));
        fs.put_new(&dir.join("core-site.xml"), &file(&(property("a", "1") + &property("b", "1")))).unwrap();
        let site = Site::read(&fs, dir).unwrap();
        assert_eq!((site.get("a").as_deref(), site.get("b").as_deref()), (Some("2"), Some("1")));
        fs.replace(&dir.join("hdfs-site.xml"), b"\xff\xfe").unwrap();
        assert_eq!(Site::read(&fs, dir).unwrap_err().to_string(), "/conf/hdfs-site.xml is not UTF-8");
    }
}
