//! Namespaces.

use halcyon_client::NamespaceDescriptor;

use super::{Context, pattern};
use crate::arguments::Arguments;
use crate::error::ShellError;
use crate::value::Map;

pub(super) async fn run(
    context: &mut Context,
    name: &str,
    arguments: &mut Arguments,
) -> Result<bool, ShellError> {
    match name {
        "create_namespace" => {
            let mut namespace = NamespaceDescriptor::new(arguments.text("the namespace")?);
            for (key, value) in arguments.options()?.0 {
                namespace.configuration.insert(key, value.text()?);
            }
            arguments.finish()?;
            context.admin().await?.create_namespace(&namespace).await?;
        }
        "alter_namespace" => alter(context, arguments).await?,
        "describe_namespace" => {
            let name = arguments.text("the namespace")?;
            let namespace = context.admin().await?.describe_namespace(&name).await?;
            let pairs = namespace.configuration.iter().map(|(key, value)| format!(", {key} => '{value}'"));
            let pairs: String = pairs.collect();
            context.printer.note("DESCRIPTION")?;
            context.printer.value("namespace", format!("{{NAME => '{}'{pairs}}}", namespace.name))?;
        }
        "drop_namespace" => {
            let name = arguments.text("the namespace")?;
            arguments.finish()?;
            context.admin().await?.delete_namespace(&name).await?;
        }
        "list_namespace" => {
            let pattern = pattern(arguments)?;
            let mut names = context.admin().await?.namespaces().await?;
            if let Some(pattern) = pattern {
                names.retain(|name| matches(&pattern, name));
            }
            let rows: Vec<_> = names.into_iter().map(|name| vec![name]).collect();
            context.printer.table(&["NAMESPACE"], &rows)?;
        }
        "list_namespace_tables" => {
            let name = arguments.text("the namespace")?;
            let tables = context.admin().await?.namespace_tables(&name).await?;
            let rows: Vec<_> = tables.iter().map(|table| vec![table.qualifier().to_string()]).collect();
            context.printer.table(&["TABLE"], &rows)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

async fn alter(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let name = arguments.text("the namespace")?;
    let mut options: Map = arguments.options()?;
    arguments.finish()?;
    let admin = context.admin().await?;
    let mut namespace = admin.describe_namespace(&name).await?;
    match options.take("METHOD").map(|method| method.text()).transpose()?.as_deref() {
        Some("unset") => {
            let key = options.take("NAME").ok_or_else(|| arguments.error("METHOD => 'unset' needs NAME"))?;
            namespace.configuration.remove(&key.text()?);
        }
        Some("set") | None => {}
        Some(other) => return Err(arguments.error(format_args!("METHOD '{other}' is neither set nor unset"))),
    }
    for (key, value) in options.0 {
        namespace.configuration.insert(key, value.text()?);
    }
    Ok(admin.modify_namespace(&namespace).await?)
}

/// The patterns that people type for namespaces: `.*` and `*` match anything, and the rest stands for itself.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let pattern = pattern.replace(".*", "*");
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_whole_names() {
        assert!(
            matches("ab.*", "abc")
                && matches(".*c", "abc")
                && matches("a*b*c", "aXbYc")
                && matches("ab", "ab")
        );
        assert!(
            !matches("ab", "abc") && !matches("b.*", "abc") && !matches("a*b*c", "ac") && !matches("", "a")
        );
    }
}
