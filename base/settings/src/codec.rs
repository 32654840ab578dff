//! How values are written in properties.

use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

/// Reads and prints values of one kind.
pub trait Codec<T> {
    /// `None` if the text makes no sense. It has no blanks around it.
    fn parse(text: &str) -> Option<T>;

    /// `None` if there is nothing to print.
    fn print(value: &T) -> Option<String>;

    /// What a value that makes no sense is told. The argument only says the type.
    fn refused(_: &T) -> &'static str;
}

/// A number that its type bounds. Infinity is none.
pub struct Number;

fn is_finite(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']);
    !["nan", "inf", "infinity"].iter().any(|word| digits.eq_ignore_ascii_case(word))
}

/// What counts as a number for a type. One too large for a `f64` becomes infinity.
fn number<T: FromStr + Display>(text: &str) -> Option<T> {
    let is_real = || T::from_str("0.5").is_ok();
    let value =
        text.parse().ok().or_else(|| if is_real() { without_suffix(text)?.parse().ok() } else { None });
    value.filter(|value: &T| is_finite(&value.to_string()))
}

/// Java lets one letter for its type follow a real number, and HBase's own defaults have it (`1.2F`).
fn without_suffix(text: &str) -> Option<&str> {
    text.strip_suffix(['f', 'F', 'd', 'D'])
}

impl<T: FromStr + Display> Codec<T> for Number {
    fn parse(text: &str) -> Option<T> {
        number(text)
    }

    fn print(value: &T) -> Option<String> {
        Some(value.to_string())
    }

    fn refused(_: &T) -> &'static str {
        "is not a number that fits"
    }
}

/// A number above 0.
pub struct Positive;

impl<T: FromStr + Display + Default + PartialOrd> Codec<T> for Positive {
    fn parse(text: &str) -> Option<T> {
        number(text).filter(|value| *value > T::default())
    }

    fn print(value: &T) -> Option<String> {
        Some(value.to_string())
    }

    fn refused(_: &T) -> &'static str {
        "is not a number above 0"
    }
}

pub struct Flag;

impl Codec<bool> for Flag {
    fn parse(text: &str) -> Option<bool> {
        text.parse().ok()
    }

    fn print(value: &bool) -> Option<String> {
        Some(value.to_string())
    }

    fn refused(_: &bool) -> &'static str {
        "is neither true nor false"
    }
}

/// A whole number of milliseconds.
pub struct Millis;

impl Codec<Duration> for Millis {
    fn parse(text: &str) -> Option<Duration> {
        text.parse().ok().map(Duration::from_millis)
    }

    fn print(value: &Duration) -> Option<String> {
        Some(value.as_millis().to_string())
    }

    fn refused(_: &Duration) -> &'static str {
        "is not a time in milliseconds"
    }
}

/// A part of a whole.
pub struct Share;

impl Codec<f64> for Share {
    fn parse(text: &str) -> Option<f64> {
        let text = without_suffix(text).unwrap_or(text);
        text.parse().ok().filter(|share| (0.0..=1.0).contains(share))
    }

    fn print(value: &f64) -> Option<String> {
        Some(value.to_string())
    }

    fn refused(_: &f64) -> &'static str {
        "is not between 0 and 1"
    }
}

pub struct Text;

impl Codec<String> for Text {
    fn parse(text: &str) -> Option<String> {
        Some(text.to_string())
    }

    fn print(value: &String) -> Option<String> {
        Some(value.clone())
    }

    fn refused(_: &String) -> &'static str {
        "is no text"
    }
}

/// A value that may not be set; then it is not printed.
pub struct Maybe<C>(PhantomData<C>);

impl<T: Default, C: Codec<T>> Codec<Option<T>> for Maybe<C> {
    fn parse(text: &str) -> Option<Option<T>> {
        C::parse(text).map(Some)
    }

    fn print(value: &Option<T>) -> Option<String> {
        value.as_ref().and_then(C::print)
    }

    fn refused(_: &Option<T>) -> &'static str {
        C::refused(&T::default())
    }
}

/// A limit that a negative number turns off; then it is printed as -1.
pub struct OrNever<C>(PhantomData<C>);

impl<T: Default, C: Codec<T>> Codec<Option<T>> for OrNever<C> {
    fn parse(text: &str) -> Option<Option<T>> {
        match text.parse::<i64>() {
            Ok(number) if number < 0 => Some(None),
            _ => C::parse(text).map(Some),
        }
    }

    fn print(value: &Option<T>) -> Option<String> {
        value.as_ref().map_or_else(|| Some("-1".to_string()), C::print)
    }

    fn refused(_: &Option<T>) -> &'static str {
        C::refused(&T::default())
    }
}

/// A second name of a setting: it is read, and printed under the other name only.
pub struct Alias<C>(PhantomData<C>);

impl<T, C: Codec<T>> Codec<T> for Alias<C> {
    fn parse(text: &str) -> Option<T> {
        C::parse(text)
    }

    fn print(_: &T) -> Option<String> {
        None
    }

    fn refused(value: &T) -> &'static str {
        C::refused(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back<T, C: Codec<T>>(text: &str) -> Option<String> {
        C::parse(text).and_then(|value| C::print(&value))
    }

    #[test]
    fn values_are_read_and_printed_as_they_were() {
        for (printed, text) in [
            (back::<u64, Number>("18446744073709551615"), "18446744073709551615"),
            (back::<f64, Number>("1.2"), "1.2"),
            (back::<usize, Positive>("1"), "1"),
            (back::<bool, Flag>("true"), "true"),
            (back::<Duration, Millis>("1500"), "1500"),
            (back::<f64, Share>("0.35"), "0.35"),
            (back::<String, Text>("a b"), "a b"),
            (back::<Option<u64>, Maybe<Number>>("7"), "7"),
            (back::<Option<u64>, OrNever<Number>>("7"), "7"),
            (back::<Option<u64>, OrNever<Number>>("-1"), "-1"),
            (back::<Option<Option<u64>>, Maybe<OrNever<Number>>>("-5"), "-1"),
        ] {
            assert_eq!(printed.as_deref(), Some(text));
        }
    }

    #[test]
    fn values_without_sense_are_refused() {
        assert_eq!(back::<u64, Number>("-1"), None);
        assert_eq!(back::<i64, Positive>("0"), None);
        for text in ["NaN", "inf", "-inf", "+Infinity", "1e400"] {
            assert_eq!((back::<f64, Number>(text), back::<f64, Positive>(text)), (None, None), "{text}");
        }
        assert_eq!(back::<bool, Flag>("yes"), None);
        assert_eq!(back::<Duration, Millis>("1s"), None);
        assert_eq!(back::<f64, Share>("1.5"), None);
        assert_eq!(back::<f64, Share>("NaN"), None);
        assert_eq!(back::<Option<u64>, OrNever<Number>>("x"), None);
        assert_eq!(<Maybe<Number> as Codec<Option<u64>>>::print(&None), None);
        assert_eq!(back::<u64, Alias<Number>>("7"), None, "printed under its other name");
    }
}
