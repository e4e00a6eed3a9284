//! The fields of keys, arguments and replies. Each has a name, and no position is written anywhere.
//!
//! A struct of `arguments` or `replies` lists its fields once. Rust fills in or reads the struct, and `text` replaces
//! the names in the Lua sources with positions. A field that is itself a struct is flattened: `policy.after` is
//! `policy_after` in Lua.

use std::sync::Arc;

use fred::types::Value;

/// Why a reply cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the script `{script}` answered something else than it should")]
pub(in crate::store) struct BadReply {
    pub(super) script: &'static str,
}

/// A field by its name in Lua.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct Field {
    pub(super) name: String,
    /// Whether it belongs to the list at the end, with one value for each entry.
    pub(super) each: bool,
}

/// The name of a field, with the name of the struct around it if there is one.
pub(super) fn joined(outer: &str, name: &str) -> String {
    if outer.is_empty() { name.to_owned() } else { format!("{outer}_{name}") }
}

/// A value that is passed to a script: a key, an argument, or a struct of them.
pub(in crate::store) trait Pass {
    /// Adds its fields.
    fn fields(name: &str, to: &mut Vec<Field>) {
        to.push(Field { name: name.to_owned(), each: false });
    }

    /// Adds its values, in the order of its fields.
    fn pass(self, to: &mut Vec<String>);
}

impl Pass for () {
    fn fields(_: &str, _: &mut Vec<Field>) {}

    fn pass(self, _: &mut Vec<String>) {}
}

macro_rules! pass_as_text {
    ($($type:ty),+) => {$(
        impl Pass for $type {
            fn pass(self, to: &mut Vec<String>) {
                to.push(self.to_string());
            }
        }
    )+};
}

