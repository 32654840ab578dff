//! `${name}` in the values of `hbase-site.xml`, resolved as Hadoop's `Configuration` does.
//!
//! One step replaces the first reference that has no `$`, `}` or space inside. Steps are repeated, so that a value may
//! refer to a value that refers to another. A name is looked up in this order:
//!
//! | form | meaning |
//! |---|---|
//! | `${env.NAME}` | environment variable |
//! | `${env.NAME:-text}` | environment variable, or `text` if it is not set or empty |
//! | `${env.NAME-text}` | environment variable, or `text` if it is not set |
//! | `${user.name}`, `${java.io.tmpdir}`, ... | what Java's system property of that name would be, see [`JavaProperties`] |
//! | `${any.other}` | the property of that name, from the file or HBase's default |
//!
//! A name that nothing defines stops the resolution: the value stays as it is so far. A value that comes to the same
//! reference a second time stays as it was written. More than [`STEPS_MAX`] steps are an error.

use std::collections::HashSet;
use std::path::Path;

use halcyon_env::Env;

use crate::site::Property;

/// `Configuration.MAX_SUBST`.
const STEPS_MAX: usize = 20;

/// Defaults of `hbase-default.xml` that values refer to.
const DEFAULTS: &[(&str, &str)] = &[
    ("hbase.tmp.dir", "${java.io.tmpdir}/hbase-${user.name}"),
    ("hbase.rootdir", "${hbase.tmp.dir}/hbase"),
    ("hbase.local.dir", "${hbase.tmp.dir}/local/"),
    ("hbase.zookeeper.property.dataDir", "${hbase.tmp.dir}/zookeeper"),
    ("hbase.cluster.distributed", "false"),
    ("zookeeper.znode.parent", "/hbase"),
];

/// Looks up an environment variable by its name.
type Environment = Box<dyn Fn(&str) -> Option<String>>;

/// What values can refer to besides the properties of the file.
pub struct Surroundings {
    pub java: JavaProperties,
    pub environment: Environment,
}

