//! Each setting is declared once: property name, unit, field, description, and when a change takes effect.
//!
//! A struct of settings has tables of [`Setting`], most of them written with [`settings!`]. From the tables come:
//!
//! - reading a property ([`set`]),
//! - printing all of them as `name = value` lines that can be read back ([`print()`]),
//! - the tables of `docs/CONFIGURATION.md` ([`describe`]).
//!
//! How a value is written is a [`Codec`]. A setting that does more than fill a field is a [`Setting`] written out.
//!
//! When you add a setting: one line in a table of its struct, and the page is written anew (see
//! `programs/halcyon/src/settings_page.rs`).

mod codec;

use std::fmt;

use halcyon_cell::{Error, Result};

pub use codec::{Alias, Codec, Flag, Maybe, Millis, Number, OrNever, Positive, Share, Text};

/// When a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// After `UpdateConfiguration`.
    Online,
    Restart,
}

/// One setting of `S`.
pub struct Setting<S> {
    /// HBase's property name, or one that begins with `halcyon.`.
    pub name: &'static str,
    pub unit: &'static str,
    pub effect: Effect,
    /// What it does, for operators. Says where HBase differs.
    pub text: &'static str,
    /// Reads a value; the error goes on after the value: `is not a whole number`.
    pub set: fn(&mut S, &str) -> std::result::Result<(), String>,
    /// Prints the value; `None` if it is not set, or printed under another name.
    pub get: fn(&S) -> Option<String>,
}

/// The settings of one topic.
pub struct Section<S: 'static> {
    pub title: &'static str,
    pub settings: &'static [Setting<S>],
}

/// What a page says of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub section: &'static str,
    pub name: &'static str,
    pub unit: &'static str,
    pub effect: Effect,
    pub text: &'static str,
    /// As printed; `None` if nothing is set.
    pub default: Option<String>,
}

/// A table of settings that fill fields:
///
/// ```
/// use halcyon_settings::{Effect::*, Flag, Number, Section, settings};
///
/// #[derive(Default)]
/// struct Files {
///     most: usize,
///     sorted: bool,
/// }
///
/// const FILES: &[Section<Files>] = &[Section {
///     title: "Files",
///     settings: settings!(Files:
///         Online, "files.most", "files", Number, most, "Most files at a time.";
///         Restart, "files.sorted", "true, false", Flag, sorted, "Whether they are sorted.";
///     ),
/// }];
///
/// let mut files = Files::default();
/// assert!(halcyon_settings::set(FILES, &mut files, "files.most", "7").unwrap());
/// assert_eq!(files.most, 7);
/// let error = halcyon_settings::set(FILES, &mut files, "files.sorted", "7").unwrap_err();
/// assert!(error.to_string().contains(r#"files.sorted: "7" is neither true nor false"#));
/// ```
#[macro_export]
macro_rules! settings {
    ($settings:ty: $($effect:expr, $name:expr, $unit:expr, $codec:ty, $($field:ident).+, $text:expr;)*) => {
        &[$($crate::Setting::<$settings> {
            name: $name,
            unit: $unit,
            effect: $effect,
            text: $text,
            set: |settings, text| {
                let value = <$codec as $crate::Codec<_>>::parse(text.trim());
                let refused = || <$codec as $crate::Codec<_>>::refused(&settings.$($field).+).to_string();
                settings.$($field).+ = value.ok_or_else(refused)?;
                Ok(())
            },
            get: |settings| <$codec as $crate::Codec<_>>::print(&settings.$($field).+),
        }),*]
    };
}

/// Sets one by its property name; `Ok(false)` if no setting has that name. Invalid if the value makes no sense.
pub fn set<S: 'static>(sections: &[Section<S>], settings: &mut S, name: &str, value: &str) -> Result<bool> {
    let mut all = sections.iter().flat_map(|section| section.settings);
    let Some(setting) = all.find(|setting| setting.name == name) else { return Ok(false) };
    (setting.set)(settings, value).map_err(|why| Error::invalid(format!("{name}: {value:?} {why}")))?;
    Ok(true)
}

/// Writes all that are set, as `name = value` lines.
pub fn print<S: 'static>(sections: &[Section<S>], settings: &S, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for setting in sections.iter().flat_map(|section| section.settings) {
        if let Some(value) = (setting.get)(settings) {
            writeln!(f, "{} = {value}", setting.name)?;
        }
    }
    Ok(())
}

/// All settings with their defaults.
pub fn describe<S: 'static>(sections: &[Section<S>], defaults: &S) -> Vec<Description> {
    let of_section = |section: &Section<S>| {
        let title = section.title;
        let describe = |setting: &Setting<S>| Description {
            section: title,
            name: setting.name,
            unit: setting.unit,
            effect: setting.effect,
            text: setting.text,
            default: (setting.get)(defaults),
        };
        section.settings.iter().map(describe).collect::<Vec<_>>()
    };
    sections.iter().flat_map(of_section).collect()
}

/// The names of all settings, in order.
pub fn names<S: 'static>(sections: &'static [Section<S>]) -> impl Iterator<Item = &'static str> {
    sections.iter().flat_map(|section| section.settings).map(|setting| setting.name)
}
