//! `--set key=value`, as every rival takes it.
//!
//! A rival has a few *short options* of its own; a key it does not know is an error that lists them, so that a misspelt
//! tuning never passes for a tuned server.

use anyhow::{Result, bail};

/// A short option and its effect, for messages and for the reader.
pub struct Known {
    pub key: &'static str,
    pub meaning: &'static str,
}

/// One `key=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub key: String,
    pub value: String,
}

/// Splits at the first `=`. Text that an XML file or a command line could not hold is refused here.
pub fn parse(texts: &[String]) -> Result<Vec<Setting>> {
    let mut settings: Vec<Setting> = Vec::new();
    for text in texts {
        let Some((key, value)) = text.split_once('=') else {
            bail!("--set {text:?}: expected key=value");
        };
        if key.is_empty() || key.contains(char::is_whitespace) || text.contains(char::is_control) {
            bail!("--set {text:?}: a key has no spaces, and neither key nor value has control characters");
        }
        if settings.iter().any(|other| other.key == key) {
            bail!("--set {key} is given twice");
        }
        settings.push(Setting {
            key: key.to_owned(),
            value: value.to_owned(),
        });
    }
    Ok(settings)
}

impl Setting {
    /// That this key is not one of those.
    pub fn unknown<T>(&self, rival: &str, known: &[Known], otherwise: &str) -> Result<T> {
        let mut list = String::new();
        for option in known {
            list.push_str(&format!("\n  {:<12} {}", option.key, option.meaning));
        }
        bail!("{rival} has no option {:?}. Known:{list}\n{otherwise}", self.key)
    }

    /// That this value is no good.
    pub fn invalid<T>(&self, expected: &str) -> Result<T> {
        bail!("--set {}={:?}: expected {expected}", self.key, self.value)
    }

    /// `true` or `false`, as text again.
    pub fn boolean(&self) -> Result<&str> {
        match self.value.as_str() {
            "true" | "false" => Ok(&self.value),
            _ => self.invalid("true or false"),
        }
    }

    /// A share of something, from 0 to 1, as text again.
    pub fn share(&self) -> Result<&str> {
        match self.value.parse::<f64>() {
            Ok(share) if (0.0..=1.0).contains(&share) => Ok(&self.value),
            _ => self.invalid("a number from 0 to 1"),
        }
    }

    /// A number of things, at least one, as text again.
    pub fn count(&self) -> Result<&str> {
        match self.value.parse::<u32>() {
            Ok(1..) => Ok(&self.value),
            _ => self.invalid("a whole number, 1 or more"),
        }
    }

    /// A size as a JVM takes it.
    pub fn jvm_size(&self) -> Result<&str> {
        let digits = self.value.trim_end_matches(['k', 'm', 'g', 'K', 'M', 'G']);
        match digits.parse::<u32>() {
            Ok(1..) if self.value.len() == digits.len() + 1 => Ok(&self.value),
            _ => self.invalid("a size such as 8g or 512m"),
        }
    }

    /// The first of `span` ports, none of them reserved for the system.
    pub fn port(&self, span: u16) -> Result<u16> {
        match self.value.parse::<u16>() {
            Ok(port @ 1024..) if port.checked_add(span).is_some() => Ok(port),
            _ => self.invalid("a port from 1024 on, with room for the ports after it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Setting {
        parse(&[text.to_owned()]).expect("parses").remove(0)
    }

    #[test]
    fn the_first_equals_sign_divides() {
        let setting = one("a.b=c=d e");
        assert_eq!((setting.key.as_str(), setting.value.as_str()), ("a.b", "c=d e"));
        assert_eq!(one("a=").value, "");
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        for text in ["heap", "=8g", "a b=c", "a=b\nc", "a\t=b"] {
            assert!(parse(&[text.to_owned()]).is_err(), "{text:?}");
        }
        assert!(parse(&["a=1".to_owned(), "a=2".to_owned()]).is_err());
    }

    #[test]
    fn values_are_checked() {
        assert!(one("a=true").boolean().is_ok() && one("a=yes").boolean().is_err());
        assert!(one("a=0.4").share().is_ok() && one("a=40").share().is_err() && one("a=NaN").share().is_err());
        assert!(one("a=30").count().is_ok() && one("a=0").count().is_err());
        assert!(one("a=8g").jvm_size().is_ok() && one("a=512M").jvm_size().is_ok());
        for size in ["a=8", "a=g", "a=8gg", "a=0g", "a=8gb", "a=-8g"] {
            assert!(one(size).jvm_size().is_err(), "{size}");
        }
        assert_eq!(one("a=17000").port(20).expect("fits"), 17_000);
        assert!(one("a=80").port(20).is_err() && one("a=65530").port(20).is_err());
    }

    #[test]
    fn an_unknown_key_brings_the_known_ones() {
        let known = [Known {
            key: "heap",
            meaning: "the heap",
        }];
        let error = one("haep=8g").unknown::<()>("hbase", &known, "").expect_err("unknown");
        let error = error.to_string();
        assert!(
            error.contains("\"haep\"") && error.contains("heap         the heap"),
            "{error}"
        );
    }
}