pass_as_text!(u32, u64, i64, f64, &'static str, Arc<str>);

impl Pass for String {
    fn pass(self, to: &mut Vec<String>) {
        to.push(self);
    }
}

impl Pass for bool {
    fn pass(self, to: &mut Vec<String>) {
        to.push(if self { "1" } else { "0" }.to_owned());
    }
}

/// A part that may be missing at the end.
impl<P: Pass> Pass for Option<P> {
    fn fields(name: &str, to: &mut Vec<Field>) {
        P::fields(name, to);
    }

    fn pass(self, to: &mut Vec<String>) {
        if let Some(some) = self {
            some.pass(to);
        }
    }
}

/// A list, at the end.
impl<P: Pass> Pass for Vec<P> {
    fn fields(name: &str, to: &mut Vec<Field>) {
        let before = to.len();
        P::fields(name, to);
        to[before..].iter_mut().for_each(|field| field.each = true);
    }

    fn pass(self, to: &mut Vec<String>) {
        self.into_iter().for_each(|entry| entry.pass(to));
    }
}

/// Defines structs that are passed to scripts.
macro_rules! passed {
    ($($(#[$doc:meta])* struct $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)+
    })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub(in crate::store) struct $name {
            $($(#[$field_doc])* pub(in crate::store) $field: $type,)+
        }

        impl Pass for $name {
            fn fields(name: &str, to: &mut Vec<Field>) {
                $(<$type as Pass>::fields(&joined(name, stringify!($field)), to);)+
            }

            fn pass(self, to: &mut Vec<String>) {
                $(self.$field.pass(to);)+
            }
        }
    )+};
}

/// The values of a reply, in order.
pub(in crate::store) struct Values {
    script: &'static str,
    values: std::vec::IntoIter<Value>,
}

impl Values {
    pub(super) fn of(script: &'static str, reply: Value) -> Self {
        Self { script, values: reply.into_array().into_iter() }
    }

    pub(super) fn bad(&self) -> BadReply {
        BadReply { script: self.script }
    }

    pub(super) fn next(&mut self) -> Result<Value, BadReply> {
        self.values.next().ok_or(BadReply { script: self.script })
    }

    pub(super) fn whole(&mut self) -> Result<i64, BadReply> {
        self.next()?.as_i64().ok_or(BadReply { script: self.script })
    }

    pub(super) fn text(&mut self) -> Result<String, BadReply> {
        self.next()?.as_string().ok_or(BadReply { script: self.script })
    }

    pub(super) fn word<T: Copy>(&mut self, words: &[(&str, T)]) -> Result<T, BadReply> {
        let value = self.next()?;
        let found = words.iter().find(|(word, _)| value.as_str().is_some_and(|v| v == *word));
        found.map(|(_, meaning)| *meaning).ok_or_else(|| self.bad())
    }
}

/// A reply of a script: one value, or a struct of them. An unexpected shape or an impossible number is an error.
pub(in crate::store) trait Read: Sized {
    /// Adds its fields.
    fn fields(name: &str, to: &mut Vec<Field>) {
        to.push(Field { name: name.to_owned(), each: false });
    }

    /// Reads it.
    fn read(values: &mut Values) -> Result<Self, BadReply>;

    /// Reads a whole reply.
    fn reply(script: &'static str, reply: Value) -> Result<Self, BadReply> {
        Self::read(&mut Values::of(script, reply))
    }
}

/// A reply that is ignored.
impl Read for () {
    fn fields(_: &str, _: &mut Vec<Field>) {}

    fn read(_: &mut Values) -> Result<Self, BadReply> {
        Ok(())
    }
}

/// A reply that is a list, with the fields of an entry.
impl<R: Read> Read for Vec<R> {
    fn fields(name: &str, to: &mut Vec<Field>) {
        R::fields(name, to);
    }

    fn read(values: &mut Values) -> Result<Self, BadReply> {
        let (script, list) = (values.script, values.next()?);
        Self::reply(script, list)
    }

    fn reply(script: &'static str, reply: Value) -> Result<Self, BadReply> {
        let Value::Array(entries) = reply else { return Err(BadReply { script }) };
        entries.into_iter().map(|entry| R::reply(script, entry)).collect()
    }
}

/// Times are whole numbers in doubles, because Lua has no integers. Larger numbers would not be exact.
pub(super) const LATEST: i64 = 1 << 53;

/// Microseconds within the range of a script.
pub(in crate::store) fn sane(micros: i64) -> Option<i64> {
    (-LATEST..=LATEST).contains(&micros).then_some(micros)
}

/// A moment or a length in microseconds; 0 often means none.
impl Read for i64 {
    fn read(values: &mut Values) -> Result<Self, BadReply> {
        sane(values.whole()?).ok_or_else(|| values.bad())
    }
}

/// An epoch, or a count.
impl Read for u64 {
    fn read(values: &mut Values) -> Result<Self, BadReply> {
        Self::try_from(values.whole()?).map_err(|_| values.bad())
    }
}

/// A count.
impl Read for u32 {
    fn read(values: &mut Values) -> Result<Self, BadReply> {
        Self::try_from(values.whole()?).map_err(|_| values.bad())
    }
}

impl Read for bool {
    fn read(values: &mut Values) -> Result<Self, BadReply> {
        Ok(values.whole()? == 1)
    }
}

/// A rate, or a sum of weights.
impl Read for f64 {
    fn read(values: &mut Values) -> Result<Self, BadReply> {
        let value = values.next()?.as_f64().filter(|value| value.is_finite());
        value.ok_or_else(|| values.bad())
    }
}

impl Read for String {
    fn read(values: &mut Values) -> Result<Self, BadReply> {
        values.text()
    }
}

/// Lists the fields of a struct that is read from a reply.
macro_rules! fields_of {
    ($name:ident { $($field:ident: $type:ty),+ $(,)? }) => {
        impl Read for $name {
            fn fields(name: &str, to: &mut Vec<Field>) {
                $(<$type as Read>::fields(&joined(name, stringify!($field)), to);)+
            }

            fn read(values: &mut Values) -> Result<Self, BadReply> {
                $(let $field = <$type as Read>::read(values)?;)+
                Ok(Self { $($field),+ })
            }
        }
    };
}

/// Defines structs that are read from replies.
macro_rules! replied {
    ($($(#[$doc:meta])* struct $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)+
    })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub(in crate::store) struct $name {
            $($(#[$field_doc])* pub(in crate::store) $field: $type,)+
        }

        fields_of!($name { $($field: $type),+ });
    )+};
}

pub(super) use {fields_of, passed, replied};