/// The system properties that a JVM would have in the place of this process.
#[derive(Clone, Debug, Default)]
pub struct JavaProperties(pub Vec<(&'static str, String)>);

impl Surroundings {
    pub fn of_process(env: &Env) -> Surroundings {
        let environment = |name: &str| std::env::var_os(name).and_then(|value| value.into_string().ok());
        Surroundings { java: JavaProperties::of_process(env), environment: Box::new(environment) }
    }

    fn variable(&self, expression: &str) -> Option<String> {
        let operator = expression.find(['-', ':']).filter(|&at| {
            expression.as_bytes()[at] == b'-' || expression.as_bytes().get(at + 1) == Some(&b'-')
        });
        let Some(at) = operator else { return (self.environment)(expression) };
        let value = (self.environment)(&expression[..at]);
        match expression[at..].strip_prefix(":-") {
            Some(text) => Some(value.filter(|value| !value.is_empty()).unwrap_or_else(|| text.to_string())),
            None => Some(value.unwrap_or_else(|| expression[at + 1..].to_string())),
        }
    }
}

impl JavaProperties {
    /// The user comes from the password file, as in Java; without an entry there, from the environment.
    fn of_process(env: &Env) -> JavaProperties {
        let mut known = vec![
            ("java.io.tmpdir", "/tmp".to_string()),
            ("file.separator", "/".to_string()),
            ("path.separator", ":".to_string()),
            ("line.separator", "\n".to_string()),
            ("os.name", "Linux".to_string()),
        ];
        let uid = rustix::process::getuid().as_raw();
        let passwd =
            env.local.read(Path::new("/etc/passwd")).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let (name, home) = passwd.and_then(|text| user_of(&text, uid)).unzip();
        let variable = |name: &str| std::env::var(name).ok();
        known.extend(name.or_else(|| variable("USER")).map(|name| ("user.name", name)));
        known.extend(home.or_else(|| variable("HOME")).map(|home| ("user.home", home)));
        let here = std::env::current_dir().ok().and_then(|dir| dir.into_os_string().into_string().ok());
        known.extend(here.map(|dir| ("user.dir", dir)));
        JavaProperties(known)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }
}

/// Name of the user that runs the process, as Java has it.
pub fn user_name(env: &Env) -> Option<String> {
    JavaProperties::of_process(env).get("user.name").map(str::to_string)
}

/// Name and home of a user, from lines `name:password:uid:gid:comment:home:shell`.
fn user_of(passwd: &str, uid: u32) -> Option<(String, String)> {
    let uid = uid.to_string();
    let mut users = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let user = users.find(|fields| fields.get(2) == Some(&uid.as_str()))?;
    Some((user[0].to_string(), user.get(5)?.to_string()))
}

/// The same properties with their references resolved. The error is one sentence about a value that takes too many steps.
pub fn resolve(properties: &[Property], surroundings: &Surroundings) -> Result<Vec<Property>, String> {
    let resolved = properties.iter().map(|property| {
        let value = resolve_value(&property.value, properties, surroundings).map_err(|()| {
            format!("{}: {:?} takes more than {STEPS_MAX} steps to resolve", property.name, property.value)
        })?;
        Ok(Property { name: property.name.clone(), value })
    });
    resolved.collect()
}

fn resolve_value(value: &str, properties: &[Property], surroundings: &Surroundings) -> Result<String, ()> {
    let mut text = value.to_string();
    let mut seen = HashSet::new();
    for _ in 0..STEPS_MAX {
        let Some((start, end)) = first_reference(&text) else { return Ok(text) };
        let name = &text[start + 2..end - 1];
        let found = match name.strip_prefix("env.").filter(|variable| !variable.is_empty()) {
            Some(variable) => surroundings.variable(variable),
            None => surroundings.java.get(name).map(str::to_string),
        };
        let Some(found) = found.or_else(|| raw(properties, name)) else { return Ok(text) };
        if !seen.insert(text[start..end].to_string()) {
            return Ok(value.to_string());
        }
        text.replace_range(start..end, &found);
    }
    Err(())
}

/// A property's value as it is written.
fn raw(properties: &[Property], name: &str) -> Option<String> {
    let of_file = properties.iter().find(|property| property.name == name).map(|found| found.value.as_str());
    let of_hbase = || DEFAULTS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    of_file.or_else(of_hbase).map(str::to_string)
}

/// Start and end of the first `${name}` without `$`, `}` or space in the name.
pub fn first_reference(text: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(at) = text[from..].find("${") {
        let start = from + at;
        let name = &text[start + 2..];
        let length = name.find(['$', '}', ' '])?;
        if length > 0 && name.as_bytes()[length] == b'}' {
            return Some((start, start + 2 + length + 1));
        }
        // A `$` may begin the next reference; nothing else can.
        from = start + 2 + length + usize::from(name.as_bytes()[length] != b'$');
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings() -> Surroundings {
        let java = [("user.name", "ada"), ("java.io.tmpdir", "/tmp")];
        let environment = |name: &str| match name {
            "DATA" => Some("/ssd".to_string()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        Surroundings {
            java: JavaProperties(java.map(|(name, value)| (name, value.to_string())).to_vec()),
            environment: Box::new(environment),
        }
    }

    fn resolved(properties: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let properties: Vec<_> = properties
            .iter()
            .map(|(name, value)| Property { name: name.to_string(), value: value.to_string() })
            .collect();
        Ok(resolve(&properties, &surroundings())?.into_iter().map(|property| property.value).collect())
    }

    #[test]
    fn references_resolve_as_in_hadoop() {
        for (value, expected) in [
            ("plain", "plain"),
            ("${other}/x", "/srv/x"),
            ("${user.name}", "ada"),
            ("${hbase.tmp.dir}/hbase", "/tmp/hbase-ada/hbase"),
            ("${env.DATA}/h", "/ssd/h"),
            ("${env.NONE:-/d}", "/d"),
            ("${env.EMPTY:-/d}", "/d"),
            ("${env.EMPTY-/d}", ""),
            ("${env.NONE-/d}", "/d"),
            ("${env.NONE}", "${env.NONE}"),
            ("${env.}", "${env.}"),
            ("${no.such}/${other}", "${no.such}/${other}"),
            ("${other}/${no.such}", "/srv/${no.such}"),
            ("${user.${kind}}", "ada"),
            ("${with space}${other}", "${with space}/srv"),
            ("$${other}", "$/srv"),
            ("${}", "${}"),
            ("${other", "${other"),
            // As Hadoop, which takes the second of two equal references for a circle.
            ("${other}${other}", "${other}${other}"),
        ] {
            let values = resolved(&[("it", value), ("other", "/srv"), ("kind", "name")]).unwrap();
            assert_eq!(values[0], expected, "{value}");
        }
    }

    #[test]
    fn circles_stay_as_written_and_too_many_steps_are_an_error() {
        let values = resolved(&[("a", "${b}"), ("b", "x${a}")]).unwrap();
        assert_eq!(values, ["${b}", "x${a}"]);
        let names: Vec<_> = (0..22).map(|at| (format!("p{at}"), format!("${{p{}}}", at + 1))).collect();
        let chain: Vec<_> = names.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let error = resolved(&chain).unwrap_err();
        assert!(error.starts_with("p0: ") && error.contains("more than 20 steps"), "{error}");
    }

    #[test]
    fn users_come_from_the_password_file() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/users/ada:/bin/sh\n";
        assert_eq!(user_of(passwd, 1000), Some(("ada".to_string(), "/users/ada".to_string())));
        assert_eq!(user_of(passwd, 7), None);
    }
}
