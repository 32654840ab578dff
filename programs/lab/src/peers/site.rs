//! `hbase-site.xml`.

use std::fmt::Write;
use std::path::Path;

use halcyon_env::Env;

pub(super) fn write(env: &Env, path: &Path, properties: &[(String, String)]) -> Result<(), String> {
    if let Some(parent) = path.parent() {
        env.fs.create_dir_all(parent).map_err(|error| error.to_string())?;
    }
    env.fs.replace(path, text(properties).as_bytes()).map_err(|error| error.to_string())
}

/// Of two properties of one name the later one is left.
fn text(properties: &[(String, String)]) -> String {
    let mut out = String::from("<?xml version=\"1.0\"?>\n<configuration>\n");
    for (at, (name, value)) in properties.iter().enumerate() {
        if properties[at + 1..].iter().all(|(later, _)| later != name) {
            let (name, value) = (escaped(name), escaped(value));
            let _ = writeln!(out, "  <property><name>{name}</name><value>{value}</value></property>");
        }
    }
    out.push_str("</configuration>\n");
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_property_wins_and_signs_are_escaped() {
        let property = |name: &str, value: &str| (name.to_string(), value.to_string());
        let text = text(&[property("a", "1"), property("b", "<&>"), property("a", "2")]);
        assert_eq!(
            text,
            "<?xml version=\"1.0\"?>\n<configuration>\n  <property><name>b</name><value>&lt;&amp;&gt;</value></property>\n  \
             <property><name>a</name><value>2</value></property>\n</configuration>\n"
        );
    }
}
